"""One frame of a flight: the map on the left, clearance, power and modes on the right; and the flight in snapshots."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Polygon

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.dynamics import EDGES, HOLD, NoFlyState
from trident.envs.uav_nofly.maps import Maps
from trident.report.palette import FRAME, INK, LIMIT, QUIET, SAFE, mode_colour
from trident.report.panels import TRAJECTORY, brackets, gauge, map_axes, mode_strip, sign, trail

ZONE: dict[str, Any] = {"fc": "#F4B6B6", "ec": LIMIT}
CELL, SHIELD = "#3C9A4B", "#C026D3"
SNAPSHOTS = 4


def draw(config: NoFlyConfig, maps: Maps, where: Figure | Axes, states: NoFlyState, changed: Any) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis). On a figure with gauges, on axes the map."""
    if isinstance(where, Axes):
        draw_map(config, maps, where, states, changed)
        return
    where.clear()
    where.patch.set_facecolor("white")
    grid = where.add_gridspec(
        3, 2, width_ratios=[1.12, 1.0], height_ratios=[1.0, 1.0, 0.5], wspace=0.16, hspace=0.62,
        left=0.015, right=0.975, top=0.93, bottom=0.115,
    )  # fmt: skip
    ax = where.add_subplot(grid[:, 0])
    draw_map(config, maps, ax, states, changed)
    ax.legend(
        handles=keys(config), loc="upper center", bbox_to_anchor=(0.5, -0.005), ncols=4, fontsize=7.5, frameon=False,
        handlelength=1.3, columnspacing=1.1, handletextpad=0.6,
    )  # fmt: skip
    draw_clearance(config, where.add_subplot(grid[0, 1]), states)
    draw_power(config, where.add_subplot(grid[1, 1]), states)
    colours = [QUIET, *(mode_colour(m) for m in range(1, len(EDGES)))]
    title = "chosen neighbour (grey: hold)"
    strip = where.add_subplot(grid[2, 1])
    mode_strip(strip, np.asarray(states.mode)[1:, None], colours, config.step, title, ["UAV"])
    strip.set_xlim(0.0, config.horizon * config.step)
    strip.set_xlabel("time, s", fontsize=8, color=INK)


def figure(config: NoFlyConfig, maps: Maps, where: Figure, states: NoFlyState, changed: Any) -> None:
    """The flight in snapshots at even times, the last one at its end."""
    last = len(states.clock) - 1
    where.set_size_inches(3.2 * SNAPSHOTS, 3.7)
    for k, ax in enumerate(where.subplots(1, SNAPSHOTS)):
        t = round(last * (k + 1) / SNAPSHOTS)
        until = jax.tree.map(lambda x, t=t: x[: t + 1], states)
        draw_map(config, maps, ax, until, None if changed is None else changed[:t])
        ax.set_title(f"({'abcdefgh'[k]})  t = {t * config.step:.1f} s", loc="left", fontsize=10, color=INK)
    where.legend(handles=keys(config), loc="lower center", ncols=8, fontsize=8, frameon=False)
    where.subplots_adjust(left=0.01, right=0.99, top=0.93, bottom=0.09, wspace=0.04)


def keys(config: NoFlyConfig) -> list[Line2D | Patch]:
    """What the map's signs mean."""
    return [
        Patch(label="no-fly zone", **ZONE),
        Line2D([], [], color=TRAJECTORY, lw=2.2, label="flown"),
        sign("waypoint cell chosen", marker="$[\\,\\,]$", mfc=CELL, mec=CELL, ms=10),
        sign("UAV", marker="h", mfc=INK, mec="white", ms=9),
        sign("start", marker="o", mfc="white", mec=INK, ms=6),
        sign("goal", marker="*", mfc=SAFE, mec=SAFE, ms=10),
        sign("within a zone", marker="X", mfc=LIMIT, mec="white", ms=8),
        sign("shield acts", marker="o", mfc="none", mec=SHIELD, mew=1.5, ms=8),
    ]


def draw_map(config: NoFlyConfig, maps: Maps, ax: Axes, states: NoFlyState, changed: Any) -> None:
    c = config
    now = jax.tree.map(lambda x: np.asarray(x)[-1], states)
    title = f"t = {int(now.clock) * c.step:.1f} s"
    title += "    at the goal" if now.arrived else ""
    map_axes(ax, 0.0, c.area, title)
    for zone in maps.zones[int(now.map)]:
        ax.add_patch(Polygon(zone, zorder=1, lw=1.2, **ZONE))
    ax.add_patch(Circle(tuple(now.goal), c.goal_radius, fc=SAFE, ec="none", alpha=0.25, zorder=1))
    ax.scatter(*now.goal, marker="*", s=110, c=SAFE, zorder=5)
    flown = np.asarray(states.mode)[1:] != HOLD
    chosen = np.asarray(states.waypoint)[1:][flown]
    if len(chosen):
        brackets(ax, np.unique(chosen, axis=0), 0.8 * c.cell, CELL)
    way = np.asarray(states.place) + np.asarray(states.offset)
    trail(ax, way, TRAJECTORY, width=2.4, fade=False)
    ax.scatter(*way[0], marker="o", s=36, facecolors="white", edgecolors=INK, zorder=5)
    touched = np.flatnonzero(np.asarray(states.clearance)[1:] < 0.0) + 1
    ax.scatter(*way[touched].T, marker="X", s=55, c=LIMIT, edgecolors="white", linewidths=0.8, zorder=6)
    if changed is not None and len(changed):
        acted = np.flatnonzero(np.asarray(changed)[:, 0]) + 1
        ax.scatter(*way[acted].T, s=42, facecolors="none", edgecolors=SHIELD, linewidths=1.2, zorder=6)
    ax.scatter(*way[-1], marker="h", s=110, c=INK, edgecolors="white", linewidths=1.0, zorder=7)
    draw_wind(c, ax, np.asarray(now.wind))


def draw_wind(config: NoFlyConfig, ax: Axes, wind: np.ndarray) -> None:
    """An arrow in the north-east corner, and its strength."""
    x, y = 0.88 * config.area, 0.92 * config.area
    look = {"arrowstyle": "->", "color": QUIET, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (x + 5.0 * float(wind[0]), y + 5.0 * float(wind[1])), (x, y), zorder=8, arrowprops=look)
    ax.text(x, y - 0.05 * config.area, f"wind {np.hypot(*wind):.1f} m/s", fontsize=7, color=INK, ha="center", zorder=8)


def draw_clearance(config: NoFlyConfig, ax: Axes, states: NoFlyState) -> None:
    """Signed distance to the nearest zone over time."""
    time, near = np.asarray(states.clock) * config.step, np.clip(np.asarray(states.clearance), -10.0, 40.0)
    ax.axhspan(-10.0, 0.0, color=LIMIT, alpha=0.12, lw=0)
    ax.axhspan(0.0, config.tube, color=FRAME, alpha=0.6, lw=0)
    ax.axhline(0.0, color=LIMIT, lw=1.3, ls="--")
    ax.plot(time, near, color=TRAJECTORY, lw=1.6)
    gauge(ax, f"distance to the nearest zone, m   (grey: tube of {config.tube:g} m)", config.horizon * config.step)
    ax.set_ylim(-10.0, 41.0)
    ax.set_yticks([0, 20, 40], ["0", "20", "40+"])


def draw_power(config: NoFlyConfig, ax: Axes, states: NoFlyState) -> None:
    """Electric power over time against its limit."""
    time, power = np.asarray(states.clock) * config.step, np.asarray(states.power)
    over = power > config.max_power
    ax.axhline(config.max_power, color=LIMIT, lw=1.3, ls="--")
    ax.plot(time, power, color=SAFE, lw=1.5)
    ax.fill_between(time, power, config.max_power, where=over.tolist(), color=LIMIT, alpha=0.6, step="mid")
    flown = over[1:].mean() if len(over) > 1 else 0.0
    title = f"electric power, W, limit {config.max_power:g}   ({100 * flown:.1f} % of the steps over)"
    gauge(ax, title, config.horizon * config.step)
    ax.set_ylim(80.0, 1.35 * config.max_power)
