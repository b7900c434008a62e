"""Hybrid SMAC beside independent simulators: the same battles in smaclite, the same load on SMAX and smaclite.

    TRIDENT_SMACLITE_PYTHON=... TRIDENT_SMAX_PYTHON=... python benchmarks/smac/peers.py
    python benchmarks/smac/peers.py --parts decisions            needs neither
    python benchmarks/smac/peers.py --parts battles --simulators trident      our side alone, likewise
    python benchmarks/smac/peers.py --show                       the tables of the record

The two variables name a Python with smaclite (from its repository) and one with jaxmarl. Records go to peers.jsonl,
one JSON object per line; a later line about the same thing replaces an earlier one in the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from peers_page import page

from trident.envs.checks.values import random_action
from trident.envs.smac.actions import allowed_modes
from trident.envs.smac.config import SmacConfig
from trident.envs.smac.engine import tick
from trident.envs.smac.env import Smac, initial_units, orders_for_all, outcome
from trident.envs.smac.scripted import focus
from trident.simulation.evaluate import evaluate, summarise
from trident.types import HybridAction

HERE = Path(__file__).parent
SCRIPTS = ("focus-nearest", "focus-weakest")
SHARED = ("3m", "8m", "2s3z", "3s5z_vs_3s6z", "corridor", "MMM2", "27m_vs_30m")
"""Maps that smaclite has (3m and 8m are put together from its units)."""
RACED = ("3s5z_vs_3s6z", "6h_vs_8z", "27m_vs_30m")
EQUAL = ("3m", "8m", "2s3z")
FASTER = 1.4
"""Units of smaclite move and fire at the game's `Faster` speed on a clock of normal speed; regrowth is normal."""


def python_of(variable: str) -> str:
    if variable not in os.environ:
        raise SystemExit(f"{variable} must name a Python that has the other simulator")
    return os.environ[variable]


# --- the same battles -----------------------------------------------------------------------------


def smaclite(*words: str) -> Any:
    """What peer_smaclite.py answers."""
    command = [python_of("TRIDENT_SMACLITE_PYTHON"), str(HERE / "peer_smaclite.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def as_smaclite(name: str) -> SmacConfig:
    """Our battle from smaclite's starting places, with movement and weapons at its pace."""
    plain = SmacConfig(map=name)
    a, given, places = plain.roster.allies, smaclite("places", name), []
    for side, units in ((given[:a], plain.roster.types[:a]), (given[a:], plain.roster.types[a:])):
        for unit in units:  # the same armies, in another order
            at = next(i for i, (kind, _) in enumerate(side) if kind.lower() == unit.name)
            places.append(tuple(side.pop(at)[1]))
    config = SmacConfig(map=replace(plain.field, places=tuple(places)))
    roster = config.roster
    quick = replace(roster, speed=FASTER * roster.speed, period=roster.period / FASTER, dps=FASTER * roster.dps)
    config.__dict__["roster"] = quick  # where the cached property looks
    return config


def battles(options: argparse.Namespace) -> Iterator[dict]:
    """Win rate, length and survivors under the same scripts: ours, ours as smaclite has it (`placed`), smaclite."""
    for name in options.maps or SHARED:
        configs = {"trident": SmacConfig(map=name)} if "trident" in options.simulators else {}
        configs |= {"placed": as_smaclite(name)} if "placed" in options.simulators else {}
        for who, config in configs.items():
            env = Smac(config)
            play = jax.jit(lambda key, which, env=env: _evaluate(env, key, which, options.ours))
            for which, script in enumerate(SCRIPTS):
                mean = summarise(env.spec, jax.device_get(play(jax.random.key(options.seed), which)))
                found = {k: mean[f"metric/{k}"] for k in ("win", "length", "allies_left", "enemies_left")}
                yield {"kind": "battles", "map": name, "script": script, "simulator": who,
                       "episodes": options.ours} | found  # fmt: skip
        for script in SCRIPTS if "smaclite" in options.simulators else ():
            found = smaclite("battles", name, script, str(options.episodes), str(options.seed))
            yield {"kind": "battles", "map": name, "script": script, "simulator": "smaclite"} | found


def _evaluate(env: Smac, key: jax.Array, which: jax.Array, episodes: int) -> dict:
    scripts = [env.scripted[name] for name in SCRIPTS]
    return evaluate(env, lambda k, s, _: (jax.lax.switch(which, scripts, k, s), {}), key, episodes)


# --- who decides how often ------------------------------------------------------------------------

PACES: dict[str, tuple[int, int, float]] = {
    "every step": (8, 8, 6.0),
    "every step until the first shot, then every tick": (8, 1, 6.0),
    "every tick until the first shot, then every step": (1, 8, 6.0),
    "every tick": (1, 1, 6.0),
    "every tick, and may choose targets within 9": (1, 1, 9.0),
}
"""Ticks between two decisions of focus-nearest, before and after the team's first shot; how near a target must be."""


def decisions(options: argparse.Namespace) -> Iterator[dict]:
    """focus-nearest on equal armies, by how often it may decide; the enemy decides in every tick."""
    for name in options.maps or EQUAL:
        keys = jax.random.split(jax.random.key(options.seed), options.ours)
        play = {
            shoot: jax.jit(jax.vmap(partial(_decide, SmacConfig(map=name, shoot=shoot)), (None, 0)))
            for shoot in {shoot for _, _, shoot in PACES.values()}
        }
        for text, (before, after, shoot) in PACES.items():
            won, ours, theirs = jax.device_get(play[shoot](jnp.array([before, after]), keys))
            yield {"kind": "decisions", "map": name, "pace": text, "episodes": options.ours, "win": float(won.mean()),
                   "first_shot": float(ours.mean()), "enemy_first_shot": float(theirs.mean())}  # fmt: skip


def _decide(config: SmacConfig, paces: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether the battle was won, and the ticks in which each side fired first."""
    modes, a = Smac(config).action.num_modes, config.roster.allies
    units = initial_units(config, key)

    def orders_of(u):
        mask = allowed_modes(config, modes, u.x, u.y, u.health > 0)
        mode = focus(config, u.x, u.y, u.health + u.shield, mask, weakest=False)
        return orders_for_all(config, u, HybridAction(mode, jnp.zeros((a, 2))))[0]

    def advance(carry, t):
        u, orders, over, won, first = carry
        due = t % jnp.where(first[0] < 0, paces[0], paces[1]) == 0
        orders = jax.tree.map(lambda new, old: jnp.where(due, new, old), orders_of(u), orders)
        after, active = tick(config, (False, True), orders, u)
        u = jax.tree.map(lambda new, old: jnp.where(over, old, new), after, u)
        shot = jnp.stack([active[:a].any(), active[a:].any()])
        first = jnp.where((first < 0) & shot & ~over, t, first)
        ended, victory = outcome(config, u)
        return (u, orders, over | ended, jnp.where(ended & ~over, victory, won), first), None

    no = jnp.bool_(False)
    begin = (units, orders_of(units), no, no, jnp.full(2, -1))
    _, _, _, won, first = jax.lax.scan(advance, begin, jnp.arange(8 * config.field.limit))[0]
    return won, first[0], first[1]


# --- the same load --------------------------------------------------------------------------------


def our_speed(name: str, envs: int, steps: int) -> Callable[[], dict]:
    """Random allowed actions and offsets; a new battle starts when one is over, as in SMAX's `step`."""
    env = Smac(SmacConfig(map=name))

    def one(key, carry):
        act, go, again = jax.random.split(key, 3)
        state, last = carry
        moved = env.step(go, state, random_action(act, env.spec.action, last.mode_mask))
        over = moved[1].terminated | moved[1].truncated
        carry = jax.tree.map(lambda new, old: jnp.where(over, new, old), env.reset(again), moved)
        return carry, moved[1]

    def run(key, carry):
        def advance(carry, keys):
            carry, seen = jax.vmap(one)(keys, carry)
            return carry, sum(jnp.sum(x) for x in jax.tree.leaves(seen))

        return jax.lax.scan(advance, carry, jax.random.split(key, (steps, envs)))

    carry = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), envs))
    began = time.process_time()
    call = jax.jit(run).lower(jax.random.key(0), carry).compile()
    compiling = time.process_time() - began
    held = [jax.block_until_ready(call(jax.random.key(1), carry))[0]]

    def turn() -> dict:
        wall, cpu = time.perf_counter(), time.process_time()
        held[0] = jax.block_until_ready(call(jax.random.key(2), held[0]))[0]
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        return {k: envs * steps / v for k, v in spent.items()} | {"compile_cpu_s": compiling}

    return turn


class Peer:
    """Another simulator in a process of its own, warm, that times one turn for every line it is sent."""

    def __init__(self, variable: str, script: str, *words: str) -> None:
        command = [python_of(variable), str(HERE / script), *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self) -> dict:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        for line in self.process.stdout:  # smaclite greets first
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit("the other simulator ended early; its own message is above")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def speed(options: argparse.Namespace) -> Iterator[dict]:
    """Environment steps per second with the same number of environments; the simulators take turns."""
    for name in options.maps or RACED:
        e = str(options.envs)
        peers = {"SMAX": Peer("TRIDENT_SMAX_PYTHON", "peer_smax.py", name, e, "20")}
        if name in SHARED:
            peers["smaclite"] = Peer("TRIDENT_SMACLITE_PYTHON", "peer_smaclite.py", "speed", name, e, "2")
        turns = {"trident": our_speed(name, options.envs, 50), **peers}
        try:
            taken: dict[str, list[dict]] = {who: [] for who in turns}
            for _ in range(options.repeats):
                for who, turn in turns.items():
                    taken[who].append(turn())
        finally:
            for peer in peers.values():
                peer.close()
        for who, rows in taken.items():
            best = {clock: max(row[clock] for row in rows) for clock in ("wall", "cpu")}
            yield {"kind": "speed", "map": name, "simulator": who, "envs": options.envs, "repeats": options.repeats,
                   "steps_per_second": best, "compile_cpu_s": rows[0].get("compile_cpu_s")}  # fmt: skip


PARTS = {"decisions": decisions, "battles": battles, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--maps", nargs="*", help="default: all that a part has")
    parser.add_argument("--simulators", nargs="*", default=["trident", "placed", "smaclite"], help="of the battles")
    parser.add_argument("--ours", type=int, default=256, help="battles of ours per map and script")
    parser.add_argument("--episodes", type=int, default=24, help="battles in smaclite per map and script")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=HERE / "peers.jsonl")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if not options.show:
        about = {"jax": jax.__version__, "machine": platform.machine(), "cores": len(os.sched_getaffinity(0))}
        with options.out.open("a", encoding="utf-8") as file:
            for part in options.parts:
                for row in PARTS[part](options):
                    row = {"seed": options.seed, **about, "load": os.getloadavg()[0]} | row
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    print(json.dumps(row), flush=True)
    print(page([json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]))


if __name__ == "__main__":
    main()
