"""How safe a run was, episode by episode and round by round, and how surely it is better than another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trident.report.compare import label, load_runs, references, violations
from trident.report.records import Record, series
from trident.report.stats import Estimate, bootstrap, bootstrap_iqm, improvement
from trident.report.tables import markdown, plain

Runs = list[tuple[dict[str, Any], dict[str, Any], list[Record]]]
SAFE = {"safe/episodes": "episodes without violation %", "safe/agents": "agents without violation %"}


def first_feasible(run: dict[str, Any], records: list[Record]) -> np.ndarray:
    """Training episodes up to the end of the first round in which a seed kept every limit, [seeds]; infinite where none
    was."""
    rows = [r for r in records if r["round"] > 0]
    if not rows or not run["constraints"]:
        return np.empty(0)
    kept = [series(rows, f"cost/{c['name']}")[1] <= c["limit"] for c in run["constraints"]]
    steps, good = series(rows, f"cost/{run['constraints'][0]['name']}")[0], np.all(kept, axis=0)
    return np.where(good.any(axis=0), steps[good.argmax(axis=0)], np.inf) / run["horizon"]


def safety_table(folders: list[Path], style: str = "markdown") -> str:
    """One row per policy: episodes and agents without any violation, each cost in the worst single episode, and how
    long it took to the first round within all limits. Empty where no evaluation has measured it."""
    runs = load_runs(folders)
    scripted = references([result for _, result, _ in runs], {run["algo"] for run, _, _ in runs})
    constraints = runs[0][0]["constraints"]
    rows = [
        [name, *_measured(seeds, constraints), "-"] for name, seeds in scripted.items() if "safe/episodes" in seeds[0]
    ]
    for folder, (run, result, records) in zip(folders, runs, strict=True):
        seeds = result["policies"][run["algo"]]
        if seeds and "safe/episodes" in seeds[0]:
            rows.append([label(run, folder), *_measured(seeds, constraints), _feasible(first_feasible(run, records))])
    if not rows or not constraints:
        return ""
    worst = [f"worst episode: {c['name']} (limit {c['limit']:g})" for c in constraints]
    header = ["policy", *SAFE.values(), *worst, "first round within all limits, episodes"]
    return (markdown if style == "markdown" else plain)(header, rows)


def _measured(seeds: list[dict[str, float]], constraints: list[dict[str, Any]]) -> list[str]:
    shares = [_interval(bootstrap([100.0 * s.get(name, np.nan) for s in seeds]), 1, len(seeds)) for name in SAFE]
    worst = [max(s.get(f"worst/{c['name']}", np.nan) for s in seeds) for c in constraints]
    return [*shares, *(f"{x:.3g}" for x in worst)]


def _feasible(episodes: np.ndarray) -> str:
    """The mean over the seeds that came to one, and how many did not."""
    found = np.isfinite(episodes)
    if not found.any():
        return "never" if len(episodes) else "-"
    lost = f" (never in {(~found).sum()} of {len(episodes)} seeds)" if not found.all() else ""
    return f"{episodes[found].mean():.0f}{lost}"


def improvement_table(folders: list[Path], style: str = "markdown") -> str:
    """The interquartile mean of every run's reward, and the probability that a seed of the run in question (TRIDENT's
    if there is one, else the last) earns more, and violates less, than one of each of the others."""
    runs = [(f, r) for f, r in zip(folders, load_runs(folders), strict=True) if r[1]["policies"][r[0]["algo"]]]
    if len(runs) < 2:
        return ""
    ours = next((i for i, (_, (run, _, _)) in enumerate(runs) if run["algo"] == "trident"), len(runs) - 1)
    names = [label(run, folder) for folder, (run, _, _) in runs]
    reward = [[s["reward"] for s in result["policies"][run["algo"]]] for _, (run, result, _) in runs]
    harm = [
        [-violations(s, run["constraints"]) for s in result["policies"][run["algo"]]] for _, (run, result, _) in runs
    ]
    constrained = bool(runs[ours][1][0]["constraints"])
    header = ["run", "reward, IQM", f"P({names[ours]} earns more)"]
    header += [f"P({names[ours]} violates less)"] if constrained else []
    rows = []
    for i, name in enumerate(names):
        cells = [name, _interval(bootstrap_iqm([reward[i]]), 2, len(reward[i]))]
        for scores in [reward, harm][: len(header) - 2]:
            chance = improvement([scores[ours]], [scores[i]])
            cells.append("-" if i == ours else _interval(chance, 2, len(scores[i])))
        rows.append(cells)
    return (markdown if style == "markdown" else plain)(header, rows)


def _interval(e: Estimate, digits: int, samples: int) -> str:
    if e.value != e.value:
        return "-"
    text = f"{e.value:.{digits}f}"
    return text if samples < 2 or e.low == e.high else f"{text} [{e.low:.{digits}f}, {e.high:.{digits}f}]"
