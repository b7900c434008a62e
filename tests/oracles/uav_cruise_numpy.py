"""Heterogeneous cruise written again in plain Python, UAV by UAV: the oracle of the tests. Links are a breadth-first
search over the fleet."""

from __future__ import annotations

import math

import numpy as np
from oracles.uav_nofly_numpy import power as light_power
from oracles.uav_nofly_numpy import shortened

TABLE = {  # max speed, sensor, radio, payload, battery, rotor
    "relay": (14.0, 50.0, 360.0, 0, 36.0, "zeng"),
    "scout": (22.0, 110.0, 220.0, 0, 24.0, "light"),
    "carrier": (16.0, 60.0, 220.0, 4, 30.0, "zeng"),
}


def power(kind: str, speed: float) -> float:
    if TABLE[kind][5] == "light":
        return light_power(speed)
    weight, area, rho = 20.0, 0.503, 1.225
    blade = 0.012 / 8 * rho * 0.05 * area * (300 * 0.4) ** 3
    induced, v0 = 1.1 * weight**1.5 / math.sqrt(2 * rho * area), math.sqrt(weight / (2 * rho * area))
    x = speed**2 / (2 * v0**2)
    drag = 0.5 * 0.6 * rho * 0.05 * area * speed**3
    return blade * (1 + 3 * speed**2 / 120**2) + induced * math.sqrt(math.sqrt(1 + x * x) - x) + drag


def pads(c):
    n = len(c.fleet)
    return [np.array([c.base[0] * c.area + c.pad_gap * (i - (n - 1) / 2), c.base[1] * c.area]) for i in range(n)]


def target(c, s, i):
    """The point that a UAV sees to."""
    best, place = -math.inf, None
    for p, q in enumerate(s["point"]):
        stale = 1 - math.exp(-s["age"][p] / c.fresh_time)
        value = s["need"][p] + 0.05 * stale if s["payload"][i] > 0.5 else stale
        mine = all(
            math.dist(s["uav"][i], q) <= math.dist(s["uav"][j], q)
            for j in range(len(c.fleet)) if c.fleet[j] == c.fleet[i]
        )  # fmt: skip
        score = value / (math.dist(s["uav"][i], q) + 150.0) + (1.0 if mine and value > 0.02 else 0.0)
        if score > best:
            best, place = score, np.array(q, float)
    return place


def clients(c, uav, i):
    n = len(c.fleet)
    others = [j for j in range(n) if c.fleet[j] != c.fleet[i]]
    same = [k for k in range(n) if c.fleet[k] == c.fleet[i]]
    mine = [j for j in others if all(math.dist(uav[i], uav[j]) <= math.dist(uav[k], uav[j]) for k in same)]
    chosen = mine or others or range(n)
    return np.mean([uav[j] for j in chosen], axis=0)


def head_for(place, goal, speed):
    way = goal - place
    far = math.hypot(*way) + 1e-9
    return way / far * min(speed, 0.5 * far)


def left_of(way):
    return np.array([-way[1], way[0]]) / max(math.hypot(*way), 1.0)


def give_way(c, wanted, uav, i):
    for j in range(len(uav)):
        if j == i:
            continue
        rel = uav[j] - uav[i]
        towards = rel / max(math.hypot(*rel), 1.0)
        room = max(math.hypot(*rel), 1.0) - 1.6 * c.separation
        most = math.sqrt(0.5 * c.accel * room) if room > 0 else room
        right = np.array([towards[1], -towards[0]])
        wanted = wanted - max(wanted @ towards - most, 0.0) * (towards - 0.4 * right)
    return wanted


def wish(c, s, i, role, params):
    """Velocity asked for by a role."""
    uav = [np.array(u, float) for u in s["uav"]]
    place, top = uav[i], TABLE[c.fleet[i]][0]
    if role == 0:
        goal = target(c, s, i)
        return head_for(place, goal, params[0]) + params[1] * left_of(goal - place)
    if role == 1:
        return shortened(params, top)
    if role == 2:
        base = np.array(c.base) * c.area
        line = clients(c, uav, i) - base
        far = math.hypot(*line)
        ahead = line / max(far, 1.0)
        out = c.relay_near + params[0] * max(far - c.relay_near, 0.0)
        spot = base + out * ahead + params[1] * np.array([-ahead[1], ahead[0]])
        return give_way(c, head_for(place, spot, top), uav, i)
    pad = pads(c)[i]
    return head_for(place, pad, params[0]) + params[1] * left_of(pad - place)


def connected(c, uav, role):
    """Breadth first from the base, four links deep."""
    n = len(c.fleet)
    radio = [TABLE[k][2] * (c.relay_gain if role[i] == 2 else 1.0) for i, k in enumerate(c.fleet)]
    base = np.array(c.base) * c.area
    reach = {i for i in range(n) if math.dist(uav[i], base) <= (radio[i] + c.base_radio) / 2}
    for _ in range(3):
        reach |= {i for i in range(n) for j in reach if math.dist(uav[i], uav[j]) <= (radio[i] + radio[j]) / 2}
    return reach


def step(c, s: dict, lots, role, params) -> tuple[dict, dict]:
    """The state after a slot, with its reward and costs."""
    n = len(c.fleet)
    uav, velocity, watt, battery, payload = [], [], [], [], []
    for i, kind in enumerate(c.fleet):
        p, v = np.array(s["uav"][i], float), np.array(s["velocity"][i], float)
        wanted = wish(c, s, i, role[i], params[i]) if s["battery"][i] > 0 else np.zeros(2)
        for k in range(2):
            low, high = (math.sqrt(c.accel * max(room, 0.0) + 1e-6) for room in (p[k], c.area - p[k]))
            wanted[k] = min(max(wanted[k], -low), high)
        after = v + shortened(wanted - v, c.accel * c.slot)
        uav.append(p + c.slot * (v + after) / 2)
        velocity.append(after)
        landed = role[i] == 3 and math.dist(uav[i], pads(c)[i]) <= c.pad_radius
        watt.append(0.0 if landed else power(kind, math.hypot(*(v + after)) / 2))
        charge = s["battery"][i] + (c.charging if landed else -watt[i] / 1000) * c.slot
        battery.append(min(max(charge, 0.0), TABLE[kind][4]))
        payload.append(float(TABLE[kind][3]) if landed else float(s["payload"][i]))
    linked = connected(c, uav, role)
    age, need, made = [], [], 0
    drop = {}
    for i in range(n):  # each to its nearest needy point, each point from its nearest carrier
        if role[i] == 0 and payload[i] > 0.5:
            reach = [(math.dist(uav[i], q), p) for p, q in enumerate(s["point"]) if s["need"][p] > 0.5]
            reach = [r for r in reach if r[0] <= c.drop_radius]
            if reach:
                away, p = min(reach)
                drop[p] = min(drop.get(p, (math.inf, n)), (away, i))
    for _, i in drop.values():
        payload[i] -= 1
        made += 1
    for p, q in enumerate(s["point"]):
        seen = any(i in linked and math.dist(uav[i], q) <= TABLE[c.fleet[i]][1] for i in range(n))
        age.append(0.0 if seen else min(float(s["age"][p]) + c.slot, c.oldest))
        need.append(0.0 if p in drop else max(float(s["need"][p]), float(lots[p] < c.need_rate)))
    near = sum(min(math.dist(uav[i], uav[j]) for j in range(n) if j != i) < c.separation for i in range(n))
    low = 0
    for i, kind in enumerate(c.fleet):
        speed = 0.8 * TABLE[kind][0]
        home = power(kind, speed) / speed / 1000 * math.dist(uav[i], pads(c)[i]) + c.reserve * TABLE[kind][4]
        low += battery[i] < home
    fresh = np.mean([math.exp(-a / c.fresh_time) for a in age])
    reward = c.fresh_weight * fresh + c.delivery_reward * made + c.link_weight * len(linked) / n
    after = {"uav": uav, "velocity": velocity, "battery": battery, "payload": payload, "age": age, "need": need}
    after |= {"power": watt, "linked": [i in linked for i in range(n)]}
    cost = np.array([near / n, low / n, 1 - len(linked) / n])
    return after, {"reward": reward - c.energy_weight * np.mean(watt), "cost": cost, "made": made}
