"""A small constrained multi-agent Markov game, solved exactly.

S states, N agents with M modes each, one shared reward and K costs, discount gamma, start distribution rho. A joint
policy is a product of softmax policies with one logit per agent, state and mode; its values are linear systems:

    V_j = (I - gamma P_pi)^-1 r_j,    visits = rho' (I - gamma P_pi)^-1,    grad by differentiation through both.

The best value under one constraint is that of the occupancy linear program. With a single constraint its dual is a
function of one multiplier, V* = min_mu max_pi V - mu (V_c - d), and bisection on mu with policy iteration inside is
exact up to rounding. The optimum may be a correlated policy; `product_optimum` tells whether independent agents can
play it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

AXES = "abcd"


class Game(NamedTuple):
    """Joint actions are flattened, the last agent fastest."""

    transition: Float[Array, "S A S"]
    signals: Float[Array, "S A J"]  # reward, then costs
    start: Float[Array, "S"]
    limits: Float[Array, "K"]  # on the discounted costs from the start distribution
    discount: Any  # a number; an array in a stack of games


class Values(NamedTuple):
    total: Float[Array, "J"]  # from the start distribution
    state: Float[Array, "S J"]
    action: Float[Array, "S A J"]  # Q
    visits: Float[Array, "S"]  # discounted, summing to 1 / (1 - gamma)


def mix(pis: list[Float[Array, "S M"]]) -> Float[Array, "S A"]:
    """The product of the agents' policies."""
    letters = AXES[: len(pis)]
    equation = ",".join(f"s{x}" for x in letters) + "->s" + letters
    return jnp.einsum(equation, *pis).reshape(pis[0].shape[0], -1)


def evaluate(game: Game, policy: Float[Array, "S A"]) -> Values:
    moves = jnp.einsum("sa,sat->st", policy, game.transition)
    rewards = jnp.einsum("sa,saj->sj", policy, game.signals)
    system = jnp.eye(moves.shape[0], dtype=moves.dtype) - game.discount * moves
    state = jnp.linalg.solve(system, rewards)
    action = game.signals + game.discount * jnp.einsum("sat,tj->saj", game.transition, state)
    visits = jnp.linalg.solve(system.T, game.start)
    return Values(game.start @ state, state, action, visits)


def random_game(
    seed: int,
    *,
    states: int = 5,
    agents: int = 2,
    modes: int = 3,
    costs: int = 1,
    discount: float = 0.9,
    tightness: float = 0.5,
) -> Game:
    """Garnet-like: every joint action leads to two or three states; what pays tends to cost. The limit lies the share
    `tightness` of the way from the best unconstrained policy's cost down to the least possible one."""
    rng = np.random.default_rng([seed, states, agents, modes])
    actions = modes**agents
    weights = rng.exponential(size=(states, actions, states)) * (rng.random((states, actions, states)) < 0.5)
    weights[..., 0] += 0.05
    reward = rng.random((states, actions))
    cost = 0.6 * reward[..., None] + 0.4 * rng.random((states, actions, costs))
    game = Game(
        jnp.asarray(weights / weights.sum(axis=-1, keepdims=True)),
        jnp.asarray(np.concatenate([reward[..., None], cost], axis=-1)),
        jnp.asarray(rng.dirichlet(np.ones(states))),
        jnp.zeros(costs),
        discount,
    )
    solver, unit = solver_of(game), np.eye(1 + costs)
    greedy = solver.evaluate(solver.best(unit[0]))[0][1:]
    least = [solver.evaluate(solver.best(-unit[k]))[0][k] for k in range(1, 1 + costs)]
    return game._replace(limits=jnp.asarray(greedy + tightness * (np.array(least) - greedy)))


class Solver(NamedTuple):
    """A game as NumPy arrays: policy iteration on a few states is quicker without a compiler."""

    transition: np.ndarray
    signals: np.ndarray
    start: np.ndarray
    discount: float

    def evaluate(self, modes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(values from the start [J], Q [S, A, J]) of a deterministic joint policy, one action per state."""
        states = np.arange(len(modes))
        system = np.eye(len(modes)) - self.discount * self.transition[states, modes]
        value = np.linalg.solve(system, self.signals[states, modes])
        return self.start @ value, self.signals + self.discount * self.transition @ value

    def best(self, weights: np.ndarray) -> np.ndarray:
        """The joint action per state that maximises weights @ values, by policy iteration."""
        modes = np.zeros(len(self.start), int)
        while True:
            q = self.evaluate(modes)[1] @ weights
            gain = q.max(axis=-1) - q[np.arange(len(modes)), modes]
            if gain.max() <= 1e-12:
                return modes
            modes = np.where(gain > 1e-12, q.argmax(axis=-1), modes)


def solver_of(game: Game) -> Solver:
    arrays = [np.asarray(x, np.float64) for x in game[:3]]
    return Solver(arrays[0], arrays[1], arrays[2], float(game.discount))


class Optimum(NamedTuple):
    value: float
    multiplier: float
    policies: tuple[np.ndarray, np.ndarray]
    """Two deterministic joint policies (one action per state), within and above the limit, whose mixture is optimal."""


def optimum(game: Game) -> Optimum:
    """Of the occupancy linear program with one constraint."""
    solver, limit = solver_of(game), float(game.limits[0])
    low, high = 0.0, 1.0

    def at(mu: float) -> tuple[np.ndarray, np.ndarray]:
        modes = solver.best(np.array([1.0, -mu]))
        return modes, solver.evaluate(modes)[0]

    above, over = at(low)
    if over[1] <= limit:
        return Optimum(float(over[0]), 0.0, (above, above))
    within, under = at(high)
    while under[1] > limit:
        low, high = high, 2.0 * high
        if high > 1e9:
            raise ValueError("no policy of this game meets its limit")
        within, under = at(high)
    for _ in range(60):
        middle = 0.5 * (low + high)
        policy, totals = at(middle)
        if totals[1] > limit:
            low, above, over = middle, policy, totals
        else:
            high, within, under = middle, policy, totals
    share = (limit - under[1]) / (over[1] - under[1])
    return Optimum(float(under[0] + share * (over[0] - under[0])), high, (within, above))


def product_optimum(best: Optimum, agents: int, modes: int) -> bool:
    """Whether the optimum mixes joint actions that differ in one agent's mode only, so that the agents need not
    correlate their choices."""
    first, second = best.policies
    apart = np.flatnonzero(first != second)
    if apart.size > 1:
        return False

    def digits(a):
        return np.array(np.unravel_index(a, (modes,) * agents))

    return all(np.sum(digits(first[s]) != digits(second[s])) == 1 for s in apart)


def nash_gap(game: Game, pis: np.ndarray) -> float:
    """The most that one agent could gain by changing its policy [N, S, M] alone, the limit kept: 0 at a constrained
    Nash equilibrium. A policy that breaks the limit gets no credit for what that earns."""
    agents, states, modes = pis.shape
    now = float(evaluate(game, mix(list(jnp.asarray(pis)))).total[0])
    gains = []
    for agent in range(agents):
        others = [pis[i] if i != agent else np.ones((states, modes)) for i in range(agents)]
        weight = np.asarray(mix([jnp.asarray(p) for p in others]))
        shape = (states, modes**agent, modes, modes ** (agents - 1 - agent))

        def fold(x, shape=shape, weight=weight):
            return np.sum((weight[..., None] * np.asarray(x)).reshape(*shape, x.shape[-1]), axis=(1, 3))

        alone = game._replace(transition=jnp.asarray(fold(game.transition)), signals=jnp.asarray(fold(game.signals)))
        try:
            gains.append(optimum(alone).value - now)
        except ValueError:  # the others leave this agent no way to keep the limit
            gains.append(0.0)
    return max(gains)


def playable_games(count: int, *, first: int, states: int, agents: int, modes: int) -> list[tuple[Game, Optimum]]:
    """Random games, from number `first` on, whose optimum independent agents can play."""
    found: list[tuple[Game, Optimum]] = []
    seed = first
    while len(found) < count:
        game = random_game(seed, states=states, agents=agents, modes=modes)
        best = optimum(game)
        if product_optimum(best, agents, modes):
            found.append((game, best))
        seed += 1
    return found


def stack(games: list[Game]) -> Game:
    """Games of one size along a leading axis, for vmap."""
    return Game(*(jnp.stack([jnp.asarray(g[i]) for g in games]) for i in range(len(Game._fields))))
