"""The roads: lanes and paths of a four-way intersection, places on them, and where two paths conflict.

Every arm has its own frame, in which its traffic drives in +y towards a junction centred at the origin and keeps to
the right: lane 0 (left) at x = w/2, lane 1 (right) at x = 3w/2. The frame of arm k is turned by k quarter turns
counter-clockwise: arm 0 comes from the south, 1 from the east, 2 from the north, 3 from the west.

A path is a lane and a movement: 0 left (lane 0), 1 straight (lane 0), 2 straight (lane 1), 3 right (lane 1). Its
coordinate s is 0 where the junction begins, negative before. Turns are quarter circles about a corner of the junction
with R = h + sigma x_lane (sigma = +1 left, -1 right), so that every distance has a closed form. A path leaves the
junction in the lane it came from. The same numbers describe a road network for other simulators: `lane_shapes`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.envs.intersection.config import ARMS, IntersectionConfig

PATHS = 4
SIGMA = np.array([1.0, 0.0, 0.0, -1.0], np.float32)
"""Sense of each path's turn: left, none, none, right."""
LANE_OF = np.array([0, 0, 1, 1], np.int32)
EXIT_TURN = np.array([1, 0, 0, 3], np.int32)
"""Quarter turns from a path's arm frame to the frame of the arm whose straight traffic leaves by the same exit."""
FAR = 1e6
"""Stands for "no conflict"."""


class Roads(NamedTuple):
    """The geometry as arrays by path."""

    lane_x: np.ndarray  # [2]
    radius: np.ndarray  # [4], of the turn (1 for straight paths, unread)
    inside: np.ndarray  # [4], length of the path inside the junction
    turn_speed: np.ndarray  # [4]
    enter: np.ndarray  # [4 turns, 4, 4]: see `conflicts`
    leave: np.ndarray  # [4 turns, 4, 4]


def path_of(lane: Int[Array, "*n"], movement: Int[Array, "*n"]) -> Int[Array, "*n"]:
    """Movement 0 left, 1 straight, 2 right. Who is in the wrong lane for a turn goes straight on."""
    return jnp.where(lane == 0, jnp.minimum(movement, 1), jnp.maximum(movement, 1) + 1)


@lru_cache
def roads(config: IntersectionConfig) -> Roads:
    c, w = config, config.lane_width
    lane_x = np.array([0.5 * w, 1.5 * w], np.float32)
    radius = np.where(SIGMA == 0, 1.0, c.half_box + SIGMA * lane_x[LANE_OF]).astype(np.float32)
    inside = np.where(SIGMA == 0, c.box, 0.5 * np.pi * radius).astype(np.float32)
    turn_speed = np.where(SIGMA == 0, c.top_speed, np.sqrt(c.turn_accel * radius)).astype(np.float32)
    turn_speed = np.minimum(turn_speed, c.top_speed)
    enter, leave = conflicts(c, inside)
    return Roads(lane_x, radius, inside, turn_speed, enter, leave)


def pick(table: np.ndarray, path: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """table[path] for tables of four by selection, which is faster than a gather."""
    low = jnp.where(path == 0, float(table[0]), float(table[1]))
    return jnp.where(path >= 2, jnp.where(path == 2, float(table[2]), float(table[3])), low)


# --- places ---------------------------------------------------------------------------------------


def locate(
    config: IntersectionConfig,
    x: Float[Array, "*n"],
    y: Float[Array, "*n"],
    heading: Float[Array, "*n"],
    path: Int[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"], Float[Array, "*n"]]:
    """Arm frame -> (s along the path, e to the left of it, heading error), of the point (x, y)."""
    r, h = roads(config), config.half_box
    sigma, radius = pick(SIGMA, path), pick(r.radius, path)
    turning = sigma != 0.0
    ahead = y + h
    beside = h + sigma * x  # from the turn's centre
    angle = jnp.arctan2(jnp.maximum(ahead, 0.0), jnp.maximum(beside, 1e-9))
    angle = jnp.where(turning, angle, 0.0)
    before, beyond = ahead < 0.0, beside < 0.0
    reach = jnp.where(before, beside, jnp.where(beyond, ahead, jnp.sqrt(ahead * ahead + beside * beside)))
    on_turn = radius * angle - jnp.minimum(beside, 0.0)
    s = jnp.where(before | ~turning, ahead, on_turn)
    lane_x = jnp.where(path < 2, float(r.lane_x[0]), float(r.lane_x[1]))
    e = jnp.where(turning, sigma * (radius - reach), lane_x - x)
    return s, e, heading - 0.5 * np.pi - sigma * angle


def place(
    config: IntersectionConfig,
    s: Float[Array, "*n"],
    e: Float[Array, "*n"],
    error: Float[Array, "*n"],
    path: Int[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"], Float[Array, "*n"]]:
    """Inverse of `locate`: (s, e, heading error) -> arm frame (x, y, heading)."""
    r, h = roads(config), config.half_box
    sigma, radius = pick(SIGMA, path), pick(r.radius, path)
    turning = sigma != 0.0
    lane_x = jnp.where(path < 2, float(r.lane_x[0]), float(r.lane_x[1]))
    angle = jnp.where(turning, jnp.clip(s / radius, 0.0, 0.5 * np.pi), 0.0)
    past = jnp.where(turning, jnp.maximum(s - 0.5 * np.pi * radius, 0.0), 0.0)
    reach = radius - sigma * e
    turn_x = sigma * (reach * jnp.cos(angle) - past - h)
    turn_y = reach * jnp.sin(angle) - h + jnp.minimum(s, 0.0)
    x = jnp.where(turning, turn_x, lane_x - e)
    y = jnp.where(turning, turn_y, s - h)
    return x, y, error + 0.5 * np.pi + sigma * angle


def turned(x: Any, y: Any, quarter: np.ndarray) -> tuple[Any, Any]:
    """Arm frame -> world: turn by a whole number of quarters."""
    cos, sin = np.array([1.0, 0.0, -1.0, 0.0], np.float32), np.array([0.0, 1.0, 0.0, -1.0], np.float32)
    c, s = cos[quarter % ARMS], sin[quarter % ARMS]
    return c * x - s * y, s * x + c * y


def lane_shapes(config: IntersectionConfig, spacing: float = 1.0) -> dict[str, np.ndarray]:
    """World polylines [n, 2] of every path, start of the arm to the goal, named arm-path ("0-left", "2-right", ...)."""
    r = roads(config)
    names = ("left", "straight-left-lane", "straight-right-lane", "right")
    shapes = {}
    for arm in range(ARMS):
        for p, name in enumerate(names):
            s = np.arange(-config.approach, r.inside[p] + config.exit + 1e-6, spacing)
            x, y, _ = poses(config, s, p, arm, ahead=0.0)
            shapes[f"{arm}-{name}"] = np.stack([x, y], 1)
    return shapes


# --- conflicts ------------------------------------------------------------------------------------

GRID = 0.4
"""m between the places tried along a path."""


def poses(c: IntersectionConfig, s: np.ndarray, path: int, quarter: int, ahead: float) -> tuple[np.ndarray, ...]:
    """World poses in NumPy of the point `ahead` m in front of an axle that follows the path exactly."""
    sigma, w, h = float(SIGMA[path]), c.lane_width, c.half_box
    lane_x = (0.5 + LANE_OF[path]) * w
    if sigma == 0.0:
        x, y, heading = np.full_like(s, lane_x), s - h, np.full_like(s, 0.5 * np.pi)
    else:
        radius = h + sigma * lane_x
        angle = np.clip(s / radius, 0.0, 0.5 * np.pi)
        past = np.maximum(s - 0.5 * np.pi * radius, 0.0)
        x = sigma * (radius * np.cos(angle) - past - h)
        y = radius * np.sin(angle) - h + np.minimum(s, 0.0)
        heading = 0.5 * np.pi + sigma * angle
    x, y = x + ahead * np.cos(heading), y + ahead * np.sin(heading)
    for _ in range(quarter % ARMS):
        x, y, heading = -y, x, heading + 0.5 * np.pi
    return x, y, heading


def touching(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...], half_length: float, half_width: float) -> np.ndarray:
    """[A, B]: do the boxes at poses a and b overlap?"""
    dx, dy = b[0][None] - a[0][:, None], b[1][None] - a[1][:, None]
    turn = b[2][None] - a[2][:, None]
    cos, sin = np.abs(np.cos(turn)), np.abs(np.sin(turn))
    along, across = half_length * (1 + cos) + half_width * sin, half_width * (1 + cos) + half_length * sin
    apart = np.zeros(dx.shape, bool)
    for heading in (a[2][:, None], b[2][None]):
        c, s = np.cos(heading), np.sin(heading)
        apart |= (np.abs(dx * c + dy * s) > along) | (np.abs(dy * c - dx * s) > across)
    return ~apart


def conflicts(c: IntersectionConfig, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For a vehicle on path p of an arm and another on path q of the arm k quarter turns further: the stretch
    [enter, leave] of the first one's path (of its rear axle) outside which they cannot touch, wherever the other is.

    [k, p, q] each; enter = FAR without conflict. Boxes are widened by the tube that the shield keeps. Paths that end
    in one lane conflict to the end: `leave` is then where the first one is so far ahead that the rule for following
    in a lane can take over. Paths that begin in one lane (k = 0) conflict from the start, and `leave` says where they
    have parted.
    """
    half_length, half_width = 0.5 * c.length + 0.2, 0.5 * c.width + c.tube + 0.1
    ahead = 0.5 * c.wheelbase
    places = [np.arange(-8.0, inside[p] + 12.0, GRID) for p in range(PATHS)]
    enter, leave = np.full((2, ARMS, PATHS, PATHS), FAR)
    for k in range(ARMS):
        for p in range(PATHS):
            mine = poses(c, places[p], p, 0, ahead)
            for q in range(PATHS):
                touch = touching(mine, poses(c, places[q], q, k, ahead), half_length, half_width).any(1)
                if touch.any() and not (k == 0 and p == q):
                    enter[k, p, q] = places[p][touch].min() - GRID
                    leave[k, p, q] = places[p][touch].max() + GRID
    for k in range(1, ARMS):  # merging: hand over to the rule for following
        for p in range(PATHS):
            for q in range(PATHS):
                if merges(k, p, q):
                    other = enter[-k % ARMS, q, p]
                    leave[k, p, q] = inside[p] + (other - inside[q]) + c.spacing + 1.0
    return enter.astype(np.float32), leave.astype(np.float32)


def merges(k: int, p: int, q: int) -> bool:
    """Do path p of an arm and path q of the arm k quarter turns further end in one lane?"""
    return bool(LANE_OF[p] == LANE_OF[q] and EXIT_TURN[p] == (EXIT_TURN[q] + k) % ARMS)
