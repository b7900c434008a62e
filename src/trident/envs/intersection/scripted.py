"""Scripted drivers for the intersection.

- `aim`: first-come-first-served reservations (after Dresner and Stone): in the order in which vehicles pass the lock
  line, each reserves the earliest time at which it crosses all its conflict points after everyone before it, and
  drives so as to arrive at that time. The rules of `right_of_way` are its collision avoidance.
- `all-stop`: everyone stops at the line; then one after another, in order of arrival, when the way is free.
- `aggressive`: everyone for itself, flat out (slowing only for turns), blind to others.
- `random`: lane and parameters uniform.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.intersection.config import LANES, IntersectionConfig
from trident.envs.intersection.dynamics import LATER, Traffic, choose_lane, may_choose
from trident.envs.intersection.physics import drive_at, route_lane
from trident.envs.intersection.right_of_way import Relations, bend_limit, relate, speed_limit
from trident.envs.intersection.roads import FAR, pick, roads
from trident.envs.intersection.shield import safe_lane
from trident.physics import braking
from trident.types import HybridAction, Key, ScriptedPolicy

BUFFER = 0.5
"""Time that `aim` leaves between two occupancies, s."""
STOP_BRAKE = 3.0
"""Braking of `all-stop` towards the line, m/s^2."""


def random_policy(config: IntersectionConfig, key: Key, t: Traffic) -> HybridAction:
    """Everything uniform among what is allowed."""
    c, n = config, config.num_vehicles
    k_mode, k_params = jax.random.split(key)
    lots = jnp.where(may_choose(c, t), jax.random.uniform(k_mode, (n, LANES)), -1.0)
    turn = c.correction if c.steering == "lane" else c.steer_limit
    low, high = jnp.array([0.0, -c.brake, -turn]), jnp.array([c.accel, c.brake, turn])
    params = low + (high - low) * jax.random.uniform(k_params, (n, 3))
    return HybridAction(lots.argmax(1).astype(jnp.int32), params)


def aggressive(config: IntersectionConfig, key: Key, t: Traffic) -> HybridAction:
    """Flat out in the lane of the route."""
    lane = route_lane(config, t)
    return drive_at(config, t, lane, bend_limit(config, choose_lane(config, t, lane)))


def all_stop(config: IntersectionConfig, key: Key, t: Traffic) -> HybridAction:
    """A four-way stop."""
    c = config
    lane = safe_lane(c, t, route_lane(c, t))
    chosen = choose_lane(c, t, lane)
    rel = relate(c, chosen)
    bound = t.commit < LATER
    busy = (rel.meets & bound[None, :]).any(1)
    waiting = t.driving & t.halted & ~bound
    order = jnp.where(waiting, t.request + 1e-3 * np.arange(c.num_vehicles), LATER)
    outdone = (rel.meets & waiting[None, :] & (order[None, :] < order[:, None])).any(1)
    goes = bound | (waiting & ~busy & ~outdone)
    # down to a crawl, so that everyone gets to the line
    to_line = jnp.maximum(c.stop - 0.3 - t.s, 0.0)
    towards = jnp.sqrt(2.0 * STOP_BRAKE * to_line)
    limit = speed_limit(c, chosen, rel)
    return drive_at(c, t, lane, jnp.where(goes, limit, jnp.minimum(limit, towards)))


def aim(config: IntersectionConfig, key: Key, t: Traffic) -> HybridAction:
    """See the module's docstring."""
    c = config
    lane = safe_lane(c, t, route_lane(c, t))
    chosen = choose_lane(c, t, lane)
    rel = relate(c, chosen)
    crossing = pick(roads(c).turn_speed, chosen.path)
    soonest = braking.earliest_arrival(c.stop - t.s, t.speed, c.accel, c.top_speed)
    wait = reserve(c, chosen, rel, soonest, crossing) - soonest
    # arriving later by `wait`: with constant acceleration d = v T + a T^2 / 2
    due = soonest + wait
    distance = jnp.maximum(c.stop - t.s, 0.0)
    accel = 2.0 * (distance - t.speed * due) / jnp.maximum(due * due, 1e-2)
    planned = jnp.where((wait > 0.05) & (t.s < c.stop), t.speed + c.step * accel, c.top_speed)
    speed = jnp.minimum(speed_limit(c, chosen, rel), jnp.maximum(planned, 0.5))
    return drive_at(c, t, lane, speed)


def reserve(
    config: IntersectionConfig,
    t: Traffic,
    rel: Relations,
    soonest: Float[Array, "N"],
    crossing: Float[Array, "N"],
) -> Float[Array, "N"]:
    """When each vehicle may pass the stop line: the least times with T_i >= soonest_i and, for everyone j before i,

        T_i + (enter_ij - stop) / v_i  >=  T_j + (leave_ji - stop) / v_j + buffer

    The order is total, so N sweeps reach the fixed point (fewer do, but N is certain). Committed vehicles come first,
    in the order of commitment, then the others by the time at which they passed the lock line.
    """
    c, n = config, config.num_vehicles
    order = jnp.where(t.commit < LATER, t.commit - LATER, jnp.where(t.request < LATER, t.request, LATER - t.s))
    order = order + 1e-3 * np.arange(n)
    pace = 1.0 / crossing[:, None]
    until, since = jnp.minimum(rel.enter, 1e3) - c.stop, jnp.minimum(rel.leave, 1e3) - c.stop
    # past the stop line a vehicle is judged by where it is
    until, since = (jnp.maximum(edge - jnp.maximum(t.s - c.stop, 0.0)[:, None], 0.0) * pace for edge in (until, since))
    lead = since.T + BUFFER - until
    before = rel.meets & (order[None, :] < order[:, None])
    lead = jnp.where(before, lead, -FAR)

    def sweep(_, times):
        return jnp.maximum(soonest, (times[None, :] + lead).max(1))

    return jax.lax.fori_loop(0, n, sweep, soonest)


def policies(config: IntersectionConfig) -> dict[str, ScriptedPolicy]:
    return {
        "aim": partial(aim, config),
        "all-stop": partial(all_stop, config),
        "aggressive": partial(aggressive, config),
        "random": partial(random_policy, config),
    }
