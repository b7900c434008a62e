"""Score the scripted policies of UAV-MEC and the closed-form physics; one JSON record per line of the table.

python benchmarks/calibration/run.py                          # 1,000 episodes each, ~10 minutes on one core
python benchmarks/calibration/run.py --episodes 100 --policies random greedy
python benchmarks/calibration/figures.py                      # table and pictures for docs/uav-mec.md
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.uav_mec.env import VARIANTS, UavMec
from trident.simulation.evaluate import evaluate, summarise

HERE = Path(__file__).parent
POLICIES = ("random", "greedy", "planner", "planner-free", "planner-local", "planner-fog1", "planner-fog2")
SHOWN = ("reward", "metric/exec", "metric/energy", "metric/throughput", "metric/ev", "metric/cv_all")


def score(env: UavMec, name: str, episodes: int, seed: int, batch: int, shielded: bool = False) -> dict:
    """Means over all steps, and the standard deviation between episodes."""

    def policy(key, env_state, _):
        return env.scripted[name](key, env_state), {}

    run = jax.jit(lambda key: evaluate(env, policy, key, batch, shielded))
    started = time.perf_counter()
    keys = jax.random.split(jax.random.key(seed), -(-episodes // batch))
    parts = [jax.device_get(run(key)) for key in keys]
    sums = {k: np.concatenate([p[k] for p in parts])[:episodes] for k in parts[0]}
    each = {k: np.asarray(sums[k], np.float64) / sums["length"] for k in SHOWN}
    return {
        "kind": "policy",
        "policy": name + ("+shield" if shielded else ""),
        "episodes": episodes,
        "seed": seed,
        "mean": summarise(env.spec, sums),
        "sd_between_episodes": {k: float(v.std(ddof=1)) for k, v in each.items()},
        "seconds": round(time.perf_counter() - started, 1),
    }


def explained(env: UavMec, name: str, episodes: int, seed: int) -> dict:
    """R2 of physics.signals for the realised one-step reward and costs, after the grace."""

    def one(key):
        k_reset, k_run = jax.random.split(key)
        state, first = env.reset(k_reset)

        def advance(carry, key):
            state, array = carry
            k_act, k_step = jax.random.split(key)
            action = env.scripted[name](k_act, state)
            said = env.physics.signals(array, action)
            state, after = env.step(k_step, state, action)
            true = jnp.concatenate([after.reward[None], after.cost])
            return (state, after.state), (said, true, after.metrics["charged"])

        return jax.lax.scan(advance, (state, first.state), jax.random.split(k_run, env.spec.horizon))[1]

    said, true, charged = jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), episodes)))
    said, true = said[charged > 0].astype(np.float64), true[charged > 0].astype(np.float64)
    r2 = 1.0 - (said - true).var(0) / np.maximum(true.var(0), 1e-12)
    return {
        "kind": "physics",
        "policy": name,
        "episodes": episodes,
        "seed": seed,
        "r2": dict(zip(("reward", "energy", "coverage"), r2.round(4).tolist(), strict=True)),
        "mean_said": said.mean(0).round(4).tolist(),
        "mean_true": true.mean(0).round(4).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="uav-mec", choices=list(VARIANTS))
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=125)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    out = options.out or HERE / f"{options.env}.jsonl"
    env = UavMec(VARIANTS[options.env])
    jobs = [(name, False) for name in options.policies if name in env.scripted]
    jobs += [(name, True) for name in ("random", "greedy") if name in options.policies]
    with out.open("w", encoding="utf-8") as file:
        for name, shielded in jobs:
            row = score(env, name, options.episodes, options.seed, min(options.batch, options.episodes), shielded)
            _write(file, row, options.env, env)
            mean = row["mean"]
            numbers = "  ".join(f"{k.split('/')[-1]} {mean[k]:.3f}" for k in (*SHOWN, "metric/cv"))
            print(f"{row['policy']:16s} {numbers}  ({row['seconds']} s)", flush=True)
        for name in [n for n in ("random", "greedy", "planner") if n in options.policies]:
            row = explained(env, name, min(64, options.episodes), options.seed + 1)
            _write(file, row, options.env, env)
            print(f"physics under {name}: R2 {row['r2']}", flush=True)


def _write(file, row: dict, name: str, env: UavMec) -> None:
    row = {"env": name, "version": env.spec.version, "jax": jax.__version__} | row
    file.write(json.dumps(row) + "\n")
    file.flush()


if __name__ == "__main__":
    main()
