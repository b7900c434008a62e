"""A table of the paper beside ours: evaluation and training of every method, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trident.errors import TridentError
from trident.report.compare import PERCENT, load_runs, references
from trident.report.records import Record, per_episode, series
from trident.report.stats import Estimate, bootstrap, bootstrap_groups
from trident.report.tables import markdown, plain
from trident.run_directory import read_run

NAMES = {
    "reward": "Reward",
    "metric/exec": "Exec",
    "metric/energy": "Energy",
    "metric/throughput": "Thr.",
    "metric/ev": "E.V. %",
    "metric/cv": "C.V. %",
    "total": "Total V. %",
    "train/collisions": "Train. Coll.",
    "metric/return": "Reward",
    "metric/collisions": "Coll. in evaluation",
    "metric/delay": "Delay",
    "metric/off_lane": "off lane %",
    "metric/win": "Win %",
    "metric/losses": "losses %",
    "metric/deaths": "deaths %",
    "metric/crowding": "crowding %",
    "metric/length": "steps",
    "metric/arrived": "arrived %",
    "metric/time": "time s",
    "metric/fresh": "fresh %",
    "metric/deliveries": "deliveries/min",
    "metric/detected": "detected %",
    "metric/power": "power W",
    "cost/penetration": "penetration %",
    "cost/energy": "too much power %",
    "cost/separation": "too near %",
    "cost/battery": "low battery %",
    "cost/link": "no link %",
    "cost/sectors": "sectors in need %",
}
RATES = {name for name, text in NAMES.items() if text.endswith("%")}
"""Shown in percent."""
UNCONVERGED, SCRIPTED = "unconverged", "scripted"
MINUTES = "minutes: the rounds of all seeds, without compilation and evaluation."
ONCE = f"{SCRIPTED}: nothing is learned, so there are no seeds; one evaluation, without an interval."
Cells = list[str]


def row_name(run: dict[str, Any]) -> str:
    """The algorithm, and what it was warm-started on."""
    warm_start = run["settings"].get("warm_start")
    return f"{run['algo']}+{warm_start}" if warm_start else run["algo"]


class Trained(NamedTuple):
    """A finished run, as it lies in its folder."""

    run: dict[str, Any]
    result: dict[str, Any]
    records: list[Record]

    @property
    def algo(self) -> str:
        return self.run["algo"]

    @property
    def name(self) -> str:
        return row_name(self.run)

    @property
    def budget(self) -> str:
        seeds = len(self.result["seeds"]) + len(self.result["diverged"])
        return f"{self.run['settings']['episodes']} episodes x {seeds} seeds"

    @property
    def steps(self) -> int:
        """Environment steps of each seed."""
        return self.records[-1]["env_steps"] if self.records else 0

    def values(self, column: str) -> list[float]:
        """One number per seed: of its training, or, unless it has diverged, of its evaluation."""
        if column.startswith("train/"):
            return over_training(self.run, self.records, column.removeprefix("train/")).tolist()
        return [value_of(seed, column) for seed in self.result["policies"][self.algo]]


def load(folders: list[Path]) -> list[Trained]:
    """Runs of one budget: others are not put into one table."""
    runs = [Trained(*loaded) for loaded in load_runs(folders)]
    if len({t.budget for t in runs}) > 1:
        raise TridentError(f"not of one budget: {', '.join(f'{t.name} ({t.budget})' for t in runs)}")
    return runs


def provenance(folders: list[Path], other: dict[str, list[str]]) -> str:
    """Which commits made the records, and which rows are of `other` values than today's: nothing is mixed in
    silently."""
    made: dict[str, list[str]] = {}
    for folder in folders:
        run = read_run(folder)
        made.setdefault(str(run.get("commit")), []).append(row_name(run))
    if len(made) == 1:
        lines = [f"Commit {next(iter(made))}."]
    else:
        each = "; ".join(f"{commit} ({', '.join(rows)})" for commit, rows in made.items())
        lines = [f"Records of {len(made)} commits: {each}."]
    for name, found in other.items():
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        lines += [f"{name} is on record with other values than today's: {'; '.join(found[:3])}{more}."] if found else []
    return " ".join(lines)


def convergence(run: dict[str, Any], records: list[Record], share: float = 0.95) -> np.ndarray:
    """Episodes after which a seed's reward (over whole episodes, mean of 5 rounds in which some ended) first has gone
    `share` of its way; [seeds], NaN for one that has got no better, or has diverged."""
    steps, values = series(records, per_episode(records, "reward"))
    lost = ~np.isfinite(series(records, "reward")[1][-1])
    at = [np.nan if gone else _converged_at(steps, v, share) for v, gone in zip(values.T, lost, strict=True)]
    return np.array(at) / run["horizon"]


def _converged_at(steps: np.ndarray, values: np.ndarray, share: float) -> float:
    there = np.isfinite(values)
    window = min(5, there.sum())
    smooth = np.convolve(values[there], np.ones(window) / window, "valid") if window else np.zeros(1)
    if smooth[-1] <= smooth[0]:
        return np.nan
    goal = smooth[0] + share * (smooth[-1] - smooth[0])
    return float(steps[there][window - 1 :][(smooth >= goal).argmax()])


def over_training(run: dict[str, Any], records: list[Record], metric: str, kind: str = "metric") -> np.ndarray:
    """A metric or a cost over all steps of the training, [seeds], up to where a seed diverged; a ratio of sums stays
    one: rounds count by their weight."""
    per = next((m["per"] for m in run["metrics"] if kind == "metric" and m["name"] == metric), None)
    values = series(records, f"{kind}/{metric}")[1]
    weight = 1.0 * np.isfinite(values) if per is None else series(records, f"metric/{per}")[1]
    total = np.nansum(weight, axis=0)
    return np.nansum(values * weight, axis=0) / np.where(total > 0, total, np.nan)


def value_of(seed: dict[str, float], column: str) -> float:
    if column == "total":
        return sum(seed[f"metric/{name}"] for name in PERCENT)
    return seed[column]


def versus_table(
    folders: list[Path],
    columns: tuple[str, ...],
    paper: dict[str, tuple[float, ...]],
    missing: dict[str, str],
    style: str = "markdown",
    full_steps: int | None = None,
) -> str:
    """One row per policy, our mean over seeds with its 95 % bootstrap interval, and the printed number in brackets.

    Runs of fewer than `full_steps` environment steps are marked as unconverged; `missing` names runs that have none,
    and why.
    """
    runs = load(folders) if folders else []
    header = ["method", *(NAMES.get(c, c) for c in columns), "violations in training %", "converged at", "minutes"]
    rows = []
    beside = references([t.result for t in runs], {t.algo for t in runs}) if runs else {}
    for name, seeds in beside.items():
        values = [None if c.startswith("train/") else [value_of(s, c) for s in seeds] for c in columns]
        once = f" ({SCRIPTED})" if len(seeds) == 1 else ""
        rows.append([name + once, *_cells(values, columns, paper.get(name)), "-", "-", "-"])
    for t in runs:
        cells = _cells([t.values(c) for c in columns], columns, paper.get(t.name))
        rows.append([t.name + _marks([t], full_steps), *cells, *_training(t.run, t.records)])
    rows += [[f"{name} (missing: {_brief(why)})", *("-" for _ in header[1:])] for name, why in missing.items()]
    return _text(header, rows, style, full_steps, (MINUTES,))


def grid_table(
    folders: dict[str, list[Path]],
    methods: tuple[str, ...],
    column: str,
    paper: dict[str, dict[str, tuple[float, ...]]],
    averages: dict[str, tuple[str, ...]],
    style: str = "markdown",
    full_steps: int | None = None,
) -> str:
    """Methods x environments: `column`'s mean over seeds, its interval, and the printed number (the first of `paper`'s)
    in brackets. An average column stands where all of its environments do (where none stands: of those shown); its
    intervals resample seeds within each environment."""
    runs = {env: {t.name: t for t in load(paths)} for env, paths in folders.items() if paths}
    averages = {name: envs for name, envs in averages.items() if set(envs) <= set(folders)}
    averages = averages or ({"shown": tuple(folders)} if len(folders) > 1 else {})
    header = ["method", *folders, *(f"average ({name})" for name in averages), "steps per seed"]
    rows = []
    for method in methods:
        found = {env: t[method] for env, t in runs.items() if method in t}
        values = {env: t.values(column) for env, t in found.items()}
        printed = {env: paper[env][method][0] for env in paper if method in paper[env]}
        cells = []
        for envs in [(env,) for env in folders] + list(averages.values()):
            groups = [values[env] for env in envs if env in values]
            theirs = float(np.mean([printed[env] for env in envs])) if set(envs) <= set(printed) else None
            ours = bootstrap_groups(groups) if len(groups) == len(envs) else None
            cells.append(_cell(ours, column, theirs, max(map(len, groups), default=0)))
        spent = sorted({t.steps for t in found.values()})
        span = " to ".join(f"{s:,}" for s in dict.fromkeys((spent[0], spent[-1]))) if spent else "-"
        rows.append([method + _marks(list(found.values()), full_steps), *cells, span])
    return _text(header, rows, style, full_steps)


def _text(header: Cells, rows: list[Cells], style: str, full_steps: int | None, notes: tuple[str, ...] = ()) -> str:
    """The table, and below it what its words mean."""
    text = (markdown if style == "markdown" else plain)(header, rows)

    def marked(word):
        return any(word in row[0] for row in rows)

    notes += (ONCE,) if marked(f"({SCRIPTED})") else ()
    notes += (
        (f"{UNCONVERGED}: fewer than the paper's {full_steps:,} environment steps.",) if marked(UNCONVERGED) else ()
    )
    return "\n\n".join([text, " ".join(note[0].upper() + note[1:] for note in notes)] if notes else [text])


def _brief(why: str, most: int = 100) -> str:
    """A reason that fits into a cell."""
    line = " ".join(why.split()).replace("|", "/")
    return line if len(line) <= most else line[: most - 3] + "..."


def _marks(runs: list[Trained], full_steps: int | None) -> str:
    diverged, seeds = (sum(len(t.result[k]) for t in runs) for k in ("diverged", "seeds"))
    marks = ["sampled"] if runs and not all(t.result["deterministic"] for t in runs) else []
    marks += [f"{diverged} of {diverged + seeds} seeds diverged"] if diverged else []
    marks += [UNCONVERGED] if full_steps is not None and any(t.steps < full_steps for t in runs) else []
    return f" ({', '.join(marks)})" if marks else ""


def _cells(values: list[list[float] | None], columns: tuple[str, ...], printed: tuple[float, ...] | None) -> Cells:
    known = [*(printed or ()), *[None] * len(columns)]
    return [
        _cell(None if v is None else bootstrap(v), column, theirs, 0 if v is None else len(v))
        for v, column, theirs in zip(values, columns, known, strict=False)
    ]


def _cell(ours: Estimate | None, column: str, theirs: float | None, samples: int = 2) -> str:
    """One sample has no interval."""
    scale = 100.0 if column in RATES else 1.0
    text = "-" if ours is None or ours.value != ours.value else _interval(scale, ours, samples)
    return text + (f" ({_short(scale * theirs)})" if theirs is not None else "")


def _interval(scale: float, ours: Estimate, samples: int) -> str:
    value, low, high = (scale * x for x in ours)
    d = len(_short(value).partition(".")[2])
    return f"{value:.{d}f}" + (f" [{low:.{d}f}, {high:.{d}f}]" if samples > 1 else "")


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _training(run: dict[str, Any], records: list[Record]) -> Cells:
    if not records:
        return ["-", "-", "-"]
    costs = [100.0 * over_training(run, records, c["name"], "cost") for c in run["constraints"]]
    violations = _cell(bootstrap(np.sum(costs, axis=0)), "", None, len(costs[0])) if costs else "-"
    at = bootstrap(convergence(run, records)).value
    return [violations, "-" if at != at else f"{at:.0f}", f"{records[-1]['seconds'] / 60:.1f}"]
