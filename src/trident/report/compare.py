"""Several runs on one environment side by side: a table in the columns of a paper, and their curves in one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.renamed import former_env
from trident.report.records import Record, is_trained, read, series
from trident.report.specification import differences
from trident.report.stats import Estimate, bootstrap
from trident.report.tables import markdown, number, plain
from trident.run_directory import RECORDS, RESULT, read_result, read_run

PERCENT = {"ev": "E.V. %", "cv": "C.V. %"}
"""Metrics that are rates, shown in percent; their sum is the total violation."""


def load_runs(folders: list[Path]) -> list[tuple[dict[str, Any], dict[str, Any], list[Record]]]:
    """(run, result, records) of each; all must be finished and of one environment."""
    if not folders:
        raise TridentError("name at least one run directory")
    loaded = []
    for folder in folders:
        run, result, records = read_run(folder), read_result(folder), read(folder / RECORDS)
        if result is None:
            raise TridentError(f"{folder} has no {RESULT}: finish it with `trident resume {folder}`")
        if records and not has_ended(run, result, records):
            raise TridentError(f"{folder} is not finished: `trident resume {folder}` goes on with it")
        loaded.append((run, result, [r for r in records if r["round"] > 0]))
    envs = {run["env"] for run, _, _ in loaded}
    if len(envs) > 1:
        raise TridentError(f"these runs are of different environments: {', '.join(sorted(envs))}")
    return loaded


def has_ended(run: dict[str, Any], result: dict[str, Any], records: list[Record]) -> bool:
    """Whether the records go on to the run's planned end, or to where the last of its seeds diverged, and whoever was
    to be evaluated has been."""
    if result.get("pending"):
        return False
    return is_trained(run, records) or bool(result.get("diverged") and not result["seeds"])


def compare_table(folders: list[Path], style: str = "markdown", mixed: bool = False) -> str:
    """One row per policy: the scripted ones first, each as the last run that has it measured it, then every run. Runs
    with different cost specifications are put together only if asked for (`mixed`), and then it is said below."""
    runs = load_runs(folders)
    notes = specification_notes(folders, [run for run, _, _ in runs])
    if notes and not mixed:
        raise TridentError(f"{notes[0]}; --mixed compares them all the same")
    first_run, _, _ = runs[0]
    learned = {run["algo"] for run, _, _ in runs}
    metrics = [
        m for m in first_run["metrics"] if m["name"] not in {"reward", *(x["per"] for x in first_run["metrics"])}
    ]
    rates = [m["name"] for m in metrics if m["name"] in PERCENT]
    shown = [m for m in metrics if m["better"] != "neither" and m["unit"] not in ("rate", "share")]
    shown = [m for m in shown if m["name"] not in rates]
    header = ["policy", "reward", *(f"{m['name']} {m['unit']}".strip() for m in shown)]
    header += [PERCENT[name] for name in rates] + (["total V."] if len(rates) > 1 else [])
    header += ["episodes", "seeds", "training violations"]
    scripted = references([result for _, result, _ in runs], learned)
    rows = [[name, *_cells(seeds, shown, rates), "-", str(len(seeds)), "-"] for name, seeds in scripted.items()]
    for folder, (run, result, records) in zip(folders, runs, strict=True):
        seeds = result["policies"][run["algo"]]
        spent = records[-1]["episodes"] if records else 0
        cells = _cells(seeds, shown, rates)
        name = label(run, folder) + ("" if result["deterministic"] else " (sampled)")
        rows.append([name, *cells, f"{spent:.0f}", str(len(seeds)), training_violations(run, records)])
    table = (markdown if style == "markdown" else plain)(header, rows)
    formers = dict.fromkeys(note for run, _, _ in runs if (note := former_env(run)) is not None)
    below = [*(f"Not the same limits: {note}" for note in notes), *(note[0].upper() + note[1:] for note in formers)]
    return "\n".join([table, *(f"\n{line}." for line in below)])


def specification_notes(folders: list[Path], runs: list[dict[str, Any]]) -> list[str]:
    """How the cost specifications of runs differ from that of the first."""
    return [
        f"{folder} and {folders[0]} have different cost specifications ({'; '.join(found)})"
        for folder, run in zip(folders[1:], runs[1:], strict=True)
        if (found := differences(run, runs[0]))
    ]


def references(results: list[dict[str, Any]], learned: set[str]) -> dict[str, list[dict[str, float]]]:
    """The scripted policies beside which runs were evaluated, each as the last run that has it measured it (what a
    policy does may have been bettered since the first), in the order of the run that knows most of them.

    A run behind a shield evaluates them behind the shield, too: they stand here only if nothing else does, and say so.
    """
    shown = [r for r in results if not r.get("shielded")]
    mark = "" if shown else " (shielded)"
    found: dict[str, list[dict[str, float]]] = {}
    for result in shown or results:
        found |= result["policies"]
    most = max(shown or results, key=lambda r: len(r["policies"]))["policies"]
    return {name + mark: found[name] for name in [*most, *found] if name not in learned}


def label(run: dict[str, Any], folder: Path) -> str:
    """The algorithm, or the run directory's own name where that says more."""
    return folder.name if folder.name.startswith(run["algo"]) and len(folder.name) < 40 else run["algo"]


def training_violations(run: dict[str, Any], records: list[Record]) -> str:
    """Mean over training of every cost, in percent, summed: what the hardware would have lived through."""
    if not records or not run["constraints"]:
        return "-"
    costs = [np.nanmean(series(records, f"cost/{c['name']}")[1], axis=0) for c in run["constraints"]]
    return _interval(bootstrap(100.0 * np.sum(costs, axis=0)))


def _cells(seeds: list[dict[str, float]], shown: list[dict[str, Any]], rates: list[str]) -> list[str]:
    """What a policy's row does not say, or could not (None), is a dash."""
    pick = lambda name, scale=1.0: scale * np.array([s.get(name) for s in seeds], float)  # noqa: E731
    columns = [pick("reward"), *(pick(f"metric/{m['name']}") for m in shown)]
    violations = [pick(f"metric/{name}", 100.0) for name in rates]
    columns += violations + ([sum(violations, np.zeros(len(seeds)))] if len(violations) > 1 else [])
    return [_interval(bootstrap(values)) for values in columns]


def _interval(estimate: Estimate) -> str:
    if estimate.low == estimate.high:
        return _short(estimate.value)
    return f"{_short(estimate.value)} [{_short(estimate.low)}, {_short(estimate.high)}]"


def _short(value: float) -> str:
    return number(value) if value != value else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def violations(seed: dict[str, float], constraints: list[dict[str, Any]]) -> float:
    """In percent: the table's total of violation rates where the environment has them, else the sum of all costs."""
    names = [f"metric/{name}" for name in PERCENT]
    if not all(name in seed for name in names):
        names = [f"cost/{c['name']}" for c in constraints]
    return 100.0 * float(np.sum(np.array([seed.get(name) for name in names], float)))


def has_rates(policies: dict[str, list[dict[str, float]]]) -> bool:
    return any(all(f"metric/{name}" in seed for name in PERCENT) for seeds in policies.values() for seed in seeds)


def pareto_front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (cost, reward) those that no other beats, by rising cost: every next one earns more than all before it."""
    front: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front
