"""One frame of a UAV-MEC episode: the map on the left, gauges of both limits on the right."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import MecState
from trident.report.palette import FILL, FRAME, INK, LIMIT, PAPER, QUIET, SAFE, agent_name, mode_colour
from trident.report.scale_bar import scale_bar

HOTSPOT = {"fc": "#F4D35E", "ec": "none", "alpha": 0.22}
TRAIL = 40
"""Slots."""


def draw(config: UavMecConfig, where: Figure | Axes, states: MecState) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis); the earlier ones give trails and time lines.

    On a figure: the map and three gauges. On axes: the map, with the gauges as a line of text.
    """
    if isinstance(where, Axes):
        draw_map(config, where, states, gauges=True)
        return
    where.clear()
    where.patch.set_facecolor("white")
    grid = where.add_gridspec(
        3,
        2,
        width_ratios=[2.05, 1.0],
        height_ratios=[1.15, 1.0, 0.8],
        wspace=0.12,
        hspace=0.55,
        left=0.03,
        right=0.975,
        top=0.93,
        bottom=0.15,
    )
    draw_map(config, where.add_subplot(grid[:, 0]), states)
    draw_energy(config, where.add_subplot(grid[0, 1]), states)
    draw_coverage(config, where.add_subplot(grid[1, 1]), states)
    draw_modes(config, where.add_subplot(grid[2, 1]), states)


def last(states: MecState) -> MecState:
    return MecState(*(np.asarray(x)[-1] for x in states))


# --- the map --------------------------------------------------------------------------------------


def draw_map(config: UavMecConfig, ax: Axes, states: MecState, gauges: bool = False) -> None:
    """UAVs with their trails and coverage discs, users, service links by mode, fogs and hotspots."""
    c, state = config, last(states)
    ax.set(xlim=(-0.02 * c.area, 1.02 * c.area), ylim=(-0.02 * c.area, 1.02 * c.area), aspect="equal")
    ax.set(xticks=[], yticks=[], facecolor=PAPER)
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_color(FRAME)
    for centre in state.hot:
        ax.add_patch(Circle(tuple(centre), 1.5 * c.hotspot_spread, zorder=0, **HOTSPOT))
    _draw_service(c, ax, state)
    _draw_fleet(c, ax, states)
    _draw_fogs(c, ax, state)
    scale_bar(ax, "m", INK)
    title = f"slot {int(state.slot)}/{c.horizon}"
    if int(state.slot) <= c.grace:
        title += "   deployment: coverage is not charged"
    if gauges:
        most, share = float(state.energy.max()), float((state.reach <= c.coverage_radius).mean())
        title += (
            f"\nmost energy {most:.0f} of {c.energy_max:g} J    covered {share:.0%} of at least {c.coverage_min:.0%}"
        )
    ax.set_title(title, loc="left", fontsize=10, color=INK)
    keys = _keys(c)
    ax.legend(
        handles=keys,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.005),
        ncols=-(-len(keys) // 3),
        fontsize=7.5,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.1,
        handletextpad=0.5,
    )


def _keys(config: UavMecConfig) -> list[Line2D | Patch]:
    """What the map's signs mean: links by mode, users, UAVs."""
    names = ["computes on board", *(f"sends to fog {f + 1}" for f in range(config.num_fogs))]
    keys: list[Line2D | Patch] = [
        Line2D([], [], color=mode_colour(m), lw=2.5, label=name) for m, name in enumerate(names[:6])
    ]

    def dot(text, **look):
        return Line2D([], [], ls="", label=text, **look)

    return [
        *keys,
        Patch(label="hotspot of users", **HOTSPOT),
        dot("UAV", marker="h", mfc=QUIET, mec="white", ms=9),
        dot("UAV over its energy limit", marker="h", mfc=QUIET, mec=LIMIT, mew=1.8, ms=8),
        dot(f"coverage, {config.coverage_radius:g} m", marker="o", mfc=FILL, mec=QUIET, ms=9),
        Line2D([], [], color=INK, lw=1.6, alpha=0.6, label=f"flown in {TRAIL} slots"),
        dot("user, covered", marker="o", mfc=INK, mec=INK, ms=4),
        dot("served from afar", marker="o", mfc="white", mec=INK, ms=4),
        dot("not served", marker="x", color=LIMIT, ms=5),
    ]


def _draw_service(config: UavMecConfig, ax: Axes, state: MecState) -> None:
    """Users by how they are served, and the links that serve them."""
    served = state.link.any(0)
    covered = served & (state.reach <= config.coverage_radius)
    pairs = np.argwhere(state.link)
    lines = [(state.uav[i], state.user[u]) for i, u in pairs]
    colours = [mode_colour(int(state.mode[i])) for i, _ in pairs]
    ax.add_collection(LineCollection(lines, colors=colours, linewidths=1.1, alpha=0.65, zorder=2))
    groups = [(covered, {"c": INK, "s": 17}), (served & ~covered, {"facecolors": "white", "edgecolors": INK, "s": 17})]
    for mask, look in groups:
        ax.scatter(*state.user[mask].T, zorder=3, **look)
    ax.scatter(*state.user[~served].T, marker="x", c=LIMIT, s=24, zorder=3)


def _draw_fleet(config: UavMecConfig, ax: Axes, states: MecState) -> None:
    """Fading trails, coverage discs and the UAVs; a red ring marks one above its energy limit."""
    state = last(states)
    trail = np.asarray(states.uav)[-TRAIL:]  # [T, N, 2]
    for i, place in enumerate(state.uav):
        colour = mode_colour(int(state.mode[i]))
        ax.add_patch(Circle(tuple(place), config.coverage_radius, fc=colour, ec=colour, alpha=0.07, zorder=1))
        ax.add_patch(Circle(tuple(place), config.coverage_radius, fc="none", ec=colour, alpha=0.45, lw=0.9, zorder=1))
        if len(trail) > 1:
            parts = np.stack([trail[:-1, i], trail[1:, i]], 1)
            fade = np.linspace(0.03, 0.8, len(parts))
            ax.add_collection(LineCollection(list(parts), colors=INK, linewidths=1.6, alpha=fade, zorder=4))
        over = state.energy[i] > config.energy_max
        ax.scatter(
            *place,
            marker="h",
            s=150,
            c=colour,
            edgecolors=LIMIT if over else "white",
            linewidths=2.2 if over else 1.2,
            zorder=6,
        )
        ax.annotate(agent_name(i), place, ha="center", va="center", fontsize=7, color="white", weight="bold", zorder=7)


def _draw_fogs(config: UavMecConfig, ax: Axes, state: MecState) -> None:
    for f, place in enumerate(config.fogs):
        colour = mode_colour(f + 1)
        busy = bool((state.mode == f + 1).any())
        ax.scatter(*place, marker="s", s=130, c=colour if busy else "white", edgecolors=colour, linewidths=2, zorder=5)
        if config.num_fogs <= 4:
            ax.annotate(
                f"fog {f + 1}",
                place,
                xytext=(0, -14),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                color=colour,
                weight="bold",
                zorder=7,
            )


# --- the gauges -----------------------------------------------------------------------------------


def _quiet(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=9, color=INK)
    ax.tick_params(labelsize=7, length=2, colors=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(QUIET)


def draw_energy(config: UavMecConfig, ax: Axes, states: MecState) -> None:
    """Energy of each UAV in this slot against E_max."""
    c, state = config, last(states)
    rows = np.arange(c.num_uavs)
    top = 1.45 * c.energy_max
    ax.barh(rows, np.full(c.num_uavs, top), color=FILL, height=0.62)
    over = state.energy > c.energy_max
    colours = [LIMIT if o else mode_colour(int(m)) for o, m in zip(over, state.mode, strict=True)]
    ax.barh(rows, np.minimum(state.energy, top), color=colours, height=0.62)
    ax.axvline(c.energy_max, color=LIMIT, lw=1.4, ls="--")
    flown = np.asarray(states.energy)[np.asarray(states.slot) > 0]
    share = (flown > c.energy_max).mean() if len(flown) else 0.0
    _quiet(ax, f"energy per slot, limit {c.energy_max:g} J   ({100 * share:.1f} % over)")
    ax.set(xlim=(0, top), ylim=(c.num_uavs - 0.4, -0.6))
    named = range(c.num_uavs if c.num_uavs <= 8 else 0)
    ax.set_yticks(named, [f"UAV {agent_name(i)}" for i in named])


def draw_coverage(config: UavMecConfig, ax: Axes, states: MecState) -> None:
    """Share of covered users over time; red where it was charged for being too low."""
    c, time = config, np.asarray(states.slot)
    share = (np.asarray(states.reach) <= c.coverage_radius).mean(1)
    low = (share < c.coverage_min - 1e-6) & (time > c.grace)
    charged = max((time > c.grace).sum(), 1)
    ax.axvspan(0, c.grace, color=FILL, lw=0)
    ax.plot(time, share, color=SAFE, lw=1.5)
    ax.fill_between(time, share, c.coverage_min, where=low.tolist(), color=LIMIT, alpha=0.6, step="mid")
    ax.axhline(c.coverage_min, color=LIMIT, lw=1.4, ls="--")
    _quiet(ax, f"share of users covered, limit {c.coverage_min:g}   ({100 * low.sum() / charged:.1f} % below)")
    ax.set(xlim=(0, c.horizon), ylim=(0, 1.02))
    ax.text(0.5 * c.grace, 0.02, "not charged", rotation=90, ha="center", va="bottom", fontsize=6, color=INK)


def draw_modes(config: UavMecConfig, ax: Axes, states: MecState) -> None:
    """Mode of every UAV over time."""
    c = config
    chosen = np.asarray(states.mode)[np.asarray(states.slot) > 0]
    if len(chosen):
        palette = ListedColormap([mode_colour(m) for m in range(c.num_fogs + 1)])
        box = (0, len(chosen), c.num_uavs - 0.5, -0.5)
        ax.imshow(
            chosen.T, aspect="auto", interpolation="nearest", extent=box, cmap=palette, vmin=-0.5, vmax=c.num_fogs + 0.5
        )
    _quiet(ax, "mode of each UAV, in the colours of the map")
    ax.set(xlim=(0, c.horizon), ylim=(c.num_uavs - 0.5, -0.5))
    named = range(c.num_uavs if c.num_uavs <= 8 else 0)
    ax.set_yticks(named, [agent_name(i) for i in named])
    ax.set_xlabel("slot", fontsize=8, color=INK)
