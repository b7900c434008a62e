"""Battles and speed in smaclite (github.com/uoe-agents/smaclite), to be run by a Python that has it; see peers.py.

python peer_smaclite.py battles MAP SCRIPT EPISODES SEED      one line of JSON
python peer_smaclite.py speed MAP ENVS STEPS                  one line of JSON for every line of standard input
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from smaclite.env.maps.map import Group, MapInfo, MapPreset
from smaclite.env.smaclite import SMACliteEnv
from smaclite.env.terrain.terrain import TerrainPreset
from smaclite.env.units.unit_type import StandardUnit
from smaclite.env.util.faction import Faction

JITTER = 0.25
"""Of every starting place, each way, as in trident: smaclite's own battles start from the same places every time."""
LIMIT = {"3m": 60, "8m": 120, "2s3z": 120, "3s5z_vs_3s6z": 170, "corridor": 400, "MMM2": 180, "27m_vs_30m": 180}
"""Steps of an episode: smaclite itself has no limit."""


def marines(count: int) -> MapInfo:
    """3m and 8m are not among its maps, but their units and terrain are."""
    sides = ((9, Faction.ALLY), (23, Faction.ENEMY))
    groups = [Group(x=x, y=16, faction=faction, units=[(StandardUnit.MARINE, count)]) for x, faction in sides]
    return MapInfo(
        name=f"{count}m", num_allied_units=count, num_enemy_units=count, groups=groups, attack_point=(9, 16),
        terrain=TerrainPreset.SIMPLE.value, ally_has_shields=False, enemy_has_shields=False,
    )  # fmt: skip


def make(name: str, seed: int) -> SMACliteEnv:
    presets = {preset.value.name.lower(): preset.value for preset in MapPreset}
    info = marines(int(name[:-1])) if name in ("3m", "8m") else presets[name.lower()]
    return SMACliteEnv(map_info=info, seed=seed)


def begin(env: SMACliteEnv, rng: np.random.Generator) -> None:
    env.reset()
    for unit in env.all_units.values():
        unit.pos += rng.uniform(-JITTER, JITTER, 2).astype(unit.pos.dtype)
    for finder in (env.neighbour_finder_all, env.neighbour_finder_ally, env.neighbour_finder_enemy):
        finder.update()


def choose(env: SMACliteEnv, script: str, rng: np.random.Generator) -> list[int]:
    """`focus-nearest` and `focus-weakest` as trident.envs.smac_scripted has them; `random` among what is allowed."""
    masks, actions = env.get_avail_actions(), [0] * env.n_agents
    for i, unit in env.agents.items():
        if script == "random":
            actions[i] = int(rng.choice(np.flatnonzero(masks[i])))
            continue
        heals = unit.combat_type.name == "HEALING"
        others = env.agents if heals else env.enemies
        others = {j: u for j, u in others.items() if u is not unit and u.plane in unit.valid_targets and u.hp > 0}
        far = {j: float(np.hypot(*(u.pos - unit.pos))) for j, u in others.items()}
        near = [j for j in others if masks[i][6 + j]]
        if near:
            pool = {j: others[j].hp + others[j].shield for j in near}
            share = {j: pool[j] / (others[j].max_hp + others[j].max_shield) for j in near}
            first = share if heals else pool if script == "focus-weakest" else far
            actions[i] = 6 + min(near, key=lambda j, first=first, far=far: first[j] + 1e-3 * far[j])
        elif others:
            way = others[min(far, key=far.__getitem__)].pos - unit.pos
            moves = [(0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0)]  # north, south, east, west
            allowed = [d for d in range(4) if masks[i][2 + d]]
            actions[i] = 2 + max(allowed, key=lambda d, way=way: float(np.dot(way, moves[d]))) if allowed else 1
        else:
            actions[i] = 1
    return actions


def battles(name: str, script: str, episodes: int, seed: int) -> dict:
    env, rng = make(name, seed), np.random.default_rng(seed)
    won, lengths, left = [], [], []
    began = time.process_time()
    for _ in range(episodes):
        begin(env, rng)
        fighters, foes, t = [0], [0], 0
        while fighters and foes and t < LIMIT[name]:  # healers alone have lost, as in SMAC
            env.step(choose(env, script, rng))
            t += 1
            fighters, foes = (
                [u for u in side.values() if u.combat_type.name == "DAMAGE"] for side in (env.agents, env.enemies)
            )
        won.append(bool(fighters and not foes))
        lengths.append(t)
        left.append((len(env.agents) / env.n_agents, len(env.enemies) / env.n_enemies))
    allies, enemies = np.mean(left, axis=0).tolist()
    return {
        "win": float(np.mean(won)), "length": float(np.mean(lengths)), "allies_left": allies, "enemies_left": enemies,
        "episodes": episodes, "cpu_s": time.process_time() - began,
    }  # fmt: skip


def speed(name: str, envs: int, steps: int) -> None:
    """Random play, one environment after another, each at another point of its battle."""
    rng = np.random.default_rng(0)
    worlds = [make(name, seed) for seed in range(envs)]

    def advance(env: SMACliteEnv) -> None:
        if env.step(choose(env, "random", rng))[2]:
            env.reset()

    for env in worlds:
        env.reset()
        for _ in range(int(rng.integers(0, 16))):
            advance(env)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for env in worlds:
            for _ in range(steps):
                advance(env)
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({k: envs * steps / v for k, v in spent.items()}), flush=True)


def places(name: str) -> list[tuple[str, list[float]]]:
    """(kind, place) of every unit."""
    env = make(name, 0)
    env.reset()
    return [(u.type.stats.name, u.pos.tolist()) for side in (env.agents, env.enemies) for u in side.values()]


if __name__ == "__main__":
    what, name, *rest = sys.argv[1:]
    if what == "places":
        print(json.dumps(places(name)))
        raise SystemExit
    if what == "battles":
        print(json.dumps(battles(name, rest[0], int(rest[1]), int(rest[2]))), flush=True)
    else:
        speed(name, int(rest[0]), int(rest[1]))
