"""Scripted references, explained variance of the closed form, and speed of every SMAC map; one JSON record per line.

python benchmarks/smac/run.py                             # all maps, 256 episodes per policy
python benchmarks/smac/run.py --maps 3m 8m --episodes 64 --parts references physics
python benchmarks/smac/run.py --show                      # the tables of docs/smac.md

A later line about the same thing replaces an earlier one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.checks.values import random_action
from trident.envs.smac.config import MAPS, SmacConfig
from trident.envs.smac.env import Smac
from trident.physics_value import fit_physics, fit_sums, physics_parts, r2_phys, spread
from trident.report.tables import markdown
from trident.simulation.evaluate import evaluate, summarise
from trident.simulation.rollout import rollout, start

HERE = Path(__file__).parent
POLICIES = ("random", "focus-nearest", "focus-weakest", "kite")
DISCOUNT = (0.95, 0.8, 0.8, 0.8)
"""Of the reward and the three costs, as TRIDENT judges them."""


def chooser(env: Smac):
    """All scripted policies as one program that is told which one to follow: compiled once."""

    def policy(which, key, state):
        return jax.lax.switch(which, [env.scripted[name] for name in POLICIES], key, state)

    return policy


def references(env: Smac, episodes: int, seed: int) -> list[dict]:
    policy = chooser(env)
    run = jax.jit(lambda which, key: evaluate(env, lambda k, s, _: (policy(which, k, s), {}), key, episodes))
    rows = []
    for which, name in enumerate(POLICIES):
        mean = summarise(env.spec, jax.device_get(run(which, jax.random.key(seed))))
        rows.append({"kind": "reference", "policy": name, "episodes": episodes, "seed": seed, "mean": mean})
    return rows


def explained(env: Smac, seed: int, envs: int = 64, steps: int = 100) -> list[dict]:
    """R2_phys of reward and costs: weights fitted on one rollout, judged on another."""
    policy, discount = chooser(env), jnp.array(DISCOUNT)

    def gather(which, key):
        begin, go = jax.random.split(key)
        actors = start(env, begin, envs)
        return rollout(env, lambda k, s, _: (policy(which, k, s), {}), go, actors, steps)[1]

    def judge(which, key):
        found = []
        for part in jax.random.split(key):
            roll = gather(which, part)
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (roll.state, roll.executed))
            parts = jax.tree.map(lambda p: p.reshape(steps, envs, -1), physics_parts(env.physics, 4, *flat))
            found.append((roll.signals, roll.terminated | roll.truncated, parts))
        (signals, ended, parts), (true, over, judged) = found
        fit = fit_physics(fit_sums(signals, ended, parts, discount), spread(signals, ended, discount), discount)
        said = judged.now
        now = 1.0 - jnp.var(said - true, axis=(0, 1)) / jnp.maximum(jnp.var(true, axis=(0, 1)), 1e-8)
        return r2_phys(fit, true, over, judged, discount), now, fit

    run, rows = jax.jit(judge), []
    for which, name in enumerate(POLICIES[:2]):
        r2, now, fit = jax.device_get(run(which, jax.random.key(seed)))
        weights = {"later": fit.later.tolist(), "here": fit.here.tolist(), "level": fit.level.tolist()}
        rows.append({"kind": "physics", "policy": name, "r2": r2.tolist(), "one_step_r2": now.tolist(), "fit": weights})
    return rows


def speed(env: Smac, envs: int = 64, steps: int = 50, repeats: int = 5) -> list[dict]:
    """Environment steps per second with random actions, by wall clock and by this process' own CPU time."""

    def one(key, carry):
        act, go = jax.random.split(key)
        return env.step(go, carry[0], random_action(act, env.spec.action, carry[1].mode_mask))

    def run(key, carry):
        keys = jax.random.split(key, (steps, envs))
        return jax.lax.scan(lambda c, k: (jax.vmap(one)(k, c), None), carry, keys)[0]

    first = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), envs))
    began = time.process_time()
    call = jax.jit(run).lower(jax.random.key(0), first).compile()
    compiling = time.process_time() - began
    wall, cpu = [], []
    for k in range(1 + repeats):
        began, used = time.perf_counter(), time.process_time()
        jax.block_until_ready(call(jax.random.key(k), first))
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    rates = {name: envs * steps / min(spent[1:]) for name, spent in (("wall", wall), ("cpu", cpu))}
    units = env.config.roster.size
    return [{"kind": "speed", "units": units, "envs": envs, "steps_per_second": rates, "compile_cpu_s": compiling}]


# --- the record -----------------------------------------------------------------------------------


def read(path: Path) -> dict[tuple, dict]:
    """The last row about each thing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["env"], row["kind"], row.get("policy")): row for row in rows}


def page(rows: list[dict]) -> str:
    """The tables of docs/smac.md."""
    order = [f"smac-{name}" for name in MAPS]
    rows = sorted(rows, key=lambda row: row["units"] if row["kind"] == "speed" else order.index(row["env"]))
    made = [
        markdown(["map", *TABLES[kind][0]], [[_map(r), *TABLES[kind][1](r)] for r in rows if r["kind"] == kind])
        for kind in TABLES
    ]
    return "\n\n".join(made)


def _map(row: dict) -> str:
    return row["env"].removeprefix("smac-")


def _reference(row: dict) -> list[str]:
    mean = row["mean"]
    metric = {k.removeprefix("metric/"): v for k, v in mean.items() if k.startswith("metric/")}
    shares = [f"{100 * metric[k]:.0f}" for k in ("win", "allies_left", "enemies_left")]
    ends = [f"{metric['length']:.0f}", f"{mean['reward'] * metric['length']:.1f}"]
    costs = [f"{metric[k]:.2f}" for k in ("losses", "deaths", "crowding")]
    return [row["policy"], *shares, *ends, *costs, *(f"{mean[f'cost/{k}']:.4f}" for k in ("losses", "deaths"))]


def _physics(row: dict) -> list[str]:
    return [row["policy"], *(f"{r:.2f} ({now:.2f})" for r, now in zip(row["r2"], row["one_step_r2"], strict=True))]


def _speed(row: dict) -> list[str]:
    rate = row["steps_per_second"]["cpu"]
    return [str(row["units"]), f"{rate:,.0f}", f"{1e6 / rate / row['units']:.2f}"]


TABLES: dict[str, tuple[list[str], Callable[[dict], list[str]]]] = {
    "reference": (
        ["policy", "win %", "allies left %", "enemies left %", "steps", "return", "losses", "deaths", "crowding",
         "losses/step", "deaths/step"],
        _reference,
    ),
    "physics": (["under", "reward", "losses", "deaths", "crowding"], _physics),
    "speed": (["units", "steps/s", "µs per step and unit"], _speed),
}  # fmt: skip
"""Of every kind of row: the columns after the map, and how they are read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--maps", nargs="*", default=list(MAPS), choices=list(MAPS))
    parser.add_argument("--parts", nargs="*", default=["references", "physics", "speed"])
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=HERE / "references.jsonl")
    parser.add_argument("--show", action="store_true", help="only print the record's tables")
    options = parser.parse_args()
    if options.show:
        print(page(list(read(options.out).values())))
        return
    with options.out.open("a", encoding="utf-8") as file:
        for name in options.maps:
            safe = Smac(SmacConfig(map=name, safe=True))
            jobs = {
                "references": lambda env=safe: references(env, options.episodes, options.seed),
                "physics": lambda env=safe: explained(env, options.seed + 1),
                "speed": lambda name=name: speed(Smac(SmacConfig(map=name))),
            }
            for part in options.parts:
                for row in jobs[part]():
                    row = {"env": f"smac-{name}", "version": safe.spec.version, "jax": jax.__version__} | row
                    file.write(json.dumps(row, default=float) + "\n")
                    file.flush()
                    print(json.dumps(row, default=lambda x: float(np.asarray(x))), flush=True)
    rows = read(options.out).values()
    options.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
