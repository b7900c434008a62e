"""What one driver can tell from its own observation alone: the lane of the route, as fast as the rules allow.

The rules are those of `right_of_way.speed_limit`, which `nominal` applies to all vehicles at once: be able to
stop before the first conflict point that belongs to someone else, behind the leader even if it brakes, and slow enough
for the bend. All of it stands in the observation (`intersection.see_self`). Planned with less than the full brake and
with some room to spare, so that exploration does no harm.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.envs.intersection.config import LANES, IntersectionConfig
from trident.envs.intersection.dynamics import LEAST_PROGRESS, MOST_PROGRESS
from trident.envs.intersection.roads import FAR
from trident.physics import braking, vehicle
from trident.types import ActionSpec, BaseAction

CONFIDENCE = 4.0
"""Logit of the suggested lane; the other is at 0."""
CAUTION = 0.85
"""Share of the brake's force that is planned with."""
SPARE = 1.0
"""m that are left before whatever one must be able to stop for."""
VIEW = 40.0
"""How far leaders and conflict points are seen, m."""
BEND_SCALE = 4.0
"""m/s"""


def base_policy(config: IntersectionConfig, spec: ActionSpec, obs: Float[Array, "O"]) -> BaseAction:
    c = config
    speed, offset, to_line, bend = c.top_speed * obs[0], c.lane_width * obs[1], 100.0 * obs[4], BEND_SCALE * obs[7]
    lane, wrong, free = obs[8], obs[9] > 0.5, obs[10] > 0.5
    lead = jnp.where(obs[15] > 0.0, c.length + VIEW * (1.0 - obs[15]), FAR)
    lead_speed = jnp.maximum(speed + c.top_speed * obs[16], 0.0)
    wait = jnp.where(obs[17] > 0.0, VIEW * (1.0 - obs[17]), FAR)

    brake = CAUTION * c.brake
    follow = lead + LEAST_PROGRESS * braking.braking_distance(lead_speed, c.brake) - c.spacing
    room = jnp.minimum(wait, follow)
    to_solid = to_line - c.stop - c.solid
    unsettled = (to_solid > 0.0) & (jnp.abs(offset) > 2.0 * c.tube)
    room = jnp.where(unsettled, jnp.minimum(room, to_solid), room) - SPARE
    limit = braking.fastest_stoppable(room / MOST_PROGRESS, speed, brake, c.step)
    _, least = vehicle.travel(lead_speed, jnp.full_like(lead_speed, -c.brake), c.step, c.top_speed)
    near = lead + LEAST_PROGRESS * least - c.spacing
    limit = jnp.minimum(limit, 2.0 * near / (MOST_PROGRESS * c.step) - speed)
    limit = jnp.clip(jnp.minimum(limit, speed + bend), 0.0, c.top_speed)
    push = jnp.clip(jnp.where(limit > 0.0, (limit - speed) / c.step, -c.brake), -c.brake, c.accel)

    pedals = jnp.stack([jnp.maximum(push, 0.0), jnp.where(push < 0.0, -push, -0.5 * c.brake), jnp.zeros(())])
    low, high = jnp.asarray(spec.low[0, 0]), jnp.asarray(spec.high[0, 0])  # all vehicles and lanes have the same box
    unit = 2.0 * (pedals - low) / (high - low) - 1.0
    chosen = jnp.where(wrong & free, 1.0 - lane, lane)
    preference = CONFIDENCE * jax.nn.one_hot(chosen.astype(jnp.int32), LANES)
    return BaseAction(preference, jnp.broadcast_to(unit, (LANES, 3)))
