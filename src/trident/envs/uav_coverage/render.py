"""One frame of cooperative coverage: the partition, and sectors, power and modes beside it; and the figure."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch

from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import MODES, CoverageState, importance
from trident.report.palette import INK, LIMIT, QUIET, agent_colour, agent_name, mode_colour
from trident.report.panels import gauge, map_axes, mode_strip, sign, trail

IMPORTANCE, OBSTACLE, SHIELD = "YlOrBr", "#B8C0C8", "#C026D3"
FINE = 240
"""Pixels along a side for edges of cells."""
PANELS = 3


def draw(config: CoverageConfig, where: Figure | Axes, states: CoverageState, changed: Any) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis). On a figure with gauges, on axes the map."""
    if isinstance(where, Axes):
        draw_map(config, where, states, changed)
        return
    where.clear()
    where.patch.set_facecolor("white")
    grid = where.add_gridspec(
        3, 2, width_ratios=[1.12, 1.0], height_ratios=[1.0, 1.0, 0.9], wspace=0.16, hspace=0.62,
        left=0.015, right=0.975, top=0.93, bottom=0.115,
    )  # fmt: skip
    ax = where.add_subplot(grid[:, 0])
    draw_map(config, ax, states, changed)
    ax.legend(
        handles=keys(config), loc="upper center", bbox_to_anchor=(0.5, -0.005), ncols=4, fontsize=7.5, frameon=False,
        handlelength=1.3, columnspacing=1.1, handletextpad=0.6,
    )  # fmt: skip
    draw_sectors(config, where.add_subplot(grid[0, 1]), states)
    draw_power(config, where.add_subplot(grid[1, 1]), states)
    strip = where.add_subplot(grid[2, 1])
    colours = [mode_colour(m) for m in range(len(MODES))]
    mode_strip(strip, np.asarray(states.mode)[1:], colours, config.slot, "mode of each UAV: " + ", ".join(MODES))
    strip.set_xlim(0.0, config.horizon * config.slot)
    strip.set_xlabel("time, s", fontsize=8, color=INK)


def figure(config: CoverageConfig, where: Figure, states: CoverageState, changed: Any) -> None:
    """The partition at the start, half-way through the deployment and at the end."""
    c, last = config, len(states.clock) - 1
    where.set_size_inches(4.0 * PANELS, 4.5)
    for k, (ax, t) in enumerate(zip(where.subplots(1, PANELS), (0, min(c.grace // 2, last), last), strict=True)):
        draw_map(c, ax, jax.tree.map(lambda x, t=t: x[: t + 1], states), None)
        found = detected(c, states, t)
        title = f"({'abc'[k]})  t = {t * c.slot:.0f} s, detected {found:.0%}"
        ax.set_title(title, loc="left", fontsize=10, color=INK)
    where.legend(handles=keys(c), loc="lower center", ncols=7, fontsize=8.5, frameon=False)
    where.subplots_adjust(left=0.01, right=0.99, top=0.94, bottom=0.08, wspace=0.04)


def keys(config: CoverageConfig) -> list[Line2D | Patch]:
    """What the map's signs mean."""
    signs: list[Line2D | Patch] = [
        Patch(fc="#FBC26B", ec="none", label="importance"),
        Line2D([], [], color=INK, lw=1.6, label="edge of the partition"),
        sign("UAV", marker="h", mfc=agent_colour(0), mec="white", ms=9),
        sign("sensing radius", marker="o", mfc="none", mec=agent_colour(0), ms=9),
        Line2D([], [], color=QUIET, lw=2.0, label="flown"),
        Line2D([], [], color=QUIET, lw=0.8, ls=":", label="sector"),
        sign("sector below its minimum", marker="s", mfc="none", mec=LIMIT, mew=1.5, ms=8),
    ]
    if config.num_obstacles:
        signs.append(sign("obstacle", marker="o", mfc=OBSTACLE, mec=INK, ms=8))
    return signs


def draw_map(config: CoverageConfig, ax: Axes, states: CoverageState, changed: Any) -> None:
    c = config
    now = jax.tree.map(lambda x: np.asarray(x)[-1], states)
    t = int(now.clock)
    map_axes(ax, 0.0, c.area, f"t = {t * c.slot:.0f} s" + ("    deployment" if t <= c.grace else ""))
    box = (0.0, c.area, 0.0, c.area)
    value = weights(c, now).reshape(c.points, c.points).T
    ax.imshow(value, extent=box, origin="lower", cmap=IMPORTANCE, alpha=0.75, interpolation="bicubic", zorder=0)
    draw_sector_lines(c, ax, now, t > c.grace)
    for centre in now.obstacle:
        ax.add_patch(Circle(tuple(centre), c.obstacle_radius, fc=OBSTACLE, ec=INK, lw=1.0, zorder=3))
    draw_partition(c, ax, now.uav)
    way = np.asarray(states.uav)
    for i, place in enumerate(now.uav):
        colour = agent_colour(i)
        trail(ax, way[-60:, i], colour, width=2.0)
        ax.add_patch(Circle(tuple(place), float(now.radius[i]), fc=colour, ec="none", alpha=0.06, zorder=1))
        ax.add_patch(Circle(tuple(place), float(now.radius[i]), fc="none", ec=colour, alpha=0.7, lw=1.0, zorder=2))
        acted = changed is not None and len(changed) and bool(np.asarray(changed)[-1, i])
        ax.scatter(
            *place, marker="h", s=130, c=colour, edgecolors=SHIELD if acted else "white", linewidths=1.4, zorder=6
        )
        ax.annotate(agent_name(i), place, ha="center", va="center", fontsize=7, color="white", weight="bold", zorder=7)


def draw_partition(config: CoverageConfig, ax: Axes, uav: np.ndarray) -> None:
    """Edges of the Voronoi cells: where the nearest and the second nearest UAV are equally far."""
    if len(uav) < 2:
        return
    line = np.linspace(0.0, config.area, FINE)
    x, y = np.meshgrid(line, line)
    away = np.hypot(x[..., None] - uav[:, 0], y[..., None] - uav[:, 1])
    for i in range(len(uav)):
        others = np.delete(away, i, axis=-1).min(-1)
        ax.contour(x, y, away[..., i] - others, levels=[0.0], colors=INK, linewidths=1.4, zorder=3)


def draw_sector_lines(config: CoverageConfig, ax: Axes, now: CoverageState, charged: bool) -> None:
    """The sectors, and a frame around those below their minimum."""
    c = config
    side = c.area / c.sectors
    for k in range(1, c.sectors):
        ax.plot([k * side, k * side], [0.0, c.area], color=QUIET, lw=0.8, ls=":", zorder=1)
        ax.plot([0.0, c.area], [k * side, k * side], color=QUIET, lw=0.8, ls=":", zorder=1)
    for number in np.flatnonzero(qualities(c, now) < c.sector_min) if charged else ():
        x, y = divmod(int(number), c.sectors)
        ring = np.array([(0.03, 0.03), (0.97, 0.03), (0.97, 0.97), (0.03, 0.97), (0.03, 0.03)])
        ax.plot(*(side * (ring + np.array((x, y)))).T, color=LIMIT, lw=1.6, zorder=2)


# --- the gauges -----------------------------------------------------------------------------------


def draw_sectors(config: CoverageConfig, ax: Axes, states: CoverageState) -> None:
    """Detection of each sector over time against the minimum."""
    c, time = config, np.asarray(states.clock) * config.slot
    each = np.stack([qualities(c, jax.tree.map(lambda x, t=t: np.asarray(x)[t], states)) for t in range(len(time))])
    ax.axvspan(0.0, c.grace * c.slot, color="#EEF1F4", lw=0)
    ax.plot(time, each, color=QUIET, lw=0.9)
    ax.plot(time, each.min(1), color=INK, lw=1.6)
    ax.axhline(c.sector_min, color=LIMIT, lw=1.3, ls="--")
    late = each[np.asarray(states.clock) > c.grace]
    below = 100.0 * (late < c.sector_min).mean() if len(late) else 0.0
    gauge(ax, f"detection by sector, least {c.sector_min:g}   ({below:.1f} % below)", c.horizon * c.slot)
    ax.set_ylim(0.0, 1.0)


def draw_power(config: CoverageConfig, ax: Axes, states: CoverageState) -> None:
    """Power of each UAV over time."""
    time = np.asarray(states.clock) * config.slot
    for i in range(config.num_uavs):
        ax.plot(time[1:], np.asarray(states.power)[1:, i], color=agent_colour(i), lw=1.1)
    gauge(ax, "power of each UAV, W (flight and sensor)", config.horizon * config.slot)
    ax.set_ylim(80.0, 420.0)


# --- what is drawn --------------------------------------------------------------------------------


def weights(config: CoverageConfig, now: CoverageState) -> np.ndarray:
    return np.asarray(importance(config, *(jnp.asarray(x) for x in (now.hot, now.obstacle))))


def found_by_all(config: CoverageConfig, now: CoverageState) -> np.ndarray:
    """Detection of every place."""
    square = ((np.asarray(now.uav)[:, None] - config.places[None]) ** 2).sum(-1)
    each = np.maximum(1.0 - square / np.asarray(now.radius)[:, None] ** 2, 0.0) ** 2
    return 1.0 - np.prod(1.0 - each, axis=0)


def qualities(config: CoverageConfig, now: CoverageState) -> np.ndarray:
    return found_by_all(config, now) @ config.sector_of


def detected(config: CoverageConfig, states: CoverageState, t: int) -> float:
    now = jax.tree.map(lambda x: np.asarray(x)[t], states)
    return float(found_by_all(config, now) @ weights(config, now))
