"""A small multi-step chain that meets every clause of the contract: for stress tests of algorithms.

Walkers on a line want to reach its end. Walker i at position p_i with heat h_i moves by v_i = its first parameter,
inside the box [0, top_m] of its mode m (no parameters: v_i = top_m), and may take care b_i, its second parameter:

    p_i' = min(p_i + v_i (1 + noise), END)          h_i' = h_i / 2 + 6 v_i^2 (1 - b_i / 2)

A walker hotter than 1 dies, and stands still from then on. Its fastest mode is barred while it is hotter than 0.6 and
in every third step; the dead may only use mode 0. The episode terminates when all that live have arrived (or all are
dead) and is truncated at the horizon. Reward: mean progress less 0.05 b^2.

Constraints, the first K of: `heat`, the mean heat *before* the step, so an action costs in the step after it;
`speeding`, an indicator of any v_i > 0.3; `loss`, the share of dead walkers.

Walkers are unequal: odd ones lack the fastest mode and the last parameter (if that leaves any). The metric `illegal`
counts forbidden modes, parameters outside their box and unread parameters that are not zero: it stays 0 for an
algorithm that respects masks and boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.random_policy import random_action
from trident.types import (
    ActionSpec,
    Constraint,
    EnvSpec,
    HybridAction,
    Key,
    Metric,
    Physics,
    ScriptedPolicy,
    TimeStep,
    decode_params,
)

END = 1.5  # length of the line
TOP_SPEED = 0.4
SPEED_LIMIT = 0.3
HOT, DEADLY = 0.6, 1.0
SHARPNESS = 20.0  # of the smooth indicators in the physics

CONSTRAINTS = (
    Constraint("heat", limit=0.3, unit="heat"),
    Constraint("speeding", limit=0.1),
    Constraint("loss", limit=0.05),
)


@dataclass(frozen=True)
class ChainConfig:
    agents: int = 3
    modes: int = 3
    params: int = 2
    constraints: int = 3
    """The first so many of heat, speeding, loss."""
    physics: bool = True
    deaths: bool = True
    noise: float = 0.1
    """Standard deviation of the relative error of a move."""
    horizon: int = 12


CHAINS: dict[str, ChainConfig] = {
    "full": ChainConfig(),
    "one-agent": ChainConfig(agents=1),
    "one-mode": ChainConfig(modes=1),
    "no-params": ChainConfig(params=0),
    "one-constraint": ChainConfig(constraints=1),
    "no-constraints": ChainConfig(constraints=0),
    "no-physics": ChainConfig(physics=False),
    "smallest": ChainConfig(agents=1, modes=1, params=0, constraints=0, physics=False),
}
"""One configuration per clause of the contract, for tests to sweep."""


class ChainState(NamedTuple):
    place: Float[Array, "N"]
    heat: Float[Array, "N"]
    alive: Bool[Array, "N"]
    t: Int[Array, ""]


def probe_chain(config: ChainConfig = ChainConfig()) -> Chain:  # noqa: B008  # it is frozen
    return Chain(config, _spec(config))


@dataclass(frozen=True, eq=False)
class Chain:
    config: ChainConfig
    spec: EnvSpec
    shield: None = None

    @property
    def physics(self) -> Physics | None:
        return Physics(self._signals, self._predict, self._nominal) if self.config.physics else None

    @property
    def scripted(self) -> Mapping[str, ScriptedPolicy]:
        return {
            "random": lambda key, state: random_action(key, self.spec.action, self._mask(state)),
            "nominal": lambda key, state: self._nominal(self._pack(state)),
        }

    def reset(self, key: Key) -> tuple[ChainState, TimeStep]:
        n = self.config.agents
        heat = jax.random.uniform(key, (n,), maxval=0.3)
        state = ChainState(jnp.zeros(n), heat, jnp.ones(n, bool), jnp.int32(0))
        zero = jnp.zeros(self.config.constraints)
        metrics = {metric.name: jnp.float32(0) for metric in self.spec.metrics}
        return state, self._timestep(state, jnp.float32(0), zero, zero + self.spec.limits, metrics)

    def step(self, key: Key, state: ChainState, action: HybridAction) -> tuple[ChainState, TimeStep]:
        noise = self.config.noise * jax.random.normal(key, (self.config.agents,))
        speed, care = self._motion(action)
        after = self._move(state, speed * jnp.maximum(1.0 + noise, 0.0), speed, care)
        progress = (after.place - state.place).mean()
        fastest = jnp.where(state.alive, speed, 0.0).max()
        cost = jnp.stack([state.heat.mean(), fastest > SPEED_LIMIT, (~after.alive).mean()])
        margin = jnp.stack([DEADLY - state.heat.max(), SPEED_LIMIT - fastest, DEADLY - after.heat.max()])
        metrics = {
            "progress": progress,
            "effort": jnp.where(state.alive, _heating(speed, care), 0.0).mean(),
            "illegal": self._illegal(state, action),
        }
        reward = progress - 0.05 * (state.alive * care**2).mean()
        k = self.config.constraints
        return after, self._timestep(after, reward, cost[:k], margin[:k], metrics)

    # --- dynamics

    def _motion(self, action: HybridAction) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        """Speed and care of each walker; padding stands still."""
        spec, none = self.spec.action, jnp.zeros(self.config.agents)
        chosen = jax.nn.one_hot(action.mode, spec.num_modes)
        if spec.num_params == 0:
            return (chosen * _top_speeds(self.config)).sum(-1), none
        reads = jnp.einsum("nm,nmp->np", chosen, jnp.asarray(spec.used, jnp.float32))
        params = reads * action.params
        return params[:, 0], params[:, 1] if spec.num_params > 1 else none

    def _move(
        self, state: ChainState, moved: Float[Array, "N"], speed: Float[Array, "N"], care: Float[Array, "N"]
    ) -> ChainState:
        heat = jnp.where(state.alive, 0.5 * state.heat + _heating(speed, care), state.heat)
        place = jnp.where(state.alive, jnp.minimum(state.place + moved, END), state.place)
        alive = state.alive & (heat <= DEADLY) if self.config.deaths else state.alive
        return ChainState(place, heat, alive, state.t + 1)

    def _mask(self, state: ChainState) -> Bool[Array, "N M"]:
        has, mode = _has_mode(self.config), jnp.arange(self.config.modes)
        fastest = (mode == has.sum(1)[:, None] - 1) & (mode > 0)
        barred = fastest & ((state.heat > HOT) | (state.t % 3 == 2))[:, None]
        return jnp.asarray(has) & ~barred & (state.alive[:, None] | (mode == 0))

    def _illegal(self, state: ChainState, action: HybridAction) -> Float[Array, ""]:
        spec, agents = self.spec.action, np.arange(self.config.agents)
        forbidden = ~self._mask(state)[agents, action.mode]
        low, high, used = (jnp.asarray(a)[agents, action.mode] for a in (spec.low, spec.high, spec.used))
        outside = (action.params < low - 1e-5) | (action.params > high + 1e-5)
        wrong = forbidden.sum() + jnp.where(used, outside, action.params != 0.0).sum(where=state.alive[:, None])
        return wrong.astype(jnp.float32)

    # --- what is seen

    def _pack(self, state: ChainState) -> Float[Array, "S"]:
        clock = state.t / self.config.horizon
        return jnp.concatenate([state.place, state.heat, state.alive.astype(jnp.float32), clock[None]])

    def _unpack(self, x: Float[Array, "S"]) -> ChainState:
        n = self.config.agents
        place, heat, alive = x[:n], x[n : 2 * n], x[2 * n : 3 * n] > 0.5
        return ChainState(place, heat, alive, jnp.round(x[-1] * self.config.horizon).astype(jnp.int32))

    def _timestep(
        self,
        state: ChainState,
        reward: Float[Array, ""],
        cost: Float[Array, "K"],
        margin: Float[Array, "K"],
        metrics: dict[str, Array],
    ) -> TimeStep:
        n, x = self.config.agents, self._pack(state)
        own = jnp.stack([state.place, state.heat, state.alive.astype(jnp.float32)], axis=1)
        shared = jnp.broadcast_to(jnp.stack([x[-1], state.place.mean()]), (n, 2))
        terminated = ((state.place >= END) | ~state.alive).all()
        return TimeStep(
            obs=jnp.concatenate([own, shared, jnp.eye(n)], axis=1),
            state=x,
            mode_mask=self._mask(state),
            alive=state.alive,
            reward=reward,
            cost=cost,
            margin=margin,
            terminated=terminated,
            truncated=(state.t >= self.config.horizon) & ~terminated,
            metrics=metrics,
        )

    # --- physics: the same, without noise and with smooth indicators

    def _signals(self, x: Float[Array, "S"], action: HybridAction) -> Float[Array, " signals"]:
        state = self._unpack(x)
        speed, care = self._motion(action)
        after = self._move(state, speed, speed, care)
        fastest = jnp.where(state.alive, speed, 0.0).max()
        dead = jnp.where(state.alive, jax.nn.sigmoid(SHARPNESS * (after.heat - DEADLY)), 1.0)
        cost = jnp.stack([state.heat.mean(), jax.nn.sigmoid(SHARPNESS * (fastest - SPEED_LIMIT)), dead.mean()])
        reward = (after.place - state.place).mean() - 0.05 * (state.alive * care**2).mean()
        return jnp.concatenate([reward[None], cost[: self.config.constraints]])

    def _predict(self, x: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
        speed, care = self._motion(action)
        return self._pack(self._move(self._unpack(x), speed, speed, care))

    def _nominal(self, x: Float[Array, "S"]) -> HybridAction:
        """The second mode (the first if it is barred) in the middle of its box."""
        mask = self._mask(self._unpack(x))
        mode = (mask[:, 1] if self.config.modes > 1 else jnp.zeros(len(mask))).astype(jnp.int32)
        return HybridAction(mode, decode_params(self.spec.action, mode, jnp.zeros((len(mask), self.config.params))))


def _heating(speed: Float[Array, "N"], care: Float[Array, "N"]) -> Float[Array, "N"]:
    return 6.0 * speed**2 * (1.0 - 0.5 * care)


def _top_speeds(config: ChainConfig) -> np.ndarray:
    """[M]: from standing still to TOP_SPEED; a single mode is the fastest."""
    return np.linspace(0.0, TOP_SPEED, config.modes) if config.modes > 1 else np.array([TOP_SPEED])


def _has_mode(config: ChainConfig) -> np.ndarray:
    """[N, M]: odd walkers lack the fastest mode, unless it is their only one."""
    count = [max(1, config.modes - i % 2) for i in range(config.agents)]
    return np.arange(config.modes) < np.array(count)[:, None]


def _action_spec(config: ChainConfig) -> ActionSpec:
    shape = (config.agents, config.modes, config.params)
    top, low, high = _top_speeds(config), np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    reads = np.array([max(min(config.params, 1), config.params - i % 2) for i in range(config.agents)])
    used = (_has_mode(config) & (top > 0))[..., None] & (np.arange(config.params) < reads[:, None, None])
    used[..., 2:] = False  # speed and care are all there is
    low[..., 1:], high[..., :1], high[..., 1:] = -1.0, top[:, None], 1.0
    return ActionSpec(np.where(used, low, 0.0), np.where(used, high, 0.0), used)


def _spec(config: ChainConfig) -> EnvSpec:
    return EnvSpec(
        name="probe-chain",
        version=1,
        num_agents=config.agents,
        obs_dim=5 + config.agents,
        state_dim=3 * config.agents + 1,
        action=_action_spec(config),
        constraints=CONSTRAINTS[: config.constraints],
        horizon=config.horizon,
        metrics=(
            Metric("progress", "higher", unit="length"),
            Metric("effort", "lower", per="progress", help="heat made per length walked"),
            Metric("illegal", "lower", help="forbidden modes and parameters"),
        ),
        kinds=tuple(range(config.agents)),
    )
