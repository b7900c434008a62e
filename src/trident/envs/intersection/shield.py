"""The shield: the least change of a joint action after which no vehicle can be forced into a collision.

Three filters, each leaving what is safe untouched:

- lane: a change is accepted if, in the new lane, both the vehicle behind and the vehicle itself could still stop
  behind each other's leader, whatever everyone does in this step;
- pedals: the acceleration is capped so that the rules of `right_of_way` hold after the step (a brake-to-stop
  backup ends before every conflict point that is not one's own by order of commitment, behind every leader, and slow
  enough for the turn);
- steering: the correction is clipped so that the rear axle stays in a tube around the lane. With the tracker's gains
  the tube {|e| <= c, |e + l theta| <= c}, l = 2 / k_heading, is invariant: (e + l theta)' = -(e + l theta) / l and
  e' = ((e + l theta) - e) / l per metre driven.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.dynamics import (
    HEADING_GAIN,
    LEAST_PROGRESS,
    MOST_PROGRESS,
    Traffic,
    arms,
    bend_ahead,
    choose_lane,
    occupies,
    pedals,
    track_lane,
)
from trident.envs.intersection.right_of_way import pedal_for, relate, speed_limit
from trident.physics import braking, vehicle
from trident.types import HybridAction

LENGTH = 2.0 / HEADING_GAIN
"""l of the tube, m."""


def shield(config: IntersectionConfig, t: Traffic, action: HybridAction) -> tuple[HybridAction, Bool[Array, "N"]]:
    """See the module's docstring. Vehicles that are not on the road are left alone."""
    c = config
    mode = safe_lane(c, t, action.mode)
    chosen = choose_lane(c, t, mode)
    limit = speed_limit(c, chosen, relate(c, chosen))
    asked = jnp.minimum(pedals(c, action.params), (c.top_speed - t.speed) / c.step)  # no more than the engine gives
    most = pedal_for(c, t.speed, limit)
    slower = asked > most + 1e-5
    accel = jnp.where(slower, jnp.maximum(most, 0.0), action.params[:, 0])
    brake = jnp.where(slower, jnp.maximum(-most, 0.0), action.params[:, 1])
    low, high = steering_range(c, chosen)
    turn = jnp.clip(action.params[:, 2], low, high)
    steered = jnp.abs(turn - action.params[:, 2]) > 1e-5
    turn = jnp.where(steered, turn, action.params[:, 2])
    changed = t.driving & ((mode != action.mode) | slower | steered)
    params = jnp.where(changed[:, None], jnp.stack([accel, brake, turn], 1), action.params)
    return HybridAction(jnp.where(t.driving, mode, action.mode), params), changed


def safe_lane(config: IntersectionConfig, t: Traffic, mode: Int[Array, "N"]) -> Int[Array, "N"]:
    """The asked lane, or the present one if there is no safe gap in it."""
    c, arm = config, arms(config)
    asked = choose_lane(c, t, mode).lane
    left, right = occupies(c, t)
    there = jnp.where((asked == 0)[:, None], left[None, :], right[None, :])
    others = (arm[:, None] == arm[None, :]) & ~np.eye(c.num_vehicles, dtype=bool) & t.driving[None, :]
    gap = t.s[None, :] - t.s[:, None]
    stopping = braking.braking_distance(t.speed, c.brake)
    # the most that a follower's stopping place can move on in one step
    faster = jnp.minimum(t.speed + c.accel * c.step, c.top_speed)
    grown = MOST_PROGRESS * (braking.braking_distance(faster, c.brake) + 0.5 * c.step * (t.speed + faster))
    into_me = -gap + LEAST_PROGRESS * stopping[:, None] - grown[None, :]
    into_them = gap + LEAST_PROGRESS * stopping[None, :] - MOST_PROGRESS * stopping[:, None]
    tight = jnp.abs(gap) < c.spacing + c.step * c.top_speed
    tight = tight | (jnp.where(gap > 0.0, into_them, into_me) < c.spacing)
    blocked = (tight & there & others).any(1) & (asked != t.lane)
    lane = jnp.where(blocked, t.lane, asked)
    return lane.astype(mode.dtype)


def steering_range(config: IntersectionConfig, t: Traffic) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
    """Steering parameters that keep the rear axle in its tube; the tracker's own where it is not inside yet."""
    c = config
    bend = bend_ahead(c, t, t.path)
    tracker = track_lane(t, bend)
    distance = c.step * (t.speed + 0.5 * c.step * c.accel)
    ahead = t.e + LENGTH * t.error  # e + l theta
    drift = ahead + distance * t.error
    lever = distance * (LENGTH + 0.5 * distance)
    low, high = (bend + (side * c.tube - drift) / lever for side in (-1.0, 1.0))
    inside = (jnp.abs(t.e) <= c.tube) & (jnp.abs(ahead) <= c.tube)
    low, high = (jnp.where(inside, edge, tracker) for edge in (low, high))
    angle = vehicle.steer_of(jnp.stack([jnp.minimum(low, tracker), jnp.maximum(high, tracker)]), c.wheelbase)
    held = vehicle.steer_of(tracker, c.wheelbase)
    # a slow vehicle could turn its wheels far within the tube, but not back in time once it is faster
    low, high = jnp.clip(angle - held, -c.correction, c.correction)
    if c.steering == "lane":
        return low, high
    low, high = (jnp.clip(edge + held, -c.steer_limit, c.steer_limit) for edge in (low, high))
    return low, high
