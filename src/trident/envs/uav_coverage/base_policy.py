"""What a UAV can tell from its own observation alone: Lloyd's step on the part of its cell that it sees, at about the
speed of least power, with a usual sensing radius. Who sees little of importance goes where a sector is in need."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import HOLD, MOVE, SWAP
from trident.envs.uav_coverage.physics import NEAR, THRIFTY_SPEED, usual_radius
from trident.physics.flight import length
from trident.types import ActionSpec, BaseAction

CONFIDENCE = 4.0
"""Logit of the suggested mode; the others are at 0."""
EMPTY = 0.02
"""A cell with less of the importance than this is left."""


def base_policy(config: CoverageConfig, spec: ActionSpec, obs: Float[Array, "O"]) -> BaseAction:
    c = config
    velocity, mass, centre = c.max_speed * obs[2:4], obs[6] / c.num_uavs, c.sight * obs[7:9]
    others = obs[11 : 11 + 4 * min(c.seen_uavs, c.num_uavs - 1)].reshape(-1, 4)
    rims = obs[obs.shape[0] - 3 * c.num_obstacles :].reshape(-1, 3)
    way = centre + away_from(2.0 * c.sight * others[:, :2], others[:, 3], 2.0 * c.separation)
    way = way + 2.0 * away_from(2.0 * c.sight * rims[:, :2], rims[:, 2], c.separation + c.obstacle_radius)
    far = length(way)
    going = way * (jnp.minimum(THRIFTY_SPEED, 0.5 * far / c.slot) / far)
    moves = (far > NEAR) | (length(velocity) > c.accel * c.slot)
    mode = jnp.where(mass < EMPTY, SWAP, jnp.where(moves, MOVE, HOLD))
    radius = jnp.asarray(usual_radius(c), jnp.float32)
    nothing = jnp.zeros(())
    params = jnp.stack([
        jnp.stack([nothing, nothing, radius]),
        jnp.stack([going[0], going[1], radius]),
        jnp.stack([nothing + THRIFTY_SPEED, nothing, radius]),
    ])  # fmt: skip
    low, high = jnp.asarray(spec.low[0]), jnp.asarray(spec.high[0])  # all UAVs have the same boxes
    unit = 2.0 * (params - low) / jnp.where(high > low, high - low, 1.0) - 1.0
    unit = jnp.where(jnp.asarray(spec.used[0]), unit, 0.0)
    return BaseAction(CONFIDENCE * jax.nn.one_hot(mode, 3), unit)


def away_from(rel: Float[Array, "X 2"], there: Float[Array, "X"], least: float) -> Float[Array, "2"]:
    """Away from whatever is nearer than `least`, by as much as is lacking."""
    far = jnp.maximum(length(rel), 1.0)
    return -(rel / far[:, None] * (there * jnp.maximum(least - far, 0.0))[:, None]).sum(0)
