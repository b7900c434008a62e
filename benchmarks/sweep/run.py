"""A small sweep of equal size for every method: one record a trial, kept beside this file.

    python benchmarks/sweep/run.py happo mappo          # resumable: trials on record are not run again

The seed is none of those that tables are made with. What won stands in `trident.train.tuned`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import trident

HERE = Path(__file__).parent
ENV, EPISODES, SEED = "uav-mec", 1000, 100

PPO = [
    {}, {"lr": 1e-3}, {"epochs": 10}, {"log_std": -1.2}, {"entropy": 0.0}, {"gae_lambda": 0.9},
]  # fmt: skip
TRIDENT = [
    {}, {"trust_region": 0.08}, {"critic_steps": 32}, {"policy_batch": 512}, {"memory": 0.0}, {"attention": 0.01},
]  # fmt: skip
TRIALS = {"happo": PPO, "mappo": PPO, "trident": TRIDENT}


def main(methods: list[str]) -> None:
    for method in methods:
        path = HERE / f"{ENV}-{method}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        done = [json.loads(line)["changes"] for line in lines]
        for changes in TRIALS[method]:
            if changes in done:
                continue
            with tempfile.TemporaryDirectory() as out:
                run = trident.train(ENV, method, episodes=EPISODES, seeds=[SEED], config=changes, out=Path(out) / "run")
                line = {"changes": changes, "commit": run.info["commit"], "result": run.result}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:] or list(TRIALS))
