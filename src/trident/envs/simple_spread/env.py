"""MPE's `simple_spread_v3` in JAX: N agents cover N landmarks; its penalty for collisions is a constraint here.

The dynamics, the observation (without the silent channel, which is always zero) and the reward, minus the sum over the
landmarks of the distance to the nearest agent, are those of the package mpe2; the tests compare them step by step. An
action moves an agent only in the step after it: MPE moves with the old velocity and then changes it. Two things are
other than there: collisions cost (`collision`, the share of steps in which two agents overlap) and are no part of the
reward; and agents do not start on top of each other (`apart`), which no policy could avoid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.envs.random_policy import random_action
from trident.envs.scatter import scatter
from trident.envs.simple_spread.base_policy import base_policy
from trident.envs.simple_spread.physics import build_physics
from trident.errors import TridentError
from trident.physics import particles
from trident.types import ActionSpec, Constraint, EnvSpec, HybridAction, Key, Metric, Physics, TimeStep, follow

FORCE = 5.0
SEEN_AS_COVERED = 0.1
PUSHES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], np.float32)
PUSH_NAMES = ("coast", "left", "right", "down", "up")
MOST = 5


@dataclass(frozen=True)
class SimpleSpreadConfig:
    agents: int = 3
    """As many as landmarks, at most 5: the base policy goes through all ways of sharing them out."""
    actions: Literal["continuous", "discrete", "hybrid"] = "continuous"
    """continuous: one mode, a force in [-1, 1]^2. discrete: MPE's five pushes. hybrid: a push and how strong it is."""
    size: float = 0.15
    """Radius of an agent."""
    limit: float = 0.02
    """Share of steps in which two agents may overlap."""
    horizon: int = 25
    apart: bool = True
    """Whether agents start without overlap. MPE's need not: a fifth of its episodes begin with a collision."""

    def __post_init__(self) -> None:
        if not 1 <= self.agents <= MOST:
            raise TridentError(f"simple-spread takes 1 to {MOST} agents, not {self.agents}")


VARIANTS = {
    "simple-spread": SimpleSpreadConfig(),
    "simple-spread-discrete": SimpleSpreadConfig(actions="discrete"),
    "simple-spread-hybrid": SimpleSpreadConfig(actions="hybrid"),
    "simple-spread-n5": SimpleSpreadConfig(agents=5),
}


class SpreadState(NamedTuple):
    pos: Float[Array, "N 2"]
    vel: Float[Array, "N 2"]
    landmarks: Float[Array, "N 2"]
    t: Int[Array, ""]


METRICS = (
    Metric("covered", "higher", help="landmarks with an agent within 0.1"),
    Metric("collisions", "lower", help="pairs of agents that overlap"),
)


def action_spec(config: SimpleSpreadConfig) -> ActionSpec:
    n = config.agents
    if config.actions == "continuous":
        box = np.ones((n, 1, 2), np.float32)
        return ActionSpec(-box, box, box > 0, ("push",), ("x", "y"))
    params = int(config.actions == "hybrid")
    high = np.ones((n, len(PUSHES), params), np.float32)
    used = np.broadcast_to((np.arange(len(PUSHES)) > 0)[:, None], high.shape)
    return ActionSpec(0.0 * high, high * used, used.copy(), PUSH_NAMES, ("strength",) * params)


def force_of(config: SimpleSpreadConfig, action: HybridAction) -> Float[Array, "N 2"]:
    if config.actions == "continuous":
        return FORCE * action.params
    push = FORCE * jnp.asarray(PUSHES)[action.mode]
    return push * action.params if config.actions == "hybrid" else push


@dataclass(frozen=True, eq=False)
class SimpleSpread:
    config: SimpleSpreadConfig = SimpleSpreadConfig()
    shield: None = None

    @property
    def spec(self) -> EnvSpec:
        c, n = self.config, self.config.agents
        return EnvSpec(
            name="simple-spread", version=1, num_agents=n, obs_dim=4 + 2 * n + 2 * (n - 1), state_dim=6 * n,
            action=action_spec(c), horizon=c.horizon, metrics=METRICS,
            constraints=(Constraint("collision", c.limit, help="share of steps in which two agents overlap"),),
        )  # fmt: skip

    @property
    def physics(self) -> Physics:
        c = self.config
        return build_physics(c.agents, 2.0 * c.size, partial(force_of, c), self._nominal, self._base_policy)

    @property
    def scripted(self) -> Any:
        return {
            "random": lambda key, s: random_action(key, action_spec(self.config), self._mask),
            "base-policy": lambda key, s: follow(action_spec(self.config), self._base_policy, observe(s)),
        }

    @property
    def _mask(self) -> Any:
        return jnp.ones(action_spec(self.config).low.shape[:2], bool)

    @property
    def _base_policy(self) -> Any:
        c = self.config
        return partial(base_policy, c.agents, 2.0 * c.size, action_spec(c).num_params, FORCE)

    def _nominal(self, state: Float[Array, "S"]) -> HybridAction:
        return follow(action_spec(self.config), self._base_policy, observe(unpack(self.config.agents, state)))

    def reset(self, key: Key) -> tuple[SpreadState, TimeStep]:
        c = self.config
        room = np.full((c.agents, c.agents), 2.1 * c.size if c.apart else 0.0)
        of_agents, of_landmarks = jax.random.split(key)
        pos = scatter(of_agents, 1.0, room)
        landmarks = jax.random.uniform(of_landmarks, (c.agents, 2), minval=-1.0, maxval=1.0)
        s = SpreadState(pos, jnp.zeros_like(pos), landmarks, jnp.int32(0))
        out = self._look(s)
        return s, out._replace(reward=jnp.float32(0.0), cost=jnp.zeros(1))

    def step(self, key: Key, state: SpreadState, action: HybridAction) -> tuple[SpreadState, TimeStep]:
        s = state
        touch = particles.contact(s.pos, s.pos, particles.among(s.pos), 2.0 * self.config.size)
        vel = particles.slowed(s.vel, force_of(self.config, action) + touch)
        s = SpreadState(s.pos + particles.STEP * s.vel, vel, s.landmarks, s.t + 1)
        return s, self._look(s)

    def _look(self, s: SpreadState) -> TimeStep:
        n, reach = self.config.agents, 2.0 * self.config.size
        apart, away = particles.among(s.pos), particles.distances(s.landmarks, s.pos).min(axis=1)
        overlap = apart < reach
        nearest = jnp.minimum(apart.min(), 2.0 + reach)  # one agent alone has nobody to meet
        return TimeStep(
            obs=observe(s), state=pack(s), mode_mask=self._mask, alive=jnp.ones(n, bool),
            reward=-jnp.sum(away), cost=jnp.any(overlap, keepdims=True)[0].astype(jnp.float32),
            margin=(nearest - reach)[None] / reach,
            terminated=jnp.bool_(False), truncated=s.t >= self.config.horizon,
            metrics={
                "covered": jnp.sum(away < SEEN_AS_COVERED).astype(jnp.float32),
                "collisions": jnp.sum(overlap).astype(jnp.float32) / 2.0,
            },
            cost_attribution=overlap.any(axis=1)[:, None],
        )  # fmt: skip

    def draw(self, where: Any, states: SpreadState, t: int) -> None:
        from trident.report.scene_figure import draw_scene  # matplotlib takes a second to import

        draw_scene(self.scene(states), where, t)

    def scene(self, states: SpreadState) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`)."""
        from trident.envs.particle_picture import disc_scene

        return disc_scene(states.pos, self.config.size, landmarks=states.landmarks, half=1.2)


def observe(s: SpreadState) -> Float[Array, "N O"]:
    """Own velocity and place, then where the landmarks and the others are from here; others in their order."""
    n = len(s.pos)
    others = np.array([[j for j in range(n) if j != i] for i in range(n)], np.int32).reshape(n, n - 1)
    to_landmarks = (s.landmarks[None] - s.pos[:, None]).reshape(n, -1)
    to_others = (s.pos[others] - s.pos[:, None]).reshape(n, -1)
    return jnp.concatenate([s.vel, s.pos, to_landmarks, to_others], axis=1)


def pack(s: SpreadState) -> Float[Array, "S"]:
    return jnp.concatenate([s.pos.ravel(), s.vel.ravel(), s.landmarks.ravel()])


def unpack(agents: int, state: Float[Array, "S"]) -> SpreadState:
    pos, vel, landmarks = state.reshape(3, agents, 2)
    return SpreadState(pos, vel, landmarks, jnp.int32(0))
