"""No-fly zones: one UAV crosses an area among polygons that it must not touch, in wind, within a power limit.

A step: the UAV chooses a neighbouring cell of a grid as its waypoint (or to hold) and a velocity towards it; an
autopilot flies it, within its acceleration limit and a tube. The episode ends at the goal.

    reward = 0.02 m of the shortest way gained - 0.1 - 5e-4 J + 5 [goal]

Costs: `penetration`, 1 if the UAV touched a zone on the way of the step; `energy`, 1 if the step took more power than
allowed (hovering does, and so does racing against the wind).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.geometry import square_to_disc
from trident.envs.uav_nofly import scripted
from trident.envs.uav_nofly.base_policy import base_policy
from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.dynamics import NoFlyState, cell_of, mode_mask, power_of, to_go, transition
from trident.envs.uav_nofly.maps import Maps, draw_maps, start_rows
from trident.envs.uav_nofly.physics import FAR, build_physics, pack
from trident.envs.uav_nofly.shield import shield
from trident.physics import polygons
from trident.physics.flight import length
from trident.types import ActionSpec, Constraint, EnvSpec, FailSafe, HybridAction, Key, Metric, TimeStep, follow

# --- config ---------------------------------------------------------------------------------------

VARIANTS: dict[str, NoFlyConfig] = {
    "uav-nofly": NoFlyConfig(),
    "uav-nofly-unseen": NoFlyConfig(map_seed=1),
    "uav-nofly-dense": NoFlyConfig(num_zones=12, zone_radius=(18.0, 36.0)),
    "uav-nofly-storm": NoFlyConfig(wind=6.0, gust=1.8, max_wind=9.0),
}
"""Named scenarios. `uav-nofly-unseen` is `uav-nofly` on other maps: for evaluation only."""
MODES = ("hold", "E", "NE", "N", "NW", "W", "SW", "S", "SE")


def action_spec(config: NoFlyConfig) -> ActionSpec:
    c, shape = config, (1, len(MODES), 2)
    used = np.ones(shape, bool)
    used[:, 0] = False
    return ActionSpec(
        low=np.full(shape, (0.0, -c.max_across), np.float32),
        high=np.full(shape, (c.max_speed, c.max_across), np.float32),
        used=used,
        mode_names=MODES,
        param_names=("along", "across"),
        param_units=("m/s", "m/s"),
    )


FAIL_SAFE = FailSafe("hold", tuple(range(len(MODES))), np.zeros((len(MODES), 2), np.float32), help="brake and stay")


def constraints(config: NoFlyConfig) -> tuple[Constraint, ...]:
    c = config
    return (
        Constraint(
            "penetration", c.penetration_limit, help="share of steps in which the UAV touches a no-fly zone",
            formula="1[least signed distance of the step's way to a zone < 0]",
        ),
        Constraint(
            "energy", c.energy_limit, immediate=True, help=f"share of steps above {c.max_power:g} W",
            formula=f"1[mean power of the step > {c.max_power:g} W]",
        ),
    )  # fmt: skip


METRICS = (
    Metric("arrived", "higher", "share", per="episodes", help="share of the flights that reach the goal"),
    Metric("penetrated", "lower", "share", per="episodes", help="steps within a zone, per flight"),
    Metric("time", "lower", "s", per="episodes", help="time to the goal (the horizon if it is not reached)"),
    Metric("power", "lower", "W", help="mean electric power"),
    Metric("speed", "neither", "m/s", help="mean ground speed"),
    Metric("clearance", "neither", "m", help="mean distance to the nearest zone"),
    Metric("near", "neither", "share", help="share of steps within 10 m of a zone"),
    Metric("episodes", help="1 on the last step of a flight"),
)


# --- reset ----------------------------------------------------------------------------------------


def initial_state(config: NoFlyConfig, maps: Maps, key: Key) -> NoFlyState:
    """A map, a place in the western strip and the wind are drawn; the UAV enters at speed."""
    c = config
    k_map, k_row, k_wind, k_gust = jax.random.split(key, 4)
    number = jax.random.randint(k_map, (), 0, len(maps.goal))
    rows = start_rows(c)
    row = jax.random.randint(k_row, (), rows.start, rows.stop)
    place = jnp.stack([jnp.float32(0.5 * c.strip), c.cell * (row + 0.5)])
    mean = c.wind * square_to_disc(jax.random.uniform(k_wind, (2,), minval=-1.0, maxval=1.0))
    wind = mean + 0.5 * c.gust * jax.random.uniform(k_gust, (2,), minval=-1.0, maxval=1.0)
    velocity = jnp.array([c.entry_speed, 0.0], jnp.float32)
    return NoFlyState(
        place=place,
        velocity=velocity,
        offset=jnp.zeros(2),
        wind=wind,
        mean_wind=mean,
        map=number,
        goal=jnp.asarray(maps.goal)[number],
        clock=jnp.zeros((), jnp.int32),
        mode=jnp.zeros((), jnp.int32),
        waypoint=place,
        clearance=jnp.float32(FAR),
        power=power_of(c, velocity, wind),
        arrived=jnp.zeros((), bool),
    )


# --- observation ----------------------------------------------------------------------------------


def observe(config: NoFlyConfig, maps: Maps, s: NoFlyState) -> Float[Array, "1 O"]:
    """Own motion, the goal, the wind, the place in the cell, the nearest outline, a range finder all around, and the
    waypoints allowed."""
    c = config
    rel = s.goal - s.place
    turn = 2.0 * np.pi * np.arange(c.rays) / c.rays
    directions = jnp.asarray(np.stack([np.cos(turn), np.sin(turn)], 1), jnp.float32)
    zones = jnp.asarray(maps.zones)[s.map]
    seen = polygons.ranges(s.place, directions, zones, c.sight)
    towards, away = polygons.nearest(s.place, zones)
    parts = [
        s.velocity / c.max_speed,
        rel / c.area,
        rel / jnp.maximum(length(rel), 1.0),
        s.wind / c.max_wind,
        s.offset / c.tube,
        jnp.clip(s.place / c.cell - cell_of(c, s.place) - 0.5, -1.0, 1.0),
        jnp.clip(1.0 - s.power / c.max_power, -1.0, 1.0)[None],
        s.clock[None] / c.horizon,
        towards,
        jnp.clip(away / c.sight, -1.0, 1.0)[None],
        1.0 - seen / c.sight,
        mode_mask(c, maps, s.map, s.place),
    ]
    return jnp.concatenate([p.astype(jnp.float32) for p in parts])[None]


# --- reward and costs -----------------------------------------------------------------------------


def reward_and_costs(
    config: NoFlyConfig, maps: Maps, before: NoFlyState, s: NoFlyState
) -> tuple[Float[Array, ""], Float[Array, "2"], dict[str, Array]]:
    """Reward, costs and metrics of the step that led to `s`."""
    c = config
    gained = to_go(c, maps, s.map, before.place) - to_go(c, maps, s.map, s.place)
    reward = c.progress_weight * gained - c.time_weight - c.energy_weight * c.step * s.power
    reward = reward + c.goal_reward * s.arrived
    cost = jnp.stack([s.clearance < 0.0, s.power > c.max_power]).astype(jnp.float32)
    over = s.arrived | (s.clock >= c.horizon)
    values = {
        "arrived": s.arrived,
        "penetrated": cost[0],
        "time": over * s.clock * c.step,
        "power": s.power,
        "speed": length(s.velocity),
        "clearance": jnp.clip(s.clearance, -FAR, FAR),
        "near": s.clearance < 10.0,
        "episodes": over,
    }
    return reward, cost, {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}


def margins(config: NoFlyConfig, s: NoFlyState) -> Float[Array, "2"]:
    """Signed distance to each limit, about unit scale."""
    near = jnp.clip(s.clearance / 10.0, -1.0, 1.0)
    return jnp.stack([near, jnp.clip(1.0 - s.power / config.max_power, -1.0, 1.0)])


# --- the environment ------------------------------------------------------------------------------


class UavNoFly:
    """The environment for one flight; see `NoFlyConfig` for every number and `VARIANTS` for named scenarios."""

    def __init__(self, config: NoFlyConfig = NoFlyConfig()):  # noqa: B008 (frozen)
        self.config, self.maps = config, draw_maps(config)
        maps = self.maps
        shapes = jax.eval_shape(lambda key: self._look(initial_state(config, maps, key)), jax.random.key(0))
        self.spec = EnvSpec(
            name="uav-nofly",
            version=1,
            num_agents=1,
            obs_dim=shapes[0].shape[-1],
            state_dim=shapes[1].shape[-1],
            action=action_spec(config),
            constraints=constraints(config),
            horizon=config.horizon,
            metrics=METRICS,
            step_seconds=config.step,
            fail_safe=FAIL_SAFE,
        )
        suggest = partial(base_policy, config, self.spec.action)
        self.physics = replace(build_physics(config, maps), base_policy=suggest)
        self.scripted = scripted.policies(config, maps, self.spec.action) | {
            "nominal": lambda key, state: self.physics.nominal(pack(config, maps, state)),
            "base-policy": lambda key, state: follow(self.spec.action, suggest, observe(config, maps, state)),
        }
        self.shield = partial(shield, config, maps)

    def reset(self, key: Key) -> tuple[NoFlyState, TimeStep]:
        s = initial_state(self.config, self.maps, key)
        idle = {m.name: jnp.zeros(()) for m in self.spec.metrics}
        return s, self._timestep(s, jnp.zeros(()), jnp.zeros(2), idle)

    def step(self, key: Key, state: NoFlyState, action: HybridAction) -> tuple[NoFlyState, TimeStep]:
        state = jax.tree.map(jnp.asarray, state)  # a state kept on the host is as good
        return self.transition(state, jax.random.normal(key, (2,)), action)

    def transition(
        self, state: NoFlyState, noise: Float[Array, "2"], action: HybridAction
    ) -> tuple[NoFlyState, TimeStep]:
        """`step` with its gust given."""
        after = transition(self.config, self.maps, state, noise, action.mode[0], action.params[0])
        return after, self._timestep(after, *reward_and_costs(self.config, self.maps, state, after))

    def _look(self, s: NoFlyState) -> tuple[Array, Array]:
        return observe(self.config, self.maps, s), pack(self.config, self.maps, s)

    def _timestep(self, s: NoFlyState, reward: Array, cost: Array, values: dict[str, Any]) -> TimeStep:
        obs, array = self._look(s)
        return TimeStep(
            obs=obs,
            state=array,
            mode_mask=mode_mask(self.config, self.maps, s.map, s.place)[None],
            alive=jnp.ones(1, bool),
            reward=reward,
            cost=cost,
            margin=margins(self.config, s),
            terminated=s.arrived,
            truncated=(s.clock >= self.config.horizon) & ~s.arrived,
            metrics=values,
            cost_attribution=(cost > 0.0)[None],
        )

    def scene(self, states: NoFlyState, changed: Any = None) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`).

        `changed` [T, N]: which actions a shield has altered on the way.
        """
        from trident.envs.uav_nofly.scene import scene

        return scene(self.config, self.maps, states, changed)

    def figure(self, where: Any, states: NoFlyState, changed: Any = None) -> None:
        """Draw the episode onto a matplotlib figure, for print."""
        from trident.envs.uav_nofly.scene import figure

        figure(self.config, self.maps, where, states, changed)
