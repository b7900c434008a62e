"""Learning curves as PNGs, from a run's records alone.

Colours mean the same everywhere: the mean over seeds is thick, seeds are thin, a limit is dashed, and what lies
above a limit is shaded.
"""

from __future__ import annotations

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

from trident.report.compare import PERCENT
from trident.report.records import Record, names, read, series
from trident.run_directory import FIGURES, RECORDS, read_run

COLOURS = ("#3B6FB6", "#E19C2B", "#2E8B74", "#7A5BA8", "#5C6B73", "#D1495B", "#8C6A4F", "#7A9E3A")
LIMIT = "#B22234"
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
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
DIAGNOSTICS: dict[str, tuple[str, ...]] = {
    "KL of the update": ("kl", "kl_max"),
    "share of update cases": ("recovery", "trust_region", "rejected"),
    "share explained by physics (R2)": ("r2_phys",),
    "explained variance of the critics": ("explained_variance",),
    "loss of the critics": ("critic_loss",),
    "budget asked for": ("budget_asked",),
    "budget that trust regions granted": ("budget_granted",),
    "budget spent": ("budget_spent",),
    "temperature": ("temperature", "tau"),
    "fraction of the demanded decrease granted": ("granted_fraction",),
    "signal fraction of the gradients": ("grad_snr",),
    "share of actions at a box edge": ("saturation",),
    "entropy": ("entropy",),
    "multipliers": ("multiplier", "lambda"),
    "actions changed by the shield": ("shielded",),
}
"""Panel title -> metric names; a metric belongs to a panel if its name up to the first "/" is listed."""


def draw_figures(out: Path) -> list[Path]:
    """Every figure the records of a run directory have data for; returns the files written."""
    run = read_run(out)
    records = [r for r in read(out / RECORDS) if r["round"] > 0]
    if not records:
        return []
    folder = out / FIGURES
    folder.mkdir(exist_ok=True)
    title = f"{run['algo']} on {run['env']}"
    figures = {
        "learning": learning_panels(run, records),
        "metrics": metric_panels(run, records),
        "modes": mode_panels(run, records),
        "diagnostics": diagnostic_panels(records),
    }
    return [_draw(folder / f"{name}.png", f"{title}: {name}", panels) for name, panels in figures.items() if panels]


def draw_comparison(
    runs: list[tuple[str, dict[str, Any], list[Record]]], path: Path, also: tuple[str, ...] = ()
) -> Path:
    """(label, run, records) of several runs on one environment: reward, the quantities of `also`, every cost and what
    it has added up to, beside what the limit allows; means over seeds. Many runs have their key in a panel of its own.
    """
    constraints = runs[0][1]["constraints"]
    crowded = len(runs) > 5

    def style(i: int) -> dict[str, Any]:
        return {"color": COLOURS[i % len(COLOURS)], "ls": ("-", (0, (5, 1)), ":")[i // len(COLOURS) % 3], "lw": 2}

    def key(ax: Axes) -> None:
        for i, (text, _, _) in enumerate(runs):
            ax.plot([], [], label=text, **style(i))
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
            for i, (text, _, records) in enumerate(runs):
                steps, values = series(records, name)
                ax.plot(steps, _smooth(_mean(values), min(5, len(steps))), label=text, **style(i))
            if limit is not None:
                ax.axhline(limit, color=LIMIT, ls="--", lw=1.4, label="limit", zorder=4)
            finish(ax, title)

        return draw

    def total(name: str, limit: float) -> Panel:
        def draw(ax: Axes) -> None:
            budget = np.empty((0, 2))
            for i, (text, _, records) in enumerate(runs):
                steps, sums, allowed = spent(records, name, limit)
                ax.plot(steps, _mean(sums), label=text, **style(i))
                budget = max(budget, np.stack([steps, allowed], axis=1), key=len)
            ax.plot(*budget.T, color=LIMIT, ls="--", lw=1.4, label="budget", zorder=4)
            # Who keeps a limit of 1 % and who breaks it all the time are both to be seen.
            ax.set_yscale("symlog", linthresh=max(budget[:, 1].max(initial=0.0), 1.0) / 10, linscale=0.5)
            ax.set_ylim(bottom=0.0)
            finish(ax, f"{name}, summed over the training's steps")

        return draw

    panels = [panel("reward", "reward per step")]
    panels += [panel(name, f"{name.rpartition('/')[2]} in training") for name in also]
    for c in constraints:
        panels.append(panel(f"cost/{c['name']}", f"{c['name']} ({c['unit']})", c["limit"]))
        panels.append(total(c["name"], c["limit"]))
    return _draw(path, f"{runs[0][1]['env']}: training", [*panels, key] if crowded else panels)


def spent(records: list[Record], name: str, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(env_steps [R], cost so far [R, seeds], what the limit allows so far [R]), in cost x steps: if the cost is the
    rate of an event, its number of steps."""
    steps, cost = series(records, f"cost/{name}")
    return steps, np.cumsum(cost * np.diff(steps, prepend=0.0)[:, None], axis=0), limit * steps


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
        for i, (text, run, result) in enumerate(runs):
            seeds = result["policies"].get(run["algo"], [])
            if not seeds:  # all of them have diverged
                continue
            colour, marker = COLOURS[i % len(COLOURS)], "oDs^vP"[i // len(COLOURS) % 6]
            dots = np.array([(violations(seed, constraints), seed["reward"]) for seed in seeds])
            ax.scatter(*dots.T, s=12, color=colour, alpha=0.6, lw=0)
            mean = dots.mean(0)
            ax.scatter(*mean, s=80, color=colour, marker=marker, label=text, zorder=3, ec="white", lw=0.8)
            means.append((float(mean[0]), float(mean[1])))
        ax.set_xscale("symlog", linthresh=max(allowed, 1.0), linscale=1.5)
        (_, right), (low, high) = ax.get_xlim(), ax.get_ylim()
        ax.set_xticks([0, 1, 2, 5, 10, 20, 50, 100, 200])
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        front = pareto_front(means)
        if front:
            corners = [(front[0][0], low), *front, (right, front[-1][1])]
            ax.plot(
                *np.array(corners).T, drawstyle="steps-post", color="#3A4147", lw=1.6, zorder=1, label="Pareto front"
            )
        ax.axvspan(0.0, allowed, color="#2E8B74", alpha=0.12, label="sum of the limits")
        ax.set_xlim(-0.02 * max(allowed, 1.0), right)
        ax.set_ylim(low, high)
        rates = _has_rates(runs[0][2]["policies"])
        ax.set_xlabel("total V. (%)" if rates else "violations, all limits together (%)")
        ax.set_ylabel("reward per step")
        ax.set_title(f"{runs[0][1]['env']}: evaluation, left and up is better")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)
    return path


def violations(seed: dict[str, float], constraints: list[dict[str, Any]]) -> float:
    """In percent: the table's total of violation rates where the environment has them, else the sum of all costs."""
    names = [f"metric/{name}" for name in PERCENT]
    if not all(name in seed for name in names):
        names = [f"cost/{c['name']}" for c in constraints]
    return 100.0 * sum(seed[name] for name in names)


def _has_rates(policies: dict[str, list[dict[str, float]]]) -> bool:
    return any(all(f"metric/{name}" in seed for name in PERCENT) for seeds in policies.values() for seed in seeds)


def pareto_front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (cost, reward) those that no other beats, by rising cost: every next one earns more than all before it."""
    front: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front


# --- what is drawn --------------------------------------------------------------------------------

Panel = Callable[[Axes], None]


def learning_panels(run: dict[str, Any], records: list[Record]) -> list[Panel]:
    """Reward, each cost against its limit, and all costs so far against what the limits allow."""
    panels: list[Panel] = [lambda ax: _curve(ax, records, "reward", "reward per step", COLOURS[0])]
    for i, c in enumerate(run["constraints"]):
        panels.append(lambda ax, c=c, i=i: _cost(ax, records, c, COLOURS[(i + 1) % len(COLOURS)]))
    if run["constraints"]:
        panels.append(lambda ax: _spent(ax, run, records))
    return panels


def metric_panels(run: dict[str, Any], records: list[Record]) -> list[Panel]:
    panels: list[Panel] = []
    have = set(names(records))
    repeated = {"reward", *run["modes"], *(m["per"] for m in run["metrics"])}  # drawn elsewhere, or only a weight
    for m in run["metrics"]:
        if f"metric/{m['name']}" in have and m["name"] not in repeated:
            unit = f" [{m['unit']}]" if m["unit"] else ""
            wish = {"higher": ", higher is better", "lower": ", lower is better"}.get(m["better"], "")
            label = f"{m['name']}{unit}{wish}"
            colour = COLOURS[len(panels) % len(COLOURS)]
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
        colours = [mpl.colormaps["viridis"](x) for x in np.linspace(0.08, 0.92, len(found))]
        if len(found) <= len(COLOURS):
            colours = list(COLOURS[: len(found)])
        ax.stackplot(steps, *(shares[i] for i in order), labels=[found[i] for i in order], colors=colours, alpha=0.9)
        ax.set_ylim(0, 1)
        ax.margins(x=0)
        ax.set_title("share of modes")
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


def _draw(path: Path, title: str, panels: list[Panel]) -> Path:
    columns = min(len(panels), 2 if len(panels) == 4 else 3)
    rows = -(-len(panels) // columns)
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        width = 9.0 if columns == 1 else 5.2 * columns
        figure, axes = plt.subplots(rows, columns, figsize=(width, 3.1 * rows + 0.5), squeeze=False)
        for ax, panel in zip(axes.flat, panels, strict=False):
            panel(ax)
            ax.xaxis.set_major_formatter(EngFormatter(sep=""))
            ax.set_xlabel("environment steps per seed")
        for ax in axes.flat[len(panels) :]:
            ax.set_axis_off()
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5)
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)
    return path


def _curve(ax: Axes, records: list[Record], name: str, title: str, colour: str, label: str | None = None) -> None:
    steps, values = series(records, name)
    window = max(1, len(steps) // 100)
    if values.shape[1] > 1:
        for column in values.T:
            ax.plot(steps, _smooth(column, window), color=colour, lw=0.7, alpha=0.35)
    elif window > 1:
        ax.plot(steps, values[:, 0], color=colour, lw=0.5, alpha=0.25)
    ax.plot(steps, _smooth(_mean(values), window), color=colour, lw=2.0, label=label)
    ax.set_title(title)
    ax.margins(x=0.01)
    low, high = ax.get_ylim()
    if high - low < 1e-4 * max(abs(low), abs(high)):  # a constant: do not magnify its rounding errors
        ax.set_ylim(low - 0.1 * abs(low), high + 0.1 * abs(high))


def _cost(ax: Axes, records: list[Record], constraint: dict[str, Any], colour: str) -> None:
    limit, name = constraint["limit"], constraint["name"]
    _curve(ax, records, f"cost/{name}", f"cost {name} [{constraint['unit']}]", colour)
    ax.axhline(limit, color=LIMIT, ls="--", lw=1.3, label=f"limit {limit:g}")
    low, high = ax.get_ylim()
    high = max(high, limit + 0.15 * max(limit - low, 1e-9))
    ax.axhspan(limit, high, color=LIMIT, alpha=0.06, lw=0)
    ax.set_ylim(low, high)
    ax.legend(loc="upper right")


def _spent(ax: Axes, run: dict[str, Any], records: list[Record]) -> None:
    for i, c in enumerate(run["constraints"]):
        colour = COLOURS[(i + 1) % len(COLOURS)]
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
        _curve(ax, records, name, title, COLOURS[i % len(COLOURS)], name)
    if len(found) > 1:
        ax.legend(loc="best")


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
