"""UAV-MEC once more, in plain NumPy with a leading batch axis B and written independently: the oracle of the JAX step,
and the yardstick for its speed. Association sorts, neighbours are picked by argsort, service gathers by index."""

from __future__ import annotations

import numpy as np

TOWNS = {"urban": (9.61, 0.16, 1.0, 20.0), "suburban": (4.88, 0.43, 0.1, 21.0)}
P0, PI, TIP, V0, DRAG = 59.03, 79.07, 120.0, 3.6, 0.5 * 0.6 * 1.225 * 0.05 * 0.503


def gaps(a, b):
    """[B, A, 2], [B, X, 2] -> [B, A, X, 2] and its length."""
    rel = b[:, None] - a[:, :, None]
    return rel, np.sqrt((rel**2).sum(-1) + 1e-12)


def power(v):
    x = v**2 / (2 * V0**2)
    return P0 * (1 + 3 * v**2 / TIP**2) + PI * np.sqrt(np.sqrt(1 + x**2) - x) + DRAG * v**3


def efficiency(c, d2, height, watt, megahertz):
    a, b, los, nlos = TOWNS[c.channel]
    elevation = np.rad2deg(np.arctan(height / d2))
    p = 1 / (1 + a * np.exp(-b * (elevation - a)))
    free = 20 * np.log10(4 * np.pi * c.carrier * 1e9 * np.hypot(d2, height) / 299792458.0)
    snr_db = 10 * np.log10(watt) + 30 - free - p * los - (1 - p) * nlos
    snr_db = snr_db + 174 - c.noise_figure - 10 * np.log10(megahertz * 1e6)
    return np.log2(1 + 10 ** (snr_db / 10))


def velocity(c, params):
    if c.flight == "polar":
        return params[..., :1] * np.stack([np.cos(params[..., 1]), np.sin(params[..., 1])], -1)
    if c.flight == "course":
        return params[..., :1] * params[..., 1:3] / np.sqrt((params[..., 1:3] ** 2).sum(-1, keepdims=True) + 1e-4)
    x, y = params[..., 0], params[..., 1]
    return c.max_speed * np.stack([x * np.sqrt(1 - y * y / 2), y * np.sqrt(1 - x * x / 2)], -1)


def associate(c, distance):
    """[B, N, U] -> server of every user [B, U], -1 for none. Requests are sorted by distance in every round."""
    batch, n, u = distance.shape
    rows = np.arange(batch)[:, None]
    server = np.full((batch, u), -1)
    free = np.full((batch, n), c.capacity)
    for _ in range(c.association_rounds):
        open_to = (distance <= c.service_radius) & (free > 0)[:, :, None] & (server < 0)[:, None]
        wanted = np.where(open_to, distance, np.inf)
        target = wanted.argmin(1)
        length = np.take_along_axis(wanted, target[:, None], 1)[:, 0]
        order = np.argsort(length, axis=1, kind="stable")
        sorted_target = np.take_along_axis(target, order, 1)
        asks = np.take_along_axis(np.isfinite(length), order, 1)
        queue = np.cumsum((sorted_target[..., None] == np.arange(n)) & asks[..., None], axis=1)
        place = np.take_along_axis(queue, sorted_target[..., None], 2)[..., 0]
        taken = asks & (place <= np.take_along_axis(free, sorted_target, 1))
        accepted = np.where(taken, sorted_target, -1)
        new = np.empty_like(server)
        new[rows, order] = accepted
        server = np.where(new >= 0, new, server)
        free = c.capacity - (server[..., None] == np.arange(n)).sum(1)
    return server


def mirror(place, vel, low, high):
    below, above = place < low, place > high
    place = np.where(below, 2 * low - place, place)
    place = np.where(above, 2 * high - place, place)
    return place, np.where(below | above, -vel, vel)


def step(c, s, size, work, noise, mode, params):
    """s: dict of arrays [B, ...]; returns the next dict and a dict of reward, cost, margin, obs, state, metrics."""
    out = dict(s)
    vel = velocity(c, params)
    out["uav"] = np.clip(s["uav"] + c.slot * vel, 0, c.area)
    out["uav_vel"] = vel
    move(c, s, out, noise)
    distance = gaps(out["uav"], out["user"])[1]
    server = associate(c, distance)
    linked = server >= 0
    own = np.take_along_axis(distance, np.maximum(server, 0)[:, None], 1)[:, 0]
    out["reach"] = np.where(linked, own, np.float32(c.service_radius))
    out["link"] = server[:, None] == np.arange(c.num_uavs)[:, None]
    out["mode"] = mode
    out["slot"] = s["slot"] + 1
    latency, energy = cost_of_tasks(c, out, server, size, work, mode, params[..., -1])
    out["energy"] = energy
    result = verdict(c, out, latency, size)
    result["obs"], result["state"] = look(c, out), array(c, out)
    return out, result


def move(c, s, out, noise):
    k, m = c.members, c.user_memory
    group = np.arange(k) % c.num_hotspots
    mean = np.zeros_like(s["user"])
    mean[:, :k] = c.spring * (s["hot"][:, group] - s["user"][:, :k])
    vel = m * s["user_vel"] + (1 - m) * mean + c.user_speed / np.sqrt(2) * np.sqrt(1 - m * m) * noise
    step_vel = vel.copy()
    step_vel[:, :k] += s["hot_vel"][:, group]
    out["user"], out["user_vel"] = mirror(s["user"] + c.slot * step_vel, vel, 0, c.area)
    border = c.hotspot_border
    out["hot"], out["hot_vel"] = mirror(s["hot"] + c.slot * s["hot_vel"], s["hot_vel"], border, c.area - border)


def cost_of_tasks(c, s, server, size, work, mode, ratio):
    batch = np.arange(len(mode))[:, None]
    linked, who = server >= 0, np.maximum(server, 0)
    load = s["link"].sum(2)
    fog = np.maximum(mode - 1, 0)
    ratio = np.where(mode > 0, ratio, 0)
    fogs = np.broadcast_to(c.fogs, (len(mode), c.num_fogs, 2))
    to_own_fog = np.take_along_axis(gaps(s["uav"], fogs)[1], fog[..., None], 2)[..., 0]
    rate = c.uav_bandwidth * efficiency(c, to_own_fog, c.altitude - c.fog_height, c.uav_power, c.uav_bandwidth)
    tasks = np.stack([(load * (mode == f + 1)).sum(1) for f in range(c.num_fogs)], 1)
    fog_speed = np.asarray(c.fog_speeds) * np.minimum(1, c.fog_machines / np.maximum(tasks, 1))
    here = c.uav_ghz * np.minimum(1, c.uav_cores / np.maximum(load, 1))
    cycles = size * work / 1e3
    up = size / (c.user_bandwidth * efficiency(c, s["reach"], c.altitude, c.user_power, c.user_bandwidth))
    on_board = cycles / here[batch, who]
    relay = size * (load / rate)[batch, who] + cycles / fog_speed[batch, fog[batch, who]]
    share, extra = ratio[batch, who], np.where(mode > 0, c.overhead, 0)[batch, who]
    if c.execution == "sequential":
        done = up + (1 - share) * on_board + extra + share * relay
    else:
        done = up + np.maximum((1 - share) * on_board, extra + share * relay)
    latency = np.where(linked, done, cycles / c.user_ghz)
    offered, bits = (s["link"] * cycles[:, None]).sum(2), (s["link"] * size[:, None]).sum(2)
    joule = c.uav_capacitance * (c.uav_ghz * 1e9) ** 2 * 1e9 * (1 - ratio) * offered
    speed = np.sqrt((s["uav_vel"] ** 2).sum(-1) + 1e-12)
    return latency, c.slot * power(speed) + joule + c.uav_power * ratio * bits / rate


def verdict(c, s, latency, size):
    covered = (s["reach"] <= c.coverage_radius).sum(1)
    low = (covered / c.num_users < c.coverage_min - 1e-6).astype(float)
    charged = (s["slot"] > c.grace).astype(float)
    over = (s["energy"] > c.energy_max).mean(1)
    took = latency.sum(1)
    reward = -took - c.energy_weight * s["energy"].sum(1) - c.coverage_penalty * c.num_uavs * low * charged
    kth = np.sort(s["reach"], axis=1)[:, c.needed - 1]
    margin_cov = (c.coverage_radius - kth) / c.coverage_radius
    margin_cov = np.where(charged > 0, margin_cov, np.maximum(margin_cov, 0))
    cost = [over, low * charged]
    margin = [((c.energy_max - s["energy"]) / c.energy_max).min(1), margin_cov]
    if c.separation:
        apart = gaps(s["uav"], s["uav"])[1] + 1e9 * np.eye(c.num_uavs)
        cost.append((apart.min(2) < c.separation_min).mean(1))
        margin.append(np.clip(apart.min((1, 2)) / c.separation_min - 1, -1, 1))
    metrics = {
        "exec": took,
        "energy": s["energy"].mean(1),
        "throughput": (size * (latency <= c.deadline)).sum(1) / took,
        "ev": over,
        "cv": low * charged,
        "cv_all": low,
        "covered": covered / c.num_users,
        "served": s["link"].sum((1, 2)) / c.num_users,
        "local": (s["mode"] == 0).mean(1),
    }
    return {"reward": reward, "cost": np.stack(cost, 1), "margin": np.stack(margin, 1), "metrics": metrics}


def pick(features, distance, seen, count):
    """Features of the `count` nearest that are seen, zeros beyond: [B, N, count * F]."""
    order = np.argsort(np.where(seen, distance, np.inf), axis=2, kind="stable")[:, :, :count]
    chosen = np.take_along_axis(features, order[..., None], 2)
    chosen = chosen * np.take_along_axis(seen, order, 2)[..., None]
    return chosen.reshape(*chosen.shape[:2], -1)


def look(c, s):
    """Observations [B, N, O]."""
    batch, n = s["uav"].shape[:2]
    rel, distance = gaps(s["uav"], s["user"])
    seen, mine = distance <= c.sight, s["link"]
    covered = np.broadcast_to((s["reach"] <= c.coverage_radius)[:, None], mine.shape)
    flags = np.stack([mine, covered & ~mine, seen], -1)
    users = pick(np.concatenate([rel / c.sight, flags], -1), distance, seen, min(c.seen_users, c.num_users))
    octant = 4 * (rel[..., 0] > 0) + 2 * (rel[..., 1] > 0) + (np.abs(rel[..., 0]) > np.abs(rel[..., 1]))
    sectors = np.stack([((octant == k) & seen & ~covered).sum(2) for k in range(8)], -1)
    load = mine.sum(2)
    centre = (rel * mine[..., None]).sum(2) / np.maximum(load, 1)[..., None] / c.sight
    counts = np.stack([load, (mine & covered).sum(2)], -1) / c.capacity
    fogs = np.broadcast_to(c.fogs, (batch, c.num_fogs, 2))
    rel_fog, to_fog = gaps(s["uav"], fogs)
    eff = efficiency(c, to_fog, c.altitude - c.fog_height, c.uav_power, c.uav_bandwidth) / 12
    sent = load[..., None] * (s["mode"][..., None] == 1 + np.arange(c.num_fogs))
    others = np.minimum((sent.sum(1, keepdims=True) - sent) / c.fog_machines, 2)
    rel_uav, to_uav = gaps(s["uav"], s["uav"])
    heard = (to_uav <= 2 * c.sight) & ~np.eye(n, dtype=bool)
    loads = np.broadcast_to(load[:, None, :, None] / c.capacity, (*heard.shape, 1))
    fleet = np.concatenate([rel_uav / (2 * c.sight), loads, heard[..., None]], -1)
    grace = np.maximum(c.grace - s["slot"], 0) / max(c.grace, 1)
    own = [
        2 * s["uav"] / c.area - 1,
        s["uav_vel"] / c.max_speed,
        np.broadcast_to(grace[:, None, None], (batch, n, 1)),
        np.clip(1 - s["energy"] / c.energy_max, -1, 1)[..., None],
        counts,
        centre,
        users,
        np.minimum(sectors / c.capacity, 1),
        rel_fog[..., 0] / c.area,
        rel_fog[..., 1] / c.area,
        eff,
        others,
        pick(fleet, to_uav, heard, min(c.seen_uavs, n - 1)),
    ]
    return np.concatenate(own, -1)


def array(c, s):
    """Global state arrays [B, S]."""
    load = s["link"].sum(2)
    sent = np.stack([(load * (s["mode"] == f + 1)).sum(1) for f in range(c.num_fogs)], 1)
    parts = [
        2 * s["uav"] / c.area - 1,
        2 * s["user"] / c.area - 1,
        s["user_vel"] / 10,
        2 * s["hot"] / c.area - 1,
        s["hot_vel"] / 10,
        np.maximum(c.grace - s["slot"], 0)[:, None] / max(c.grace, 1),
        s["uav_vel"] / c.max_speed,
        s["reach"] / c.service_radius,
        load / c.capacity,
        np.clip(1 - s["energy"] / c.energy_max, -1, 1),
        sent / c.fog_machines,
    ]
    return np.concatenate([p.reshape(len(p), -1) for p in parts], 1)
