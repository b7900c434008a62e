"""Records as the JSON that marl-eval reads, and with it the tools of BenchMARL and Mava:

    {environment: {task: {algorithm: {"seed_0": {"step_0": {"step_count": n, metric: [value]}, ...,
                                                 "absolute_metrics": {metric: [value]}}}}}}

Steps are means over a stretch of the training, as many for every run, since the tools put them side by side; the
absolute metrics are those of the evaluation. Metrics are to be maximised there: costs stand as `safety_...`, which is
their negative.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trident.report.compare import label, load_runs
from trident.report.records import Record, series

POINTS = 20
"""Stretches of the training, unless a run has fewer rounds."""


def marl_eval(folders: list[Path]) -> dict[str, Any]:
    """All of these finished runs; those of one environment become one task."""
    runs = [(folder, *load_runs([folder])[0]) for folder in folders]
    points = min([POINTS, *(len(records) for *_, records in runs)])
    out: dict[str, Any] = {}
    for folder, run, result, records in runs:
        task = out.setdefault("trident", {}).setdefault(run["env"], {})
        task[label(run, folder)] = {
            f"seed_{seed}": _seed(run, result, records, column, points)
            for column, seed in enumerate(run["settings"]["seeds"])
            if seed in result["seeds"]  # the tools know no seeds that have diverged
        }
    return out


def _seed(
    run: dict[str, Any], result: dict[str, Any], records: list[Record], column: int, points: int
) -> dict[str, Any]:
    seed = run["settings"]["seeds"][column]
    final = result["policies"][run["algo"]][result["seeds"].index(seed)]
    costs = [c["name"] for c in run["constraints"]]
    steps, reward = series(records, "reward")
    curves = {"reward": reward[:, column]} | {
        f"safety_{name}": -series(records, f"cost/{name}")[1][:, column] for name in costs
    }
    parts = np.array_split(np.arange(len(steps)), points) if points else []
    out: dict[str, Any] = {
        f"step_{i}": {"step_count": int(steps[part[-1]])}
        | {name: [float(np.nanmean(values[part]))] for name, values in curves.items()}
        for i, part in enumerate(parts)
    }
    absolute = {"reward": [final["reward"]]} | {f"safety_{name}": [-final[f"cost/{name}"]] for name in costs}
    return out | {"absolute_metrics": absolute}
