"""Run directories of invented runs, complete enough for every report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CONSTRAINTS = [
    {"name": "energy", "limit": 0.01, "unit": "rate", "immediate": True, "help": "share of slots above 86 J"},
    {"name": "coverage", "limit": 0.03, "unit": "rate", "immediate": False, "help": "share of slots not covered"},
]
METRICS = [{"name": "latency", "better": "lower", "unit": "s", "per": None, "help": "of all users"}]


def write_run(
    folder: Path,
    algo: str = "trident",
    costs: Sequence[float] = (0.004, 0.02),
    seeds: int = 3,
    rounds: int = 20,
    done: int | None = None,
    env: str = "uav-mec",
    finished: bool = True,
) -> Path:
    """`costs` at the end of training and in the evaluation; `done` of `rounds` rounds are recorded."""
    folder.mkdir(parents=True)
    settings = {"episodes": 320, "seeds": list(range(seeds)), "seed": 0, "limit": {}, "shielded": False}
    run = {
        "env": env, "env_version": 2, "algo": algo, "config": {"step": {"trust_region": 0.06}}, "settings": settings,
        "rounds": rounds, "steps_per_round": 3200, "horizon": 200, "agents": 4, "modes": ["local", "fog1"],
        "constraints": CONSTRAINTS, "metrics": METRICS, "scripted": ["random"], "versions": {"trident": "0.1.0"},
        "host": {"cores": 2, "device": "cpu"}, "commit": "c0ffee",
        "identity": {"env": env, "algo": algo, "seeds": list(range(seeds))},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    rows = [record(i, costs, seeds) for i in range(1, (rounds if done is None else done) + 1)]
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        (folder / "result.json").write_text(json.dumps(result(algo, costs, seeds)))
    return folder


def record(round_: int, costs: Sequence[float], seeds: int) -> dict[str, Any]:
    spread = 1.0 + 0.02 * np.arange(seeds)
    values = {"reward": -5.0 - 4.0 / round_ - 0.01 * np.arange(seeds), "kl": 0.001 * spread, "recovery": 0.1 * spread,
              "trust_region": 0.85 * spread, "rejected": 0.0 * spread, "r2_phys/reward": 0.8 * spread,
              "mode/local": 0.25 * spread, "mode/fog1": 1 - 0.25 * spread, "metric/latency": 5.0 * spread}  # fmt: skip
    for constraint, cost in zip(CONSTRAINTS, costs, strict=True):
        name = constraint["name"]
        values[f"cost/{name}"] = cost * spread * (1 + 3.0 / round_)
        values[f"budget_spent/{name}"], values[f"calibration/{name}"] = -0.001 * spread, 0.5 * spread
        values[f"cumulative_cost/{name}"] = cost * 3200 * round_ * spread
    return {"round": round_, "env_steps": 3200 * round_, "episodes": 16.0 * round_, "seconds": 2.0 * round_,
            "diverged": {}, "values": {k: v.tolist() for k, v in values.items()}}  # fmt: skip


def result(algo: str, costs: Sequence[float], seeds: int) -> dict[str, Any]:
    def one(reward: float, spread: float) -> dict[str, float]:
        named = {f"cost/{c['name']}": cost * spread for c, cost in zip(CONSTRAINTS, costs, strict=True)}
        return {"reward": reward, "metric/latency": 5.0, **named}

    own = [one(-5.2 - 0.01 * i, 1 + 0.1 * i) for i in range(seeds)]
    scripted = {"random": [one(-9.0, 20.0)], "planner": [one(-5.1, 0.5)]}
    return {"episodes": 200, "deterministic": False, "shielded": False, "seeds": list(range(seeds)), "diverged": {},
            "policies": {algo: own, **scripted}}  # fmt: skip
