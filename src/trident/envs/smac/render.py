"""One frame of a battle: the field with health and shield bars, shots and offsets; beside it, how the armies stand."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Polygon, Rectangle

from trident.envs.smac.actions import FIRST_TARGET
from trident.envs.smac.config import SmacConfig
from trident.envs.smac.engine import Units
from trident.physics.combat import UnitType
from trident.report.scale_bar import scale_bar

GROUND, WALL, EDGE = "#3b3a33", "#23221e", "#5b594e"
ALLY, ENEMY, INK, PAPER = "#3f9be8", "#e0483e", "#e9e6da", "#1b1b18"
HEALTH, HURT, DYING, SHIELD = "#58d05a", "#f2c744", "#ef5b3f", "#8fd3ff"
SHOTS = {"ally": "#bfe3ff", "enemy": "#ffc2a8", "heal": "#7dffb0"}
OFFSET, HIT, FALLEN, QUIET = "#ffe27a", "#fff3b0", "#8a867a", "#a8a494"
WINDOW = (12.0, 8.5)
"""Half of what is seen of an open field, grid units; more if the armies are further apart."""
RIM = 1.6
"""Grid units kept free around the living, for their bodies and bars."""
PATH = 6
"""Steps whose places make a path."""
EMBLEMS = {"marauder": "D", "medivac": "+", "zergling": "z"}
"""Letters of kinds, where it is not the first of the name."""


def draw(config: SmacConfig, where: Figure | Axes, states) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis); the earlier ones give paths and time lines.

    On a figure: the field, and the armies' strength over time. On axes: the field alone.
    """
    if isinstance(where, Axes):
        draw_field(config, where, states)
        return
    where.clear()
    where.patch.set_facecolor(PAPER)
    grid = where.add_gridspec(
        2,
        2,
        width_ratios=[2.35, 1.0],
        height_ratios=[1.0, 1.0],
        wspace=0.2,
        hspace=0.42,
        left=0.015,
        right=0.975,
        top=0.92,
        bottom=0.115,
    )
    draw_field(config, where.add_subplot(grid[:, 0]), states)
    draw_pools(config, where.add_subplot(grid[0, 1]), states)
    draw_counts(config, where.add_subplot(grid[1, 1]), states)


def at(states, t: int):
    """The state at time t of a tree of arrays with a leading time axis."""
    kind = type(states)
    parts = [at(part, t) if isinstance(part, tuple) else np.asarray(part)[t] for part in states]
    return kind(*parts)


# --- the field ------------------------------------------------------------------------------------


def draw_field(config: SmacConfig, ax: Axes, states) -> None:
    now = at(states, -1)
    units: Units = now.units
    _ground(config, ax, states)
    _paths(config, ax, states)
    _dead(ax, units)
    _shots(config, ax, now)
    _offsets(config, ax, now)
    _bodies(config, ax, units)
    _bars(config, ax, units)
    step, limit = int(now.t), config.field.limit
    title = f"{config.name.removeprefix('smac-')}   step {step}/{limit}   {0.5 * step:.1f} s"
    fighters = (units.health > 0) & (config.roster.dps > 0)
    ours, theirs = fighters[: config.roster.allies].any(), fighters[config.roster.allies :].any()
    verdict = "" if ours and theirs else ("   VICTORY" if ours else "   DEFEAT" if theirs else "   DRAW")
    colour = INK if ours and theirs else ALLY if ours else ENEMY
    ax.set_title(title + verdict, loc="left", fontsize=10, color=colour)
    keys = _keys(config)
    ax.legend(
        handles=keys,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.005),
        ncols=-(-len(keys) // 2),
        fontsize=7.5,
        frameon=False,
        labelcolor=INK,
        handlelength=1.3,
        columnspacing=1.2,
    )
    scale_bar(ax, "grid units", INK)


def _keys(config: SmacConfig) -> list[Line2D]:
    """What the field's signs mean."""
    roster = config.roster

    def line(text, colour, width):
        return Line2D([], [], color=colour, lw=width, label=text)

    def dot(text, **look):
        return Line2D([], [], ls="", label=text, **look)

    keys = [
        dot("ally", marker="o", mfc=ALLY, mec="white", ms=6),
        dot("enemy", marker="o", mfc=ENEMY, mec="white", ms=6),
        *(dot(kind, marker=f"${letter_of(kind)}$", color=INK, ms=6) for kind in sorted({k.name for k in roster.types})),
        dot("hit", marker="*", color=HIT, ms=6),
        dot("dead", marker="x", color=FALLEN, ms=5),
        line("health", HEALTH, 3),
        line("ally's shot", SHOTS["ally"], 1.5),
        line("enemy's shot", SHOTS["enemy"], 1.5),
        line("offset of an ally's move", OFFSET, 1.8),
        line(f"walked in {PATH - 1} steps", QUIET, 1.6),
    ]
    if roster.shield.any():
        keys.append(line("shield", SHIELD, 3))
    if roster.heals.any():
        keys.append(line("healing", SHOTS["heal"], 2))
    return keys


def letter_of(kind: str) -> str:
    return EMBLEMS.get(kind, kind[0].upper())


def camera(config: SmacConfig, states) -> tuple[float, float, float, float]:
    """A window of constant shape around the living, averaged over the last steps so that it glides; the whole arena if
    it has walls."""
    west, south, east, north = config.field.arena
    low, high = np.array([west, south]) - 0.5, np.array([east, north]) + 0.5
    if config.field.walls:
        return *low, *high
    place = np.stack([np.asarray(states.units.x), np.asarray(states.units.y)], -1)[-8:]
    alive = (np.asarray(states.units.health)[-8:] > 0)[..., None]
    alive |= ~alive.any(1, keepdims=True)  # nobody left: where they fell
    least = np.maximum(np.where(alive, place, np.inf).min(1) - RIM, low)
    most = np.minimum(np.where(alive, place, -np.inf).max(1) + RIM, high)
    middle = 0.5 * (least + most).mean(0)
    half = np.minimum(WINDOW, 0.5 * (high - low))
    need = np.maximum(middle - least[-1], most[-1] - middle)
    half = half * max(1.0, float((need / half).max()))
    middle = np.where(2.0 * half < high - low, np.clip(middle, low + half, high - half), 0.5 * (low + high))
    return *(middle - half), *(middle + half)


def _ground(config: SmacConfig, ax: Axes, states) -> None:
    west, south, east, north = config.field.arena
    left, bottom, right, top = camera(config, states)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", xticks=[], yticks=[], facecolor=WALL)
    ax.add_patch(Rectangle((west, south), east - west, north - south, fc=GROUND, ec=EDGE, lw=1.2, zorder=0))
    for x, y, to_x, to_y in config.field.walls:
        corner = (east if to_x > 0 else west, north if to_y > 0 else south)
        width, height = corner[0] - x, corner[1] - y
        ax.add_patch(Rectangle((x, y), width, height, fc=WALL, ec=EDGE, lw=1.2, zorder=0.5))
    if config.field.diagonal is not None:
        low, high = config.field.diagonal
        for corners in (
            [(west, west - low), (north + low, north), (west, north)],
            [(high + south, south), (east, east - high), (east, south)],
        ):
            ax.add_patch(Polygon(corners, closed=True, fc=WALL, ec=EDGE, lw=1.2, zorder=0.5))
    for x in np.arange(west + 1.0, east):
        ax.axvline(x, color="white", alpha=0.035, lw=0.6, zorder=0.2)
    for y in np.arange(south + 1.0, north):
        ax.axhline(y, color="white", alpha=0.035, lw=0.6, zorder=0.2)
    for spine in ax.spines.values():
        spine.set_color(EDGE)


def _paths(config: SmacConfig, ax: Axes, states) -> None:
    """Where the living have walked in the last steps."""
    x, y = (np.asarray(v)[-PATH:] for v in (states.units.x, states.units.y))
    alive = np.asarray(states.units.health)[-1] > 0
    if len(x) < 2:
        return
    for i in np.flatnonzero(alive):
        colour = ALLY if i < config.roster.allies else ENEMY
        parts = np.stack([np.stack([x[:-1, i], y[:-1, i]], -1), np.stack([x[1:, i], y[1:, i]], -1)], 1)
        fade = np.linspace(0.05, 0.5, len(parts))
        ax.add_collection(LineCollection(list(parts), colors=colour, linewidths=1.6, alpha=fade, zorder=1.5))


def _dead(ax: Axes, units: Units) -> None:
    dead = units.health <= 0
    ax.scatter(units.x[dead], units.y[dead], marker="x", s=26, c=FALLEN, linewidths=1.3, alpha=0.7, zorder=1)


def _shots(config: SmacConfig, ax: Axes, now) -> None:
    """Lines from who shot to whom; a healing beam is broad and green."""
    units, roster = now.units, config.roster
    for i in np.flatnonzero((now.fire.shots > 0) & (now.fire.aim >= 0)):
        j = int(now.fire.aim[i])
        kind = "heal" if roster.heals[i] else "ally" if i < roster.allies else "enemy"
        line = [units.x[i], units.x[j]], [units.y[i], units.y[j]]
        near = np.hypot(units.x[j] - units.x[i], units.y[j] - units.y[i]) < roster.touch[i, j] + 1.0
        width = 3.0 if kind == "heal" else 2.2 if near else 1.2
        ax.plot(*line, color=SHOTS[kind], lw=width, alpha=0.85, zorder=4, solid_capstyle="round")
        if kind != "heal":
            ax.scatter([units.x[j]], [units.y[j]], marker="*", s=34, c=HIT, edgecolors="none", zorder=6.5)


def _offsets(config: SmacConfig, ax: Axes, now) -> None:
    """Arrows of the allies' last offsets, in true length."""
    units, a = now.units, config.roster.allies
    size = np.hypot(*now.offset.T)
    shown = (size > 0.05) & (units.health[:a] > 0) & (now.mode >= 2)
    if not shown.any():
        return
    ax.quiver(
        units.x[:a][shown],
        units.y[:a][shown],
        now.offset[shown, 0],
        now.offset[shown, 1],
        angles="xy",
        scale_units="xy",
        scale=1.0,
        color=OFFSET,
        width=0.0032,
        headwidth=4.5,
        headlength=5,
        zorder=5.5,
    )


def _bodies(config: SmacConfig, ax: Axes, units: Units) -> None:
    roster = config.roster
    for i in np.flatnonzero(units.health > 0):
        kind: UnitType = roster.types[i]
        place, colour = (float(units.x[i]), float(units.y[i])), ALLY if i < roster.allies else ENEMY
        if kind.flying:
            ax.add_patch(Circle((place[0] + 0.18, place[1] - 0.28), kind.radius, fc="black", alpha=0.3, zorder=2.5))
        ready = units.cooldown[i] <= 0.5
        rim = "white" if ready and kind.damage else "#d7d2c2"
        ax.add_patch(Circle(place, kind.radius, fc=colour, ec=rim, lw=1.1, zorder=7 if kind.flying else 5))
        if len(roster.types) <= 40:
            style = {"ha": "center", "va": "center", "fontsize": 6.5, "color": "white", "weight": "bold"}
            ax.text(*place, letter_of(kind.name), clip_on=True, zorder=8, **style)


def _bars(config: SmacConfig, ax: Axes, units: Units) -> None:
    """Health below, shield above it, over every living unit: as the game shows them."""
    roster = config.roster
    backs, fronts, colours = [], [], []
    thick = 0.17
    for i in np.flatnonzero(units.health > 0):
        width = max(2.0 * roster.radius[i], 0.8)
        left, low = units.x[i] - 0.5 * width, units.y[i] + roster.radius[i] + 0.12
        share = units.health[i] / roster.health[i]
        rows = [(share, HEALTH if share > 0.66 else HURT if share > 0.33 else DYING)]
        if roster.shield[i] > 0:
            rows.append((units.shield[i] / roster.shield[i], SHIELD))
        for level, (part, colour) in enumerate(rows):
            bottom = low + 1.15 * thick * level
            backs.append(Rectangle((left, bottom), width, thick))
            fronts.append(Rectangle((left, bottom), width * float(part), thick))
            colours.append(colour)
    ax.add_collection(PatchCollection(backs, facecolors="#101010", edgecolors="black", linewidths=0.4, zorder=9))
    ax.add_collection(PatchCollection(fronts, facecolors=colours, edgecolors="none", zorder=9.5))


# --- the gauges -----------------------------------------------------------------------------------


def _quiet(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=9, color=INK)
    ax.set_facecolor("#26251f")
    ax.tick_params(labelsize=7, length=2, colors=INK)
    for name, spine in ax.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(EDGE)


def draw_pools(config: SmacConfig, ax: Axes, states) -> None:
    """Health and shields of both armies over time, as shares of what they started with."""
    a, pool = config.roster.allies, np.asarray(states.units.health) + np.asarray(states.units.shield)
    time = 0.5 * np.asarray(states.t)
    for side, colour, name in ((slice(0, a), ALLY, "allies"), (slice(a, None), ENEMY, "enemies")):
        share = pool[:, side].sum(1) / config.roster.pool[side].sum()
        ax.fill_between(time, share, color=colour, alpha=0.15, lw=0)
        ax.plot(time, share, color=colour, lw=1.8, label=f"{name} {share[-1]:.0%}")
    _quiet(ax, "share of health and shields left")
    ax.set_xlabel("time, s", fontsize=8, color=INK)
    ax.set(xlim=(0, max(time[-1], 10.0)), ylim=(0, 1.03))
    ax.legend(loc="lower left", fontsize=7.5, frameon=False, labelcolor=INK)


def draw_counts(config: SmacConfig, ax: Axes, states) -> None:
    """Units alive, and what the allies are doing."""
    roster, now = config.roster, at(states, -1)
    alive = now.units.health > 0
    living, a = alive[: roster.allies], roster.allies
    doing = {
        "attack or heal": (now.mode >= FIRST_TARGET) & living,
        "move": (now.mode >= 2) & (now.mode < FIRST_TARGET) & living,
        "stop": (now.mode == 1) & living,
        "dead": ~living,
    }
    counts, colours = [int(v.sum()) for v in doing.values()], (SHOTS["ally"], OFFSET, QUIET, EDGE)
    rows = np.arange(len(doing))
    ax.barh(rows, counts, color=colours, height=0.62)
    for row, count in zip(rows, counts, strict=True):
        ax.annotate(
            str(count), (count, row), xytext=(4, 0), textcoords="offset points", va="center", color=INK, fontsize=8
        )
    _quiet(ax, f"allies {living.sum()} of {a}, enemies {alive[a:].sum()} of {roster.enemies}")
    ax.set(xlim=(0, 1.15 * a), ylim=(len(rows) - 0.4, -0.6))
    ax.set_yticks(rows, list(doing))
    ax.set_xlabel("allies", fontsize=8, color=INK)
