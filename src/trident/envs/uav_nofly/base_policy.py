"""What the UAV can tell from its own observation alone: the neighbouring cell that leads towards the goal with the
most free sight, and a speed from which it can stop within that sight. It knows no map, so it flies into pockets of
non-convex zones and has to come out again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.maps import NEIGHBOURS
from trident.envs.uav_nofly.physics import CAUTION, speed_within_power
from trident.physics import braking
from trident.physics.flight import length
from trident.types import ActionSpec, BaseAction

THRIFT = 0.9
"""Share of the speed within the power limit that is planned with."""
CONFIDENCE = 4.0
"""Logit of the suggested cell; the others are at 0."""
OPEN = 60.0
"""Free sight that is worth as much as any, m."""
SIGHT_WEIGHT = 0.8
"""Of free sight beside the direction of the goal."""
MOMENTUM = 0.3
"""Of the present direction of flight: turning back and forth leads nowhere."""


def base_policy(config: NoFlyConfig, spec: ActionSpec, obs: Float[Array, "O"]) -> BaseAction:
    c = config
    velocity, to_goal, toward = c.max_speed * obs[0:2], c.area * obs[2:4], obs[4:6]
    wind, in_cell = c.max_wind * obs[6:8], c.cell * obs[10:12]
    outline, away = obs[14:16], c.sight * obs[16]
    seen, allowed = c.sight * (1.0 - obs[17 : 17 + c.rays]), obs[17 + c.rays :] > 0.5
    way = c.cell * jnp.asarray(NEIGHBOURS, jnp.float32) - in_cell
    way = way / length(way)[:, None]
    free = free_sight(c, seen)
    score = way @ toward + SIGHT_WEIGHT * jnp.minimum(jnp.minimum(free, length(to_goal)), OPEN) / OPEN
    score = score + MOMENTUM * (way @ velocity) / jnp.maximum(length(velocity), 1.0)
    best = jnp.argmax(jnp.where(allowed[1:], score, -10.0))
    wanted = pace(c, free, length(velocity), speed_within_power(c, way, wind))[:, None] * way
    wanted = keep_off(c, wanted, velocity, outline, away)
    left = jnp.stack([-way[:, 1], way[:, 0]], 1)
    params = jnp.stack([(wanted * way).sum(1), (wanted * left).sum(1)], 1)
    low, high = jnp.asarray(spec.low[0, 1:]), jnp.asarray(spec.high[0, 1:])
    unit = 2.0 * (jnp.clip(params, low, high) - low) / (high - low) - 1.0
    return BaseAction(CONFIDENCE * jax.nn.one_hot(best + 1, 9), jnp.concatenate([jnp.zeros((1, 2)), unit]))


def pace(
    config: NoFlyConfig, free: Float[Array, "8"], speed: Float[Array, ""], most: Float[Array, "8"]
) -> Float[Array, "8"]:
    """Speed from which one can stop within the free sight, within the power limit."""
    c = config
    safe = braking.fastest_stoppable(free - 2.0 * c.tube, speed * jnp.ones(8), CAUTION * c.accel, c.step)
    return jnp.clip(jnp.minimum(safe, THRIFT * most), 0.0, c.max_speed)


def keep_off(
    config: NoFlyConfig,
    wanted: Float[Array, "8 2"],
    velocity: Float[Array, "2"],
    outline: Float[Array, "2"],
    away: Float[Array, ""],
) -> Float[Array, "8 2"]:
    """Closing in on the nearest outline no faster than one could stop before it, and turning aside only as fast as the
    braking leaves acceleration for; away from the outline if it is too near, and out of it if it is inside."""
    c = config
    aside = jnp.stack([-outline[1], outline[0]])
    room, closing = away - 1.5 * c.tube, velocity @ outline
    most = braking.fastest_stoppable(room, jnp.maximum(closing, 0.0), CAUTION * c.accel, c.step)
    most = jnp.where(room < 0.0, jnp.maximum(room, -3.0), most)
    full = c.accel * c.step
    brakes = jnp.clip(closing - most, 0.0, full)
    left = jnp.sqrt(full * full - brakes * brakes + 1e-6)
    turned = velocity @ aside + jnp.clip(wanted @ aside - velocity @ aside, -left, left)
    kept = jnp.minimum(wanted @ outline, most)[:, None] * outline + turned[:, None] * aside
    return jnp.where(away < 0.0, 5.0 * outline, kept)


def free_sight(config: NoFlyConfig, seen: Float[Array, "R"]) -> Float[Array, "8"]:
    """Along each of the eight directions, no further than a little beside it."""
    each = config.rays // 8
    at = each * np.arange(8)
    beside = jnp.minimum(seen[(at + 1) % config.rays], seen[(at - 1) % config.rays])
    return jnp.minimum(seen[at], 1.3 * beside + config.tube)
