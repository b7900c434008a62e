"""Figures of whole studies: sensitivity, scaling, cumulative violations, maps, performance profiles. From records
alone, in the style of a run's figures; every line has a mark of its own, so that colour is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter

from trident.report.figures import STYLE, plt
from trident.report.palette import INK, REFERENCE, line_styles
from trident.report.records import Record, series
from trident.report.stats import bootstrap, performance_profile

Samples = Sequence[tuple[float, Sequence[float]]]
"""(place, numbers of the seeds)"""


def draw_sensitivity(panels: Mapping[str, tuple[Mapping[str, Samples], Samples]], path: Path) -> Path:
    """setting -> ({"reward" and "total": (factor of the default, seeds)}, printed: (factor, (reward, violations)))."""
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure, axes = _grid(2, len(panels), 3.4, 2.9)
        for (name, (ours, printed)), (top, bottom) in zip(panels.items(), axes.T, strict=True):
            for i, (ax, column) in enumerate(((top, "reward"), (bottom, "total"))):
                _with_interval(ax, ours[column], color=INK, marker="o", label="ours")
                ax.plot(
                    [x for x, _ in printed], [y[i] for _, y in printed],
                    ls=":", marker="s", mfc="white", color=REFERENCE, label="paper, its own low, mid, high",
                )  # fmt: skip
                ax.axvspan(0.9, 1.1, color=REFERENCE, alpha=0.15, lw=0)
                ax.set_xscale("log", base=2)
                ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            top.set_title(name.replace(": ", "\n", 1))
            bottom.set_xlabel("times the default")
        axes[0, 0].set_ylabel("reward per step")
        axes[1, 0].set_ylabel("total V. (%)")
        axes[1, 0].legend(fontsize=7.5)
        return _save(figure, path, "Settings of TRIDENT one at a time; strip: the default and a tenth to either side")


def draw_scaling(
    quantities: Mapping[str, Mapping[str, Samples]], exponents: Mapping[tuple[str, str], float], path: Path
) -> Path:
    """quantity -> method -> (number of agents, seeds); exponents by (quantity, method)."""
    methods = list(dict.fromkeys(m for of_method in quantities.values() for m in of_method))
    styles = dict(zip(methods, line_styles(methods), strict=True))
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure, axes = _grid(2, 2, 6.0, 3.6)
        for ax, (quantity, of_method) in zip(axes.flat, quantities.items(), strict=False):
            for method, samples in of_method.items():
                power = exponents.get((quantity, method), np.nan)
                text = method if power != power else f"{method}: N^{power:.2f}"
                _with_interval(ax, samples, **styles[method] | {"markevery": 1, "label": text})
            ax.set_title(quantity)
            ax.set_xscale("log", base=2)
            if all(value > 0.0 for samples in of_method.values() for _, seeds in samples for value in seeds):
                ax.set_yscale("log")
                ax.yaxis.set_minor_formatter(NullFormatter())
            ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            ax.set_xlabel("agents N")
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.03), fontsize=7.5)
        return _save(figure, path, "What grows with the fleet; bars: 95 % intervals over seeds")


Curves = Sequence[tuple[str, dict[str, Any], list[Record]]]
"""(label, run, records)"""


def excess(run: dict[str, Any], records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
    """(rounds [R], sum up to each of what the mean costs of a round exceed their limits by [R, seeds])."""
    costs = [(series(records, f"cost/{c['name']}")[1], c["limit"]) for c in run["constraints"]]
    over = sum((np.maximum(cost - limit, 0.0) for cost, limit in costs), np.zeros_like(costs[0][0]))
    return np.arange(1, len(over) + 1), np.cumsum(np.nan_to_num(over), axis=0)


def root_fit(rounds: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """c of c sqrt(K) by least squares, and R2."""
    root = np.sqrt(rounds)
    c = float(values @ root / (root @ root))
    spread = float(((values - values.mean()) ** 2).sum())
    return c, 1.0 - float(((values - c * root) ** 2).sum()) / spread if spread > 0.0 else np.nan


def late_power(rounds: np.ndarray, values: np.ndarray) -> float:
    """The exponent of K in the second half, by least squares on the logarithms."""
    late = slice(len(rounds) // 2, None)
    if len(rounds[late]) < 2 or values[late].min() <= 0.0:
        return np.nan
    return float(np.polyfit(np.log(rounds[late]), np.log(values[late]), 1)[0])


def draw_cumulative(runs: Curves, path: Path) -> Path:
    """Violations summed over rounds, on logarithmic axes, where c sqrt(K) is a straight line of half the steepness of
    c K; dotted: each method's own best c sqrt(K), and how well it fits. The exponent is that of the second half."""
    runs = [run for run in runs if run[1]["constraints"] and run[2]]
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure, axes = _grid(1, 1, 9.0, 5.0)
        ax = axes[0, 0]
        for (text, run, records), style in zip(runs, line_styles([r["algo"] for _, r, _ in runs]), strict=True):
            rounds, sums = excess(run, records)
            mean = sums.mean(axis=1)
            seen = mean > 0.0
            if not seen.any():
                ax.plot([], [], label=f"{text}: no violation", **style)
                continue
            c, r2 = root_fit(rounds, mean)
            ax.plot(rounds[seen], mean[seen], label=f"{text}: K^{late_power(rounds, mean):.2f} (R2 {r2:.2f})", **style)
            ax.plot(rounds, c * np.sqrt(rounds), color=style["color"], ls=(0, (1, 2)), lw=1.0, zorder=1)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("rounds K")
        ax.set_ylabel("sum of (cost - limit)+ of the rounds")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        env = f"{runs[0][1]['env']}: " if runs else ""
        return _save(figure, path, f"{env}violations so far; dotted: c sqrt(K)")


def draw_maps(maps: Mapping[str, Curves], metric: str, path: Path) -> Path:
    """A panel per environment: a metric (a rate) over training, mean over seeds with the range of the seeds."""
    methods = list(dict.fromkeys(run["algo"] for runs in maps.values() for _, run, _ in runs))
    styles = dict(zip(methods, line_styles(methods), strict=True))
    columns = 4 if len(maps) == 3 else min(len(maps) + 1, 3)
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure, axes = _grid(-(-(len(maps) + 1) // columns), columns, 5.0, 3.1)
        for ax, (env, runs) in zip(axes.flat, maps.items(), strict=False):
            for _, run, records in runs:
                steps, values = series(records, metric)
                window = max(1, len(steps) // 25)
                smooth = np.stack([_trailing(column, window) for column in values.T], axis=1)
                style = styles[run["algo"]]
                if smooth.shape[1] > 1:
                    ax.fill_between(
                        steps, np.nanmin(smooth, axis=1), np.nanmax(smooth, axis=1), color=style["color"], alpha=0.12
                    )
                ax.plot(steps, np.nanmean(smooth, axis=1), **style)
            ax.set_title(env)
            ax.set_ylim(-0.02, 1.02)
            ax.xaxis.set_major_formatter(EngFormatter(sep=""))
            ax.set_xlabel("environment steps per seed")
        key, *unused = axes.flat[len(maps) :]
        for method, style in styles.items():
            key.plot([], [], label=method, **style)
        key.legend(loc="center left", ncols=2, fontsize=10)
        for ax in (key, *unused):
            ax.set_axis_off()
        name = metric.rpartition("/")[2]
        return _save(figure, path, f"{name} rate in training; mean of a twenty-fifth of the run, strip: range of seeds")


def draw_profiles(scores: Mapping[str, Sequence[Sequence[float]]], path: Path, what: str) -> Path:
    """method -> per task the scores of its seeds: the share of runs above every score, averaged over tasks."""
    every = [x for groups in scores.values() for seeds in groups for x in seeds]
    levels = np.linspace(min(every), max(every), 101)
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure, axes = _grid(1, 1, 9.0, 4.6)
        ax = axes[0, 0]
        for (method, groups), style in zip(scores.items(), line_styles(list(scores)), strict=True):
            share, low, high = performance_profile(groups, levels.tolist())
            ax.fill_between(levels, low, high, color=style["color"], alpha=0.1, lw=0)
            ax.plot(levels, share, label=method, **style)
        ax.set_xlabel(f"{what}, x")
        ax.set_ylabel("share of runs above x")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return _save(figure, path, "Performance profiles over tasks; strips: 95 % intervals")


# --- how it is drawn ------------------------------------------------------------------------------


def _with_interval(ax: Axes, samples: Samples, **style: Any) -> None:
    known = [(x, bootstrap(seeds), len(seeds)) for x, seeds in samples if len(seeds)]
    places, means = [x for x, _, _ in known], [e.value for _, e, _ in known]
    line = ax.plot(places, means, **style)[0]
    for x, e, count in known:
        if count > 1:
            ax.plot([x, x], [e.low, e.high], color=line.get_color(), lw=1.0, zorder=1)


def _trailing(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last `window` rounds that have a value."""
    out = np.full(len(values), np.nan)
    for i in range(len(values)):
        part = values[max(0, i - window + 1) : i + 1]
        if np.isfinite(part).any():
            out[i] = np.nanmean(part)
    return out


def _grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    size = (width * columns, height * rows + 0.5)
    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")


def _save(figure: Figure, path: Path, title: str) -> Path:
    figure.suptitle(title, x=0.01, ha="left", fontsize=12.0, color=INK)
    figure.savefig(path)
    plt.close(figure)
    return path
