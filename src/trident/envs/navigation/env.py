"""Navigation: N discs drive to a goal each, past obstacles and each other.

After the task of that name in VMAS, by the same laws of motion (drag, a force of at most 1, soft contacts, the velocity
first), written anew: in place of a lidar an agent sees where its nearest neighbours and obstacles are and how they
move, there are obstacles, and collisions are a constraint in place of a penalty.

    reward = mean over the agents of  10 progress towards the goal (m) + 0.1 [within 0.1 of it]

The cost `collision` is the share of agents that touch something.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.geometry import nearest, take
from trident.envs.navigation.base_policy import base_policy
from trident.envs.navigation.physics import AT_GOAL, PER_METRE, WHILE_THERE, build_physics, force_of, move
from trident.envs.random_policy import random_action
from trident.envs.scatter import scatter
from trident.physics import particles
from trident.types import ActionSpec, Constraint, EnvSpec, HybridAction, Key, Metric, Physics, TimeStep, follow

TOP_SPEED = particles.STEP / particles.DRAG
"""That a force of 1 can keep up, m/s."""
FINE = 1000.0
"""`nearest` resolves distances to 1/16; in millimetres that is enough."""


@dataclass(frozen=True)
class NavigationConfig:
    agents: int = 4
    obstacles: int = 4
    actions: Literal["continuous", "hybrid"] = "continuous"
    """continuous: one mode, a force in [-1, 1]^2. hybrid: drive with such a force, or brake."""
    size: float = 0.1
    """Radius of agents and obstacles, m."""
    seen: tuple[int, int] = (3, 2)
    """How many of the nearest agents and obstacles an agent sees."""
    limit: float = 0.01
    """Share of agents that may touch something."""
    horizon: int = 100

    @property
    def half(self) -> float:
        """Half the side of the square, which grows with what is in it."""
        return ((self.agents + self.obstacles) / 8.0) ** 0.5

    @property
    def sees(self) -> tuple[int, int]:
        return min(self.seen[0], self.agents - 1), min(self.seen[1], self.obstacles)


VARIANTS = {
    "navigation": NavigationConfig(),
    "navigation-hybrid": NavigationConfig(actions="hybrid"),
    "navigation-free": NavigationConfig(obstacles=0),
    "navigation-n8": NavigationConfig(agents=8, obstacles=8),
    "navigation-n16": NavigationConfig(agents=16, obstacles=16),
}


class NavState(NamedTuple):
    pos: Float[Array, "N 2"]
    vel: Float[Array, "N 2"]
    goals: Float[Array, "N 2"]
    obstacles: Float[Array, "X 2"]
    t: Int[Array, ""]


METRICS = (
    Metric("arrived", "higher", "share", help="share of agents within 0.1 m of their goals"),
    Metric("distance", "lower", "m", help="mean distance to the goal"),
)


def action_spec(config: NavigationConfig) -> ActionSpec:
    modes = 2 if config.actions == "hybrid" else 1
    used = np.zeros((config.agents, modes, 2), bool)
    used[:, 0] = True
    names = ("drive", "brake")[:modes]
    return ActionSpec(-1.0 * used.astype(np.float32), used.astype(np.float32), used, names, ("x", "y"))


@dataclass(frozen=True, eq=False)
class Navigation:
    config: NavigationConfig = NavigationConfig()
    shield: None = None

    @property
    def spec(self) -> EnvSpec:
        c = self.config
        return EnvSpec(
            name="navigation", version=1, num_agents=c.agents, obs_dim=6 + 4 * c.sees[0] + 2 * c.sees[1],
            state_dim=6 * c.agents + 2 * c.obstacles, action=action_spec(c), horizon=c.horizon, metrics=METRICS,
            constraints=(Constraint("collision", c.limit, help="share of agents that touch something"),),
        )  # fmt: skip

    @property
    def physics(self) -> Physics:
        c = self.config
        return build_physics(c.agents, 2.0 * c.size, self._nominal, self._base_policy)

    @property
    def scripted(self) -> Any:
        spec = action_spec(self.config)
        return {
            "random": lambda key, s: random_action(key, spec, self._mask),
            "base-policy": lambda key, s: follow(spec, self._base_policy, observe(self.config, s)),
        }

    @property
    def _mask(self) -> Any:
        return jnp.ones(action_spec(self.config).low.shape[:2], bool)

    @property
    def _base_policy(self) -> Any:
        c = self.config
        return partial(base_policy, c.sees, 2.0 * c.size, action_spec(c).num_modes)

    def _nominal(self, state: Float[Array, "S"]) -> HybridAction:
        s = unpack(self.config.agents, state)
        return follow(action_spec(self.config), self._base_policy, observe(self.config, s))

    def reset(self, key: Key) -> tuple[NavState, TimeStep]:
        c = self.config
        kinds = np.repeat([0, 1, 2], [c.obstacles, c.agents, c.agents])  # obstacles, agents, goals
        together = (kinds[:, None] == 0) | (kinds[None] == 0) | (kinds[:, None] == kinds[None])
        places = scatter(key, c.half, 3.0 * c.size * together)
        pos, goals = places[c.obstacles : -c.agents], places[-c.agents :]
        s = NavState(pos, jnp.zeros_like(pos), goals, places[: c.obstacles], jnp.int32(0))
        return s, self._look(s, jnp.float32(0.0), 0.0)

    def step(self, key: Key, state: NavState, action: HybridAction) -> tuple[NavState, TimeStep]:
        s = state
        before = goal_distance(s)
        pos, vel = move(s.pos, s.vel, s.obstacles, force_of(s.vel, action), 2.0 * self.config.size)
        s = NavState(pos, vel, s.goals, s.obstacles, s.t + 1)
        progress, there = before - goal_distance(s), goal_distance(s) < AT_GOAL
        return s, self._look(s, jnp.mean(PER_METRE * progress + WHILE_THERE * there), 1.0)

    def _look(self, s: NavState, reward: Float[Array, ""], counts: float) -> TimeStep:
        c, reach, away = self.config, 2.0 * self.config.size, goal_distance(s)
        room = clearance(s) - reach
        touches: Bool[Array, "N"] = room < 0.0
        return TimeStep(
            obs=observe(c, s), state=pack(s), mode_mask=self._mask, alive=jnp.ones(c.agents, bool), reward=reward,
            cost=counts * jnp.mean(touches, keepdims=True, dtype=jnp.float32),
            margin=jnp.clip(room.min(keepdims=True) / reach, -1.0, 1.0),
            terminated=jnp.bool_(False), truncated=s.t >= c.horizon,
            metrics={"arrived": jnp.mean(away < AT_GOAL, dtype=jnp.float32), "distance": jnp.mean(away)},
            cost_attribution=touches[:, None],
        )  # fmt: skip

    def draw(self, where: Any, states: NavState, t: int) -> None:
        from trident.report.scene_figure import draw_scene  # matplotlib takes a second to import

        draw_scene(self.scene(states), where, t)

    def scene(self, states: NavState) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`)."""
        from trident.envs.particle_picture import disc_scene

        c = self.config
        return disc_scene(
            states.pos, c.size, half=c.half + 2 * c.size, goals=states.goals, obstacles=states.obstacles,
            obstacle_radius=c.size,
        )  # fmt: skip


def goal_distance(s: NavState) -> Float[Array, "N"]:
    return jnp.sqrt(jnp.sum((s.goals - s.pos) ** 2, axis=-1) + 1e-12)


def clearance(s: NavState) -> Float[Array, "N"]:
    """From every agent's centre to the nearest other centre."""
    return jnp.concatenate([particles.among(s.pos), particles.distances(s.pos, s.obstacles)], axis=1).min(axis=1)


def observe(config: NavigationConfig, s: NavState) -> Float[Array, "N O"]:
    """Own velocity, place and way to the goal; way to and relative velocity of the nearest agents; way to the nearest
    obstacles. In metres, velocities in top speeds."""
    n, (agents, obstacles) = config.agents, config.sees
    to, faster = s.pos[None] - s.pos[:, None], (s.vel[None] - s.vel[:, None]) / TOP_SPEED
    parts = [s.vel / TOP_SPEED, s.pos, s.goals - s.pos]
    if agents:
        distance = particles.among(s.pos)
        parts.append(
            take(jnp.concatenate([to, faster], -1), *nearest(FINE * distance, ~jnp.eye(n, dtype=bool), agents))
        )
    if obstacles:
        distance = particles.distances(s.pos, s.obstacles)
        seen = nearest(FINE * distance, jnp.ones_like(distance, bool), obstacles)
        parts.append(take(s.obstacles[None] - s.pos[:, None], *seen))
    return jnp.concatenate(parts, axis=1)


def pack(s: NavState) -> Float[Array, "S"]:
    return jnp.concatenate([s.pos.ravel(), s.vel.ravel(), s.goals.ravel(), s.obstacles.ravel()])


def unpack(agents: int, state: Float[Array, "S"]) -> NavState:
    own, obstacles = state[: 6 * agents].reshape(3, agents, 2), state[6 * agents :].reshape(-1, 2)
    return NavState(own[0], own[1], own[2], obstacles, jnp.int32(0))
