"""The mechanics of the intersection that the environment, its physics, shield and scripted policies share.

Places, times and speeds in m, s, m/s. Every vehicle is followed by the middle of its rear axle, in the frame of its
arm and along its path (see `intersection_roads`). Nothing here is random: chance only enters the initial state.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.intersection.config import ARMS, LANES, IntersectionConfig
from trident.envs.intersection.roads import SIGMA, locate, path_of, pick, roads, turned
from trident.envs.randomised import off
from trident.physics import braking, vehicle
from trident.types import HybridAction

WAITING, DRIVING, FINISHED, CRASHED = range(4)
LATER = 1e4
"""A time that has not come yet."""
HEADING_GAIN = 0.4
"""1/m: curvature per rad of heading error."""
OFFSET_GAIN = 0.1
"""rad of wanted heading per m of offset; with the heading gain critically damped, 5 m long."""
LANE_CHANGE_ANGLE = 0.1
"""Largest wanted heading, rad."""
PREVIEW = 0.05
"""s that the tracker steers ahead of a bend, for the steering takes its time."""
STRADDLE = 2.65
"""A vehicle before the junction occupies a lane while it is nearer than this to its middle, m."""
MOST_PROGRESS = 1.05
"""Progress along the path per m driven, at most: who cuts a bend within the tube gains this much."""
LEAST_PROGRESS = 0.93


class Traffic(NamedTuple):
    """Everything that evolves, and the fixed plans of the vehicles."""

    x: Float[Array, "N"]  # arm frame
    y: Float[Array, "N"]
    heading: Float[Array, "N"]
    cos: Float[Array, "N"]  # of the heading
    sin: Float[Array, "N"]
    speed: Float[Array, "N"]
    steer: Float[Array, "N"]
    s: Float[Array, "N"]  # along the path, 0 where the junction begins
    e: Float[Array, "N"]  # to the left of the path
    error: Float[Array, "N"]  # heading minus the path's direction
    lane: Int[Array, "N"]  # chosen lane
    phase: Int[Array, "N"]  # WAITING, DRIVING, FINISHED, CRASHED
    movement: Int[Array, "N"]  # wanted: 0 left, 1 straight, 2 right
    arrival: Float[Array, "N"]  # planned time
    entry: Float[Array, "N"]  # speed at arrival
    request: Float[Array, "N"]  # time of passing the lock line, LATER before
    commit: Float[Array, "N"]  # time since which it cannot stop before the junction any more, LATER before
    halted: Bool[Array, "N"]  # has come to rest at the stop line
    clock: Int[Array, ""]

    @property
    def driving(self) -> Bool[Array, "N"]:
        return self.phase == DRIVING

    @property
    def path(self) -> Int[Array, "N"]:
        return path_of(self.lane, self.movement)


class Events(NamedTuple):
    """What a step brought."""

    progress: Float[Array, "N"]  # m along the path
    finished: Bool[Array, "N"]
    missed: Bool[Array, "N"]  # left by another exit than wanted
    crashed: Bool[Array, "N"]
    off_road: Bool[Array, "N"]
    off_lane: Bool[Array, "N"]
    lane_room: Float[Array, "N"]  # m between a box and the edge of its lane
    clearance: Float[Array, ""]  # least clearance of two boxes, m
    on_time: Bool[Array, "N"]  # driving, or due but held back


def arms(config: IntersectionConfig) -> Int[np.ndarray, "N"]:
    return np.arange(config.num_vehicles) % ARMS


# --- driving --------------------------------------------------------------------------------------


def may_choose(config: IntersectionConfig, t: Traffic) -> Bool[Array, "N M"]:
    """The present lane, and the other one if it suits the route and the lock line is not passed."""
    lanes = jnp.arange(LANES)
    fits = jnp.stack([t.movement != 2, t.movement != 0], 1)
    free = (t.driving & (t.s < -config.lock))[:, None]
    return (t.lane[:, None] == lanes) | (free & fits)


def choose_lane(config: IntersectionConfig, t: Traffic, mode: Int[Array, "N"]) -> Traffic:
    """Take the chosen lanes where they may be chosen; the offset then counts from the new lane."""
    asked = jnp.clip(mode, 0, LANES - 1)
    allowed = jnp.where(asked == 0, *may_choose(config, t).T)
    lane = jnp.where(allowed, asked, t.lane).astype(t.lane.dtype)
    return t._replace(lane=lane, e=t.e + config.lane_width * (lane - t.lane))


def pedals(config: IntersectionConfig, params: Float[Array, "N P"]) -> Float[Array, "N"]:
    """Acceleration from both pedals; the lower half of the brake pedal's range is free play."""
    push, pull = params[:, 0], jnp.maximum(params[:, 1], 0.0)
    return off(config.errors, "engine", push) - off(config.errors, "brakes", pull)


def bend_ahead(config: IntersectionConfig, t: Traffic, path: Int[Array, "N"]) -> Float[Array, "N"]:
    """The path's mean curvature over the stretch that the coming step covers."""
    r = roads(config)
    distance = jnp.maximum(config.step * t.speed, 0.2)
    begin = t.s + PREVIEW * t.speed
    within = jnp.minimum(begin + distance, pick(r.inside, path)) - jnp.maximum(begin, 0.0)
    return pick(SIGMA, path) / pick(r.radius, path) * jnp.clip(within / distance, 0.0, 1.0)


def track_lane(t: Traffic, bend: Float[Array, "N"]) -> Float[Array, "N"]:
    """Curvature that leads to the middle of the lane: bend + k_h (-clip(k_e e) - heading error)."""
    wanted = -jnp.clip(OFFSET_GAIN * t.e, -LANE_CHANGE_ANGLE, LANE_CHANGE_ANGLE)
    return bend + HEADING_GAIN * (wanted - t.error)


def steer(config: IntersectionConfig, t: Traffic, path: Int[Array, "N"], asked: Float[Array, "N"]) -> Float[Array, "N"]:
    """Steering angle after the limits of angle and rate."""
    c = config
    if c.steering == "lane":
        asked = vehicle.steer_of(track_lane(t, bend_ahead(c, t, path)), c.wheelbase) + asked
    turn = jnp.clip(asked - t.steer, -c.steer_rate * c.step, c.steer_rate * c.step)
    return jnp.clip(t.steer + turn, -c.steer_limit, c.steer_limit)


def drive(config: IntersectionConfig, t: Traffic, action: HybridAction) -> Traffic:
    """One step of every driving vehicle; the lane of `t` is already chosen."""
    c, path = config, t.path
    angle = steer(c, t, path, action.params[:, 2])
    speed, distance = vehicle.travel(t.speed, pedals(c, action.params), c.step, c.top_speed)
    bend = off(c.errors, "steering", vehicle.curvature_of(angle, c.wheelbase))
    curvature = vehicle.within_grip(bend, t.speed, c.grip)
    pose = vehicle.advance(vehicle.Pose(t.x, t.y, t.heading, t.cos, t.sin), curvature, distance)
    s, e, error = locate(c, pose.x, pose.y, pose.heading, path)
    moved = pose._asdict() | {"speed": speed, "steer": angle, "s": s, "e": e, "error": error}
    return driven(t, moved)


def driven(t: Traffic, moved: dict[str, Array]) -> Traffic:
    """Traffic with these fields of the vehicles that drive; the others stay as they are."""
    return t._replace(**{name: jnp.where(t.driving, new, getattr(t, name)) for name, new in moved.items()})


# --- what a step brings ---------------------------------------------------------------------------


class Boxes(NamedTuple):
    """World poses of the vehicles' middles."""

    x: Float[Array, "N"]
    y: Float[Array, "N"]
    cos: Float[Array, "N"]
    sin: Float[Array, "N"]


def boxes(config: IntersectionConfig, t: Traffic) -> Boxes:
    ahead, quarter = 0.5 * config.wheelbase, arms(config)
    x, y = turned(t.x + ahead * t.cos, t.y + ahead * t.sin, quarter)
    return Boxes(x, y, *turned(t.cos, t.sin, quarter))


def lane_room(config: IntersectionConfig, t: Traffic) -> Float[Array, "N"]:
    """m between a vehicle's corners and the edge of what it may use: its lane, or both lanes while it may change.

    The lane counts as straight over the vehicle's length: |e at the middle| + l/2 |sin| + w/2 cos <= half a lane.
    """
    c = config
    cos, sin = vehicle.small_turn(jnp.clip(t.error, -1.0, 1.0))
    extent = 0.5 * c.length * jnp.abs(sin) + 0.5 * c.width * cos
    e = t.e + 0.5 * c.wheelbase * sin
    dashed = t.s < -c.solid
    # the other lane lies to the left (e > 0) of lane 1 and to the right of lane 0
    left = 0.5 * c.lane_width + jnp.where(dashed & (t.lane == 1), c.lane_width, 0.0)
    right = 0.5 * c.lane_width + jnp.where(dashed & (t.lane == 0), c.lane_width, 0.0)
    return jnp.minimum(left - e, right + e) - extent


def clearances(config: IntersectionConfig, t: Traffic) -> Float[Array, "N N"]:
    """m between the boxes of two vehicles, negative if they overlap; LATER for pairs that are not on the road."""
    c, there = config, t.driving
    pair = there[:, None] & there[None, :] & ~np.eye(c.num_vehicles, dtype=bool)
    return jnp.where(pair, vehicle.pair_clearance(*boxes(c, t), 0.5 * c.length, 0.5 * c.width), LATER)


def settle(
    config: IntersectionConfig, before: Traffic, t: Traffic, clearance: Float[Array, "N N"]
) -> tuple[Traffic, Events]:
    """Who crashed, left the road or arrived leaves; who is due and finds room enters."""
    c, was = config, before.driving
    crashed = (clearance < 0.0).any(1)
    room = jnp.where(was, lane_room(c, t), 0.5 * c.lane_width)
    off_road = (room < -0.5 * c.lane_width) & ~crashed
    path = t.path
    through = was & ~crashed & ~off_road & (t.s >= pick(roads(c).inside, path) + c.exit)
    wanted = jnp.where(t.movement == 1, True, path == jnp.where(t.movement == 0, 0, 3))
    clock = t.clock + 1
    now = clock * c.step
    phase = jnp.where(crashed | off_road, CRASHED, jnp.where(through, FINISHED, t.phase))
    t = t._replace(phase=phase, clock=clock)
    asking = t.driving & (t.s >= -c.lock)
    bound = t.driving & (reach(c, t) > c.stop)
    at_line = t.driving & (t.speed < 0.1) & (t.s > c.stop - 2.0)
    t = t._replace(
        request=jnp.where(asking & (t.request >= LATER), now, t.request),
        commit=jnp.where(bound & (t.commit >= LATER), now, t.commit),
        halted=t.halted | at_line,
    )
    due = (t.phase == WAITING) & (t.arrival <= now)
    events = Events(
        progress=jnp.where(was, t.s - before.s, 0.0),
        finished=through & wanted,
        missed=through & ~wanted,
        crashed=crashed,
        off_road=off_road,
        off_lane=room < 0.0,
        lane_room=room,
        clearance=clearance.min(),
        on_time=was | due,
    )
    return admit(c, t, due), events


def reach(config: IntersectionConfig, t: Traffic) -> Float[Array, "N"]:
    """Where full braking would stop a vehicle, at most."""
    return t.s + MOST_PROGRESS * braking.braking_distance(t.speed, config.brake)


def occupies(config: IntersectionConfig, t: Traffic) -> tuple[Bool[Array, "N"], Bool[Array, "N"]]:
    """Lanes in use: the chosen one and, before the junction, one that it has not left yet."""
    lane_x = roads(config).lane_x
    before = t.s < 0.0
    left, right = (before & (jnp.abs(t.x - float(x)) < STRADDLE) for x in lane_x)
    return (t.lane == 0) | left, (t.lane == 1) | right


def admit(config: IntersectionConfig, t: Traffic, due: Bool[Array, "N"]) -> Traffic:
    """Vehicles that are due enter if they could stop behind whoever drives ahead; one per lane at a time."""
    c, arm = config, arms(config)
    same_arm = arm[:, None] == arm[None, :]
    left, right = occupies(c, t)
    in_lane = jnp.where((t.lane == 0)[:, None], left[None, :], right[None, :])
    gap = t.s[None, :] + c.approach
    stops = LEAST_PROGRESS * braking.braking_distance(t.speed, c.brake)[None, :]
    needs = MOST_PROGRESS * braking.braking_distance(t.entry, c.brake)[:, None]
    blocked = (gap < c.spacing) | (gap + stops - needs < c.spacing)
    blocked = (blocked & in_lane & same_arm & t.driving[None, :]).any(1)
    earlier = np.tril(np.ones((c.num_vehicles,) * 2, bool), -1) & same_arm
    queued = (earlier & (t.lane[:, None] == t.lane[None, :]) & due[None, :]).any(1)
    enters = due & ~blocked & ~queued
    return t._replace(phase=jnp.where(enters, DRIVING, t.phase), speed=jnp.where(enters, t.entry, t.speed))


def transition(config: IntersectionConfig, t: Traffic, action: HybridAction) -> tuple[Traffic, Events]:
    """A whole step: choose lanes, drive, leave and enter."""
    chosen = choose_lane(config, t, action.mode)
    moved = drive(config, chosen, action)
    return settle(config, chosen, moved, clearances(config, moved))
