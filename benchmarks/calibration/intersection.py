"""Score the scripted drivers of the intersection, with and without the shield; one JSON record per line of the table.

python benchmarks/calibration/intersection.py                 # 500 episodes each, ~5 minutes on one core
python benchmarks/calibration/intersection.py --env intersection-dense --episodes 100
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jax

from trident.envs.intersection.env import VARIANTS, Intersection
from trident.simulation.evaluate import evaluate, summarise

HERE = Path(__file__).parent
COLUMNS = ("return", "collisions", "throughput", "delay", "clear", "cleared", "arrived", "off_road")


def score(env: Intersection, name: str, episodes: int, seed: int, shielded: bool) -> dict:
    def policy(key, env_state, _):
        return env.scripted[name](key, env_state), {}

    run = jax.jit(lambda key: evaluate(env, policy, key, episodes, shielded))
    return summarise(env.spec, jax.device_get(run(jax.random.key(seed))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="intersection", choices=list(VARIANTS))
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    env = Intersection(VARIANTS[options.env])
    print(f"| policy | {' | '.join(COLUMNS)} | changed |")
    with (HERE / f"{options.env}.jsonl").open("w", encoding="utf-8") as file:
        for shielded in (False, True):
            for name in env.scripted:
                mean = score(env, name, options.episodes, options.seed, shielded)
                row = {"env": options.env, "version": env.spec.version, "jax": jax.__version__, "policy": name}
                row |= {"shielded": shielded, "episodes": options.episodes, "seed": options.seed, "mean": mean}
                file.write(json.dumps(row) + "\n")
                file.flush()
                numbers = " | ".join(f"{mean[f'metric/{c}']:.2f}" for c in COLUMNS)
                print(f"| {name}{' + shield' if shielded else ''} | {numbers} | {mean['shielded']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
