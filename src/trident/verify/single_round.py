"""Theorem 2 on tabular games, in single rounds: contraction, recovery, drift and the sharing of a budget; and the
printed conditions and steps beside them. Intervals are over games."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.maths.trust_region import RECOVERY
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import fit_power, fit_powers, mean_interval, share
from trident.verify.plots import COLOURS, panels
from trident.verify.tabular_game import Game, evaluate, mix, playable_games, random_game
from trident.verify.tabular_update import Rule, Style, no_injection, update

AGENTS, STATES, MODES = 2, 5, 3
GAMES = 32
DELTAS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
ALPHAS = (0.05, 0.1, 0.2)
"""Beyond this the trust region, not the target, ends the step."""
OURS = Rule()
FORCED = 0.95
"""Share of the asked decrease that the trust region can give where recovery is forced."""


def measure(seed: int, say: Say) -> Data:
    with jax.enable_x64(True):
        found = playable_games(GAMES, first=1000 * seed, states=STATES, agents=AGENTS, modes=MODES)
        games = [g for g, _ in found]
        say("contraction and drift of single rounds")
        single = single_rounds(games)
        single["sharing"] = {str(AGENTS): single["sharing"], "4": sharing_of_four(seed)}
        say("recovery, ours and the printed one")
        single["recovery"] = forced_recovery(games)
        say("the per-state condition")
        return single | {"per_state": per_state(seed)}


class Case(NamedTuple):
    """One round from these logits; stacked along a leading axis, one program runs them all."""

    style: Style
    delta: Any
    game: Game
    logits: Any


class Outcome(NamedTuple):
    before: Any  # cost
    after: Any
    budget: Any
    kind: Any  # of every agent's update


def _play_cases(cases: dict[str, list[Case]], rule: Rule = OURS) -> dict[str, Outcome]:
    every = [case for group in cases.values() for case in group]
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y, jnp.float64) for y in x]), *every)
    found = jax.tree.map(np.asarray, _play_all(rule, stacked))
    out, at = {}, 0
    for name, group in cases.items():
        out[name] = Outcome(*(x[at : at + len(group)] for x in found))
        at += len(group)
    return out


@partial(jax.jit, static_argnums=0)
def _play_all(rule: Rule, cases: Case) -> Outcome:
    wrong = no_injection(*cases.logits.shape[1:])

    def one(case: Case) -> Outcome:
        new, trace = update(rule, case.game, case.style, case.logits, case.delta, wrong, jnp.zeros(1))
        after = evaluate(case.game, mix(list(jax.nn.softmax(new, axis=-1)))).total
        return Outcome(trace.total[1], after[1], trace.budget[0], trace.kind)

    return jax.vmap(one)(cases)


def _cost(game: Game, logits: Any) -> float:
    return float(evaluate(game, mix(list(jax.nn.softmax(logits, axis=-1)))).total[1])


def _limited(game: Game, limit: float) -> Game:
    return game._replace(limits=jnp.array([limit]))


def single_rounds(games: list[Game]) -> Data:
    """Contraction from 5 % above the limit, drift with and without slack, and the sharing of a small budget."""
    rng = np.random.default_rng(0)
    even = jnp.zeros((AGENTS, STATES, MODES))
    starts = [jnp.asarray(rng.normal(size=even.shape)) for _ in games]
    costs, drawn = [_cost(g, even) for g in games], [_cost(g, t) for g, t in zip(games, starts, strict=True)]
    whole = Style(alpha=1.0)
    cases: dict[str, list[Case]] = {
        "contraction": [
            Case(Style(alpha=a), 0.003, _limited(g, c / 1.05), even)
            for a in ALPHAS
            for g, c in zip(games, costs, strict=True)
        ],
        "sharing": _sharing_cases(games, costs, even),
    }
    for name, extra in (("slack", 100.0), ("limit", 0.0)):
        cases[name] = [
            Case(whole, d, _limited(g, c + extra), t)
            for d in DELTAS
            for g, c, t in zip(games, drawn, starts, strict=True)
        ]
    found = _play_cases(cases)
    push = found["contraction"]
    rise = {k: (found[k].after - found[k].before).reshape(len(DELTAS), -1).T for k in ("slack", "limit")}
    return {
        "alphas": list(ALPHAS),
        "contraction": {"factor": _factor(push, costs), "recovered": float(np.mean(push.kind == RECOVERY))},
        # a step that does not raise the cost at every delta has no exponent
        "drift": {"delta": list(DELTAS), "games": len(games)}
        | {k: v[np.all(v > 1e-9, axis=1)] for k, v in rise.items()},
        "sharing": _shares(found["sharing"]),
    }


def _factor(found: Outcome, costs: list[float]) -> np.ndarray:
    """Excess after / before [alphas, games], from 5 % above the limit."""
    limits = np.tile(np.array(costs) / 1.05, len(ALPHAS))
    return ((found.after - limits) / (found.before - limits)).reshape(len(ALPHAS), -1)


def forced_recovery(games: list[Game]) -> Data:
    """As the contraction above, through the recovery branch: the whole decrease is asked for, and the trust region is
    so small that only `FORCED` of it can be had, which makes the constrained step impossible for every agent."""
    even = jnp.zeros((AGENTS, STATES, MODES))
    costs = [_cost(g, even) for g in games]
    above = [_limited(g, c / 1.05) for g, c in zip(games, costs, strict=True)]
    ours, hopeless, small = OURS._replace(demands="whole"), Style(alpha=1.0, searched=1.0), 1e-5
    tried = [Case(hopeless, small, g, even) for g in above] * len(ALPHAS)  # as many as below: compiled once
    found = _play_cases({"reach": tried}, ours)["reach"]
    reach = (found.before - found.after)[: len(games)]
    cases = []
    for alpha in ALPHAS:
        asked = alpha * np.array(costs) * (1.0 - 1.0 / 1.05)
        deltas = small * (FORCED * asked / reach) ** 2  # a step's length is ~ sqrt(delta)
        style = Style(alpha=alpha, searched=1.0)
        cases += [Case(style, d, g, even) for d, g in zip(deltas, above, strict=True)]
    out: Data = {}
    for name, rule in (("ours", ours), ("printed", ours._replace(recovery="paper"))):
        found = _play_cases({"push": cases}, rule)["push"]
        out[name] = {"factor": _factor(found, costs), "recovered": float(np.mean(found.kind == RECOVERY))}
    return out


def _sharing_cases(games: list[Game], costs: list[float], even: Any) -> list[Case]:
    """From 0.02 below the limit, where every agent alone would spend more than that."""
    styles = (Style(alpha=1.0), Style(alpha=1.0, shared=0.0, sequential=0.0))
    near = [_limited(g, c + 0.02) for g, c in zip(games, costs, strict=True)]
    return [Case(style, 0.003, g, even) for style in styles for g in near]


def _shares(found: Outcome) -> Data:
    """Rise of the cost / budget."""
    used = ((found.after - found.before) / found.budget).reshape(2, -1)
    return {"shared": used[0], "per agent": used[1]}


def sharing_of_four(seed: int) -> Data:
    games = [random_game(1000 * seed + i, states=3, agents=4, modes=2) for i in range(12)]
    even = jnp.zeros((4, 3, 2))
    cases = {"sharing": _sharing_cases(games, [_cost(g, even) for g in games], even)}
    return _shares(_play_cases(cases)["sharing"])


def per_state(seed: int, count: int = 400, alpha: float = 0.2) -> Data:
    """The printed condition E[L(s')] - L(s) <= -alpha (L(s) - d) for all s, against the contraction of the value.

    unchanged: policies within the limit from every state that break the condition without being changed at all.
    misled: among new policies that meet it, the share whose value does not contract: with one state the condition says
    nothing of the new policy.
    """
    rng = np.random.default_rng([seed, 7])
    broken = total = passed = misled = 0
    for i in range(count):
        states = 1 if i % 2 else 4
        game = random_game(5000 + 1000 * seed + i, states=states, agents=1, modes=4)
        moves, cost = np.asarray(game.transition), np.asarray(game.signals)[..., 1]

        def value_of(pi: np.ndarray, moves: np.ndarray = moves, cost: np.ndarray = cost) -> np.ndarray:
            system = np.eye(len(pi)) - 0.9 * np.einsum("sa,sat->st", pi, moves)
            return np.linalg.solve(system, np.sum(pi * cost, axis=-1))

        old, new = (rng.dirichlet(np.ones(4), size=states) for _ in range(2))
        value, start = value_of(old), np.asarray(game.start)
        limit = float(value.max() * 1.05)
        room = -alpha * (value - limit) + 1e-12
        breaks = [bool(np.any(np.einsum("sa,sat,t->s", pi, moves, value) - value > room)) for pi in (old, new)]
        if states > 1:
            total, broken = total + 1, broken + breaks[0]
        if not breaks[1]:
            contracts = start @ value_of(new) - limit <= (1.0 - alpha) * (start @ value - limit) + 1e-12
            passed, misled = passed + 1, misled + (not contracts)
    return {"unchanged": [broken, total], "misled": [misled, passed]}


# --- judging --------------------------------------------------------------------------------------


def _delivered(data: Data, rows: Data, label: str) -> tuple[Check, ...]:
    """(1 - factor) / alpha: 1 is the asked contraction, 0 none."""
    found = zip(data["alphas"], np.array(rows["factor"]), strict=True)
    return tuple(
        Check(f"{label}, alpha = {a:g}: (1 - factor) / alpha", mean_interval((1.0 - f) / a), 0.9, 1.1) for a, f in found
    )


def _judge_recovery(data: Data) -> Evidence:
    ours, printed = data["recovery"]["ours"], data["recovery"]["printed"]

    def ran(rows):
        return Check("share of steps that were recoveries", exact(rows["recovered"]), 1.0, 1.0)

    return Evidence(
        (*_delivered(data, printed, "printed step"), ran(printed)), (*_delivered(data, ours, "our step"), ran(ours))
    )


def _judge_drift(data: Data) -> Evidence:
    rows = data["drift"]
    slack, limit = (fit_powers(rows["delta"], np.array(rows[k])).exponent for k in ("slack", "limit"))
    kept = {k: f"{len(rows[k])} of {rows['games']} games" for k in ("slack", "limit")}
    return Evidence(
        (Check(f"exponent of delta in the drift, {kept['slack']}", slack, 0.85, 1.2),),
        (
            Check(f"drift with slack: exponent, {kept['slack']}", slack, 0.4, 0.6),
            Check(f"rise above the limit: exponent, {kept['limit']}", limit, 0.8, 1.3),
        ),
    )


def _judge_sharing(data: Data) -> Evidence:
    used = data["sharing"]
    return Evidence(
        tuple(Check(f"{n} agents: cost spent / budget", mean_interval(used[n]["per agent"]), high=1.1) for n in used),
        tuple(Check(f"{n} agents, shared", mean_interval(used[n]["shared"]), high=1.1) for n in used),
    )


def _judge_per_state(data: Data) -> Evidence:
    rows = data["per_state"]
    return Evidence(
        (
            Check("feasible, unchanged policies that break it", share(*rows["unchanged"]), 0.0, 0.05),
            Check("policies that keep it but do not contract", share(*rows["misled"]), 0.0, 0.05),
        ),
        _delivered(data, data["contraction"], "constrained step"),
    )


def draw(data: Data, path: Path) -> None:
    def drift(ax: Any) -> None:
        x = np.array(data["drift"]["delta"])
        for key, colour, label in (("slack", COLOURS[1], "with slack"), ("limit", COLOURS[0], "at the limit")):
            mean = np.mean(data["drift"][key], axis=0)
            ax.loglog(x, mean, "o-", ms=4, color=colour, label=label)
            exponent = fit_power(x, mean).exponent.value
            ax.annotate(
                f"exponent {exponent:.2f}",
                (x[2], mean[2]),
                xytext=(6, -12),
                color=colour,
                textcoords="offset points",
                fontsize=8.5,
            )
        ax.set(title="rise of the cost in one round", xlabel="trust region delta")
        ax.legend(loc="upper left")

    def factor(ax: Any) -> None:
        alphas = data["alphas"]
        shown = (
            ("constrained step", data["contraction"]),
            ("recovery", data["recovery"]["ours"]),
            ("printed recovery", data["recovery"]["printed"]),
        )
        for i, (name, rows) in enumerate(shown):
            places = np.arange(len(alphas)) + 0.22 * (i - 1)
            for place, found in zip(places, np.array(rows["factor"]), strict=True):
                ax.plot(np.full(len(found), place), found, "o", ms=3, alpha=0.5, color=COLOURS[i])
            ax.plot([], [], "o", color=COLOURS[i], label=name)
        for i, a in enumerate(alphas):
            ax.plot([i - 0.4, i + 0.4], [1 - a, 1 - a], lw=2, color=COLOURS[5], label="1 - alpha" if i == 0 else None)
        ax.set_xticks(range(len(alphas)), [f"alpha {a:g}" for a in alphas])
        ax.set(title="excess after a round / before", ylim=(0.6, 1.05))
        ax.legend(loc="lower left")

    panels(path, "Theorem 2 on tabular games: single rounds", [drift, factor])


CLAIMS = (
    Claim(
        "recovery",
        "Eq. (5), appendix E",
        "the recovery step gives the contraction 1 - alpha",
        _judge_recovery,
        "a natural step sized by the target does; a fixed rate of 1e-4 does not",
    ),
    Claim(
        "drift",
        "appendix E, case A",
        "the cost of a feasible step drifts by O(delta)",
        _judge_drift,
        "the drift is O(sqrt delta); only the rise above the limit is O(delta)",
    ),
    Claim(
        "budget",
        "Eq. (4)",
        "the printed constraint for every agent keeps the team's budget",
        _judge_sharing,
        "one budget that the agents share does",
    ),
    Claim(
        "per-state",
        "Eq. (3)",
        "the per-state drift condition is the contraction of the violation",
        _judge_per_state,
        "the contraction must be asked of the value",
    ),
)

EXPERIMENT = Experiment("rounds", "single rounds: contraction, recovery, drift, budget", measure, CLAIMS, draw)
