"""Scripted references, explained variance of the closed form, and speed of every SMAC map; one JSON record per line.

python benchmarks/smac/run.py                             # all maps, 256 episodes per policy
python benchmarks/smac/run.py --maps 3m 8m --episodes 64 --parts references physics
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from trident.critics import Parts, fit_physics, fit_sums, physics_parts, r2_phys, spread
from trident.envs.check import random_action
from trident.envs.smac import Smac
from trident.envs.smac_config import MAPS, SmacConfig
from trident.eval.evaluate import evaluate, summarise
from trident.rollout import rollout, start

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
            parts = Parts(*(p.reshape(steps, envs, -1) for p in physics_parts(env.physics, 4, *flat)))
            found.append((roll.signals, roll.terminated | roll.truncated, parts))
        fit = fit_physics(fit_sums(*found[0], discount), spread(*found[0][:2], discount))
        said, true = found[1][2].now, found[1][0]
        now = 1.0 - jnp.var(said - true, axis=(0, 1)) / jnp.maximum(jnp.var(true, axis=(0, 1)), 1e-8)
        return r2_phys(fit, *found[1], discount), now, fit

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--maps", nargs="*", default=list(MAPS), choices=list(MAPS))
    parser.add_argument("--parts", nargs="*", default=["references", "physics", "speed"])
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=HERE / "references.jsonl")
    options = parser.parse_args()
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


if __name__ == "__main__":
    main()
