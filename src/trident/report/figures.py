"""Learning curves as PNGs, from a run's records alone.

The mean over seeds is thick, seeds are thin, a limit is dashed, what lies above a limit is shaded, and scripted
policies are dotted, with their names at the edge.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from trident.report.compare import has_rates, pareto_front, references, violations
from trident.report.diagnostics import DIAGNOSTICS, FLOORS, part_of
from trident.report.palette import (
    INK,
    LIMIT,
    REFERENCE,
    SAFE,
    SERIES,
    agent_colour,
    line_styles,
    mode_colour,
)
from trident.report.records import Record, names, per_episode, read, series, spent
from trident.run_directory import FIGURES, RECORDS, fresh, own_folder, read_result, read_run

STYLE = {
    "figure.dpi": 130,
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E8EB",
    "axes.edgecolor": "#9AA3AB",
    "axes.labelcolor": "#3A4147",
    "xtick.color": "#5C6B73",
    "ytick.color": "#5C6B73",
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=SERIES),
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
RECOVERY = "#7A3E9D"
COMPARED_ROUNDS = 5
"""Rounds over which the curves of a comparison are averaged."""


def draw_figures(out: Path) -> list[Path]:
    """Every figure the records of a run directory have data for; returns the files written."""
    run = read_run(out)
    records = [r for r in read(out / RECORDS) if r["round"] > 0]
    if not records:
        return []
    folder = own_folder(out, FIGURES)
    title, note = f"{run['algo']} on {run['env']}", curve_note(records)
    result = read_result(out)
    beside = {} if result is None else references([result], {run["algo"]})
    figures = {
        "learning": learning_panels(run, records, beside),
        "metrics": metric_panels(run, records),
        "modes": mode_panels(run, records),
        "diagnostics": diagnostic_panels(records),
        "margin": margin_panels(run, records),
    }
    notes = {"metrics": f"means over the steps of each round; {note}", "modes": "mean over seeds"}
    return [
        _draw(folder / f"{name}.png", f"{title}: {name}", panels, notes.get(name, note))
        for name, panels in figures.items()
        if panels
    ]


def curve_note(records: list[Record]) -> str:
    """How the lines of a run's figures are to be read."""
    many, window = len(records[-1]["values"]["reward"]) > 1, _window(len(records))
    seeds = "thick: mean over seeds, thin: each seed" if many else "one seed"
    return f"{seeds}; mean of the last {window} rounds" if window > 1 else seeds


def draw_comparison(
    runs: list[tuple[str, dict[str, Any], list[Record]]],
    path: Path,
    also: tuple[str, ...] = (),
    beside: Policies | None = None,
) -> Path:
    """(label, run, records) of several runs on one environment: reward with the policies `beside`, the quantities of
    `also`, every cost and what it has added up to, beside what the limit allows; means over seeds. Many runs have their
    key in a panel of its own."""
    constraints = runs[0][1]["constraints"]
    crowded = len(runs) > 5
    styles = line_styles([run["algo"] for _, run, _ in runs])

    def key(ax: Axes) -> None:
        for (text, _, _), style in zip(runs, styles, strict=True):
            ax.plot([], [], label=text, **style)
        if constraints:
            ax.plot([], [], color=LIMIT, ls="--", lw=1.4, label="limit, budget")
        ax.legend(loc="center left", ncols=2, fontsize=10)
        ax.set_axis_off()

    def finish(ax: Axes, title: str) -> None:
        ax.set_title(title)
        if not crowded:
            ax.legend()

    def panel(name: str, title: str, limit: float | None = None) -> Panel:
        def draw(ax: Axes) -> None:
            for (text, _, records), style in zip(runs, styles, strict=True):
                steps, values = series(records, per_episode(records, name))
                _line(ax, steps, _smooth(_mean(values), min(COMPARED_ROUNDS, len(steps))), label=text, **style)
            if limit is not None:
                ax.axhline(limit, color=LIMIT, ls="--", lw=1.4, label="limit", zorder=4)
            finish(ax, title)
            if name == "reward":
                _references(ax, beside or {})

        return draw

    def total(name: str, limit: float) -> Panel:
        def draw(ax: Axes) -> None:
            budget = np.empty((0, 2))
            for (text, _, records), style in zip(runs, styles, strict=True):
                steps, sums, allowed = spent(records, name, limit)
                ax.plot(steps, _mean(sums), label=text, **style)
                budget = max(budget, np.stack([steps, allowed], axis=1), key=len)
            ax.plot(*budget.T, color=LIMIT, ls="--", lw=1.4, label="budget", zorder=4)
            # Who keeps a limit of 1 % and who breaks it all the time are both to be seen.
            ax.set_yscale("symlog", linthresh=max(budget[:, 1].max(initial=0.0), 1.0) / 10, linscale=0.5)
            ax.set_ylim(bottom=0.0)
            finish(ax, f"{name}, summed over the training's steps")

        return draw

    spans = {_span(per_episode(records, "reward")) for _, _, records in runs}
    panels = [panel("reward", f"reward per step, {' or '.join(sorted(spans))}")]
    panels += [panel(name, f"{name.rpartition('/')[2]} in training") for name in also]
    for c in constraints:
        panels.append(panel(f"cost/{c['name']}", f"{c['name']} ({c['unit']})", c["limit"]))
        panels.append(total(c["name"], c["limit"]))
    note = f"means over seeds; rewards and costs per step: mean of the last {COMPARED_ROUNDS} rounds"
    return _draw(path, f"{runs[0][1]['env']}: training", [*panels, key] if crowded else panels, note)


def draw_front(runs: list[tuple[str, dict[str, Any], dict[str, Any]]], path: Path) -> Path:
    """(label, run, result) of several runs: reward against violated limits, one dot a seed, a large one for the mean.

    The grey line is the Pareto front: the most that any of them earns with so many violations. The shaded strip is
    where every limit may be kept.
    """
    constraints = runs[0][1]["constraints"]
    allowed = 100.0 * sum(c["limit"] for c in constraints)
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure, ax = plt.subplots(figsize=(9.0, 5.0))
        means = []
        for (text, run, result), style in zip(runs, line_styles([run["algo"] for _, run, _ in runs]), strict=True):
            seeds = result["policies"].get(run["algo"], [])
            if not seeds:  # all of them have diverged
                continue
            colour, marker, size = style["color"], style["marker"], 260 if style["marker"] == "*" else 80
            dots = np.array([(violations(seed, constraints), seed["reward"]) for seed in seeds])
            ax.scatter(*dots.T, s=12, color=colour, alpha=0.6, lw=0)
            mean = dots.mean(0)
            ax.scatter(*mean, s=size, color=colour, marker=marker, label=text, zorder=3, ec="white", lw=0.8)
            means.append((float(mean[0]), float(mean[1])))
        ax.set_xscale("symlog", linthresh=max(allowed, 1.0), linscale=1.5)
        (_, right), (low, high) = ax.get_xlim(), ax.get_ylim()
        ax.set_xticks([0, 1, 2, 5, 10, 20, 50, 100, 200])
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        front = pareto_front(means)
        if front:
            corners = [(front[0][0], low), *front, (right, front[-1][1])]
            ax.plot(*np.array(corners).T, drawstyle="steps-post", color=INK, lw=1.6, zorder=1, label="Pareto front")
        ax.scatter([], [], s=12, color=INK, alpha=0.6, lw=0, label="small: one seed")
        ax.axvspan(0.0, allowed, color=SAFE, alpha=0.12, label="sum of the limits")
        ax.set_xlim(-0.02 * max(allowed, 1.0), right)
        ax.set_ylim(low, high)
        rates = has_rates(runs[0][2]["policies"])
        ax.set_xlabel("total V. (%)" if rates else "violations, all limits together (%)")
        ax.set_ylabel("reward per step")
        ax.set_title(f"{runs[0][1]['env']}: evaluation, left and up is better")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)
    return path


# --- what is drawn --------------------------------------------------------------------------------

Panel = Callable[[Axes], None]
Policies = dict[str, list[dict[str, float]]]
"""Evaluations of policies by name, one per seed."""


def learning_panels(run: dict[str, Any], records: list[Record], beside: Policies | None = None) -> list[Panel]:
    """Reward with the scripted policies `beside`, each cost against its limit, and all costs so far against what the
    limits allow."""

    def reward(ax: Axes) -> None:
        name = per_episode(records, "reward")
        _curve(ax, records, name, f"reward per step, {_span(name)}", SERIES[0])
        _references(ax, beside or {})

    panels: list[Panel] = [reward]
    for i, c in enumerate(run["constraints"]):
        panels.append(lambda ax, c=c, i=i: _cost(ax, records, c, SERIES[(i + 1) % len(SERIES)]))
    if run["constraints"]:
        panels.append(lambda ax: _spent(ax, run, records))
    return panels


def margin_panels(run: dict[str, Any], records: list[Record]) -> list[Panel]:
    """How much of each limit is left, round by round, with the rounds marked in which an update recovered: in which no
    constrained step existed and the violated costs were lowered instead."""
    return [lambda ax, c=c: _margin(ax, records, c) for c in run["constraints"]]


def recoveries(records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
    """(env_steps [R], share of each round's updates that were recovery steps [R]); zeros for a method without them."""
    found = "recovery" in names(records)
    steps, share = series(records, "recovery" if found else "reward")
    return steps, _mean(share) if found else np.zeros(len(steps))


def _margin(ax: Axes, records: list[Record], constraint: dict[str, Any]) -> None:
    limit = constraint["limit"]
    scale = limit if limit > 0.0 else 1.0
    steps, cost = series(records, f"cost/{constraint['name']}")
    margin = (limit - _mean(cost)) / scale
    at, share = recoveries(records)
    ax.axhline(0.0, color=LIMIT, ls="--", lw=1.4, label="limit")
    ax.plot(steps, margin, color=SAFE, lw=1.2, alpha=0.8, label="margin of the round")
    so_far = np.nancumsum(margin) / np.maximum(np.cumsum(np.isfinite(margin)), 1)
    ax.plot(steps, so_far, color=INK, lw=1.8, label="mean so far")
    ax.fill_between(steps, margin, 0.0, where=(margin < 0.0).tolist(), color=LIMIT, alpha=0.25, lw=0)
    acted = np.flatnonzero(np.nan_to_num(share) > 0.0)
    if len(acted):
        level = np.interp(at[acted], steps, np.nan_to_num(margin))
        size = 20.0 + 80.0 * share[acted]
        ax.scatter(at[acted], level, s=size, marker="v", color=RECOVERY, zorder=5, label="recovery step")
    what = "of the limit" if limit > 0.0 else constraint["unit"]
    ax.set_title(f"margin to the limit {limit:g} on {constraint['name']}, {what}")
    low = min(-0.5, float(np.nanmin(margin, initial=-0.5)))
    ax.set_ylim(max(low, -5.0) - 0.1, 1.1 if limit > 0.0 else None)
    ax.legend()


def metric_panels(run: dict[str, Any], records: list[Record]) -> list[Panel]:
    panels: list[Panel] = []
    have = set(names(records))
    repeated = {"reward", *run["modes"], *(m["per"] for m in run["metrics"])}  # drawn elsewhere, or only a weight
    for m in run["metrics"]:
        if f"metric/{m['name']}" in have and m["name"] not in repeated:
            unit = f" [{m['unit']}]" if m["unit"] else ""
            wish = {"higher": ", higher is better", "lower": ", lower is better"}.get(m["better"], "")
            label = f"{m['name']}{unit}{wish}"
            colour = SERIES[len(panels) % len(SERIES)]
            panels.append(lambda ax, m=m, l=label, c=colour: _curve(ax, records, f"metric/{m['name']}", l, c))
    return panels


def mode_panels(run: dict[str, Any], records: list[Record]) -> list[Panel]:
    """How often each mode is chosen, averaged over seeds, stacked to one."""
    found = [m for m in run["modes"] if f"mode/{m}" in names(records)]
    if len(found) < 2:
        return []

    def draw(ax: Axes) -> None:
        steps, _ = series(records, f"mode/{found[0]}")
        shares = [_mean(series(records, f"mode/{m}")[1]) for m in found]
        order = np.argsort([-np.nanmean(s) for s in shares], kind="stable")
        colours = [mode_colour(run["modes"].index(found[i])) for i in order]
        ax.stackplot(steps, *(shares[i] for i in order), labels=[found[i] for i in order], colors=colours, alpha=0.9)
        ax.set_ylim(0, 1)
        ax.margins(x=0)
        ax.set_title("share of actions in each mode")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), ncols=1 + len(found) // 14)

    return [draw]


def diagnostic_panels(records: list[Record]) -> list[Panel]:
    """Known diagnostics of the algorithm, related ones in one panel."""
    panels: list[Panel] = []
    have = [n for n in names(records) if not n.startswith(("metric/", "cost/", "mode/", "cumulative"))]
    for title, wanted in DIAGNOSTICS.items():
        found = [n for n in have if n.split("/")[0].lower() in wanted]
        if found:
            panels.append(lambda ax, t=title, f=found: _together(ax, records, f, t))
    return panels


# --- how it is drawn ------------------------------------------------------------------------------


def _draw(path: Path, title: str, panels: list[Panel], note: str = "") -> Path:
    columns = min(len(panels), 2 if len(panels) == 4 else 3)
    rows = -(-len(panels) // columns)
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        width = 9.0 if columns == 1 else 5.2 * columns
        size = (width, 3.1 * rows + 0.5)
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.09)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
        for ax, panel in zip(axes.flat, panels, strict=False):
            panel(ax)
            ax.xaxis.set_major_formatter(EngFormatter(sep=""))
            ax.set_xlabel("environment steps per seed")
        for ax in axes.flat[len(panels) :]:
            ax.set_axis_off()
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5)
        if note:
            figure.supxlabel(note, x=0.99, ha="right", fontsize=8.5, color=REFERENCE)
        figure.savefig(fresh(path))
        plt.close(figure)
    return path


def _span(name: str) -> str:
    """What a mean is taken over."""
    return "whole episodes" if name.startswith("episode_") else "steps of the round"


def _line(ax: Axes, steps: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """Through the rounds that have a value: episodes need not end in every one."""
    there = np.isfinite(values)
    ax.plot(steps[there], values[there], **style)


def _curve(ax: Axes, records: list[Record], name: str, title: str, colour: str, label: str | None = None) -> None:
    steps, values = series(records, name)
    window = _window(len(records))
    if values.shape[1] > 1:
        for column in values.T:
            _line(ax, steps, _smooth(column, window), color=colour, lw=0.7, alpha=0.35)
    elif window > 1:
        _line(ax, steps, values[:, 0], color=colour, lw=0.5, alpha=0.25)
    _line(ax, steps, _smooth(_mean(values), window), color=colour, lw=2.0, label=label)
    ax.set_title(title)
    ax.margins(x=0.01)
    low, high = ax.get_ylim()
    if high - low < 1e-4 * max(abs(low), abs(high)):  # a constant: do not magnify its rounding errors
        ax.set_ylim(low - 0.1 * abs(low), high + 0.1 * abs(high))


def _window(rounds: int) -> int:
    """Rounds over which a run's curves are averaged."""
    return max(1, rounds // 100)


def _references(ax: Axes, policies: Policies) -> None:
    """Dotted lines at what scripted policies earn, named at the right edge; what lies far from the curves would flatten
    them and is only named, with an arrow."""
    rewards = {name: float(np.mean([seed["reward"] for seed in seeds])) for name, seeds in policies.items() if seeds}
    low, high = ax.get_ylim()
    near = [r for r in rewards.values() if low - 0.5 * (high - low) <= r <= high + 0.5 * (high - low)]
    low, high = min([low, *near]), max([high, *near])
    low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
    ax.set_ylim(low, high)
    by_reward = sorted(rewards, key=lambda name: rewards[name])
    places = spread([float(np.clip((rewards[name] - low) / (high - low), 0.0, 1.0)) for name in by_reward], 0.075)
    for name, place in zip(by_reward, places, strict=True):
        reward = rewards[name]
        mark = " \u2193" if reward < low else " \u2191" if reward > high else ""
        if not mark:
            ax.axhline(reward, color=REFERENCE, ls=(0, (1, 1.5)), lw=1.2, zorder=1.5)
        text = f"{name} {reward:.3g}{mark}"
        ax.text(1.01, place, text, transform=ax.transAxes, fontsize=8, color=REFERENCE, va="center", clip_on=False)


def spread(places: list[float], gap: float) -> list[float]:
    """Rising places in [0, 1] moved as little as it takes, from the top down, to be `gap` apart."""
    out = list(places)
    for i in range(1, len(out)):
        out[i] = max(out[i], out[i - 1] + gap)
    ceiling = 1.0
    for i in reversed(range(len(out))):
        out[i] = min(out[i], ceiling)
        ceiling = out[i] - gap
    return out


def _cost(ax: Axes, records: list[Record], constraint: dict[str, Any], colour: str) -> None:
    limit, cost = constraint["limit"], f"cost/{constraint['name']}"
    name = per_episode(records, cost)
    _curve(ax, records, name, f"cost {constraint['name']} [{constraint['unit']}], {_span(name)}", colour)
    ax.axhline(limit, color=LIMIT, ls="--", lw=1.3, label=f"limit {limit:g}")
    low, high = ax.get_ylim()
    high = max(high, limit + 0.15 * max(limit - low, 1e-9))
    ax.axhspan(limit, high, color=LIMIT, alpha=0.06, lw=0)
    ax.set_ylim(low, high)
    ax.legend(loc="upper right")


def _spent(ax: Axes, run: dict[str, Any], records: list[Record]) -> None:
    for i, c in enumerate(run["constraints"]):
        colour = SERIES[(i + 1) % len(SERIES)]
        steps, sums, allowed = spent(records, c["name"], c["limit"])
        for column in sums.T if sums.shape[1] > 1 else ():
            ax.plot(steps, column, color=colour, lw=0.7, alpha=0.35)
        ax.plot(steps, _mean(sums), color=colour, lw=2.0, label=c["name"])
        ax.plot(steps, allowed, color=colour, lw=1.3, ls="--", label=f"its budget, {c['limit']:g} a step")
    ax.set_title("costs summed over the training's steps")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left")


def _together(ax: Axes, records: list[Record], found: list[str], title: str) -> None:
    for i, name in enumerate(found):
        agent = re.fullmatch(r".*/agent(\d+)", name)
        of_all = f"{name}/agent0" in found
        colour = agent_colour(int(agent[1])) if agent else INK if of_all else SERIES[i % len(SERIES)]
        _curve(ax, records, name, title, colour, "all agents" if of_all else part_of(name))
    values = np.concatenate([series(records, name)[1].ravel() for name in found])
    _robust(ax, values[np.isfinite(values)], FLOORS.get(found[0].partition("/")[0], -np.inf))
    if len(found) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.03), handlelength=1.2)


def _robust(ax: Axes, values: np.ndarray, floor: float) -> None:
    """A few outliers must not flatten the rest: the axis holds the middle 96 %, and says what lies beyond."""
    if not values.size:
        return
    least, most = float(values.min()), float(values.max())
    low, high = np.quantile(values, [0.02, 0.98])
    wide = most - least > 4.0 * (high - low) > 0.0
    bottom = max(floor, low - 0.25 * (high - low) if wide else least, least)
    top = min(high + 0.25 * (high - low) if wide else most, most)
    beyond = [f"up to {most:.2g}"] * bool(most > top) + [f"down to {least:.2g}"] * bool(least < bottom)
    if beyond and top > bottom:
        ax.set_ylim(bottom - 0.04 * (top - bottom), top + 0.04 * (top - bottom))
        text = "\n".join(["outliers", *beyond])
        ax.text(1.02, 0.0, text, transform=ax.transAxes, fontsize=7.5, color=REFERENCE, va="bottom")


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over the seeds that have a value; NaN where none has."""
    there = np.isfinite(values)
    return np.where(there, values, 0.0).sum(1) / np.where(there.any(1), there.sum(1), np.nan)


def _smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Trailing mean over `window` rounds, of what there is; a curve ends where its seed diverged."""
    if window == 1:
        return values
    there = np.isfinite(values)
    sums = np.cumsum(np.where(there, values, 0.0))
    counts = np.cumsum(there)
    lag = lambda x: np.concatenate([np.zeros(window), x[:-window]])  # noqa: E731
    return np.where(there, (sums - lag(sums)) / np.maximum(counts - lag(counts), 1), np.nan)
