"""Cooperative coverage: identical UAVs share out a region and detect what is of importance in it.

A slot: every UAV holds, moves, or leaves its sector for the one most in need, and chooses how far its sensor reaches,
which costs power. Importance drifts with its hotspots.

    reward = importance detected (of 1) - 2e-3 mean power of a UAV (W)

Costs: `sectors`, the share of the sectors whose mean detection is below the minimum (after the deployment);
`separation`, the share of UAVs too near another or an obstacle.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from trident.envs.geometry import nearest, take
from trident.envs.uav_coverage import scripted
from trident.envs.uav_coverage.base_policy import base_policy
from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import (
    MODES,
    CoverageState,
    by_sector,
    closest,
    detect,
    gaps,
    importance,
    is_charged,
    sector_in_need,
    squares,
    together,
    transition,
)
from trident.envs.uav_coverage.physics import build_physics, grace_left, pack, usual_radius
from trident.envs.uav_coverage.shield import shield
from trident.physics.flight import length
from trident.types import ActionSpec, Constraint, EnvSpec, FailSafe, HybridAction, Key, Metric, TimeStep, follow

# --- config ---------------------------------------------------------------------------------------

VARIANTS: dict[str, CoverageConfig] = {
    "uav-coverage": CoverageConfig(),
    "uav-coverage-free": CoverageConfig(energy_weight=0.0),
    "uav-coverage-obstacles": CoverageConfig(num_obstacles=3),
    "uav-coverage-n12": CoverageConfig(num_uavs=12, num_hotspots=5, points=16, sectors=4),
}
"""Named scenarios. In `uav-coverage-free` energy does not count."""


def action_spec(config: CoverageConfig) -> ActionSpec:
    c, top, (near, far) = config, config.max_speed, config.radius
    low = np.array([(0.0, 0.0, near), (-top, -top, near), (0.0, 0.0, near)], np.float32)
    high = np.array([(0.0, 0.0, far), (top, top, far), (top, 0.0, far)], np.float32)
    used = np.array([(False, False, True), (True, True, True), (True, False, True)])
    spread = lambda table: np.repeat(table[None], c.num_uavs, 0)  # noqa: E731
    names, units = ("vx or speed", "vy", "radius"), ("m/s", "m/s", "m")
    return ActionSpec(spread(low), spread(high), spread(used), MODES, names, units)


def fail_safe(config: CoverageConfig) -> FailSafe:
    params = np.zeros((len(MODES), 3), np.float32)
    params[:, 2] = usual_radius(config)
    return FailSafe("hold", tuple(range(len(MODES))), params, help="brake and stay, sense as usual")


def constraints(config: CoverageConfig) -> tuple[Constraint, ...]:
    c = config
    return (
        Constraint(
            "sectors", c.sector_limit, help=f"share of sectors with a detection below {c.sector_min:g}",
            formula=f"mean over sectors of 1[mean detection < {c.sector_min:g}], 0 in the first {c.grace} slots",
        ),
        Constraint(
            "separation", c.separation_limit, help=f"share of UAVs within {c.separation:g} m of another",
            formula=f"mean over UAVs of 1[distance to the nearest other < {c.separation:g} m, or within an obstacle]",
        ),
    )  # fmt: skip


METRICS = (
    Metric("detected", "higher", "share", per="charged", help="share of the importance that is detected"),
    Metric("worst", "higher", per="charged", help="mean detection of the sector that has least of it"),
    Metric("power", "lower", "W", help="mean power of a UAV"),
    Metric("radius", "neither", "m", help="mean sensing radius"),
    Metric("speed", "neither", "m/s", help="mean speed"),
    Metric("gap", "neither", "m", help="distance of the nearest two UAVs"),
    Metric("charged", help="1 on slots after the deployment"),
)


# --- reset ----------------------------------------------------------------------------------------


def initial_state(config: CoverageConfig, key: Key) -> CoverageState:
    """Hotspots and obstacles anywhere; the UAVs in a square formation somewhere, standing."""
    c = config
    k_hot, k_vel, k_at, k_ob = jax.random.split(key, 4)
    hot = jax.random.uniform(k_hot, (c.num_hotspots, 2), minval=0.15 * c.area, maxval=0.85 * c.area)
    hot_vel = 0.5**0.5 * c.hotspot_speed * jax.random.normal(k_vel, (c.num_hotspots, 2))
    span = (c.start_side - 1) * c.start_gap
    corner = jax.random.uniform(k_at, (2,), minval=c.start_gap, maxval=c.area - c.start_gap - span)
    uav = corner + c.start_gap * jnp.asarray(formation(c), jnp.float32)
    return CoverageState(
        uav=uav,
        velocity=jnp.zeros_like(uav),
        hot=hot,
        hot_vel=hot_vel,
        obstacle=place_obstacles(c, k_ob, uav),
        radius=jnp.full(c.num_uavs, usual_radius(c)),
        power=jnp.zeros(c.num_uavs),
        mode=jnp.zeros(c.num_uavs, jnp.int32),
        clock=jnp.zeros((), jnp.int32),
    )


def formation(config: CoverageConfig) -> Float[np.ndarray, "N 2"]:
    """Columns and rows of the square in which the UAVs start."""
    k = np.arange(config.num_uavs)
    return np.stack([k // config.start_side, k % config.start_side], 1).astype(np.float32)


def place_obstacles(config: CoverageConfig, key: Key, uav: Float[Array, "N 2"]) -> Float[Array, "B 2"]:
    """One after another, the best of some tries: far from the UAVs and from each other."""
    c, tries = config, 32
    if not c.num_obstacles:
        return jnp.zeros((0, 2))
    far = c.obstacle_radius + 2.0 * c.separation
    places = jax.random.uniform(key, (c.num_obstacles, tries, 2), minval=far, maxval=c.area - far)
    chosen = uav
    for k in range(c.num_obstacles):
        room = gaps(places[k], chosen).min(1)
        fits = room > 2.0 * c.obstacle_radius + c.separation
        best = jnp.where(fits.any(), jnp.argmax(fits), jnp.argmax(room))
        chosen = jnp.concatenate([chosen, places[k][best][None]])
    return chosen[c.num_uavs :]


# --- observation ----------------------------------------------------------------------------------


def see_importance(config: CoverageConfig, s: CoverageState, weight: Float[Array, "Q"]) -> Float[Array, "N 11"]:
    """Of the part of the own Voronoi cell in sight: its importance and centre; and the importance in sight that the
    others do not detect, by direction."""
    c = config
    places = jnp.asarray(c.places)
    square = squares(s.uav, places)
    seen = square <= c.sight**2
    mine = (square <= square.min(0)) & seen
    weighed = jnp.where(mine, weight, 0.0)
    mass = weighed.sum(1)
    centre = (weighed @ places) / jnp.maximum(mass, 1e-6)[:, None] - s.uav
    centre = jnp.where((mass > 1e-6)[:, None], centre, 0.0) / c.sight
    each = detect(c, square, s.radius)
    whole = jnp.prod(1.0 - each, axis=0)
    others = whole / jnp.maximum(1.0 - each, 1e-3)
    left = jnp.where(seen, weight * jnp.minimum(others, 1.0), 0.0)
    dx, dy = places[None, :, 0] - s.uav[:, None, 0], places[None, :, 1] - s.uav[:, None, 1]
    octant = 4 * (dx > 0) + 2 * (dy > 0) + (jnp.abs(dx) > jnp.abs(dy))
    missed = jnp.stack([jnp.where(octant == k, left, 0.0).sum(1) for k in range(8)], 1)
    return jnp.concatenate([c.num_uavs * mass[:, None], centre, c.num_uavs * missed], 1)


def see_fleet(config: CoverageConfig, s: CoverageState) -> Float[Array, "N _"]:
    """Nearest others in hearing: place, sensing radius, heard."""
    c, hearing = config, 2.0 * config.sight
    if c.num_uavs == 1:
        return jnp.zeros((1, 0))
    rel = (s.uav[None] - s.uav[:, None]) / hearing
    away = gaps(s.uav, s.uav)
    heard = (away <= hearing) & ~np.eye(c.num_uavs, dtype=bool)
    radius = jnp.broadcast_to(s.radius / c.radius[1], heard.shape)
    traits = jnp.stack([rel[..., 0], rel[..., 1], radius, jnp.ones_like(radius)], -1)
    return take(traits, *nearest(away, heard, min(c.seen_uavs, c.num_uavs - 1)))


def see_obstacles(config: CoverageConfig, s: CoverageState) -> Float[Array, "N _"]:
    """All obstacles in hearing, the nearest first."""
    c, hearing = config, 2.0 * config.sight
    if not c.num_obstacles:
        return jnp.zeros((c.num_uavs, 0))
    rel = (s.obstacle[None] - s.uav[:, None]) / hearing
    away = gaps(s.uav, s.obstacle)
    traits = jnp.concatenate([rel, jnp.ones((*away.shape, 1))], -1)
    return take(traits, *nearest(away, away <= hearing, c.num_obstacles))


def observe(config: CoverageConfig, s: CoverageState, weight: Float[Array, "Q"], quality: Array) -> Float[Array, "N O"]:
    """What each UAV sees; every feature is about unit scale."""
    c = config
    alike = jnp.broadcast_to(grace_left(c, s.clock), (c.num_uavs, 1))
    map_ = see_importance(c, s, weight)
    need = (sector_in_need(c, s.uav, quality) - s.uav) / c.area
    parts = [
        2.0 * s.uav / c.area - 1.0,
        s.velocity / c.max_speed,
        s.radius[:, None] / c.radius[1],
        alike,
        map_[:, :3],
        need,
        see_fleet(c, s),
        map_[:, 3:],
        see_obstacles(c, s),
    ]
    return jnp.concatenate(parts, -1)


# --- reward and costs -----------------------------------------------------------------------------


def reward_and_costs(
    config: CoverageConfig, s: CoverageState, found: Array, quality: Float[Array, "K"], near: Float[Array, "N"]
) -> tuple[Float[Array, ""], Float[Array, "2"], dict[str, Array]]:
    """Reward, costs and metrics of the slot that led to `s`."""
    c = config
    charged = is_charged(c, s.clock)
    reward = found - c.energy_weight * s.power.mean()
    cost = jnp.stack([charged * (quality < c.sector_min).mean(), (near < c.separation).mean()])
    values = {
        "detected": charged * found,
        "worst": charged * quality.min(),
        "power": s.power.mean(),
        "radius": s.radius.mean(),
        "speed": length(s.velocity).mean(),
        "gap": jnp.minimum(near.min(), c.area),
        "charged": charged,
    }
    return reward, cost, {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}


def margins(config: CoverageConfig, s: CoverageState, quality: Array, near: Array) -> Float[Array, "2"]:
    """Signed distance to each limit, about unit scale; negative exactly when the cost is charged."""
    c = config
    sectors = jnp.clip(quality.min() / max(c.sector_min, 1e-3) - 1.0, -1.0, 1.0)
    sectors = jnp.where(is_charged(c, s.clock), sectors, jnp.maximum(sectors, 0.0))
    return jnp.stack([sectors, jnp.clip(near.min() / c.separation - 1.0, -1.0, 1.0)])


# --- the environment ------------------------------------------------------------------------------


class UavCoverage:
    """The environment for one fleet; see `CoverageConfig` for every number and `VARIANTS` for named scenarios."""

    def __init__(self, config: CoverageConfig = CoverageConfig()):  # noqa: B008 (frozen)
        self.config = config
        shapes = jax.eval_shape(lambda key: self._look(initial_state(config, key))[:2], jax.random.key(0))
        self.spec = EnvSpec(
            name="uav-coverage",
            version=1,
            num_agents=config.num_uavs,
            obs_dim=shapes[0].shape[-1],
            state_dim=shapes[1].shape[-1],
            action=action_spec(config),
            constraints=constraints(config),
            horizon=config.horizon,
            metrics=METRICS,
            step_seconds=config.slot,
            fail_safe=fail_safe(config),
        )
        suggest = partial(base_policy, config, self.spec.action)
        self.physics = replace(build_physics(config), base_policy=suggest)
        self.scripted = scripted.policies(config, self.spec.action) | {
            "nominal": lambda key, state: self.physics.nominal(pack(config, state)),
            "base-policy": lambda key, state: follow(self.spec.action, suggest, self._look(state)[0]),
        }
        self.shield = partial(shield, config)

    def reset(self, key: Key) -> tuple[CoverageState, TimeStep]:
        s = initial_state(self.config, key)
        idle = {m.name: jnp.zeros(()) for m in self.spec.metrics}
        out = self._timestep(s)
        nobody = jnp.zeros((self.config.num_uavs, 2), bool)
        return s, out._replace(reward=jnp.zeros(()), cost=jnp.zeros(2), cost_attribution=nobody, metrics=idle)

    def step(self, key: Key, state: CoverageState, action: HybridAction) -> tuple[CoverageState, TimeStep]:
        state = jax.tree.map(jnp.asarray, state)  # a state kept on the host is as good
        return self.transition(state, jax.random.normal(key, (self.config.num_hotspots, 2)), action)

    def transition(
        self, state: CoverageState, noise: Float[Array, "H 2"], action: HybridAction
    ) -> tuple[CoverageState, TimeStep]:
        """`step` with its randomness given."""
        after = transition(self.config, state, noise, action)
        return after, self._timestep(after)

    def _look(self, s: CoverageState) -> tuple[Array, Array, Array, Array]:
        """Observation, state array, importance detected and detection by sector."""
        c = self.config
        weight = importance(c, s.hot, s.obstacle)
        detection = together(detect(c, squares(s.uav, jnp.asarray(c.places)), s.radius))
        quality = by_sector(c, detection)
        return observe(c, s, weight, quality), pack(c, s), (detection * weight).sum(), quality

    def _timestep(self, s: CoverageState) -> TimeStep:
        c = self.config
        obs, array, found, quality = self._look(s)
        near = closest(c, s.uav, s.obstacle)
        reward, cost, values = reward_and_costs(c, s, found, quality, near)
        return TimeStep(
            obs=obs,
            state=array,
            mode_mask=jnp.ones((c.num_uavs, len(MODES)), bool),
            alive=jnp.ones(c.num_uavs, bool),
            reward=reward,
            cost=cost,
            margin=margins(c, s, quality, near),
            terminated=jnp.zeros((), bool),
            truncated=s.clock >= c.horizon,
            metrics=values,
            cost_attribution=self._attribution(cost, near),
        )

    def _attribution(self, cost: Float[Array, "2"], near: Float[Array, "N"]) -> Bool[Array, "N 2"]:
        """A sector in need is everyone's fault, closeness one's own."""
        return jnp.stack([jnp.broadcast_to(cost[0] > 0.0, near.shape), near < self.config.separation], 1)

    def scene(self, states: CoverageState, changed: Any = None) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`).

        `changed` [T, N]: which actions a shield has altered on the way.
        """
        from trident.envs.uav_coverage.scene import scene

        return scene(self.config, states, changed)

    def figure(self, where: Any, states: CoverageState, changed: Any = None) -> None:
        """Draw the episode onto a matplotlib figure, for print."""
        from trident.envs.uav_coverage.scene import figure

        figure(self.config, where, states, changed)
