"""Records -> charts as plain data: a few hundred points a line, with intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from trident.report.compare import references
from trident.report.diagnostics import DIAGNOSTICS, FLOORS, part_of
from trident.report.page.reading import Reading
from trident.report.palette import INK, SERIES, agent_colour, method_styles, mode_colour
from trident.report.records import names, per_episode, series, spent

Plain = dict[str, Any]
POINTS, FEWEST_POINTS = 500, 40
"""Points of a line, at most and at least."""
ALL_NUMBERS = 250_000
"""Numbers of all curves of a page together: at seven bytes each they stay below two megabytes."""
RESAMPLES = 300
DETAILED = 12
"""Runs of a page up to which each has its diagnostics; of more, reward and costs are shown."""


def points_for(runs: int) -> int:
    """How long lines may be, if so many runs share a page."""
    lines = (30 if runs <= DETAILED else 6) * 4
    return int(np.clip(ALL_NUMBERS // (lines * max(runs, 1)), FEWEST_POINTS, POINTS))


# --- lines ----------------------------------------------------------------------------------------


def line(label: str, colour: str, x: np.ndarray, values: np.ndarray, points: int, **look: Any) -> Plain:
    """The mean over seeds [R, S] with its 95 % bootstrap interval, and each seed where they are few."""
    there = np.isfinite(values).any(1) if values.size else np.zeros(0, bool)
    x, values = thin(x[there], values[there], points)
    out: Plain = {"label": label, "colour": colour, "x": rounded(x), "mean": rounded(_mean(values))} | look
    if values.size and values.shape[1] > 1:
        low, high = intervals(values)
        out |= {"low": rounded(low), "high": rounded(high)}
        if values.shape[1] <= 5:
            out["seeds"] = [rounded(column) for column in values.T]
    return out


def thin(x: np.ndarray, values: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of equal stretches if there are more rows than points; the first and the last row stay as they are."""
    if len(x) <= points:
        return x, values
    edges = np.unique(np.linspace(1, len(x) - 1, points - 1).astype(int))
    groups = [slice(0, 1), *(slice(a, b) for a, b in pairwise(edges)), slice(len(x) - 1, None)]
    return np.array([x[g].mean() for g in groups]), np.stack([_mean(values[g].T) for g in groups])


def intervals(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95 % bootstrap intervals of the means of rows [R, S]; a row's seeds without a value stand aside."""
    draws = np.random.default_rng(0).integers(values.shape[1], size=(RESAMPLES, values.shape[1]))
    weights = (draws[..., None] == np.arange(values.shape[1])).sum(1).T.astype(float)  # [S, resamples]
    there = np.isfinite(values)
    sums, counts = np.where(there, values, 0.0) @ weights, there @ weights
    means = np.where(counts > 0, sums / np.maximum(counts, 1.0), _mean(values)[:, None])
    order = np.sort(means, axis=1)
    return order[:, int(0.025 * RESAMPLES)], order[:, int(0.975 * RESAMPLES)]


def _mean(values: np.ndarray) -> np.ndarray:
    there = np.isfinite(values)
    return np.where(there, values, 0.0).sum(1) / np.where(there.any(1), there.sum(1), np.nan)


def rounded(values: np.ndarray) -> list[float | None]:
    """Five digits, which is more than a screen can show; None where there is no number."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values.tolist()]


# --- one run --------------------------------------------------------------------------------------


def run_charts(reading: Reading, points: int, detailed: bool) -> list[Plain]:
    if not reading.records:
        return []
    return learning(reading, points) + (details(reading, points) if detailed else [])


def learning(reading: Reading, points: int) -> list[Plain]:
    run, records = reading.run, reading.records
    name = per_episode(records, "reward")
    beside = {} if reading.result is None else references([reading.result], {run["algo"]})
    marks = [
        {"label": k, "value": float(np.mean([s.get("reward", np.nan) for s in v]))} for k, v in beside.items() if v
    ]
    charts = [
        _chart("learning", "reward", "Reward per step", f"{span(name)}; more is better",
               [line("reward", SERIES[0], *series(records, name), points)],
               marks=[m for m in marks if np.isfinite(m["value"])])
    ]  # fmt: skip
    for i, c in enumerate(run["constraints"]):
        name, colour = per_episode(records, f"cost/{c['name']}"), SERIES[(i + 1) % len(SERIES)]
        text = "; ".join(part for part in (c["help"], span(name)) if part)
        lines = [line(c["name"], colour, *series(records, name), points)]
        charts.append(_chart("learning", f"cost/{c['name']}", f"Cost: {c['name']}", text, lines, c["limit"], c["unit"]))
    for i, c in enumerate(run["constraints"]):
        charts.append(total(c, [(c["name"], SERIES[(i + 1) % len(SERIES)], None, reading)], points))
    return charts


def total(constraint: Plain, parts: Sequence[tuple[str, str, Any, Reading]], points: int) -> Plain:
    """What a cost has added up to, against what the limit allows; (label, colour, dash, run) of each line."""
    lines, end = [], 0.0
    for label, colour, dash, reading in parts:
        steps, sums = series(reading.records, f"cumulative_cost/{constraint['name']}")
        if not len(steps):  # written before there were sums
            steps, sums, _ = spent(reading.records, constraint["name"], constraint["limit"])
        lines.append(line(label, colour, steps, sums, points, dash=dash))
        end = max(end, float(steps[-1]) if len(steps) else 0.0)
    text = "summed over the steps of training; below the dashed line it has spent less than its limit allows"
    chart = _chart("budget", f"total/{constraint['name']}", f"Spent in training: {constraint['name']}", text, lines)
    return chart | {"budget": [[0.0, 0.0], [end, constraint["limit"] * end]]}


def details(reading: Reading, points: int) -> list[Plain]:
    run, records = reading.run, reading.records
    have, charts = names(records), []
    skip = {"reward", *run["modes"], *(m["per"] for m in run["metrics"] if isinstance(m["per"], str))}
    for title, wanted in DIAGNOSTICS.items():
        found = [n for n in have if n.split("/")[0].lower() in wanted]
        if found:
            floor = FLOORS.get(found[0].partition("/")[0])
            lines = [line(part_of(n), _colour(n, i, found), *series(records, n), points) for i, n in enumerate(found)]
            charts.append(_chart("method", found[0], _capital(title), "", lines) | {"floor": floor})
    modes = [m for m in run["modes"] if f"mode/{m}" in have]
    if len(modes) > 1:
        lines = [line(m, _mode_colour(run, m), *series(records, f"mode/{m}"), points) for m in modes]
        charts.append(_chart("metrics", "modes", "Share of actions in each mode", "", lines))
    for i, m in enumerate(m for m in run["metrics"] if f"metric/{m['name']}" in have and m["name"] not in skip):
        wish = {"higher": "higher is better", "lower": "lower is better"}.get(m["better"], "")
        text = "; ".join(str(part) for part in (m["help"], wish) if part)
        lines = [line(m["name"], SERIES[i % len(SERIES)], *series(records, f"metric/{m['name']}"), points)]
        charts.append(_chart("metrics", f"metric/{m['name']}", _capital(m["name"]), text, lines, unit=str(m["unit"])))
    return charts


def _chart(
    group: str, name: str, title: str, text: str, lines: list[Plain], limit: float | None = None, unit: str = "",
    marks: list[Plain] | None = None,
) -> Plain:  # fmt: skip
    return {"group": group, "name": name, "title": title, "text": text, "lines": lines, "limit": limit, "unit": unit,
            "marks": marks or []}  # fmt: skip


def span(name: str) -> str:
    """What a mean is taken over."""
    return "mean over whole episodes" if name.startswith("episode_") else "mean over the steps of a round"


def _capital(text: str) -> str:
    text = text.removeprefix("... ")
    return text[:1].upper() + text[1:]


def _colour(name: str, index: int, found: list[str]) -> str:
    agent = name.rpartition("/agent")[2]
    if agent.isdigit() and "/agent" in name:
        return agent_colour(int(agent))
    return INK if f"{name}/agent0" in found else SERIES[index % len(SERIES)]


def _mode_colour(run: Plain, mode: str) -> str:
    return mode_colour(run["modes"].index(mode))


# --- several runs ---------------------------------------------------------------------------------

DASHES = {"-": None, (0, (5, 1.5)): [8, 4], (0, (1, 1.2)): [2, 3], (0, (5, 1.5, 1, 1.5)): [8, 4, 2, 4]}


def comparison(readings: list[Reading], points: int) -> list[Plain]:
    """Reward and every cost of several runs on one environment, in one chart each."""
    readings = [r for r in readings if r.records]
    if not readings:
        return []
    styles = method_styles([r.run["algo"] for r in readings])
    looks = [(r.name, s["color"], DASHES.get(s["ls"]), r) for r, s in zip(readings, styles, strict=True)]

    def lines(name: str) -> list[Plain]:
        return [
            {
                k: v
                for k, v in line(
                    label, colour, *series(r.records, per_episode(r.records, name)), points, dash=dash
                ).items()
                if k != "seeds"
            }
            for label, colour, dash, r in looks
        ]

    charts = [_chart("compare", "reward", "Reward per step", "mean over seeds with its 95 % interval", lines("reward"))]
    for c in readings[0].run["constraints"]:
        text = "; ".join(part for part in (c["help"], "mean over seeds") if part)
        charts.append(
            _chart(
                "compare",
                f"cost/{c['name']}",
                f"Cost: {c['name']}",
                text,
                lines(f"cost/{c['name']}"),
                c["limit"],
                c["unit"],
            )
        )
        for part in (spent_chart := total(c, looks, points))["lines"]:
            part.pop("seeds", None)
        charts.append(spent_chart | {"group": "compare"})
    return charts
