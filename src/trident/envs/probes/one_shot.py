"""Probe environments: tiny systems whose right answers are known on paper, for testing algorithms.

Each docstring derives the answer; the environment carries it: `optimum` is the mean reward per step of the best
policy within the limits, `multiplier` the Lagrange multiplier of its (only) constraint at that policy, per step, and
`value(state, discount)` the discounted sums of reward and costs where actions do not matter. Most probes are
*one-shot*: a context is drawn, one action is paid, the episode terminates. There the physics is exact and every
agent observes the context and its own number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.probes.chain import probe_chain
from trident.envs.random_policy import random_action
from trident.types import (
    ActionSpec,
    Constraint,
    Env,
    EnvSpec,
    HybridAction,
    Key,
    Physics,
    ScriptedPolicy,
    TimeStep,
    decode_params,
)

Boxes = Sequence[Sequence[Sequence[tuple[float, float]]]]  # [agent][mode][parameter] -> (low, high); ragged


class ProbeState(NamedTuple):
    x: Float[Array, "S"]  # the global state
    t: Int[Array, ""]  # steps of the episode that are over


class Outcome(NamedTuple):
    """What one step leads to."""

    x: Float[Array, "S"]
    reward: Float[Array, ""]
    cost: Float[Array, "K"]
    terminated: Bool[Array, ""]


@dataclass(frozen=True, eq=False)
class Probe:
    """An environment made of two functions. All modes that exist are always allowed and nobody dies."""

    spec: EnvSpec
    start: Callable[[Key], Array]
    """key -> x [S]"""
    play: Callable[[ProbeState, HybridAction], Outcome]
    exists: np.ndarray
    """[N, M] bool: modes an agent has; the rest is padding."""
    physics: Physics | None = None
    best: Callable[[Key, Array], HybridAction] | None = None
    """(key, x) -> the optimal action, drawn if it is a mixture."""
    shield: None = None
    optimum: float | None = None
    multiplier: float | None = None
    value: Callable[[Array, float], Array] | None = None

    @property
    def scripted(self) -> Mapping[str, ScriptedPolicy]:
        policies: dict[str, ScriptedPolicy] = {
            "random": lambda key, state: random_action(key, self.spec.action, jnp.asarray(self.exists))
        }
        best = self.best
        return policies if best is None else {**policies, "optimal": lambda key, state: best(key, state.x)}

    def reset(self, key: Key) -> tuple[ProbeState, TimeStep]:
        state = ProbeState(self.start(key), jnp.int32(0))
        return state, self._observe(state, jnp.float32(0), jnp.zeros(self.spec.num_constraints), jnp.bool_(False))

    def step(self, key: Key, state: ProbeState, action: HybridAction) -> tuple[ProbeState, TimeStep]:
        del key  # the only chance is in the reset
        x, reward, cost, terminated = self.play(state, action)
        after = ProbeState(x, state.t + 1)
        return after, self._observe(after, reward, cost, terminated)

    def _observe(
        self, state: ProbeState, reward: Float[Array, ""], cost: Float[Array, "K"], terminated: Bool[Array, ""]
    ) -> TimeStep:
        agents = self.spec.num_agents
        context = jnp.broadcast_to(state.x, (agents, len(state.x)))
        return TimeStep(
            obs=jnp.concatenate([context, jnp.eye(agents)], axis=1),
            state=state.x,
            mode_mask=jnp.asarray(self.exists),
            alive=jnp.ones(agents, bool),
            reward=reward,
            cost=cost,
            margin=jnp.asarray(self.spec.limits) - cost,
            terminated=terminated,
            truncated=(state.t >= self.spec.horizon) & ~terminated,
            metrics={},
        )


# --- values ---------------------------------------------------------------------------------------

INERT = (((((-1.0, 1.0),),) * 2),)  # one agent, two modes, one parameter: for probes that ignore the action


def probe_value(truncates: bool = False, horizon: int = 5) -> Probe:
    """Reward 1 and cost 1/2 in every step, whatever is done.

    Terminating after one step, the values are V = 1 and V_c = 1/2. Truncated at the horizon, an episode is cut but
    its future is not: bootstrapping, V = sum_t gamma^t = 1 / (1 - gamma) and V_c = 1 / (2 (1 - gamma)) in every
    state, however short the horizon. Mixing up the two ends shows at once.
    """
    paid = jnp.array([1.0, 0.5])
    name, horizon = ("probe-value-truncated", horizon) if truncates else ("probe-value", 1)
    spec = _spec(name, INERT, 1, (Constraint("half", limit=1.0, unit="cost"),), horizon)
    return Probe(
        spec,
        start=lambda key: jnp.ones(1),
        play=lambda state, action: Outcome(state.x, paid[0], paid[1:], jnp.bool_(not truncates)),
        exists=_exists(INERT),
        optimum=1.0,
        multiplier=0.0,
        value=lambda x, discount: paid / (1.0 - discount) if truncates else paid,
    )


def probe_discount() -> Probe:
    """Two steps: the first pays nothing, the second z, drawn from {-1, 1} at reset and seen all along.

    State x = (z, t). V(z, 1) = z and V(z, 0) = gamma V(z, 1) = gamma z; the cost (1 + z) / 2 is paid with the
    reward, so its values are gamma^(1 - t) (1 + z) / 2. After the end (t = 2) nothing is left.
    """
    spec = _spec("probe-discount", INERT, 2, (Constraint("late", limit=1.0, unit="cost"),), horizon=2)

    def paid(x: Float[Array, "2"]) -> Float[Array, "2"]:
        return jnp.array([x[0], 0.5 * (1.0 + x[0])])

    def play(state: ProbeState, action: HybridAction) -> Outcome:
        signals = jnp.where(state.t == 1, paid(state.x), 0.0)
        return Outcome(state.x.at[1].add(1.0), signals[0], signals[1:], state.t == 1)

    def value(x: Array, discount: float) -> Array:
        return jnp.where(x[1] < 2, discount ** (1.0 - x[1]) * paid(x), 0.0)

    return Probe(
        spec,
        start=lambda key: jnp.array([jax.random.rademacher(key, (), jnp.float32), 0.0]),
        play=play,
        exists=_exists(INERT),
        optimum=0.0,
        multiplier=0.0,
        value=value,
    )


# --- actions --------------------------------------------------------------------------------------


def probe_mode() -> Probe:
    """Three contexts, three modes with their own boxes: reward = 1[mode = context] - (x - x*_mode)^2.

    In each context the squares vanish at x*_mode, which leaves 1 for the mode named by the context and 0 for the
    others: the optimum is 1. A policy that mixes the modes' parameters up, or one mode for all contexts, stays below.
    """
    peaks = jnp.array([-0.5, 1.5, -2.0])
    boxes = (((((-1.0, 1.0),), ((0.0, 2.0),), ((-3.0, -1.0),))),)

    def pay(x: Array, action: HybridAction) -> tuple[Array, Array]:
        mode = action.mode[0]
        return x[mode] - (action.params[0, 0] - peaks[mode]) ** 2, jnp.zeros(0)

    def best(key: Key, x: Array) -> HybridAction:
        mode = jnp.argmax(x).astype(jnp.int32)
        return HybridAction(mode[None], peaks[mode][None, None])

    return _one_shot("probe-mode", boxes, pay, best, contexts=3, optimum=1.0)


def probe_team() -> Probe:
    """Two unequal agents with one reward: B[m_1, m_2] - |x_1 - x*_1|^2 - |x_2 - x*_2|^2, over the parameters read.

    Agent 0 has the modes lift (two parameters), push (one) and rest (none); agent 1 only the first two, with one
    parameter each. B pays 1 if both lift, 0.6 if both push, 0.2 if agent 0 rests and nothing for a mismatch. The
    squares vanish at x*, so the optimum is max B = 1: both lift, agent 0 at (0.5, -0.5), agent 1 at -0.5.
    """
    payoff = jnp.array([[1.0, 0.0], [0.0, 0.6], [0.2, 0.2]])
    peaks = jnp.array([[0.5, -0.5], [-0.5, 0.0]])
    box = (-1.0, 1.0)
    boxes = (((box, box), (box,), ()), ((box,), (box,)))
    used = _action(boxes).used

    def pay(x: Array, action: HybridAction) -> tuple[Array, Array]:
        reads = jnp.asarray(used)[jnp.arange(2), action.mode]
        misses = jnp.where(reads, (action.params - peaks) ** 2, 0.0)
        # agent 1 has no third mode: clamp it, physics is asked about padding too
        return payoff[action.mode[0], jnp.minimum(action.mode[1], 1)] - misses.sum(), jnp.zeros(0)

    def best(key: Key, x: Array) -> HybridAction:
        return HybridAction(jnp.zeros(2, jnp.int32), peaks)

    return _one_shot("probe-team", boxes, pay, best, optimum=1.0, mode_names=("lift", "push", "rest"))


# --- constraints ----------------------------------------------------------------------------------


def probe_constrained() -> Probe:
    """max -(x - a)^2 subject to E[x] <= d on 0 <= x <= 2, with a = 1.8 and d = 1.2.

    The reward is concave and the cost c(x) = x linear, so by Jensen no random policy beats its mean, and the problem
    is max -(x - a)^2 s.t. x <= d. As a > d the limit binds: x* = d, optimum -(a - d)^2 = -0.36. Stationarity of
    -(x - a)^2 - lambda (x - d) gives lambda = 2 (a - d) = 1.2. The middle of the box, 1, is feasible.
    """
    a, d = 1.8, 1.2
    return _one_shot(
        "probe-constrained",
        ((((0.0, 2.0),),),),
        pay=lambda x, action: (-((action.params[0, 0] - a) ** 2), action.params[0]),
        best=lambda key, x: HybridAction(jnp.zeros(1, jnp.int32), jnp.full((1, 1), d)),
        constraints=(Constraint("use", limit=d, unit="cost"),),
        optimum=-((a - d) ** 2),
        multiplier=2.0 * (a - d),
    )


def probe_constrained_modes() -> Probe:
    """The best mode breaks the limit: rest pays 0, safe 1/2, fast 1 at cost 1, with P(fast) <= 0.4.

    safe and fast lose (x - x*_mode)^2, x* = -0.5 and 0.5. With the squares gone, a policy earns 0.5 p_safe + p_fast,
    which grows in p_fast at the rate 0.5 it takes from safe, until p_fast = d = 0.4: optimum 0.5 * 0.6 + 0.4 = 0.7,
    multiplier (1 - 0.5) / 1 = 0.5. The best *deterministic* feasible policy is safe alone, with 0.5. The even start
    (1/3 each) is feasible.
    """
    worth, toll, peaks = jnp.array([0.0, 0.5, 1.0]), jnp.array([0.0, 0.0, 1.0]), jnp.array([0.0, -0.5, 0.5])
    box, share = ((-1.0, 1.0),), 0.4

    def pay(x: Array, action: HybridAction) -> tuple[Array, Array]:
        mode = action.mode[0]
        miss = jnp.where(mode > 0, (action.params[0, 0] - peaks[mode]) ** 2, 0.0)
        return worth[mode] - miss, toll[mode][None]

    def best(key: Key, x: Array) -> HybridAction:
        mode = jnp.where(jax.random.bernoulli(key, share), 2, 1).astype(jnp.int32)
        return HybridAction(mode[None], peaks[mode][None, None])

    return _one_shot(
        "probe-constrained-modes",
        (((), box, box),),
        pay,
        best,
        constraints=(Constraint("fast", limit=share, help="share of steps in the fast mode"),),
        optimum=0.5 * (1.0 - share) + share,
        multiplier=0.5,
        mode_names=("rest", "safe", "fast"),
    )


def probe_unsafe_start() -> Probe:
    """Two agents, reward -sum_i (x_i - a_i)^2, cost mean_i (1 + x_i) <= d on [-1, 1]^2: zero actions are unsafe.

    With a = (0.5, 0.1) and d = 0.6, the middle of the boxes costs 1 > d and recovery costs reward. Stationarity:
    2 (a_i - x_i) = lambda / 2, so x_i = a_i - lambda / 4; the binding limit 1 + mean(a) - lambda / 4 = d gives
    lambda = 4 (1 + mean(a) - d) = 2.8, x* = (-0.2, -0.6), inside the box, optimum -2 (lambda / 4)^2 = -0.98. Both
    agents spend from one limit: each alone would have to guess the other's share.
    """
    a, d = np.array([0.5, 0.1], np.float32), 0.6
    multiplier = float(4.0 * (1.0 + a.mean() - d))
    return _one_shot(
        "probe-unsafe-start",
        ((((-1.0, 1.0),),),) * 2,
        pay=lambda x, action: (
            -((action.params[:, 0] - a) ** 2).sum(),
            (1.0 + action.params[:, 0]).mean()[None],
        ),
        best=lambda key, x: HybridAction(jnp.zeros(2, jnp.int32), jnp.asarray(a - multiplier / 4.0)[:, None]),
        constraints=(Constraint("heat", limit=d, unit="cost"),),
        optimum=-2.0 * (multiplier / 4.0) ** 2,
        multiplier=multiplier,
    )


# --- stress ---------------------------------------------------------------------------------------


def probe_nan(after: int = 3, share: float = 1.0, horizon: int = 1000) -> Probe:
    """Reward -x^2, but NaN from step `after` + 1 of an episode on, in a `share` of the episodes (drawn at reset).

    Not meant to pass `check_env`: it shows whether training survives an environment that breaks.
    """
    spec = _spec("probe-nan", INERT, 1, (), horizon)

    def play(state: ProbeState, action: HybridAction) -> Outcome:
        broken = (state.x[0] > 0) & (state.t >= after)
        reward = jnp.where(broken, jnp.nan, -(action.params[0, 0] ** 2))
        return Outcome(state.x, reward, jnp.zeros(0), jnp.bool_(False))

    return Probe(
        spec,
        start=lambda key: jax.random.bernoulli(key, share, (1,)).astype(jnp.float32),
        play=play,
        exists=_exists(INERT),
    )


PROBES: dict[str, Callable[[], Env]] = {
    "probe-value": probe_value,
    "probe-value-truncated": lambda: probe_value(truncates=True),
    "probe-discount": probe_discount,
    "probe-mode": probe_mode,
    "probe-team": probe_team,
    "probe-constrained": probe_constrained,
    "probe-constrained-modes": probe_constrained_modes,
    "probe-unsafe-start": probe_unsafe_start,
    "probe-chain": probe_chain,
    "probe-nan": probe_nan,
}


# --- construction ---------------------------------------------------------------------------------


def _one_shot(
    name: str,
    boxes: Boxes,
    pay: Callable[[Array, HybridAction], tuple[Array, Array]],
    best: Callable[[Key, Array], HybridAction],
    *,
    contexts: int = 1,
    constraints: tuple[Constraint, ...] = (),
    mode_names: tuple[str, ...] = (),
    **answers: Any,
) -> Probe:
    """One action is paid by pay(x, action) -> (reward, cost [K]); x is the one-hot context."""
    spec = _spec(name, boxes, state_dim=contexts, constraints=constraints, horizon=1, mode_names=mode_names)

    def signals(x: Array, action: HybridAction) -> Array:
        reward, cost = pay(x, action)
        return jnp.concatenate([reward[None], cost])

    def nominal(x: Array) -> HybridAction:
        mode = jnp.zeros(spec.num_agents, jnp.int32)
        return HybridAction(mode, decode_params(spec.action, mode, jnp.zeros(spec.action.low[:, 0].shape)))

    return Probe(
        spec,
        start=lambda key: jax.nn.one_hot(jax.random.randint(key, (), 0, contexts), contexts),
        play=lambda state, action: Outcome(state.x, *pay(state.x, action), jnp.bool_(True)),
        exists=_exists(boxes),
        physics=Physics(signals=signals, predict=lambda x, action: x, nominal=nominal),
        best=best,
        **answers,
    )


def _spec(
    name: str,
    boxes: Boxes,
    state_dim: int,
    constraints: tuple[Constraint, ...],
    horizon: int,
    mode_names: tuple[str, ...] = (),
) -> EnvSpec:
    return EnvSpec(
        name=name,
        version=1,
        num_agents=len(boxes),
        obs_dim=state_dim + len(boxes),
        state_dim=state_dim,
        action=_action(boxes, mode_names),
        constraints=constraints,
        horizon=horizon,
        kinds=tuple(range(len(boxes))),
    )


def _action(boxes: Boxes, mode_names: tuple[str, ...] = ()) -> ActionSpec:
    """Ragged boxes -> arrays padded to the largest agent and mode."""
    modes = max(len(agent) for agent in boxes)
    params = max(len(mode) for agent in boxes for mode in agent)
    low, high = np.zeros((2, len(boxes), modes, params), np.float32)
    used = np.zeros(low.shape, bool)
    for i, agent in enumerate(boxes):
        for m, mode in enumerate(agent):
            for p, (least, most) in enumerate(mode):
                low[i, m, p], high[i, m, p], used[i, m, p] = least, most, True
    return ActionSpec(low, high, used, mode_names)


def _exists(boxes: Boxes) -> np.ndarray:
    modes = max(len(agent) for agent in boxes)
    return np.array([[m < len(agent) for m in range(modes)] for agent in boxes])
