"""One step of the intersection written again, vehicle by vehicle in plain Python: the oracle of the tests.

Collisions are found by clipping polygons, places by geometry of lines and circles, nothing is shared with the package
but the numbers of the config.
"""

from __future__ import annotations

import math

import numpy as np
from oracles.boxes import common_area, corners_of

WAITING, DRIVING, FINISHED, CRASHED = range(4)


def route(lane: int, movement: int) -> str:
    if lane == 0:
        return "left" if movement == 0 else "straight"
    return "right" if movement == 2 else "straight"


def track(c, lane: int, movement: int, x: float, y: float, heading: float) -> tuple[float, float, float]:
    """s, e and heading error in the arm frame."""
    h, lane_x, way = c.box / 2, c.lane_width * (lane + 0.5), route(lane, movement)
    if way == "straight" or y < -h:
        return y + h, lane_x - x, heading - math.pi / 2
    side = 1.0 if way == "left" else -1.0
    centre = (-side * h, -h)
    radius = h + side * lane_x
    dx, dy = x - centre[0], y - centre[1]
    if side * dx < 0:  # on the exit, which runs towards -x after a left turn
        return math.pi / 2 * radius - side * dx, side * (radius - dy), heading - math.pi / 2 - side * math.pi / 2
    angle = math.atan2(dy, side * dx)
    return radius * angle, side * (radius - math.hypot(dx, dy)), heading - math.pi / 2 - side * angle


def inside_length(c, lane: int, movement: int) -> float:
    way, lane_x = route(lane, movement), c.lane_width * (lane + 0.5)
    side = {"left": 1.0, "right": -1.0}.get(way)
    return c.box if side is None else math.pi / 2 * (c.box / 2 + side * lane_x)


def move(c, v: dict, mode: int, accel: float, brake: float, steering: float) -> None:
    """One vehicle, in place."""
    fits = v["movement"] != 2 if mode == 0 else v["movement"] != 0
    if mode != v["lane"] and v["s"] < -c.lock and fits:
        v["lane"] = mode
        v["e"] = c.lane_width * (mode + 0.5) - v["x"]
    length = inside_length(c, v["lane"], v["movement"])
    way = route(v["lane"], v["movement"])
    distance = max(c.step * v["speed"], 0.2)
    begin = v["s"] + 0.05 * v["speed"]
    share = min(max((min(begin + distance, length) - max(begin, 0.0)) / distance, 0.0), 1.0)
    bend = 0.0 if way == "straight" else share * (math.pi / 2 / length) * (1 if way == "left" else -1)
    wanted = -min(max(0.1 * v["e"], -0.1), 0.1)
    asked = math.atan(c.wheelbase * (bend + 0.4 * (wanted - v["error"]))) + steering
    most = c.steer_rate * c.step
    v["steer"] = min(max(v["steer"] + min(max(asked - v["steer"], -most), most), -c.steer_limit), c.steer_limit)
    a, old = accel - max(brake, 0.0), v["speed"]
    if old + a * c.step < 0:
        new, way_driven = 0.0, old * old / (-2 * a)
    else:
        new = min(old + a * c.step, c.top_speed)
        way_driven = (old + new) / 2 * c.step
    curvature = math.tan(v["steer"]) / c.wheelbase
    hold = c.grip / max(old * old, 1e-3)
    curvature = min(max(curvature, -hold), hold)
    parts = 400  # the arc by many small chords
    for _ in range(parts):
        middle = v["heading"] + curvature * way_driven / parts / 2
        v["x"] += way_driven / parts * math.cos(middle)
        v["y"] += way_driven / parts * math.sin(middle)
        v["heading"] += curvature * way_driven / parts
    v["speed"] = new
    v["s"], v["e"], v["error"] = track(c, v["lane"], v["movement"], v["x"], v["y"], v["heading"])


def room_of(c, v: dict) -> float:
    extent = c.length / 2 * abs(math.sin(v["error"])) + c.width / 2 * math.cos(v["error"])
    middle = v["e"] + c.wheelbase / 2 * math.sin(v["error"])
    left = right = c.lane_width / 2
    if v["s"] < -c.solid:
        left, right = (left, right + c.lane_width) if v["lane"] == 0 else (left + c.lane_width, right)
    return min(left - middle, right + middle) - extent


def box_of(c, i: int, v: dict) -> list:
    x, y = (v["x"] + c.wheelbase / 2 * math.cos(v["heading"]), v["y"] + c.wheelbase / 2 * math.sin(v["heading"]))
    for _ in range(i % 4):
        x, y = -y, x
    return corners_of(x, y, v["heading"] + i % 4 * math.pi / 2, c.length / 2, c.width / 2)


def step(c, cars: list[dict], clock: int, mode, params) -> tuple[list[dict], dict]:
    """All vehicles; returns them with reward and costs."""
    n, now = len(cars), (clock + 1) * c.step
    drove = [v["phase"] == DRIVING for v in cars]
    before = [v["s"] for v in cars]
    for i, v in enumerate(cars):
        if drove[i]:
            move(c, v, int(mode[i]), *map(float, params[i]))
    shapes = [box_of(c, i, v) for i, v in enumerate(cars)]
    crashed = [
        drove[i] and any(drove[j] and j != i and common_area(shapes[i], shapes[j]) > 1e-9 for j in range(n))
        for i in range(n)
    ]
    reward, off_lane = 0.0, 0
    for i, v in enumerate(cars):
        due = v["phase"] == WAITING and v["arrival"] <= now
        if not drove[i]:
            reward -= c.time_weight * c.step * due
            continue
        room = room_of(c, v)
        off_lane += room < 0
        off_road = room < -c.lane_width / 2 and not crashed[i]
        reward += c.progress_weight * (v["s"] - before[i]) - c.time_weight * c.step
        if crashed[i] or off_road:
            v["phase"], reward = CRASHED, reward - c.crash_penalty
        elif v["s"] >= inside_length(c, v["lane"], v["movement"]) + c.exit:
            v["phase"] = FINISHED
            if route(v["lane"], v["movement"]) == ("left", "straight", "right")[v["movement"]]:
                reward += c.goal_reward
        if v["phase"] == DRIVING:
            reaches = v["s"] + 1.05 * v["speed"] ** 2 / (2 * c.brake)
            if v["s"] >= -c.lock and v["request"] >= 1e4:
                v["request"] = now
            if reaches > c.stop and v["commit"] >= 1e4:
                v["commit"] = now
    return cars, {"reward": reward / n, "cost": np.array([sum(crashed) / n, off_lane / n])}
