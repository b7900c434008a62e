"""Who drives ahead of whom, who must let whom pass, and how fast that lets a vehicle be.

The rules rest on one question: where would a vehicle stop if it braked with all its force from now on? A vehicle that
cannot stop before the junction any more is *committed*. Whoever commits first passes first at every point where two
paths conflict; a later one must be able to stop before the point until the earlier one has left it. Behind a leader a
vehicle must be able to stop even if the leader brakes with all its force. Full braking keeps all of this true, so a
state that obeys the rules can always be continued without a collision; and since the order of commitment is total,
the first in it never waits for a later one: there is no gridlock.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.intersection.config import ARMS, LANES, IntersectionConfig
from trident.envs.intersection.dynamics import LATER, LEAST_PROGRESS, MOST_PROGRESS, Traffic, arms, occupies
from trident.envs.intersection.roads import EXIT_TURN, FAR, LANE_OF, PATHS, SIGMA, pick, roads
from trident.maths.stable_min import stable_min
from trident.physics import braking, vehicle


class Relations(NamedTuple):
    """Row i, column j: of vehicle i to vehicle j."""

    gap: Float[Array, "N N"]  # m from i's axle to that of j, if j leads i; FAR otherwise
    enter: Float[Array, "N N"]  # stretch of i's path that conflicts with j's path; FAR without conflict
    leave: Float[Array, "N N"]
    meets: Bool[Array, "N N"]  # both have the conflict still before them or are in it
    waits: Bool[Array, "N N"]  # j committed before i, so i lets j pass


def lookup(config: IntersectionConfig, table: np.ndarray, path: Int[Array, "N"]) -> Float[Array, "N N"]:
    """table[quarter turns from i's arm to j's, path i, path j]."""
    arm = arms(config)
    turns = (arm[None, :] - arm[:, None]) % ARMS
    flat = jnp.asarray(table.reshape(-1))
    return flat[turns * PATHS * PATHS + path[:, None] * PATHS + path[None, :]]


def relate(config: IntersectionConfig, t: Traffic) -> Relations:
    c, r, arm, path = config, roads(config), arms(config), t.path
    enter, leave = lookup(c, r.enter, path), lookup(c, r.leave, path)
    present = t.s[None, :] < leave.T  # j has not left the conflict with i yet
    same_arm = arm[:, None] == arm[None, :]
    pair = t.driving[:, None] & t.driving[None, :] & ~np.eye(c.num_vehicles, dtype=bool)
    index = np.arange(c.num_vehicles)
    first = index[None, :] < index[:, None]

    left, right = occupies(c, t)
    shared = (left[:, None] & left[None, :]) | (right[:, None] & right[None, :])
    gap = t.s[None, :] - t.s[:, None]
    leads = same_arm & shared & ((gap > 0.0) | ((gap == 0.0) & first)) & present

    exit_lane = (pick(EXIT_TURN, path) + arm) % ARMS * LANES + pick(LANE_OF, path)
    beyond = t.s - pick(r.inside, path)  # along the exit lane
    merged = (exit_lane[:, None] == exit_lane[None, :]) & ~same_arm & ~present
    exit_gap = beyond[None, :] - beyond[:, None]
    follows = merged & ((exit_gap > 0.0) | ((exit_gap == 0.0) & first))
    gap = jnp.where(pair & leads, gap, jnp.where(pair & follows, exit_gap, FAR))

    meets = pair & ~same_arm & (enter < FAR) & (t.s[:, None] < leave) & present
    order = t.commit + 1e-3 * index
    waits = meets & (t.commit < LATER)[None, :] & (order[None, :] < order[:, None])
    return Relations(gap, enter, leave, meets, waits)


def speed_limit(config: IntersectionConfig, t: Traffic, relations: Relations) -> Float[Array, "N"]:
    """The highest speed after the coming step that keeps the rules, whatever the others do in it; 0 at least.

    `t` must carry the lanes chosen for this step.
    """
    c, rel = config, relations
    wait = jnp.where(rel.waits, rel.enter, FAR).min(1) - t.s
    stopping = braking.braking_distance(t.speed, c.brake)
    follow = stable_min(rel.gap + LEAST_PROGRESS * stopping[None, :], 1) - c.spacing
    room = jnp.minimum(wait, follow)
    unsettled = (t.s < -c.solid) & (jnp.abs(t.e) > 2.0 * c.tube)
    room = jnp.where(unsettled, jnp.minimum(room, -c.solid - t.s), room)
    limit = braking.fastest_stoppable(room / MOST_PROGRESS, t.speed, c.brake, c.step)
    # not to run into the leader within the step either, should it brake now
    _, shortest = vehicle.travel(t.speed, jnp.full_like(t.speed, -c.brake), c.step, c.top_speed)
    near = stable_min(rel.gap + LEAST_PROGRESS * shortest[None, :], 1) - c.spacing
    limit = jnp.minimum(limit, 2.0 * near / (MOST_PROGRESS * c.step) - t.speed)
    return jnp.clip(jnp.minimum(limit, bend_limit(c, t)), 0.0, c.top_speed)


def bend_limit(config: IntersectionConfig, t: Traffic) -> Float[Array, "N"]:
    """The highest speed after the coming step from which a vehicle can still slow down for its turn."""
    c, r, path = config, roads(config), t.path
    slow = pick(r.turn_speed, path)
    # braking from v' to v_turn takes (v'^2 - v_turn^2) / (2 b): as if it had to stop v_turn^2 / (2 b) further on
    room = MOST_PROGRESS * braking.braking_distance(slow, c.brake) - t.s
    before = braking.fastest_stoppable(room / MOST_PROGRESS, t.speed, c.brake, c.step)
    limit = jnp.where(t.s < 0.0, jnp.clip(before, slow, c.top_speed), slow)
    return jnp.where((pick(SIGMA, path) != 0.0) & (t.s < pick(r.inside, path)), limit, c.top_speed)


def pedal_for(config: IntersectionConfig, speed: Float[Array, "N"], wanted: Float[Array, "N"]) -> Float[Array, "N"]:
    """Acceleration that reaches the wanted speed within the step; full braking for 0, which says "stop at once"."""
    accel = jnp.where(wanted > 0.0, (wanted - speed) / config.step, -config.brake)
    return jnp.maximum(accel, -config.brake)
