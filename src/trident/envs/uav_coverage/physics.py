"""The coverage scenario's global state array, and closed-form physics on it.

What physics knows in advance of a slot: flight, power, the mean drift of the hotspots, detection of every place. What
it leaves to learning: where hotspots really drift, and everything later than the next slot.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import (
    MOVE,
    CoverageState,
    by_sector,
    detect,
    gaps,
    importance,
    is_charged,
    squares,
    together,
    transition,
)
from trident.maths.stable_min import first_minimum
from trident.physics import flight
from trident.physics.flight import length
from trident.types import HybridAction, Physics

SECTOR_EDGE = 0.02
"""Softness of a sector's minimum."""
GAP_EDGE = 2.0
"""Softness of the separation, m."""
NOTICE = 2.0
"""How far ahead a lost separation is announced, s."""
THRIFTY_SPEED = 12.0
"""Flight takes the least power at about this speed, m/s."""
NEAR = 15.0
"""Who is nearer than this to where he wants to be holds, m."""
USUAL_RADIUS = 0.7
"""Sensing radius of who does not think about it, between the smallest (0) and the largest (1)."""


# --- the array ------------------------------------------------------------------------------------


def pack(config: CoverageConfig, s: CoverageState) -> Float[Array, "S"]:
    """State -> the global state array; every entry is about unit scale."""
    c = config
    each = detect(c, squares(s.uav, jnp.asarray(c.places)), s.radius)
    detection = together(each)
    parts = [
        2.0 * s.uav / c.area - 1.0,
        s.velocity / c.max_speed,
        s.radius / c.radius[1],
        2.0 * s.hot / c.area - 1.0,
        s.hot_vel / max(c.hotspot_speed, 1.0),
        2.0 * s.obstacle / c.area - 1.0,
        s.clock / c.horizon,
        grace_left(c, s.clock),
        by_sector(c, detection),
        (detection * importance(c, s.hot, s.obstacle)).sum(),
    ]
    return jnp.concatenate([p.astype(jnp.float32).ravel() for p in parts])


def grace_left(config: CoverageConfig, clock: Int[Array, ""]) -> Float[Array, ""]:
    """Remaining share of the deployment."""
    return jnp.maximum(config.grace - clock, 0) / max(config.grace, 1)


def unpack(config: CoverageConfig, array: Float[Array, "S"]) -> CoverageState:
    """The part of the state that evolves; mode and power of the last slot are not known."""
    c = config
    n, h, b = c.num_uavs, c.num_hotspots, c.num_obstacles
    uav, velocity, radius, hot, hot_vel, obstacle, clock, _ = jnp.split(
        array, np.cumsum([2 * n, 2 * n, n, 2 * h, 2 * h, 2 * b, 1])
    )
    place = lambda flat: 0.5 * c.area * (flat.reshape(-1, 2) + 1.0)  # noqa: E731
    return CoverageState(
        uav=place(uav), velocity=c.max_speed * velocity.reshape(-1, 2), hot=place(hot),
        hot_vel=max(c.hotspot_speed, 1.0) * hot_vel.reshape(-1, 2), obstacle=place(obstacle),
        radius=c.radius[1] * radius, power=jnp.zeros(n), mode=jnp.zeros(n, jnp.int32),
        clock=jnp.round(c.horizon * clock[0]).astype(jnp.int32),
    )  # fmt: skip


# --- the three functions --------------------------------------------------------------------------


def reward_of(config: CoverageConfig, s: CoverageState) -> tuple[Float[Array, ""], Float[Array, "K"]]:
    """Importance detected minus what the energy costs, and detection by sector, of the slot that led to `s`."""
    c = config
    detection = together(detect(c, squares(s.uav, jnp.asarray(c.places)), s.radius))
    found = (detection * importance(c, s.hot, s.obstacle)).sum()
    return found - c.energy_weight * s.power.mean(), by_sector(c, detection)


def signals(config: CoverageConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "signals"]:
    """Expected reward and smooth costs in [0, 1] of the next slot.

    sectors: mean over sectors of sigmoid((least - detection) / SECTOR_EDGE).
    separation: mean over UAVs of 1 - (1 - now) (1 - announced), now = sigmoid((least - distance) / GAP_EDGE),
    announced = slot / NOTICE sigmoid((least - distance between where braking ends) / GAP_EDGE).
    """
    c = config
    before = unpack(c, array)
    s = transition(c, before, 0.0, action)
    reward, quality = reward_of(c, s)
    low = is_charged(c, s.clock) * jax.nn.sigmoid((c.sector_min - quality) / SECTOR_EDGE).mean()
    near = [softly_closest(c, at, s.obstacle) for at in (s.uav, flight.stop_place(s.uav, s.velocity, c.accel, c.slot))]
    now, later = (jax.nn.sigmoid((c.separation - gap) / GAP_EDGE) for gap in near)
    crowded = 1.0 - (1.0 - now) * (1.0 - c.slot / NOTICE * later)
    return jnp.stack([reward, low, crowded.mean()])


def softly_closest(
    config: CoverageConfig, uav: Float[Array, "N 2"], obstacle: Float[Array, "B 2"]
) -> Float[Array, "N"]:
    """`closest` with a gradient that survives compilation."""
    c = config
    apart = gaps(uav, uav) + 1e6 * jnp.eye(c.num_uavs)
    rims = gaps(uav, obstacle) - c.obstacle_radius + c.separation
    both = jnp.concatenate([apart, rims], 1)
    return jnp.where(first_minimum(both, 1), both, 0.0).sum(1)


def predict(config: CoverageConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
    return pack(config, transition(config, unpack(config, array), 0.0, action))


def nominal(config: CoverageConfig, array: Float[Array, "S"]) -> HybridAction:
    """Carry on sensibly: Lloyd's step at a thrifty speed, with a usual sensing radius."""
    c = config
    s = unpack(c, array)
    way = lloyd_targets(c, s) - s.uav
    return towards(c, s, keep_off(c, s, way), THRIFTY_SPEED, usual_radius(c))


def usual_radius(config: CoverageConfig) -> float:
    low, high = config.radius
    return low + USUAL_RADIUS * (high - low)


def lloyd_targets(config: CoverageConfig, s: CoverageState) -> Float[Array, "N 2"]:
    """Centres of importance of the UAVs' Voronoi cells; a UAV whose cell has none stays."""
    c = config
    places = jnp.asarray(c.places)
    mine = first_minimum(squares(s.uav, places), 0).astype(jnp.float32)
    weight = mine * importance(c, s.hot, s.obstacle)
    mass = weight.sum(1)
    centre = (weight @ places) / jnp.maximum(mass, 1e-6)[:, None]
    return jnp.where((mass > 1e-6)[:, None], centre, s.uav)


def keep_off(config: CoverageConfig, s: CoverageState, way: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
    """The way, bent away from others and obstacles that are nearer than twice the separation."""
    c = config
    least = 2.0 * c.separation
    rel = s.uav[:, None] - s.uav[None]
    push = jnp.where(jnp.eye(c.num_uavs, dtype=bool), 0.0, jnp.maximum(least - length(rel), 0.0))
    away = (rel / jnp.maximum(length(rel), 1.0)[..., None] * push[..., None]).sum(1)
    off = s.uav[:, None] - s.obstacle[None]
    rim = jnp.maximum(c.separation + c.obstacle_radius - length(off), 0.0)
    return way + away + 2.0 * (off / jnp.maximum(length(off), 1.0)[..., None] * rim[..., None]).sum(1)


def towards(
    config: CoverageConfig, s: CoverageState, way: Float[Array, "N 2"], speed: float, radius: Float[Array, "N"] | float
) -> HybridAction:
    """Fly a way at a speed, slower at its end; hold where it is short."""
    c = config
    far = length(way)
    velocity = way * (jnp.minimum(speed, 0.5 * far / c.slot) / far)[:, None]
    moves = (far > NEAR) | (length(s.velocity) > c.accel * c.slot)
    velocity = jnp.where(moves[:, None], velocity, 0.0)
    radius = jnp.broadcast_to(jnp.asarray(radius, jnp.float32), far.shape)
    mode = jnp.where(moves, MOVE, 0).astype(jnp.int32)
    return HybridAction(mode, jnp.concatenate([velocity, radius[:, None]], 1))


def build_physics(config: CoverageConfig) -> Physics:
    return Physics(partial(signals, config), partial(predict, config), partial(nominal, config))
