"""One frame of an intersection episode: the junction from above, and what happens to safety beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon, Rectangle

from trident.envs.intersection.config import ARMS, IntersectionConfig
from trident.envs.intersection.dynamics import CRASHED, DRIVING, FINISHED, WAITING, Traffic, arms, boxes, reach
from trident.envs.intersection.right_of_way import relate
from trident.envs.intersection.roads import poses
from trident.physics import braking
from trident.report.palette import FRAME, INK, LIMIT, QUIET, SAFE, SERIES, agent_name
from trident.report.scale_bar import scale_bar

ROAD, GRASS, LINE = "#d9dde2", "#eef3ea", "#ffffff"
ROUTES = (SERIES[0], SERIES[4], SERIES[1])
ROUTE_NAMES = ("turns left", "goes straight", "turns right")
SHIELD, CRASH = "#c026d3", LIMIT
TIGHT, CLOSE, EASY = LIMIT, "#e6a100", SAFE
SIGHT = 50.0
"""Half side of the map, m."""
TENSE = 2.5
"""Only gaps below this are drawn, s."""


@lru_cache
def measures(config: IntersectionConfig) -> Callable[[Traffic], Any]:
    """Boxes, stopping places and predicted gaps of a state: pairs whose occupancies of a conflict point come near."""

    def measure(t: Traffic) -> Any:
        rel = relate(config, t)
        pace = 1.0 / jnp.maximum(t.speed, 1.0)[:, None]
        enter, leave = (jnp.maximum(edge - t.s[:, None], 0.0) * pace for edge in (rel.enter, rel.leave))
        gap = braking.time_gap(enter, leave, enter.T, leave.T)
        soon = jnp.minimum(enter, enter.T) < 3.0
        return boxes(config, t), reach(config, t), jnp.where(rel.meets & soon, gap, jnp.inf)

    return jax.jit(jax.vmap(measure))


def draw(config: IntersectionConfig, where: Figure | Axes, states: Traffic, changed: np.ndarray | None) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis). On a figure with gauges, on axes the map."""
    box, stop, gap = jax.device_get(measures(config)(states))
    if isinstance(where, Axes):
        draw_map(config, where, states, box, stop[-1], gap[-1], changed)
        return
    where.clear()
    where.patch.set_facecolor("white")
    grid = where.add_gridspec(
        3,
        2,
        width_ratios=[1.12, 1.0],
        height_ratios=[1.0, 0.8, 1.0],
        wspace=0.16,
        hspace=0.62,
        left=0.015,
        right=0.975,
        top=0.93,
        bottom=0.115,
    )
    draw_map(config, where.add_subplot(grid[:, 0]), states, box, stop[-1], gap[-1], changed)
    time = np.asarray(states.clock) * config.step
    draw_speeds(config, where.add_subplot(grid[0, 1]), states, time)
    draw_gaps(config, where.add_subplot(grid[1, 1]), gap, time)
    draw_vehicles(config, where.add_subplot(grid[2, 1]), states, changed)


# --- the map --------------------------------------------------------------------------------------


def draw_map(
    config: IntersectionConfig, ax: Axes, states: Traffic, box: Any, stop: np.ndarray, gap: np.ndarray, changed: Any
) -> None:
    c, now = config, Traffic(*(np.asarray(x)[-1] for x in states))
    ax.set(xlim=(-SIGHT, SIGHT), ylim=(-SIGHT, SIGHT), aspect="equal", xticks=[], yticks=[], facecolor=GRASS)
    for spine in ax.spines.values():
        spine.set_color(FRAME)
    draw_roads(c, ax)
    draw_gap_links(ax, now, box, gap)
    altered = np.zeros(c.num_vehicles, bool) if changed is None or not len(changed) else changed[-1]
    for i in range(c.num_vehicles):
        if now.phase[i] == DRIVING:
            draw_vehicle(c, ax, now, box, i, float(stop[i]), bool(altered[i]))
        elif now.phase[i] == CRASHED:
            ax.scatter(box.x[-1, i], box.y[-1, i], marker="X", s=130, c=CRASH, edgecolors="white", zorder=8)
    count = [int((now.phase == p).sum()) for p in (FINISHED, DRIVING, WAITING, CRASHED)]
    title = "t = {:.1f} s    {} arrived · {} driving · {} to come".format(int(now.clock) * c.step, *count[:3])
    ax.set_title(title, loc="left", fontsize=10, color=INK)
    if count[3]:
        ax.set_title(f"{count[3]} crashed", loc="right", fontsize=10, color=CRASH, weight="bold")
    keys = [Line2D([], [], color=k, lw=5, label=name) for k, name in zip(ROUTES, ROUTE_NAMES, strict=True)]
    keys.append(Line2D([], [], color=QUIET, lw=4.5, alpha=0.5, label="way it needs to stop"))
    keys.append(Line2D([], [], marker="o", ls="", mfc="none", mec=SHIELD, mew=2, ms=9, label="shield acts"))
    keys.append(Line2D([], [], marker="X", ls="", mfc=CRASH, mec="white", ms=9, label="crashed"))
    gaps = ((TIGHT, "will meet within 0.5 s"), (CLOSE, "within 1.5 s"))
    keys += [Line2D([], [], color=colour, lw=2, ls=":", label=name) for colour, name in gaps]
    ax.legend(
        handles=keys,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.005),
        ncols=4,
        fontsize=7.5,
        frameon=False,
        handlelength=1.3,
        columnspacing=1.1,
        handletextpad=0.8,
    )
    scale_bar(ax, "m", INK)


def draw_roads(config: IntersectionConfig, ax: Axes) -> None:
    """Asphalt with rounded corners, lane markings and stop lines."""
    c, h, half = config, config.half_box, 2.0 * config.lane_width
    far = c.approach + h
    turn = np.linspace(0.0, 0.5 * np.pi, 12)
    r = h - half
    corner = np.stack([h - r * np.sin(turn), h - r * np.cos(turn)], 1)  # from (h, half) to (half, h), north-east
    outline = []
    for k in range(ARMS):
        q = k * 0.5 * np.pi
        spin = np.array([[np.cos(q), -np.sin(q)], [np.sin(q), np.cos(q)]])
        outline.append(np.concatenate([[[far, -half], [far, half]], corner]) @ spin.T)
        for offset, style in ((0.0, {"color": "#e6a100", "lw": 1.6}), (c.lane_width, {"color": LINE, "lw": 1.0})):
            for side in (-1.0, 1.0) if offset else (1.0,):
                line = np.array([[h, side * offset], [far, side * offset]]) @ spin.T
                dash = (0, (6, 6)) if offset else "-"
                ax.plot(*line.T, ls=dash, zorder=1, **style)
        # traffic towards the junction keeps to its right: on the east arm that is y > 0
        ax.plot(*(np.array([[h, 0.0], [h, half]]) @ spin.T).T, color=LINE, lw=2.4, zorder=1)
    ax.add_patch(Polygon(np.concatenate(outline), fc=ROAD, ec="#b8c0c8", lw=0.8, zorder=0))


def draw_vehicle(c: IntersectionConfig, ax: Axes, now: Traffic, box: Any, i: int, stop: float, shielded: bool) -> None:
    """Its box in the colour of its route, and the way it needs to stop."""
    x, y, cos, sin = (float(v[-1, i]) for v in box)
    colour = ROUTES[int(now.movement[i])]
    # Traffic.path works on jax arrays; here the lane and the movement are plain numbers
    lane, movement = int(now.lane[i]), int(now.movement[i])
    path = min(movement, 1) if lane == 0 else max(movement, 1) + 1
    way = np.linspace(float(now.s[i]) + c.front, max(stop, float(now.s[i])) + c.front, 12)
    px, py, _ = poses(c, way, path, int(arms(c)[i]), 0.0)
    ax.plot(px, py, color=colour, lw=4.5, alpha=0.28, solid_capstyle="butt", zorder=2)
    turn = np.array([[cos, -sin], [sin, cos]])
    l, w = 0.5 * c.length, 0.5 * c.width
    # 1.35 times its size: a car 3.7 m long is hard to see on a map of 100 m
    body = 1.35 * np.array([[-l, -w], [0.75 * l, -w], [l, -0.45 * w], [l, 0.45 * w], [0.75 * l, w], [-l, w]]) @ turn.T
    ax.add_patch(Polygon(body + np.array([x, y]), fc=colour, ec="white", lw=0.7, zorder=6))
    if shielded:
        ax.scatter(x, y, s=260, facecolors="none", edgecolors=SHIELD, linewidths=2.0, zorder=7)
    ax.annotate(
        agent_name(i),
        (x - 4.6 * sin, y + 4.6 * cos),
        ha="center",
        va="center",
        fontsize=7.5,
        color=INK,
        weight="bold",
        zorder=8,
    )


def draw_gap_links(ax: Axes, now: Traffic, box: Any, gap: np.ndarray) -> None:
    """A dotted line between two vehicles that will be at one point of the junction within a short time."""
    for i, j in np.argwhere(np.triu(gap < TENSE, 1)):
        ends = np.array([[box.x[-1, i], box.y[-1, i]], [box.x[-1, j], box.y[-1, j]]])
        colour = gap_colour(float(gap[i, j]))
        strong = gap[i, j] < 1.5
        ax.add_collection(
            LineCollection([ends], colors=[colour], linestyles=":", linewidths=1.8 if strong else 1.0, zorder=4)
        )
        if strong:
            label = f"{gap[i, j]:.1f} s".replace("-0.0", "0.0")
            ax.annotate(
                label,
                ends.mean(0),
                fontsize=7,
                color="white",
                ha="center",
                va="center",
                zorder=9,
                bbox={"boxstyle": "round,pad=0.2", "fc": colour, "ec": "none"},
            )


def gap_colour(gap: float) -> str:
    return TIGHT if gap < 0.5 else CLOSE if gap < 1.5 else EASY


# --- the gauges -----------------------------------------------------------------------------------


def _quiet(config: IntersectionConfig, ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=9, color=INK)
    ax.set_xlim(0, config.horizon * config.step)
    ax.tick_params(labelsize=7, length=2, colors=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(QUIET)


def draw_speeds(config: IntersectionConfig, ax: Axes, states: Traffic, time: np.ndarray) -> None:
    driving = np.asarray(states.phase) == DRIVING
    for i in range(config.num_vehicles):
        speed = np.where(driving[:, i], np.asarray(states.speed)[:, i], np.nan)
        ax.plot(time, speed, color=ROUTES[int(np.asarray(states.movement)[-1, i])], lw=1.1, alpha=0.85)
    _quiet(config, ax, "speed of each vehicle, m/s")
    ax.set_ylim(0, 1.05 * config.top_speed)


def draw_gaps(config: IntersectionConfig, ax: Axes, gap: np.ndarray, time: np.ndarray) -> None:
    """The smallest predicted gap of all pairs over time."""
    least = np.clip(gap.min((1, 2)), -1.5, 4.0)
    ax.axhspan(-1.5, 0.0, color=TIGHT, alpha=0.12, lw=0)
    ax.axhline(0.0, color=TIGHT, lw=1.2, ls="--")
    ax.plot(time, least, color=INK, lw=1.2)
    _quiet(config, ax, "smallest gap at a conflict point if nobody changed speed, s")
    ax.set_ylim(-1.5, 4.1)
    ax.set_yticks([0, 2, 4], ["0", "2", "4+"])


def draw_vehicles(config: IntersectionConfig, ax: Axes, states: Traffic, changed: np.ndarray | None) -> None:
    """Every vehicle's time on the road, with the shield's interventions and how it ended."""
    c, dt = config, config.step
    phase = np.asarray(states.phase)
    for i in range(c.num_vehicles):
        on = np.flatnonzero(phase[:, i] == DRIVING)
        if len(on):
            colour = ROUTES[int(np.asarray(states.movement)[-1, i])]
            ax.add_patch(Rectangle((on[0] * dt, i - 0.3), (on[-1] - on[0] + 1) * dt, 0.6, fc=colour, alpha=0.45, lw=0))
            end = (on[-1] + 1) * dt
            if phase[-1, i] == CRASHED:
                ax.scatter(end, i, marker="X", s=45, c=CRASH, zorder=4)
            elif phase[-1, i] == FINISHED:
                ax.scatter(end, i, marker=">", s=26, c=EASY, zorder=4)
        if changed is not None and len(changed):
            acts = np.flatnonzero(changed[:, i])
            ax.add_collection(
                LineCollection([((k * dt, i - 0.3), (k * dt, i + 0.3)) for k in acts], colors=SHIELD, linewidths=1.2)
            )
    share = "" if changed is None or not changed.any() else f"   (shield: {changed.mean():.0%} of actions)"
    _quiet(c, ax, f"each vehicle's time on the road, \u25b6 arrived{share}")
    ax.set_ylim(c.num_vehicles - 0.4, -0.6)
    named = range(c.num_vehicles if c.num_vehicles <= 8 else 0)
    ax.set_yticks(named, [agent_name(i) for i in named])
    ax.set_xlabel("time, s", fontsize=8, color=INK)
