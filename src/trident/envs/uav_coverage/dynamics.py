"""The mechanics of cooperative coverage that the environment, its physics, shield and scripted policies share.

detection of a place q = 1 - prod_i (1 - f(|q - p_i| / r_i)),   f(u) = (1 - u^2)^2 within the sensing radius, else 0
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.uav_coverage.config import CoverageConfig
from trident.physics import flight, propulsion
from trident.physics.flight import length
from trident.types import HybridAction

HOLD, MOVE, SWAP = range(3)
MODES = ("hold", "move", "swap sector")


class CoverageState(NamedTuple):
    """Everything that evolves, and what the last slot did."""

    uav: Float[Array, "N 2"]
    velocity: Float[Array, "N 2"]
    hot: Float[Array, "H 2"]
    hot_vel: Float[Array, "H 2"]
    obstacle: Float[Array, "B 2"]
    radius: Float[Array, "N"]  # sensing radius of the last slot
    power: Float[Array, "N"]  # mean power of the last slot, W
    mode: Int[Array, "N"]
    clock: Int[Array, ""]


# --- flight ---------------------------------------------------------------------------------------


def command(
    config: CoverageConfig,
    s: CoverageState,
    mode: Int[Array, "N"],
    params: Float[Array, "N 3"],
    need: Float[Array, "N 2"],
) -> Float[Array, "N 2"]:
    """Velocity asked for: none in hold, (vx, vy) within the disc of speeds in move, straight to the sector most in need
    at a speed in swap. `need`: that sector's middle, for every UAV."""
    c = config
    free = flight.within(params[:, :2], c.max_speed)
    way = need - s.uav
    speed = jnp.minimum(params[:, 0], 0.5 * length(way))  # it does not overshoot
    there = way * (speed / length(way))[:, None]
    wanted = jnp.where((mode == MOVE)[:, None], free, jnp.where((mode == SWAP)[:, None], there, 0.0))
    return flight.fenced(s.uav, wanted, c.area, c.accel)


def fly(
    config: CoverageConfig, s: CoverageState, wanted: Float[Array, "N 2"]
) -> tuple[Float[Array, "N 2"], Float[Array, "N 2"]]:
    """Places and velocities after a slot."""
    after = flight.accelerate(s.velocity, wanted, config.accel, config.slot)
    return flight.travel(s.uav, s.velocity, after, config.slot), after


def power_of(
    config: CoverageConfig, before: Float[Array, "N 2"], after: Float[Array, "N 2"], radius: Float[Array, "N"]
) -> Float[Array, "N"]:
    """Rotors at the mean velocity of the slot, and the sensor, W."""
    speed = length(0.5 * (before + after))
    sensor = config.sensing_power * (radius / 100.0) ** 2
    return propulsion.propulsion_power(speed, propulsion.ROTORS[config.rotor]) + sensor


# --- importance -----------------------------------------------------------------------------------


def importance(config: CoverageConfig, hot: Float[Array, "H 2"], obstacle: Float[Array, "B 2"]) -> Float[Array, "Q"]:
    """Of every place; sums to 1. Nothing is of importance within an obstacle."""
    c = config
    x, y = (jnp.exp(-0.5 * ((axis_of(c)[:, None] - hot[:, k]) / c.hotspot_spread) ** 2) for k in range(2))
    peaks = (x[:, None] * y[None]).sum(-1).ravel()  # a Gaussian of the place is a product of two of its coordinates
    even = 1.0 / c.points**2
    mixed = c.hotspot_share * peaks / (peaks.sum() + 1e-9) + (1.0 - c.hotspot_share) * even
    if c.num_obstacles:
        mixed = jnp.where((gaps(obstacle, jnp.asarray(c.places)) < c.obstacle_radius).any(0), 0.0, mixed)
        return mixed / mixed.sum()
    return mixed


def axis_of(config: CoverageConfig) -> Float[Array, "G"]:
    return jnp.asarray(config.area * (np.arange(config.points) + 0.5) / config.points, jnp.float32)


def drift(
    config: CoverageConfig, hot: Float[Array, "H 2"], hot_vel: Float[Array, "H 2"], noise: Float[Array, "H 2"] | float
) -> tuple[Float[Array, "H 2"], Float[Array, "H 2"]]:
    """Gauss-Markov drift of the hotspots, mirrored at the border of the region's middle part."""
    c, m = config, config.hotspot_memory
    speed = m * hot_vel + c.hotspot_speed * (0.5 * (1.0 - m * m)) ** 0.5 * noise
    place = hot + c.slot * speed
    low, high = 0.12 * c.area, 0.88 * c.area
    outside = (place < low) | (place > high)
    mirrored = jnp.where(place < low, 2.0 * low - place, jnp.where(place > high, 2.0 * high - place, place))
    return jnp.clip(mirrored, low, high), jnp.where(outside, -speed, speed)


# --- detection ------------------------------------------------------------------------------------


def gaps(a: Float[Array, "A 2"], b: Float[Array, "B 2"]) -> Float[Array, "A B"]:
    """Pairwise distances."""
    return jnp.sqrt(squares(a, b) + 1e-12)


def squares(a: Float[Array, "A 2"], b: Float[Array, "B 2"]) -> Float[Array, "A B"]:
    dx, dy = a[:, None, 0] - b[None, :, 0], a[:, None, 1] - b[None, :, 1]
    return dx * dx + dy * dy


def detect(config: CoverageConfig, square: Float[Array, "N Q"], radius: Float[Array, "N"]) -> Float[Array, "N Q"]:
    """f of every UAV and place, from squared distances."""
    left = jnp.maximum(1.0 - square / (radius * radius)[:, None], 0.0)
    return left * left


def together(each: Float[Array, "N Q"]) -> Float[Array, "Q"]:
    """Detection of every place by anyone."""
    return 1.0 - jnp.prod(1.0 - each, axis=0)


def by_sector(config: CoverageConfig, detection: Float[Array, "Q"]) -> Float[Array, "K"]:
    """Mean detection in every sector."""
    c, each = config, config.points // config.sectors
    return detection.reshape(c.sectors, each, c.sectors, each).mean((1, 3)).ravel()


def sector_in_need(config: CoverageConfig, uav: Float[Array, "N 2"], quality: Float[Array, "K"]) -> Float[Array, "N 2"]:
    """For every UAV the middle of the sector with the least detection, among those in hearing."""
    c = config
    middles = jnp.asarray(c.sector_middles, jnp.float32)
    away = gaps(uav, middles)
    worst = jnp.argmin(jnp.where(away <= 2.0 * c.sight, quality, 2.0 + away / c.area), axis=1)
    return middles[worst]


def closest(config: CoverageConfig, uav: Float[Array, "N 2"], obstacle: Float[Array, "B 2"]) -> Float[Array, "N"]:
    """Distance of each UAV to the nearest other, or what an obstacle leaves of it: below `separation` is too near."""
    c = config
    apart = jnp.where(jnp.eye(c.num_uavs, dtype=bool), jnp.inf, gaps(uav, uav)).min(1)
    rim = (gaps(uav, obstacle) - c.obstacle_radius).min(1, initial=jnp.inf)
    return jnp.minimum(apart, rim + c.separation)


def discs(config: CoverageConfig, obstacle: Float[Array, "B 2"]) -> Float[Array, "B 3"]:
    """Obstacles as (x, y, radius)."""
    return jnp.concatenate([obstacle, jnp.full((*obstacle.shape[:1], 1), config.obstacle_radius)], 1)


# --- a slot ---------------------------------------------------------------------------------------


def transition(
    config: CoverageConfig, s: CoverageState, noise: Float[Array, "H 2"] | float, action: HybridAction
) -> CoverageState:
    """The deterministic part of a slot."""
    c = config
    each = detect(c, squares(s.uav, jnp.asarray(c.places)), s.radius)
    need = sector_in_need(c, s.uav, by_sector(c, together(each)))
    uav, velocity = fly(c, s, command(c, s, action.mode, action.params, need))
    radius = action.params[:, 2]
    hot, hot_vel = drift(c, s.hot, s.hot_vel, noise)
    power = power_of(c, s.velocity, velocity, radius)
    return CoverageState(uav, velocity, hot, hot_vel, s.obstacle, radius, power, action.mode, s.clock + 1)


def is_charged(config: CoverageConfig, clock: Int[Array, ""]) -> Bool[Array, ""]:
    """Sectors count after the deployment."""
    return clock > config.grace
