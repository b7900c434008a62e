"""What physics may do to the fixed point: a residual critic leaves it alone, additive shaping does not.

The residual critic is the project's own (`critics.td_step`) with a linear network on one-hot inputs, which is a table:
its TD fixed point is compared with dynamic programming for arbitrary closed forms. Shaping is judged by the optimal
policies of random games, exactly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trident import physics_value
from trident.algos.common.central_critic import critic_of_vector, vector_input
from trident.algos.trident import critics as pirc
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import share
from trident.verify.plots import COLOURS, panels
from trident.verify.tabular_game import Solver, random_game, solver_of

WEIGHTS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""omega of r + omega Q_phys"""
GAMES = 200
DISCOUNT = 0.9


def measure(seed: int, say: Say) -> Data:
    say("fixed point of the residual critic")
    with jax.enable_x64(True):
        fixed = _fixed_points(seed)
    say("optimal policies of shaped games")
    return {
        "fixed_point_error": fixed,
        "shaping": _shaping(seed),
        "weights": list(WEIGHTS),
        "games": GAMES,
        "counterexample": counterexample(),
    }


def _fixed_points(seed: int, states: int = 6, actions: int = 3, steps: int = 6000) -> dict[str, float]:
    """Largest |Q_phys + Q_res - Q| after TD has converged, for several closed forms."""
    rng = np.random.default_rng([seed, 3])
    following = rng.integers(states, size=(states, actions))  # deterministic, so that one batch is the whole truth
    policy, reward = rng.integers(actions, size=states), rng.normal(size=(states, actions))
    moves = np.zeros((states * actions, states * actions))
    moves[np.arange(states * actions), (following * actions + policy[following]).ravel()] = 1.0
    truth = np.linalg.solve(np.eye(states * actions) - DISCOUNT * moves, reward.ravel())
    forms = {
        "none": 0.0 * truth,
        "the truth": truth,
        "wrong": 5.0 * rng.normal(size=truth.shape),
        "constant": 0.0 * truth + 7.0,
    }
    learn = jax.jit(lambda q: _learn(q, jnp.asarray(moves), jnp.asarray(reward.ravel()), steps))
    return {name: float(np.abs(np.asarray(learn(jnp.asarray(q))) - truth).max()) for name, q in forms.items()}


def _learn(q_phys: Any, moves: Any, reward: Any, steps: int) -> Any:
    size = len(reward)
    one = jnp.ones(1)
    fit = physics_value.PhysicsFit(0.0 * one, 0.0 * one, 0.0 * one, one)
    one_layer = critic_of_vector(size, ())
    bodies = pirc.Bodies(one_layer, one_layer)
    table = jax.tree.map(lambda x: x.astype(jnp.float64), pirc.init(jax.random.key(0), bodies, 0))
    batch = pirc.CriticBatch(
        x=vector_input(jnp.eye(size)),
        q_phys=q_phys[:, None],
        signals=reward[:, None],
        next_x=vector_input(moves),
        next_q_phys=(moves @ q_phys)[:, None],
        terminated=jnp.zeros(size, bool),
    )
    descent = optax.sgd(0.9)

    def step(carry: Any, _: Any) -> Any:
        critics, target, opt = carry
        critics, target, opt, _ = pirc.td_step(bodies, critics, target, opt, descent, fit, batch, DISCOUNT * one, 1.0)
        return (critics, target, opt), None

    (table, _, _), _ = jax.lax.scan(step, (table, table, descent.init(table)), None, length=steps)
    return q_phys + pirc.residual(bodies, table, vector_input(jnp.eye(size)))[:, 0]


def counterexample(weight: float = 0.5) -> Data:
    """One state, two actions with rewards 1 and 0.9, Q_phys = 0 and 1: the best action without shaping, with it added
    to the reward, in the residual critic's fixed point, and with a difference of potentials."""
    reward, q_phys = np.array([[1.0, 0.9]]), np.array([[0.0, 1.0]])
    plain = Solver(np.ones((1, 2, 1)), reward[..., None], np.ones(1), DISCOUNT)

    def best(r):
        return int(plain._replace(signals=r[..., None]).best(np.ones(1))[0])

    after = best(reward)
    following = np.zeros((2, 2))
    following[:, after] = 1.0  # the policy that takes the best action ever after
    with jax.enable_x64(True):
        learned = _learn(jnp.asarray(q_phys[0]), jnp.asarray(following), jnp.asarray(reward[0]), 6000)
    potential = np.array([3.0])
    return {
        "plain": after,
        "additive": best(reward + weight * q_phys),
        "residual": int(np.argmax(np.asarray(learned))),
        "potential": best(reward + DISCOUNT * potential[0] - potential[:, None]),
    }


def _shaping(seed: int) -> dict[str, list[int]]:
    """How many games get another optimal policy, per weight: by a rough Q*, by Q* itself, by a potential."""
    changed = {name: [0] * len(WEIGHTS) for name in ("rough Q*", "exact Q*", "potential")}
    rng = np.random.default_rng([seed, 4])
    for i in range(GAMES):
        game = solver_of(random_game(10_000 * seed + i, states=4, agents=2, modes=2))
        reward = game.signals[..., :1]
        plain = game._replace(signals=reward)
        best = plain.best(np.ones(1))
        q = plain.evaluate(best)[1]
        rough = q + 0.5 * q.std() * rng.normal(size=q.shape)
        potential = 10.0 * rng.normal(size=len(game.start))
        difference = (game.discount * game.transition @ potential - potential[:, None])[..., None]
        for name, bonus in (("rough Q*", rough), ("exact Q*", q), ("potential", difference)):
            for k, weight in enumerate(WEIGHTS):
                shaped = plain._replace(signals=reward + weight * bonus)
                changed[name][k] += bool(np.any(shaped.best(np.ones(1)) != best))
    return changed


# --- judging --------------------------------------------------------------------------------------


def _judge_residual(data: Data) -> Evidence:
    return Evidence(
        (
            Check("largest error of the fixed point", exact(max(data["fixed_point_error"].values())), 0.0, 1e-6),
            Check("counterexample: best action", exact(data["counterexample"]["residual"]), 0.0, 0.0),
        )
    )


def _judge_additive(data: Data) -> Evidence:
    at, found = WEIGHTS.index(0.5), data["counterexample"]
    return Evidence(
        (
            Check(
                "games with another optimum, omega = 0.5", share(data["shaping"]["rough Q*"][at], data["games"]), 0.1
            ),
            Check("counterexample: best action", exact(found["plain"]), 0.0, 0.0),
            Check("with shaping", exact(found["additive"]), 1.0, 1.0),
        )
    )


def _judge_potential(data: Data) -> Evidence:
    return Evidence(
        (
            Check("games with another optimum, any omega", exact(max(data["shaping"]["potential"])), 0.0, 0.0),
            Check("counterexample: best action", exact(data["counterexample"]["potential"]), 0.0, 0.0),
        )
    )


def draw(data: Data, path: Path) -> None:
    def changed(ax: Any) -> None:
        for (name, hits), colour in zip(data["shaping"].items(), (COLOURS[5], COLOURS[1], COLOURS[0]), strict=True):
            ax.plot(data["weights"], 100.0 * np.array(hits) / data["games"], "o-", ms=4, color=colour, label=name)
        ax.set(
            title="games whose optimal policy shaping changes", xlabel="weight of the shaping", ylabel="%", xscale="log"
        )

    def fixed(ax: Any) -> None:
        names = list(data["fixed_point_error"])
        ax.bar(names, [max(v, 1e-16) for v in data["fixed_point_error"].values()], color=COLOURS[0], width=0.6)
        ax.set(title="residual critic: error of its fixed point", yscale="log", ylim=(1e-16, 1), xlabel="closed form")

    panels(path, "Theorem 3: invariance", [changed, fixed])


CLAIMS = (
    Claim(
        "residual",
        "section 5.3, appendix K",
        "the residual critic keeps the Bellman fixed point, whatever Q_phys",
        _judge_residual,
    ),
    Claim(
        "shaping",
        "section 5.3, Lemma 1 term 3",
        "additive shaping by Q_phys changes the optimal policy",
        _judge_additive,
    ),
    Claim("potential", "appendix K", "potential-based shaping does not", _judge_potential),
)

EXPERIMENT = Experiment("invariance", "fixed points under residual physics and under shaping", measure, CLAIMS, draw)
