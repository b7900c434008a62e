"""Single rounds of the constrained update on tabular games: contraction, drift, the sharing of a budget; and the
printed conditions and steps beside them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.verify.claim import Data
from trident.verify.game import Game, evaluate, mix, random_game
from trident.verify.play import Style, no_injection, update

AGENTS, STATES, MODES = 2, 5, 3
GAMES = 12
DELTAS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
ALPHAS = (0.05, 0.1, 0.2)
"""Beyond this the trust region, not the target, ends the step."""
PRINTED_RATE = 1e-4


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


def _play_cases(cases: dict[str, list[Case]]) -> dict[str, Outcome]:
    every = [case for group in cases.values() for case in group]
    agents, states, modes = every[0].logits.shape
    wrong = no_injection(agents, states, modes)

    def one(case: Case) -> Outcome:
        new, trace = update("natural", case.game, case.style, case.logits, case.delta, wrong, jnp.zeros(1))
        after = evaluate(case.game, mix(list(jax.nn.softmax(new, axis=-1)))).total
        return Outcome(trace.total[1], after[1], trace.budget[0])

    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y, jnp.float64) for y in x]), *every)
    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(stacked))
    out, at = {}, 0
    for name, group in cases.items():
        out[name] = Outcome(*(x[at : at + len(group)] for x in found))
        at += len(group)
    return out


def _cost(game: Game, logits: Any) -> float:
    return float(evaluate(game, mix(list(jax.nn.softmax(logits, axis=-1)))).total[1])


def single_rounds(games: list[Game]) -> Data:
    """Contraction from 5 % above the limit, drift with and without slack, and the sharing of a small budget."""
    rng = np.random.default_rng(0)
    even = jnp.zeros((AGENTS, STATES, MODES))
    starts = [jnp.asarray(rng.normal(size=even.shape)) for _ in games]
    costs, drawn = [_cost(g, even) for g in games], [_cost(g, t) for g, t in zip(games, starts, strict=True)]
    limited = lambda g, d: g._replace(limits=jnp.array([d]))  # noqa: E731
    whole = Style(alpha=1.0)
    cases: dict[str, list[Case]] = {
        "contraction": [
            Case(Style(alpha=a), 0.003, limited(g, c / 1.05), even)
            for a in ALPHAS
            for g, c in zip(games, costs, strict=True)
        ],
        "sharing": _sharing_cases(games, costs, even),
    }
    for name, extra in (("slack", 100.0), ("limit", 0.0)):
        cases[name] = [
            Case(whole, d, limited(g, c + extra), t)
            for d in DELTAS for g, c, t in zip(games, drawn, starts, strict=True)
        ]  # fmt: skip
    found = _play_cases(cases)
    push = found["contraction"]
    limits = np.tile(np.array(costs) / 1.05, len(ALPHAS))
    factor = (push.after - limits) / (push.before - limits)
    rise = {k: (found[k].after - found[k].before).reshape(len(DELTAS), -1).T for k in ("slack", "limit")}
    return {
        "contraction": {"alpha": list(ALPHAS), "factor": factor.reshape(len(ALPHAS), -1)},
        "drift": {"delta": list(DELTAS)} | {k: v[np.all(v > 1e-9, axis=1)] for k, v in rise.items()},
        "sharing": _shares(found["sharing"]),
    }


def _sharing_cases(games: list[Game], costs: list[float], even: Any) -> list[Case]:
    """From 0.02 below the limit, where every agent alone would spend more than that."""
    styles = (Style(alpha=1.0), Style(alpha=1.0, shared=0.0, sequential=0.0))
    near = [g._replace(limits=jnp.array([c + 0.02])) for g, c in zip(games, costs, strict=True)]
    return [Case(style, 0.003, g, even) for style in styles for g in near]


def _shares(found: Outcome) -> Data:
    """Rise of the cost / budget."""
    used = ((found.after - found.before) / found.budget).reshape(2, -1)
    return {"shared": used[0], "per agent": used[1]}


def sharing_of_four(seed: int) -> Data:
    games = [random_game(1000 * seed + i, states=3, agents=4, modes=2) for i in range(GAMES)]
    even = jnp.zeros((4, 3, 2))
    cases = {"sharing": _sharing_cases(games, [_cost(g, even) for g in games], even)}
    return _shares(_play_cases(cases)["sharing"])


def printed_recovery(games: Game) -> list[float]:
    """Excess after theta - 1e-4 grad V_c (all agents at once) over excess before."""

    def factor(game: Game) -> Any:
        cost = lambda t: evaluate(game, mix(list(jax.nn.softmax(t, axis=-1)))).total[1]  # noqa: E731
        theta = jnp.zeros((AGENTS, STATES, MODES))
        limit = cost(theta) / 1.05
        return (cost(theta - PRINTED_RATE * jax.grad(cost)(theta)) - limit) / (cost(theta) - limit)

    return np.asarray(jax.jit(jax.vmap(factor))(games)).tolist()


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
