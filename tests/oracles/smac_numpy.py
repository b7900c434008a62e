"""One tick of hybrid SMAC in NumPy, written unit by unit from the rules: the oracle of the engine's tests."""

from __future__ import annotations

import numpy as np

NOBODY = -1


def gap(roster, u, i, j):
    return np.hypot(u["x"][j] - u["x"][i], u["y"][j] - u["y"][i]) - roster.types[i].radius - roster.types[j].radius


def choose(config, u, i):
    """Target of an attack-moving unit."""
    roster, me = config.roster, config.roster.types[i]
    mine = [j for j in range(roster.size) if (j < roster.allies) == (i < roster.allies) and j != i]
    alive = [j for j in range(roster.size) if u["health"][j] > 0]
    if me.heals:
        friends = [j for j in mine if j in alive and roster.types[j].biological]
        hurt = [j for j in friends if u["health"][j] < roster.types[j].health]
        return min(hurt or friends, key=lambda j: gap(roster, u, i, j), default=NOBODY)
    foes = [j for j in alive if (j < roster.allies) != (i < roster.allies)]
    foes = [j for j in foes if me.hits_air or not roster.types[j].flying]
    if u["target"][i] in foes and gap(roster, u, i, u["target"][i]) <= me.reach:
        return u["target"][i]
    scan = config.sight if u["calm"][i] < 16 * config.alert else max(config.scan, me.reach)
    seen = [j for j in foes if gap(roster, u, i, j) <= scan]
    armed = [j for j in seen if roster.types[j].damage > 0]
    return min(armed or seen, key=lambda j: gap(roster, u, i, j), default=NOBODY)


def push_apart(config, u, moved):
    roster, move = config.roster, np.zeros((config.roster.size, 2))
    for i in range(roster.size):
        for j in range(roster.size):
            a, b = roster.types[i], roster.types[j]
            if i == j or a.flying != b.flying or u["health"][i] <= 0 or u["health"][j] <= 0:
                continue
            way = np.array([u["x"][i] - u["x"][j], u["y"][i] - u["y"][j]])
            least = (a.body or a.radius) + (b.body or b.radius)
            if np.abs(way).sum() < 1e-4:
                way = np.array([0.0, 1e-4 * np.sign(i - j)])
            away = np.linalg.norm(way)
            share = 0.5 if moved[i] == moved[j] else float(moved[i])
            move[i] += share * max(least - away, 0.0) * way / away
    move = np.clip(move, -0.25, 0.25)
    u["x"], u["y"] = u["x"] + move[:, 0], u["y"] + move[:, 1]


def keep_inside(config, u):
    field, roster = config.field, config.roster
    for i, kind in enumerate(roster.types):
        x, y, r = u["x"][i], u["y"][i], kind.body or kind.radius
        if not kind.flying:
            if field.diagonal is not None:
                low, high = field.diagonal[0] + np.sqrt(2) * r, field.diagonal[1] - np.sqrt(2) * r
                slip = max(low - (x - y), 0.0) - max(x - y - high, 0.0)
                x, y = x + slip / 2, y - slip / 2
            for cx, cy, sx, sy in field.walls:
                deep_x, deep_y = sx * (x - cx) + r, sy * (y - cy) + r
                if deep_x > 0 and deep_y > 0:
                    x, y = (x - sx * deep_x, y) if deep_x <= deep_y else (x, y - sy * deep_y)
        west, south, east, north = field.arena
        u["x"][i], u["y"][i] = np.clip(x, west + r, east - r), np.clip(y, south + r, north - r)


def tick(config, auto, orders, units):
    """(units after, who acted); `units` and `orders` are dictionaries of arrays."""
    roster, n = config.roster, config.roster.size
    u = {k: np.array(v, np.int64 if k == "target" else np.float64) for k, v in units.items()}
    target = [choose(config, u, i) if auto[i >= roster.allies] else int(orders["target"][i]) for i in range(n)]
    living = u["health"] > 0
    valid = [bool(living[i] and t >= 0 and living[t] and roster.allowed[i, t]) for i, t in enumerate(target)]
    near = [valid[i] and gap(roster, u, i, t) <= roster.types[i].reach for i, t in enumerate(target)]
    cooling = [u["cooldown"][i] > 1e-3 or roster.types[i].heals for i in range(n)]
    fires = [near[i] and u["cooldown"][i] <= 1e-3 and roster.types[i].damage > 0 for i in range(n)]
    acts, way = list(fires), [(u["x"][t] - u["x"][i], u["y"][t] - u["y"][i]) for i, t in enumerate(target)]
    gaps = [gap(roster, u, i, t) for i, t in enumerate(target)]
    for j in range(n):
        blows = [
            roster.types[i].damage + roster.types[i].bonus * roster.types[j].armored
            for i in range(n)
            if fires[i] and target[i] == j
            for _ in range(roster.types[i].attacks)
        ]
        u["calm"][j] = 0 if blows else u["calm"][j] + 1
        each = np.mean(blows) if blows else 0.0
        for _ in blows:
            rest = each - u["shield"][j]
            u["shield"][j] = max(u["shield"][j] - each, 0.0)
            if rest > 1e-9:
                u["health"][j] -= max(rest - roster.types[j].armor, 0.5)
        u["health"][j] = max(u["health"][j], 0.0)
        if u["health"][j] <= 0:
            u["shield"][j] = 0.0
    for i, rest in enumerate(u["cooldown"]):
        u["cooldown"][i] = rest + roster.types[i].period * 16 - 1 if fires[i] else (rest - 1 if rest > 1e-3 else 0.0)
    before, moved = u["health"].copy(), np.zeros(n, bool)
    for i, kind in enumerate(roster.types):
        if kind.heals and near[i] and before[target[i]] > 0:
            missing = roster.types[target[i]].health - before[target[i]]
            given = min(9.0 / 16, 3.0 * u["energy"][i], missing)
            u["health"][target[i]] += given
            u["energy"][i] -= given / 3.0
            acts[i] = acts[i] or given > 0
    for i, kind in enumerate(roster.types):
        if u["health"][i] > 0:
            u["health"][i] = min(u["health"][i] + kind.regrowth / 16, kind.health)
            if u["calm"][i] > 160:
                u["shield"][i] = min(u["shield"][i] + 2.0 / 16, kind.shield)
        u["health"][i] = min(u["health"][i], kind.health)
        u["energy"][i] = min(u["energy"][i] + 0.5625 / 16, 200.0) if kind.heals else 0.0
        if u["health"][i] <= 0:
            continue
        velocity, pace = np.zeros(2), kind.speed / 16
        if valid[i]:
            if gaps[i] > kind.reach:
                velocity = np.array(way[i]) / np.hypot(*way[i]) * min(pace, gaps[i] - kind.reach + 0.01)
            if cooling[i]:
                velocity = velocity + np.array([orders["drift_x"][i], orders["drift_y"][i]])
        elif orders["go"][i] and orders["target"][i] < 0:
            path = np.array([orders["goal_x"][i] - u["x"][i], orders["goal_y"][i] - u["y"][i]])
            velocity = path / max(np.hypot(*path), 1e-6) * min(pace, np.hypot(*path))
        velocity = velocity / max(np.hypot(*velocity) / pace, 1.0)
        u["x"][i], u["y"][i] = u["x"][i] + velocity[0], u["y"][i] + velocity[1]
        moved[i] = np.abs(velocity).sum() > 1e-4
    push_apart(config, u, moved)
    u["target"] = np.array(target)
    keep_inside(config, u)
    return u, np.array(acts)
