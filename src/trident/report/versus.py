"""A table of the paper beside ours: evaluation and training of every method, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trident.report.compare import PERCENT, load_runs
from trident.report.records import Record, series
from trident.report.stats import bootstrap
from trident.report.tables import markdown, plain

NAMES = {"reward": "Reward", "metric/exec": "Exec", "metric/energy": "Energy", "metric/throughput": "Thr.",
         "metric/ev": "E.V. %", "metric/cv": "C.V. %", "total": "Total V. %"}  # fmt: skip


def convergence(run: dict[str, Any], records: list[Record], share: float = 0.95) -> np.ndarray:
    """Episodes after which a seed's reward (mean of 5 rounds) first has gone `share` of its way; [seeds]."""
    steps, values = series(records, "reward")
    window = min(5, len(values))
    smooth = np.stack([np.convolve(v, np.ones(window) / window, "valid") for v in values.T], axis=1)
    goal = smooth[0] + share * (smooth[-1] - smooth[0])
    return steps[window - 1 :][(smooth >= goal).argmax(axis=0)] / run["horizon"]


def value_of(seed: dict[str, float], column: str) -> float:
    if column == "total":
        return sum(seed[f"metric/{name}"] for name in PERCENT)
    return seed[column]


def is_rate(column: str) -> bool:
    return column == "total" or column.removeprefix("metric/") in PERCENT


def versus_table(
    folders: list[Path],
    columns: tuple[str, ...],
    paper: dict[str, tuple[float, ...]],
    missing: dict[str, str],
    style: str = "markdown",
) -> str:
    """One row per policy, our mean over seeds with its 95 % bootstrap interval, and the printed number in brackets."""
    runs = load_runs(folders)
    header = ["method", *(NAMES.get(c, c) for c in columns), "violations in training %", "converged at", "minutes"]
    rows = []
    learned = {run["algo"] for run, _, _ in runs}
    for name, seeds in runs[0][1]["policies"].items():
        if name not in learned:
            rows.append([name, *_cells(seeds, columns, paper.get(name)), "-", "-", "-"])
    for run, result, records in runs:
        name = run["algo"]
        cells = _cells(result["policies"][name], columns, paper.get(name))
        diverged = len(result["diverged"])
        mark = f" ({diverged} of {len(result['seeds'])} seeds diverged)" if diverged else ""
        rows.append([name + mark, *cells, *_training(run, records)])
    rows += [[f"{name} (missing)", *("-" for _ in header[1:])] for name in missing]
    return (markdown if style == "markdown" else plain)(header, rows)


def _cells(seeds: list[dict[str, float]], columns: tuple[str, ...], printed: tuple[float, ...] | None) -> list[str]:
    cells = []
    for i, column in enumerate(columns):
        scale, digits = (100.0, 1) if is_rate(column) else (1.0, 2)
        mean = bootstrap([scale * value_of(seed, column) for seed in seeds])
        text = f"{mean.value:.{digits}f} [{mean.low:.{digits}f}, {mean.high:.{digits}f}]"
        cells.append(text + (f" ({scale * printed[i]:.{digits}f})" if printed else ""))
    return cells


def _training(run: dict[str, Any], records: list[Record]) -> list[str]:
    total = sum((100.0 * np.nanmean(series(records, f"cost/{c['name']}")[1], axis=0) for c in run["constraints"]), 0.0)
    violations = bootstrap(np.atleast_1d(total))
    minutes = records[-1]["seconds"] / 60 if records else float("nan")
    at = np.mean(convergence(run, records)) if len(records) > 1 else float("nan")
    return [f"{violations.value:.1f} [{violations.low:.1f}, {violations.high:.1f}]", f"{at:.0f}", f"{minutes:.1f}"]
