"""A small sweep of equal size for every method: one record a trial, kept beside this file.

    python benchmarks/sweep/run.py happo mappo          # resumable: trials on record are not run again
    python benchmarks/sweep/run.py --show               # what is on record, best first

The seed is none of those that tables are made with. A trial's score is the evaluation reward less 10 for every unit of
violation rate above the limits (unconstrained methods: the reward alone). The trial with the best score stands in
`trident.training.tuned`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import trident
from trident.training.registry import ALGORITHMS

HERE = Path(__file__).parent
ENV, EPISODES, SEED = "uav-mec", 800, 100
LIMITS = {"energy": 0.01, "coverage": 0.03}

PPO = [{}, {"lr": 1e-3}, {"epochs": 10}, {"log_std": -1.2}]
LAGRANGIAN = [{}, {"rate": 0.02}, {"rate": 0.5}, {"cost_discount": 0.8}]
OFF_POLICY = [{}, {"lr": 1e-3}, {"noise": 0.5}, {"updates": 128}]
TRIALS = {
    "happo": PPO,
    "mappo": PPO,
    "happo-lag": LAGRANGIAN,
    "mappo-lag": LAGRANGIAN,
    "macpo": [{}, {"cost_discount": 0.8}, {"trust_region": 0.05}, {"damping": 0.01}],
    "madac": [{}, {"region": 0.05}, {"alpha": 0.1}, {"rho": 1.0, "multiplier_rate": 0.05}],
    "maddpg": OFF_POLICY,
    "matd3": OFF_POLICY,
    "facmac": OFF_POLICY,
    "maddpg-hybrid": OFF_POLICY,
    "matd3-hybrid": OFF_POLICY,
    "facmac-hybrid": OFF_POLICY,
    "qmix": [{}, {"lr": 1e-3}, {"levels": 5}, {"updates": 128}],
    "trident": [{}, {"reflex_trust_region": 0.01}, {"policy_batch": 2048}, {"critic_steps": 128}],
}
CONSTRAINED = ("happo-lag", "mappo-lag", "macpo", "madac", "trident")


def records(method: str) -> list[dict]:
    path = HERE / f"{ENV}-{method}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def score(method: str, result: dict) -> float:
    (row,) = result["policies"][method]
    excess = sum(max(row[f"cost/{name}"] - limit, 0.0) for name, limit in LIMITS.items())
    return row["reward"] - 10.0 * excess * (method in CONSTRAINED)


def show() -> None:
    for method in TRIALS:
        for line in sorted(records(method), key=lambda r: -score(method, r["result"])):
            (row,) = line["result"]["policies"][method]
            rates = " ".join(f"{name} {100 * row[f'cost/{name}']:.1f} %" for name in LIMITS)
            points, reward = score(method, line["result"]), row["reward"]
            print(f"{method:14} {points:7.3f}  reward {reward:.3f}  {rates}  {line['changes']}")


def main(methods: list[str]) -> None:
    for method in methods:
        done = [line["changes"] for line in records(method)]
        for changes in TRIALS[method]:
            if changes in done:
                continue
            with tempfile.TemporaryDirectory() as out:
                config = replace(ALGORITHMS[method].config, **changes)  # the preset's, whatever has been tuned since
                run = trident.train(
                    ENV, method, episodes=EPISODES, seeds=[SEED], config=config, out=Path(out) / "run",
                    references=False, video=False,
                )  # fmt: skip
                line = {"changes": changes, "episodes": EPISODES, "seed": SEED, "commit": run.info["commit"]}
                line["result"] = run.result  # read while its file exists
            with (HERE / f"{ENV}-{method}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    show() if sys.argv[1:] == ["--show"] else main(sys.argv[1:] or list(TRIALS))
