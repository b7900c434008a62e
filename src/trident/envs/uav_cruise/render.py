"""One frame of heterogeneous cruise: the map, and batteries, freshness and roles beside it; and the figure."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from trident.envs.uav_cruise.config import KINDS, CruiseConfig
from trident.envs.uav_cruise.dynamics import ROLES, CruiseState, link_room
from trident.report.palette import INK, LIMIT, QUIET, SAFE, agent_colour, agent_name, mode_colour
from trident.report.panels import gauge, map_axes, mode_strip, sign, trail

MARKERS = {"relay": "^", "scout": "o", "carrier": "s"}
SHIELD = "#C026D3"
TRAIL = 45
"""Slots."""


def draw(config: CruiseConfig, where: Figure | Axes, states: CruiseState, changed: Any) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis). On a figure with gauges, on axes the map."""
    if isinstance(where, Axes):
        draw_map(config, where, states, changed)
        return
    where.clear()
    where.patch.set_facecolor("white")
    grid = where.add_gridspec(
        3, 2, width_ratios=[1.12, 1.0], height_ratios=[1.0, 0.8, 1.0], wspace=0.2, hspace=0.62,
        left=0.015, right=0.975, top=0.93, bottom=0.15,
    )  # fmt: skip
    ax = where.add_subplot(grid[:, 0])
    draw_map(config, ax, states, changed)
    ax.legend(
        handles=keys(), loc="upper center", bbox_to_anchor=(0.5, -0.005), ncols=4, fontsize=7.5, frameon=False,
        handlelength=1.3, columnspacing=1.1, handletextpad=0.6,
    )  # fmt: skip
    draw_batteries(config, where.add_subplot(grid[0, 1]), states)
    draw_freshness(config, where.add_subplot(grid[1, 1]), states)
    strip = where.add_subplot(grid[2, 1])
    names = [f"{name} {agent_name(i)}" for i, name in enumerate(config.fleet)]
    draw_roles(config, strip, states, names)
    strip.set_xlim(0.0, config.horizon * config.slot)
    strip.set_xlabel("time, s", fontsize=8, color=INK)


def figure(config: CruiseConfig, where: Figure, states: CruiseState, changed: Any) -> None:
    """The whole ways in the colours of the roles, beside every UAV's roles over time."""
    c = config
    where.set_size_inches(10.5, 5.2)
    left, right = where.subplots(1, 2, width_ratios=[1.0, 0.95])
    draw_map(c, left, states, None, whole=True)
    left.set_title("(a)  trajectories in the colours of the roles", loc="left", fontsize=10, color=INK)
    draw_roles(c, right, states, [f"{name} {agent_name(i)}" for i, name in enumerate(c.fleet)])
    right.set_title("(b)  roles over time", loc="left", fontsize=10, color=INK)
    right.set_xlabel("time, s", fontsize=9, color=INK)
    where.legend(handles=keys(), loc="lower center", ncols=6, fontsize=8.5, frameon=False)
    where.subplots_adjust(left=0.01, right=0.985, top=0.94, bottom=0.17, wspace=0.2)


def keys() -> list[Line2D]:
    """What the map's signs mean."""
    roles = [Line2D([], [], color=mode_colour(m), lw=3, label=name) for m, name in enumerate(ROLES)]
    kinds = [sign(f"a {name}", marker=MARKERS[name], mfc=QUIET, mec=INK, ms=8) for name in KINDS]
    points = [
        sign("fresh point", marker="o", mfc=SAFE, mec=SAFE, ms=5),
        sign("stale point", marker="o", mfc="white", mec=SAFE, ms=5),
        sign("needs a delivery", marker="o", mfc="none", mec=LIMIT, mew=1.6, ms=9),
        Line2D([], [], color=QUIET, lw=1.0, label="link to the base"),
        sign("base", marker="P", mfc=INK, mec="white", ms=10),
    ]
    return [*roles, *kinds, *points]


def draw_map(config: CruiseConfig, ax: Axes, states: CruiseState, changed: Any, whole: bool = False) -> None:
    c = config
    now = jax.tree.map(lambda x: np.asarray(x)[-1], states)
    map_axes(ax, 0.0, c.area, f"t = {int(now.clock) * c.slot:.0f} s    {now.linked.mean():.0%} connected")
    draw_links(c, ax, now)
    ax.scatter(*c.base_place, marker="P", s=150, c=INK, edgecolors="white", zorder=4)
    fresh = np.exp(-now.age / c.fresh_time)
    ax.scatter(*now.point.T, s=46, facecolors="white", edgecolors=SAFE, linewidths=1.2, zorder=3)
    ax.scatter(*now.point.T, s=46, c=SAFE, alpha=fresh, linewidths=0, zorder=3)
    ax.scatter(*now.point[now.need > 0.5].T, s=150, facecolors="none", edgecolors=LIMIT, linewidths=1.5, zorder=3)
    draw_ways(c, ax, states, len(states.clock) if whole else TRAIL)
    for i, place in enumerate(now.uav):
        colour = mode_colour(int(now.role[i]))
        ax.add_patch(Circle(tuple(place), float(c.of_kind("sensor")[i]), fc=colour, ec="none", alpha=0.08, zorder=1))
        acted = changed is not None and len(changed) and bool(np.asarray(changed)[-1, i])
        ax.scatter(
            *place, marker=MARKERS[c.fleet[i]], s=150, c=colour, edgecolors=SHIELD if acted else "white",
            linewidths=1.6, zorder=7,
        )  # fmt: skip
        ax.annotate(agent_name(i), place, ha="center", va="center", fontsize=7, color="white", weight="bold", zorder=8)


def draw_ways(config: CruiseConfig, ax: Axes, states: CruiseState, last: int) -> None:
    """Ways in the colours of the roles that they were flown in."""
    way, role = np.asarray(states.uav)[-last - 1 :], np.asarray(states.role)[-last - 1 :]
    for i in range(config.num_uavs):
        if last < len(states.clock):
            trail(ax, way[:, i], mode_colour(int(role[-1, i])), width=1.8)
            continue
        parts = np.stack([way[:-1, i], way[1:, i]], 1)
        colours = [mode_colour(int(m)) for m in role[1:, i]]
        ax.add_collection(LineCollection(list(parts), colors=colours, linewidths=1.5, alpha=0.8, zorder=4))


def draw_links(config: CruiseConfig, ax: Axes, now: CruiseState) -> None:
    """Links between connected UAVs, and to the base."""
    room = np.asarray(link_room(config, jnp.asarray(now.uav), jnp.asarray(now.role)))
    places = np.concatenate([now.uav, config.base_place[None]])
    on = np.append(now.linked, True)
    pairs = [(i, j) for i, j in np.argwhere(room >= 0.0) if i < j and on[i] and on[j]]
    ax.add_collection(LineCollection([places[list(p)] for p in pairs], colors=QUIET, linewidths=0.9, zorder=2))


# --- the gauges -----------------------------------------------------------------------------------


def draw_batteries(config: CruiseConfig, ax: Axes, states: CruiseState) -> None:
    time = np.asarray(states.clock) * config.slot
    share = np.asarray(states.battery) / config.of_kind("battery")
    for i in range(config.num_uavs):
        ax.plot(time, share[:, i], color=agent_colour(i), lw=1.3, label=agent_name(i))
    ax.axhline(config.reserve, color=LIMIT, lw=1.3, ls="--")
    gauge(ax, f"battery of each UAV   (reserve {config.reserve:.0%})", config.horizon * config.slot)
    ax.legend(fontsize=6.5, ncols=config.num_uavs, loc="upper right", frameon=False, handlelength=1.0)
    ax.set_ylim(0.0, 1.25)


def draw_freshness(config: CruiseConfig, ax: Axes, states: CruiseState) -> None:
    time = np.asarray(states.clock) * config.slot
    ax.plot(time, np.exp(-np.asarray(states.age) / config.fresh_time).mean(1), color=SAFE, lw=1.6, label="fresh")
    ax.plot(time, np.asarray(states.linked).mean(1), color=INK, lw=1.2, label="connected")
    ax.plot(time, np.asarray(states.need).mean(1), color=LIMIT, lw=1.2, label="in need")
    gauge(ax, "points fresh and in need, UAVs connected (shares)", config.horizon * config.slot)
    ax.legend(fontsize=6.5, ncols=3, loc="lower right", frameon=False, handlelength=1.0)
    ax.set_ylim(0.0, 1.05)


def draw_roles(config: CruiseConfig, ax: Axes, states: CruiseState, names: list[str]) -> None:
    colours = [mode_colour(m) for m in range(len(ROLES))]
    mode_strip(ax, np.asarray(states.role)[1:], colours, config.slot, "role of each UAV", names)
