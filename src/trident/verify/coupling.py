"""Lemma 1: three controlled errors, one at a time and together, and what they do to the cost.

One step theta + eta x from a policy exactly at its limit, x the reward's gradient made safe in one of two ways:

    projected    x = g - max(0, g'b) / b'b  b          (first-order trust-region safety)
    multiplier   x = g - mu b, mu = g'b / b'b of the true gradients   (a Lagrangian at its balance)

with errors in the gradients (size beta), in the critic (root mean square), or a shaping term in the reward. The *leak*
is the rise of the true cost beyond that of the errorless step. How it scales is measured with errors of random
directions, how large it can get with the worst ones: to first order it is

    projected    eta (b - b_seen)'x_seen     largest for an error of b against the step itself
    multiplier   eta b'(e_g - mu e_b)        largest for both errors along b, with opposite signs if mu > 0

Then hundreds of rounds of whole updates with constant
errors: does the violation grow in proportion, and does it stop when one of the three errors is taken away?
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.report.stats import Estimate
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import fit_power, pooled_power, share
from trident.verify.plots import COLOURS, panels, slope_guide
from trident.verify.tabular_game import Game, evaluate, mix, random_game, stack
from trident.verify.tabular_update import PLAYERS, Injection, Rule, Style, by_rule, no_injection, play, side_by_side

AGENTS, STATES, MODES, GAMES = 2, 5, 3, 32
SIZES = (0.001, 0.002, 0.004, 0.008)
STEPS = (0.01, 0.02, 0.04, 0.08)
KINDS = ("gradient", "critic", "shaping")
WAYS = ("projected", "multiplier")
ROUNDS, SINCE = 512, 64
POINTS = (16, 32, 64, 128, 256, 512)
LASTING = {"gradient": 0.3, "critic": 0.3, "shaping": 0.3}
"""Sizes of the errors that stay for hundreds of rounds: the gradient's relative to its norm, the others' in units of
Q."""
PLAYED = ("as analysed", "trident", "macpo")
SUBSETS = {
    "none": (),
    "gradient": ("gradient",),
    "critic": ("critic",),
    "shaping": ("shaping",),
    "all": KINDS,
    "all but gradient": KINDS[1:],
    "all but critic": ("gradient", "shaping"),
    "all but shaping": KINDS[:2],
}


class Errors(NamedTuple):
    """Directions of unit size."""

    gradient: Any  # [2, D]
    critic: Any  # [S, A, 2]
    shaping: Any  # [S, A]


def measure(seed: int, say: Say) -> Data:
    with jax.enable_x64(True):
        games = [random_game(20_000 + 1000 * seed + i, states=STATES, agents=AGENTS, modes=MODES) for i in range(GAMES)]
        stacked = stack(games)
        rng = np.random.default_rng([seed, 8])
        theta = jnp.asarray(rng.normal(size=(GAMES, AGENTS * STATES * MODES)))
        errors = _directions(rng, stacked)
        say("single steps")
        single = _single(stacked, theta, errors)
        say("hundreds of rounds with lasting errors")
        return single | {"points": list(POINTS), "lasting": _lasting(stacked, errors)}


def _directions(rng: np.random.Generator, games: Game) -> Errors:
    actions = MODES**AGENTS
    gradient = rng.normal(size=(GAMES, 2, AGENTS * STATES * MODES))
    gradient /= np.linalg.norm(gradient, axis=-1, keepdims=True)
    return Errors(
        jnp.asarray(gradient),
        jnp.asarray(rng.normal(size=(GAMES, STATES, actions, 2))),
        jnp.asarray(rng.normal(size=(GAMES, STATES, actions))),
    )


def _cost(game: Game, theta: Any) -> Any:
    return evaluate(game, joint(theta)).total[1]


def joint(theta: Any) -> Any:
    return mix(list(jax.nn.softmax(theta.reshape(AGENTS, STATES, MODES), axis=-1)))


def true_gradients(game: Game, theta: Any) -> Any:
    """[2, D]: of the reward and of the cost."""
    now = evaluate(game, joint(theta))
    return jax.jacrev(lambda t: jnp.einsum("s,sa,saj->j", now.visits, joint(t), now.action))(theta)


def step(gradients: Any, way: str, balance: Any) -> Any:
    g, b = gradients
    price = jnp.maximum(g @ b, 0.0) / (b @ b) if way == "projected" else balance
    return g - price * b


def _balance(gradients: Any) -> Any:
    g, b = gradients
    return g @ b / (b @ b)


def leak(game: Game, theta: Any, errors: Errors, sizes: Any, eta: Any, way: str) -> Any:
    """Rise of the cost with errors of these sizes (gradient, critic, shaping), less that without."""
    beta, epsilon, omega = sizes
    estimated = game._replace(signals=game.signals.at[..., 0].add(omega * errors.shaping))
    now = evaluate(estimated, joint(theta))
    q = now.action + epsilon * errors.critic
    seen = jax.jacrev(lambda t: jnp.einsum("s,sa,saj->j", now.visits, joint(t), q))(theta) + beta * errors.gradient
    true = true_gradients(game, theta)

    def rise(x):
        return _cost(game, theta + eta * x)

    return rise(step(seen, way, _balance(true))) - rise(step(true, way, _balance(true)))


def worst_errors(game: Game, theta: Any, way: str) -> Any:
    """Directions of unit length [2, D] of the errors of (g, b) that leak most."""
    true = true_gradients(game, theta)
    along = true[1] / jnp.linalg.norm(true[1])
    if way == "multiplier":
        return jnp.stack([along, -jnp.sign(_balance(true)) * along])
    x = step(true, way, 0.0)
    return jnp.stack([along, -x / jnp.linalg.norm(x)])


def bounds(game: Game, theta: Any, way: str) -> tuple[Any, Any]:
    """(as printed, for the errors of both gradients) of the leak over eta beta."""
    true = true_gradients(game, theta)
    b, balance = jnp.linalg.norm(true[1]), _balance(true)
    second = jnp.linalg.norm(step(true, way, balance)) if way == "projected" else jnp.abs(balance) * b
    return b, b + second


def _single(games: Game, theta: Any, errors: Errors) -> Data:
    """way -> kind -> |leak| per game against the error's size and against eta; and how well the leaks add."""
    out: Data = {"sizes": list(SIZES), "steps": list(STEPS), "by_size": {}, "by_step": {}, "sum": {}, "bound": {}}
    size_of = {k: np.eye(3)[i] for i, k in enumerate(KINDS)}
    for way in WAYS:

        def one(g, t, e, sizes, eta, way=way):
            return leak(g, t, e, sizes, eta, way)

        run = jax.jit(jax.vmap(jax.vmap(one, (0, 0, 0, None, None)), (None, None, None, 0, 0)))
        cases = [(size_of[k] * s, STEPS[0]) for k in KINDS for s in SIZES]
        cases += [(size_of[k] * SIZES[-1], eta) for k in KINDS for eta in STEPS]
        cases += [(size_of[k] * SIZES[0], STEPS[0]) for k in KINDS] + [(np.full(3, SIZES[0]), STEPS[0])]
        found = np.asarray(run(games, theta, errors, *(jnp.asarray(np.array(x)) for x in zip(*cases, strict=True))))
        per = len(SIZES)
        out["by_size"][way] = {k: np.abs(found[i * per : (i + 1) * per]).T for i, k in enumerate(KINDS)}
        later = found[3 * per :]
        out["by_step"][way] = {k: np.abs(later[i * per : (i + 1) * per]).T for i, k in enumerate(KINDS)}
        singles, together = later[3 * per : 3 * per + 3], later[-1]
        out["sum"][way] = float(np.linalg.norm(together - singles.sum(axis=0)) / np.linalg.norm(singles.sum(axis=0)))
        out["bound"][way] = _over_bounds(games, theta, way, np.abs(found[0]))
    return out


def _over_bounds(games: Game, theta: Any, way: str, drawn: np.ndarray) -> Data:
    """Largest leak / bound over games, for errors of random (`drawn`: their leaks) and of the worst directions."""

    def worst(game: Game, t: Any) -> Any:
        errors = Errors(worst_errors(game, t, way), jnp.zeros(()), jnp.zeros(()))
        return leak(game, t, errors, jnp.array([SIZES[0], 0.0, 0.0]), STEPS[0], way), *bounds(game, t, way)

    aligned, printed, both = (np.asarray(x) for x in jax.jit(jax.vmap(worst))(games, theta))
    unit = STEPS[0] * SIZES[0]
    leaks = {"random": drawn, "worst": np.abs(aligned)}

    def over(bound):
        return {k: float(np.max(v / (unit * bound))) for k, v in leaks.items()}

    return {"printed": over(printed), "both": over(both)}


def _lasting(games: Game, errors: Errors) -> Data:
    """style -> subset of errors -> cumulative violation per game at the points."""
    empty = no_injection(AGENTS, STATES, MODES)
    start = jnp.zeros((AGENTS, STATES, MODES))

    def norm(game: Game) -> Any:
        flat = start.ravel()

        def total(t):
            return evaluate(game, joint(t)).total

        return jnp.linalg.norm(jax.jacrev(total)(flat), axis=-1)

    def one(game: Game, e: Errors, rule: Rule, style: Style, on: Any) -> Any:
        scale = LASTING["gradient"] * norm(game)
        pushed = (scale[:, None] * e.gradient).reshape(2, AGENTS, -1).swapaxes(0, 1)
        wrong = Injection(
            empty.gradient + on[0] * pushed,
            empty.critic + on[1] * LASTING["critic"] * e.critic,
            empty.shaping + on[2] * LASTING["shaping"] * e.shaping,
        )
        _, trace = play(rule, game, style, start, jnp.full(ROUNDS, 0.01), wrong)
        return jnp.cumsum(jnp.maximum(trace.total[:, 1] - game.limits[0], 0.0))[jnp.array(POINTS) - 1]

    cases = list(product(PLAYED, SUBSETS))
    on = jnp.array([[float(k in SUBSETS[subset]) for k in KINDS] for _, subset in cases])
    players = [PLAYERS[name] for name, _ in cases]
    out: Data = {name: {} for name in PLAYED}
    for rule, rows in by_rule(players).items():
        run = jax.jit(
            jax.vmap(
                jax.vmap(lambda g, e, s, o, rule=rule: one(g, e, rule, s, o), (0, 0, None, None)), (None, None, 0, 0)
            )
        )
        found = np.asarray(run(games, errors, side_by_side([players[i].style for i in rows]), on[jnp.array(rows)]))
        for i, sums in zip(rows, found, strict=True):
            name, subset = cases[i]
            out[name][subset] = sums + 1e-9
    return out


# --- judging --------------------------------------------------------------------------------------


def _order(data: Data, table: str, way: str, kind: str) -> Estimate:
    x = data["sizes" if table == "by_size" else "steps"]
    return pooled_power(x, np.array(data[table][way][kind])).exponent


def growth(data: Data, style: str, subset: str) -> Estimate:
    """Exponent, in rounds after the first `SINCE`, of the violation collected in them: the way to the limit from a bad
    start does not count."""
    return Estimate(*(round(x, 6) for x in pooled_power(*_later(data, style, subset)).exponent))


def _later(data: Data, style: str, subset: str) -> tuple[np.ndarray, np.ndarray]:
    points, rows = np.array(data["points"]), np.array(data["lasting"][style][subset])
    return points[points > SINCE] - SINCE, rows[:, points > SINCE] - rows[:, points == SINCE] + 1e-9


def growing(data: Data, style: str, subset: str) -> Estimate:
    """Share of games whose own violation grows in proportion: pooled curves are those of the games that do."""
    x, rows = _later(data, style, subset)
    hits = [row[-1] > 1e-3 and fit_power(x, row).exponent.value > 0.8 for row in rows]
    return share(sum(hits), len(hits))


def _judge_gradient(data: Data) -> Evidence:
    checks = [Check(f"{w}: exponent of beta", _order(data, "by_size", w, "gradient"), 0.9, 1.1) for w in WAYS]
    checks += [Check(f"{w}: exponent of eta", _order(data, "by_step", w, "gradient"), 0.9, 1.1) for w in WAYS]
    return Evidence(tuple(checks))


def _judge_bound(data: Data) -> Evidence:
    def of(bound, kind):
        return tuple(
            Check(f"{w}, {kind} errors: largest leak / bound", exact(data["bound"][w][bound][kind]), 0.0, 1.02)
            for w in WAYS
        )

    return Evidence((*of("printed", "random"), *of("printed", "worst")), (*of("both", "random"), *of("both", "worst")))


def _judge_critic(data: Data) -> Evidence:
    found = [(w, _order(data, "by_size", w, "critic")) for w in WAYS]

    def halved(e):
        return Estimate(*(x / 2.0 for x in e))

    steps = tuple(Check(f"{w}: exponent of eta", _order(data, "by_step", w, "critic"), 0.9, 1.1) for w in WAYS)
    return Evidence(
        (*(Check(f"{w}: exponent of the MSE", halved(e), 0.9, 1.1) for w, e in found), *steps),
        (*(Check(f"{w}: exponent of the RMSE", e, 0.9, 1.1) for w, e in found), *steps),
    )


def _judge_shaping(data: Data) -> Evidence:
    return Evidence(
        tuple(Check(f"{w}: exponent of eta", _order(data, "by_step", w, "shaping"), -0.2, 0.2) for w in WAYS),
        (
            Check("multiplier: exponent of eta", _order(data, "by_step", "multiplier", "shaping"), 0.9, 1.1),
            Check("multiplier: exponent of omega", _order(data, "by_size", "multiplier", "shaping"), 0.9, 1.1),
            Check("projected: exponent of eta", _order(data, "by_step", "projected", "shaping"), 1.8, 2.2),
        ),
    )


def _judge_sum(data: Data) -> Evidence:
    return Evidence(tuple(Check(f"{w}: |joint - sum| / |sum|", exact(data["sum"][w]), 0.0, 0.1) for w in WAYS))


def _grows(data: Data, name: str, subset: str, label: str, most: bool = True) -> tuple[Check, Check]:
    """In proportion to K in most games, or in some: the pooled exponent is that of the games that grow."""
    low, high = (0.5, 1.0) if most else (0.05, 0.5)
    return (
        Check(f"{label}: exponent of K", growth(data, name, subset), 0.8, 1.3),
        Check("share of games that grow so", growing(data, name, subset), low, high),
    )


def _judge_naive(data: Data) -> Evidence:
    """Two rules that would not violate in proportion to K without the errors."""
    ours = _grows(data, "trident", "all", "all errors, TRIDENT's rule")
    return Evidence((*ours, *_grows(data, "macpo", "all", "MACPO's rule")))


def _judge_removal(data: Data) -> Evidence:
    def of(most):
        return tuple(
            check
            for kind in KINDS
            for check in _grows(data, "trident", f"all but {kind}", f"all but {kind}", most or kind != "gradient")
        )

    return Evidence(of(True), of(False))


def _judge_each(data: Data) -> Evidence:
    def of(kind, most=True):
        return _grows(data, "trident", kind, f"{kind} alone", most)

    none = Check("shaping alone: exponent of K", growth(data, "trident", "shaping"), -0.2, 0.2)
    return Evidence(tuple(c for k in KINDS for c in of(k)), (*of("gradient"), *of("critic", most=False), none))


def draw(data: Data, path: Path) -> None:
    def by_step(way: str) -> Any:
        def panel(ax: Any) -> None:
            top = 0.0
            for kind, colour in zip(KINDS, COLOURS, strict=False):
                mean = np.sqrt(np.mean(np.square(data["by_step"][way][kind]), axis=0))
                top = max(top, mean.max())
                ax.loglog(data["steps"], mean, "o-", ms=4, color=colour, label=f"error in the {kind}")
            slope_guide(ax, np.array(data["steps"]), 1.0, 2.0 * top)
            slope_guide(ax, np.array(data["steps"]), 2.0, 2.0 * top)
            ax.set(title=f"{way}: leak of one step", xlabel="step size eta", ylim=(None, 30.0 * top))
            ax.legend(loc="upper left")
            ax.set_xticks(data["steps"], [f"{s:g}" for s in data["steps"]])
            ax.minorticks_off()

        return panel

    def lasting(ax: Any) -> None:
        for (subset, rows), colour in zip(data["lasting"]["trident"].items(), COLOURS, strict=True):
            style = "o--" if subset.startswith("all but") else "o-"
            ax.loglog(data["points"], np.mean(rows, axis=0), style, ms=3, color=colour, label=subset)
        slope_guide(ax, np.array(data["points"]), 1.0, 200.0)
        ax.set(title="cumulative violation with lasting errors", xlabel="rounds K")
        ax.set_xticks(data["points"], [str(p) for p in data["points"]])
        ax.minorticks_off()
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="errors")

    panels(path, "Lemma 1: errors that leak into the cost", [by_step("projected"), by_step("multiplier"), lasting])


CLAIMS = (
    Claim(
        "leak-gradient",
        "Lemma 1, term 1",
        "the leak is proportional to eta and to the gradient's bias",
        _judge_gradient,
    ),
    Claim(
        "leak-bound",
        "Lemma 1, term 1",
        "the leak is at most eta beta |grad A_c|",
        _judge_bound,
        "eta beta (|grad A_c| + w) for errors of both gradients; w: |step| if projected, |mu grad A_c| with mu",
    ),
    Claim(
        "leak-critic",
        "Lemma 1, term 2",
        "the leak is proportional to the critic's mean squared error",
        _judge_critic,
        "to its root mean square",
    ),
    Claim(
        "leak-shaping",
        "Lemma 1, term 3",
        "shaping leaks independently of the step size",
        _judge_shaping,
        "in proportion to eta and omega with a multiplier; not at all to first order with a projection",
    ),
    Claim("leaks-add", "Lemma 1", "the three leaks add", _judge_sum),
    Claim("naive-linear", "section 4", "with all three errors any rule violates in proportion to K", _judge_naive),
    Claim(
        "one-removed",
        "appendices B and K",
        "removing one error leaves growth in proportion to K",
        _judge_removal,
        "in most games, but in few of them if it is the gradient's",
    ),
    Claim(
        "each-leaks",
        "section 4",
        "each of the three errors alone makes the violation grow in proportion to K",
        _judge_each,
        "the gradient's in most games, the critic's in some; shaping moves the optimum, not the cost",
    ),
)

EXPERIMENT = Experiment("coupling", "controlled errors and the violations they cause", measure, CLAIMS, draw)
