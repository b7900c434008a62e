"""Cooperative coverage written again in plain Python, UAV by UAV and place by place: the oracle of the tests."""

from __future__ import annotations

import math

import numpy as np
from oracles.uav_nofly_numpy import power as rotor_power
from oracles.uav_nofly_numpy import shortened


def places(c):
    step = c.area / c.points
    return [(step * (i + 0.5), step * (j + 0.5)) for i in range(c.points) for j in range(c.points)]


def importance(c, hot, obstacles) -> np.ndarray:
    peaks = [sum(math.exp(-(math.dist(q, h) ** 2) / (2 * c.hotspot_spread**2)) for h in hot) for q in places(c)]
    total = sum(peaks) + 1e-9
    mixed = [c.hotspot_share * p / total + (1 - c.hotspot_share) / c.points**2 for p in peaks]
    built = [any(math.dist(q, o) < c.obstacle_radius for o in obstacles) for q in places(c)]
    kept = np.array([0.0 if b else m for b, m in zip(built, mixed, strict=True)])
    return kept / kept.sum() if len(obstacles) else kept


def detection(c, uav, radius) -> np.ndarray:
    found = []
    for q in places(c):
        missed = 1.0
        for p, r in zip(uav, radius, strict=True):
            u = math.dist(p, q) / r
            missed *= 1.0 - (1.0 - u * u) ** 2 if u < 1.0 else 1.0
        found.append(1.0 - missed)
    return np.array(found)


def by_sector(c, found) -> np.ndarray:
    side, sums = c.area / c.sectors, {}
    for q, f in zip(places(c), found, strict=True):
        sums.setdefault((int(q[0] / side), int(q[1] / side)), []).append(f)
    return np.array([np.mean(sums[k]) for k in sorted(sums)])


def in_need(c, p, quality):
    """Middle of the sector with the least detection in hearing; the nearest of all if there is none."""
    side = c.area / c.sectors
    middles = [(side * (i + 0.5), side * (j + 0.5)) for i in range(c.sectors) for j in range(c.sectors)]
    heard = [k for k, m in enumerate(middles) if math.dist(p, m) <= 2 * c.sight]
    if heard:
        return middles[min(heard, key=lambda k: quality[k])]
    return min(middles, key=lambda m: math.dist(p, m))


def step(c, s: dict, noise, mode, params) -> tuple[dict, dict]:
    """The state after a slot, with its reward and costs."""
    quality = by_sector(c, detection(c, s["uav"], s["radius"]))
    uav, velocity, power = [], [], []
    for i in range(c.num_uavs):
        p, v = np.array(s["uav"][i], float), np.array(s["velocity"][i], float)
        wanted = np.zeros(2)
        if mode[i] == 1:
            wanted = shortened(params[i][:2], c.max_speed)
        if mode[i] == 2:
            way = np.array(in_need(c, p, quality)) - p
            far = math.hypot(*way)
            wanted = way / far * min(params[i][0], 0.5 * far)
        for k in range(2):
            low, high = (math.sqrt(c.accel * max(room, 0.0) + 1e-6) for room in (p[k], c.area - p[k]))
            wanted[k] = min(max(wanted[k], -low), high)
        after = v + shortened(wanted - v, c.accel * c.slot)
        uav.append(p + c.slot * (v + after) / 2)
        velocity.append(after)
        sensor = c.sensing_power * (params[i][2] / 100) ** 2
        power.append(rotor_power(math.hypot(*(v + after)) / 2) + sensor)
    hot, hot_vel = [], []
    for h, w, n in zip(np.array(s["hot"], float), np.array(s["hot_vel"], float), noise, strict=True):
        w = c.hotspot_memory * w + c.hotspot_speed * math.sqrt((1 - c.hotspot_memory**2) / 2) * np.array(n)
        h = h + c.slot * w
        for k in range(2):
            low, high = 0.12 * c.area, 0.88 * c.area
            if not low <= h[k] <= high:
                h[k], w[k] = 2 * (low if h[k] < low else high) - h[k], -w[k]
        hot.append(h)
        hot_vel.append(w)
    radius = [p[2] for p in params]
    found = detection(c, uav, radius)
    quality = by_sector(c, found)
    detected = float(found @ importance(c, hot, s["obstacle"]))
    near = 0
    for i, p in enumerate(uav):
        others = [math.dist(p, q) for j, q in enumerate(uav) if j != i]
        rims = [math.dist(p, o) - c.obstacle_radius for o in s["obstacle"]]
        near += min(others) < c.separation or min(rims, default=math.inf) < 0
    charged = s["clock"] + 1 > c.grace
    after = {"uav": uav, "velocity": velocity, "hot": hot, "hot_vel": hot_vel, "power": power, "radius": radius}
    cost = [(quality < c.sector_min).mean() * charged, near / c.num_uavs]
    return after, {"reward": detected - c.energy_weight * np.mean(power), "cost": np.array(cost), "quality": quality}
