"""The same traffic in our simulator and in SMARTS: scripted drivers, with and without our shield, and trained runs.

python benchmarks/smarts/transfer.py --policies aim all-stop aggressive     # ~5 minutes per policy; extra: smarts
python benchmarks/smarts/transfer.py --policies aggressive --shielded
python benchmarks/smarts/transfer.py --runs benchmarks/intersection/trident benchmarks/intersection/macpo
python benchmarks/smarts/transfer.py --show                                 # the table of what there is

A line per policy in transfer.jsonl; a policy that is played again replaces its line. Both sides start from the same
states: episode k has the same arrivals, lanes, speeds and routes.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from trident import api
from trident.envs.intersection.env import Intersection
from trident.envs.intersection.smarts.env import SmartsIntersection
from trident.simulation import host
from trident.simulation import host_evaluate as host_eval
from trident.simulation.evaluate import evaluate, summarise

HERE = Path(__file__).parent
RECORDS = HERE / "transfer.jsonl"
COLUMNS = ("return", "collisions", "clear", "arrived", "delay", "off_lane", "off_road")


def say(text: str) -> None:
    print(text, flush=True)


def score(smarts: SmartsIntersection, ours: Any, theirs: Any, episodes: int, seed: int, shielded: bool) -> dict:
    """Summaries on both sides; `ours` and `theirs` are the policy as each side takes it."""
    env, key = host.FromSeeds(Intersection(smarts.config)), jax.random.key(seed)
    mine = jax.device_get(jax.jit(lambda k: evaluate(env, ours, k, episodes, shielded))(key))  # pyright: ignore
    cpu, wall = time.process_time(), time.perf_counter()
    other = host_eval.evaluate(smarts, theirs, key, episodes, shielded, say)
    spent = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - wall}
    spent["env_steps"] = float(other["length"].sum())
    return {"ours": summarise(smarts.spec, mine), "smarts": summarise(smarts.spec, other), "spent": spent}


def scripted(name: str) -> tuple[Any, Any]:
    policy = Intersection().scripted[name]
    return (lambda key, state, _: (policy(key, state), {})), host.scripted(name)


def learned(run: api.Run, smarts: SmartsIntersection) -> tuple[Any, Any]:
    """The first good seed's deterministic policy on both sides."""
    return run.policy(), run.on(smarts).policy()


def keep(row: dict) -> None:
    old = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()] if RECORDS.exists() else []
    same = lambda r: (r["policy"], r["shielded"]) == (row["policy"], row["shielded"])  # noqa: E731
    rows = [r for r in old if not same(r)] + [row]
    RECORDS.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def show() -> None:
    print(f"| policy | | episodes | {' | '.join(COLUMNS)} | changed |")
    print("|---" * (len(COLUMNS) + 4) + "|")
    for line in RECORDS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for side in ("ours", "smarts"):
            numbers = " | ".join(f"{row[side][f'metric/{c}']:.2f}" for c in COLUMNS)
            changed = f"{100 * row[side]['shielded']:.1f} %" if row["shielded"] else ""
            name = row["policy"] + (" + shield" if row["shielded"] else "")
            print(f"| {name} | {side} | {row['episodes']} | {numbers} | {changed} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", nargs="*", default=[])
    parser.add_argument("--runs", nargs="*", type=Path, default=[])
    parser.add_argument("--shielded", action="store_true")
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    smarts = SmartsIntersection()
    jobs = [(name, scripted(name), options.shielded) for name in options.policies]
    for folder in options.runs:
        run = api.load(folder)
        jobs.append((run.setup.algorithm.name, learned(run, smarts), run.setup.settings.shielded))
    for name, sides, shielded in jobs:
        found = score(smarts, *sides, options.episodes, options.seed, shielded)
        about = {"policy": name, "shielded": shielded, "episodes": options.episodes, "seed": options.seed}
        keep(about | {"smarts_version": version("smarts"), "jax": jax.__version__} | found)
    smarts.close()
    show()


if __name__ == "__main__":
    main()
