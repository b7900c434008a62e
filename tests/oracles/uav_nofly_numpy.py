"""The no-fly scenario written again in plain Python, for one flight: the oracle of the tests.

Points are in a polygon if the outline winds around them, segments are compared end by end, shortest ways are found by
Dijkstra's algorithm. Only the numbers of the config, the zones and the goals are shared with the package.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

STEPS = [(0, 0), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1)]


# --- geometry -------------------------------------------------------------------------------------


def outline(zone):
    """Its corners as tuples, the repeated ones once."""
    corners = [tuple(map(float, p)) for p in zone]
    return [p for k, p in enumerate(corners) if p != corners[k - 1]]


def is_inside(p, zone) -> bool:
    turn = 0.0
    for a, b in zip(zone, zone[1:] + zone[:1], strict=True):
        u, v = (a[0] - p[0], a[1] - p[1]), (b[0] - p[0], b[1] - p[1])
        turn += math.atan2(u[0] * v[1] - u[1] * v[0], u[0] * v[0] + u[1] * v[1])
    return abs(turn) > math.pi


def point_segment(p, a, b) -> float:
    d = (b[0] - a[0], b[1] - a[1])
    square = d[0] ** 2 + d[1] ** 2
    t = 0.0 if square == 0 else ((p[0] - a[0]) * d[0] + (p[1] - a[1]) * d[1]) / square
    t = min(max(t, 0.0), 1.0)
    return math.hypot(p[0] - a[0] - t * d[0], p[1] - a[1] - t * d[1])


def meets(p, q, a, b) -> bool:
    """Where the lines cross, if within both segments."""
    r, s = (q[0] - p[0], q[1] - p[1]), (b[0] - a[0], b[1] - a[1])
    det = r[0] * s[1] - r[1] * s[0]
    if det == 0:
        return False
    w = (a[0] - p[0], a[1] - p[1])
    t, u = (w[0] * s[1] - w[1] * s[0]) / det, (w[0] * r[1] - w[1] * r[0]) / det
    return 0 < t < 1 and 0 < u < 1


def distance(p, zone) -> float:
    """Signed."""
    away = min(point_segment(p, a, b) for a, b in zip(zone, zone[1:] + zone[:1], strict=True))
    return -away if is_inside(p, zone) else away


def clearance(p, q, zone) -> float:
    edges = list(zip(zone, zone[1:] + zone[:1], strict=True))
    deep = max(-distance(p, zone), -distance(q, zone), 0.0)
    if deep > 0 or any(meets(p, q, a, b) for a, b in edges):
        return -max(deep, 0.01)
    ends = [point_segment(e, a, b) for e in (p, q) for a, b in edges]
    return min(ends + [point_segment(corner, p, q) for corner in zone])


# --- shortest ways --------------------------------------------------------------------------------


def shortest_ways(c, zones, goal):
    """Way to the goal from every cell; a stretch that comes nearer to a zone than the tube counts five times."""
    zones = [outline(z) for z in zones]
    middle = lambda i, j: (c.cell * (i + 0.5), c.cell * (j + 0.5))  # noqa: E731
    n = round(c.area / c.cell)
    start = tuple(min(max(int(x / c.cell), 0), n - 1) for x in goal)
    best, heap = {start: 0.0}, [(0.0, start)]
    while heap:
        so_far, (i, j) = heapq.heappop(heap)
        if so_far > best[i, j]:
            continue
        for di, dj in STEPS[1:]:
            k, l = i + di, j + dj
            if 0 <= k < n and 0 <= l < n:
                free = all(clearance(middle(i, j), middle(k, l), z) >= c.tube for z in zones)
                new = so_far + c.cell * math.hypot(di, dj) * (1.0 if free else 5.0)
                if new < best.get((k, l), math.inf):
                    best[k, l] = new
                    heapq.heappush(heap, (new, (k, l)))
    return np.array([[best[i, j] for j in range(n)] for i in range(n)])


def way_from(c, table, p) -> float:
    """Bilinear between the centres."""
    n = len(table)
    x, y = (min(max(v / c.cell - 0.5, 0.0), n - 1.0) for v in p)
    i, j = min(int(x), n - 2), min(int(y), n - 2)
    x, y = x - i, y - j
    south = (1 - x) * table[i, j] + x * table[i + 1, j]
    north = (1 - x) * table[i, j + 1] + x * table[i + 1, j + 1]
    return (1 - y) * south + y * north


# --- a step ---------------------------------------------------------------------------------------


def shortened(v, most):
    size = math.hypot(*v)
    return np.array(v) * (most / size if size > most else 1.0)


def power(speed: float) -> float:
    x = speed**2 / (2 * 3.6**2)
    drag = 0.5 * 0.6 * 1.225 * 0.05 * 0.503
    return 59.03 * (1 + 3 * speed**2 / 120.0**2) + 79.07 * math.sqrt(math.sqrt(1 + x * x) - x) + drag * speed**3


def step(c, s: dict, zones, table, noise, mode: int, params) -> tuple[dict, dict]:
    """The state after a step, with its reward and costs."""
    zones = [outline(z) for z in zones]
    p, v = np.array(s["place"], float), np.array(s["velocity"], float)
    n = round(c.area / c.cell)
    cell = [min(max(int(x / c.cell), 0), n - 1) for x in p]
    waypoint = np.array([c.cell * (cell[k] + STEPS[mode][k] + 0.5) for k in range(2)])
    wanted = np.zeros(2)
    if mode:
        ahead = (waypoint - p) / math.hypot(*(waypoint - p))
        wanted = params[0] * ahead + params[1] * np.array([-ahead[1], ahead[0]])
    for k in range(2):
        low, high = (math.sqrt(c.accel * max(room, 0.0) + 1e-6) for room in (p[k], c.area - p[k]))
        wanted[k] = min(max(wanted[k], -low), high)
    v2 = v + shortened(wanted - v, c.accel * c.step)
    p2 = p + c.step * (v + v2) / 2
    mean, wind = np.array(s["mean_wind"], float), np.array(s["wind"], float)
    gust = c.gust * math.sqrt(1 - c.wind_memory**2) * np.array(noise, float)
    wind2 = shortened(mean + c.wind_memory * (wind - mean) + gust, c.max_wind)
    offset = np.array(s["offset"], float)
    offset2 = shortened(c.offset_memory * offset + c.offset_lag * (wind2 - wind), c.tube)
    clear = min(clearance(tuple(p + offset), tuple(p2 + offset2), z) for z in zones)
    watt = power(math.hypot(*((v + v2) / 2 - wind2)))
    arrived = math.hypot(*(p2 + offset2 - np.array(s["goal"]))) <= c.goal_radius
    gained = way_from(c, table, p) - way_from(c, table, p2)
    reward = c.progress_weight * gained - c.time_weight - c.energy_weight * c.step * watt + c.goal_reward * arrived
    after = {"place": p2, "velocity": v2, "offset": offset2, "wind": wind2, "waypoint": waypoint}
    after |= {"clearance": clear, "power": watt, "arrived": arrived}
    return after, {"reward": reward, "cost": np.array([clear < 0, watt > c.max_power], float)}
