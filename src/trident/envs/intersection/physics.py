"""The intersection's global state array, and closed-form physics on it.

The array holds the whole state, and a step draws nothing, so the predicted successor is exact. Rewards and costs of a
step are made smooth, and a collision is announced before it happens: by occupancies of a conflict point that overlap,
and by a gap that two braking vehicles would use up. What is left to learning is how everyone will drive later.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.dynamics import (
    CRASHED,
    LATER,
    Traffic,
    arms,
    bend_ahead,
    boxes,
    choose_lane,
    drive,
    lane_room,
    may_choose,
    track_lane,
    transition,
)
from trident.envs.intersection.right_of_way import Relations, pedal_for, relate, speed_limit
from trident.envs.intersection.roads import FAR, path_of, pick, place, roads, turned
from trident.physics import braking, vehicle
from trident.types import HybridAction, Physics

GOAL_EDGE = 0.3
"""Softness of the goal line, m."""
TOUCH_EDGE = 0.15
"""Softness of a collision, m."""
LANE_EDGE = 0.05
"""Softness of the edge of a lane, m."""
SAFE_GAP = 0.3
"""Time between two occupancies below which a collision is likely, s."""
GAP_EDGE = 0.2
"""Softness of that, s."""
NOTICE = 1.0
"""How far ahead a collision is announced, s."""
TIME_SCALE = 30.0
PLACE_SCALE = 50.0


# --- the array ------------------------------------------------------------------------------------


def pack(config: IntersectionConfig, t: Traffic) -> Float[Array, "S"]:
    """State -> the global state array, feature by feature and vehicle by vehicle; every entry is about unit scale."""
    c, quarter = config, arms(config)
    now = t.clock * c.step
    asked, bound = t.request < LATER, t.commit < LATER
    rows = [
        *(t.phase == p for p in range(CRASHED + 1)),
        *(w / PLACE_SCALE for w in turned(t.x, t.y, quarter)),
        *turned(t.cos, t.sin, quarter),
        t.speed / c.top_speed,
        t.steer / c.steer_limit,
        t.s / PLACE_SCALE,
        t.e / c.lane_width,
        t.error / 0.3,
        t.lane,
        t.movement == 0,
        t.movement == 2,
        (t.arrival - now) / TIME_SCALE,
        t.entry / c.top_speed,
        asked,
        jnp.where(asked, now - t.request, 0.0) / TIME_SCALE,
        bound,
        jnp.where(bound, now - t.commit, 0.0) / TIME_SCALE,
        t.halted,
    ]
    flat = jnp.stack([row.astype(jnp.float32) for row in rows]).ravel()
    return jnp.append(flat, t.clock.astype(jnp.float32) / c.horizon)


def unpack(config: IntersectionConfig, array: Float[Array, "S"]) -> Traffic:
    """The whole state back."""
    c, quarter = config, arms(config)
    clock = jnp.round(array[-1] * c.horizon).astype(jnp.int32)
    now = clock * c.step
    rows = array[:-1].reshape(-1, c.num_vehicles)
    phases = rows[: CRASHED + 1]
    x, y, cos, sin, speed, steer, s, e, error, lane, left, right, arrival, entry = rows[CRASHED + 1 : CRASHED + 15]
    asked, since_request, bound, since_commit, halted = rows[CRASHED + 15 :]
    x, y = turned(PLACE_SCALE * x, PLACE_SCALE * y, -quarter)
    cos, sin = turned(cos, sin, -quarter)
    lane, movement = (jnp.round(v).astype(jnp.int32) for v in (lane, 1.0 - left + right))
    s, e, error = PLACE_SCALE * s, c.lane_width * e, 0.3 * error
    _, _, heading = place(c, s, e, error, path_of(lane, movement))  # an arctan would lose whole turns
    return Traffic(
        x=x,
        y=y,
        heading=heading,
        cos=cos,
        sin=sin,
        speed=c.top_speed * speed,
        steer=c.steer_limit * steer,
        s=s,
        e=e,
        error=error,
        lane=lane,
        phase=phases.argmax(0).astype(jnp.int32),
        movement=movement,
        arrival=TIME_SCALE * arrival + now,
        entry=c.top_speed * entry,
        request=jnp.where(asked > 0.5, now - TIME_SCALE * since_request, LATER),
        commit=jnp.where(bound > 0.5, now - TIME_SCALE * since_commit, LATER),
        halted=halted > 0.5,
        clock=clock,
    )


# --- the three functions --------------------------------------------------------------------------


def crash_risk(config: IntersectionConfig, t: Traffic, rel: Relations) -> Float[Array, "N"]:
    """Chance that a vehicle crashes in this step: overlapping boxes now, or a collision announced within `NOTICE`.

    announced = step / NOTICE x the larger of
        sigmoid((g0 - gap) / w) exp(-t / NOTICE)   gap of the occupancies at present speeds, t until the first enters
        sigmoid(-room) exp(-t / NOTICE)            room left if leader and follower both brake, t = gap / speed
    """
    c = config
    clearance = vehicle.pair_clearance(*boxes(c, t), 0.5 * c.length, 0.5 * c.width)
    touch = jax.nn.sigmoid(-clearance / TOUCH_EDGE)
    pace = 1.0 / jnp.maximum(t.speed, 1.0)[:, None]
    enter, leave = (jnp.maximum(jnp.minimum(edge, 1e3) - t.s[:, None], 0.0) * pace for edge in (rel.enter, rel.leave))
    gap = braking.time_gap(enter, leave, enter.T, leave.T)
    crossing = jax.nn.sigmoid((SAFE_GAP - gap) / GAP_EDGE) * jnp.exp(-jnp.minimum(enter, enter.T) / NOTICE)
    bumper = jnp.minimum(rel.gap, 1e3) - c.length
    behind, ahead = (jnp.broadcast_to(v, bumper.shape) for v in (t.speed[:, None], t.speed[None, :]))
    room = braking.following_room(bumper, behind, ahead, c.brake)
    rear = jax.nn.sigmoid(-room) * jnp.exp(-jnp.maximum(bumper, 0.0) * pace / NOTICE)
    rear = jnp.where(rel.gap < FAR, rear, 0.0)
    announced = c.step / NOTICE * jnp.maximum(jnp.where(rel.meets, crossing, 0.0), jnp.maximum(rear, rear.T))
    pair = t.driving[:, None] & t.driving[None, :] & ~np.eye(c.num_vehicles, dtype=bool)
    safe = jnp.where(pair, (1.0 - touch) * (1.0 - announced), 1.0)
    return 1.0 - jnp.prod(safe, axis=1)


def signals(config: IntersectionConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "signals"]:
    """Smooth reward and costs of the next step."""
    c = config
    chosen = choose_lane(c, unpack(c, array), action.mode)
    after = drive(c, chosen, action)
    risk = crash_risk(c, after, relate(c, after))
    off_lane = after.driving * jax.nn.sigmoid(-lane_room(c, after) / LANE_EDGE)
    goal = pick(roads(c).inside, after.path) + c.exit
    right_way = jnp.where(after.movement == 1, True, after.path == jnp.where(after.movement == 0, 0, 3))
    arrives = after.driving * right_way * jax.nn.sigmoid((after.s - goal) / GOAL_EDGE)
    due = (after.phase == 0) & (after.arrival <= (after.clock + 1) * c.step)
    reward = c.progress_weight * (after.s - chosen.s) - c.time_weight * c.step * (after.driving | due)
    reward = (reward + c.goal_reward * arrives - c.crash_penalty * risk).mean()
    return jnp.stack([reward, risk.mean(), off_lane.mean()])


def predict(config: IntersectionConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
    """The successor, exactly: a step draws nothing."""
    return pack(config, transition(config, unpack(config, array), action)[0])


def hold_lane(config: IntersectionConfig, t: Traffic) -> Float[Array, "N"]:
    """The steering parameter that follows the lane."""
    if config.steering == "lane":
        return jnp.zeros_like(t.speed)
    angle = vehicle.steer_of(track_lane(t, bend_ahead(config, t, t.path)), config.wheelbase)
    return jnp.clip(angle, -config.steer_limit, config.steer_limit)


def route_lane(config: IntersectionConfig, t: Traffic) -> Array:
    """The lane that suits the route, while it may be chosen; who goes straight stays."""
    suits = jnp.where(t.movement == 1, t.lane, jnp.where(t.movement == 0, 0, 1))
    allowed = jnp.where(suits == 0, *may_choose(config, t).T)
    return jnp.where(allowed, suits, t.lane).astype(jnp.int32)


def drive_at(config: IntersectionConfig, t: Traffic, lane: Array, speed: Float[Array, "N"]) -> HybridAction:
    """The action that reaches `speed` as fast as the pedals allow, in the middle of `lane`."""
    c = config
    accel = jnp.minimum(pedal_for(c, t.speed, speed), c.accel)
    steering = hold_lane(c, choose_lane(c, t, lane))
    return HybridAction(lane, jnp.stack([jnp.maximum(accel, 0.0), jnp.maximum(-accel, 0.0), steering], 1))


def nominal(config: IntersectionConfig, array: Float[Array, "S"]) -> HybridAction:
    """Nominal controller: keep the lane of the route, as fast as the rules of `right_of_way` allow."""
    t = unpack(config, array)
    lane = route_lane(config, t)
    chosen = choose_lane(config, t, lane)
    return drive_at(config, t, lane, speed_limit(config, chosen, relate(config, chosen)))


def build_physics(config: IntersectionConfig) -> Physics:
    return Physics(signals=partial(signals, config), predict=partial(predict, config), nominal=partial(nominal, config))
