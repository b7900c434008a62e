"""The drawing of a battle: the field with health and shield bars, shots and offsets; beside it, how armies stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from trident.envs.smac.actions import FIRST_TARGET
from trident.envs.smac.config import SmacConfig
from trident.envs.smac.engine import Units
from trident.physics.combat import UnitType
from trident.report.scene import Area, Arrow, Disc, Dot, Key, Label, Line, Mark, Plane, Scene, rectangle

GROUND, WALL, EDGE, GRID = "#3b3a33", "#23221e", "#5b594e", "#FFFFFF"
ALLY, ENEMY, INK, PAPER = "#3f9be8", "#e0483e", "#e9e6da", "#1b1b18"
HEALTH, HURT, DYING, SHIELD, BACK = "#58d05a", "#f2c744", "#ef5b3f", "#8fd3ff", "#101010"
SHOTS = {"ally": "#bfe3ff", "enemy": "#ffc2a8", "heal": "#7dffb0"}
OFFSET, HIT, FALLEN, QUIET = "#ffe27a", "#fff3b0", "#8a867a", "#a8a494"
PANEL = "#26251f"
WINDOW = (12.0, 8.5)
"""Half of what is seen of an open field, grid units; more if the armies are further apart."""
RIM = 1.6
"""Grid units kept free around the living, for their bodies and bars."""
PATH = 6
"""Steps whose places make a path."""
EMBLEMS = {"marauder": "D", "medivac": "+", "zergling": "z"}
"""Letters of kinds, where it is not the first of the name."""


def scene(config: SmacConfig, states: Any) -> Scene:
    """Of an episode's states (NumPy arrays with a leading time axis)."""
    states = jax.tree.map(np.asarray, states)
    count = len(states.t)
    views = [camera(config, jax.tree.map(lambda x, t=t: x[: t + 1], states)) for t in range(count)]
    field = Plane(
        frames=[list(_field_marks(config, states, t)) for t in range(count)],
        view=views,
        backdrop=list(_ground(config)),
        title=[_title(config, _at(states, t)) for t in range(count)],
        paper=WALL,
        unit="grid units",
    )
    a = config.roster.allies
    x, y, alive = states.units.x[:, :a], states.units.y[:, :a], states.units.health[:, :a] > 0
    agents = [
        [(u, v) if living else None for u, v, living in zip(*row, strict=True)]
        for row in zip(x.tolist(), y.tolist(), alive, strict=True)
    ]
    keys = _keys(config)
    return Scene(
        field, (_pools(config, states), _counts(config, states)), keys, agents, INK, PAPER, EDGE, EDGE,
        widths=(2.35, 1.0), heights=(1.0, 1.0), key_columns=-(-len(keys) // 2),
    )  # fmt: skip


def _at(tree: Any, t: int) -> Any:
    return jax.tree.map(lambda x: x[t], tree)


def _title(config: SmacConfig, now: Any) -> str:
    step, limit = int(now.t), config.field.limit
    fighters = (now.units.health > 0) & (config.roster.dps > 0)
    ours, theirs = fighters[: config.roster.allies].any(), fighters[config.roster.allies :].any()
    verdict = "" if ours and theirs else ("   VICTORY" if ours else "   DEFEAT" if theirs else "   DRAW")
    return f"{config.name.removeprefix('smac-')}   step {step}/{limit}   {0.5 * step:.1f} s{verdict}"


def _keys(config: SmacConfig) -> list[Key]:
    """What the field's signs mean."""
    roster = config.roster
    dot = lambda colour: Dot((0, 0), colour, "o", 6.0, edge="#FFFFFF")  # noqa: E731
    keys = [
        Key("ally", dot(ALLY)),
        Key("enemy", dot(ENEMY)),
        *(Key(kind, Label((0, 0), letter_of(kind), INK)) for kind in sorted({k.name for k in roster.types})),
        Key("hit", Dot((0, 0), HIT, "*", 6.0, edge=HIT)),
        Key("dead", Dot((0, 0), FALLEN, "x", 5.0)),
        Key("health", Line([], HEALTH, 3.0)),
        Key("ally's shot", Line([], SHOTS["ally"], 1.5)),
        Key("enemy's shot", Line([], SHOTS["enemy"], 1.5)),
        Key("offset of an ally's move", Line([], OFFSET, 1.8)),
        Key(f"walked in {PATH - 1} steps", Line([], QUIET, 1.6)),
    ]
    keys += [Key("shield", Line([], SHIELD, 3.0))] if roster.shield.any() else []
    return keys + ([Key("healing", Line([], SHOTS["heal"], 2.0))] if roster.heals.any() else [])


def letter_of(kind: str) -> str:
    return EMBLEMS.get(kind, kind[0].upper())


# --- the field ------------------------------------------------------------------------------------


def _field_marks(config: SmacConfig, states: Any, t: int) -> Iterator[Mark]:
    now = _at(states, t)
    units: Units = now.units
    yield from _paths(config, states, t)
    for i in np.flatnonzero(units.health <= 0):
        yield Dot((units.x[i], units.y[i]), FALLEN, "x", 5.1, width=1.3, alpha=0.7)
    yield from _shots(config, now)
    yield from _bodies(config, units)
    yield from _offsets(config, now)
    yield from _hits(config, now)
    yield from _bars(config, units)


def camera(config: SmacConfig, states: Any) -> tuple[float, float, float, float]:
    """A window of constant shape around the living, averaged over the last steps so that it glides; the whole arena if
    it has walls."""
    west, south, east, north = config.field.arena
    low, high = np.array([west, south]) - 0.5, np.array([east, north]) + 0.5
    if config.field.walls:
        return (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
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
    (left, bottom), (right, top) = (middle - half).tolist(), (middle + half).tolist()
    return left, bottom, right, top


def _ground(config: SmacConfig) -> Iterator[Mark]:
    west, south, east, north = config.field.arena
    yield rectangle(west, south, east, north, GROUND, edge=EDGE)
    for x, y, to_x, to_y in config.field.walls:
        far_x, far_y = (east if to_x > 0 else west), (north if to_y > 0 else south)
        yield rectangle(x, y, far_x, far_y, WALL, edge=EDGE)
    if config.field.diagonal is not None:
        low, high = config.field.diagonal
        for corners in (
            [(west, west - low), (north + low, north), (west, north)],
            [(high + south, south), (east, east - high), (east, south)],
        ):
            yield Area(corners, WALL, EDGE, 1.2)
    for x in np.arange(west + 1.0, east):
        yield Line([(x, south), (x, north)], GRID, 0.6, alpha=0.035)
    for y in np.arange(south + 1.0, north):
        yield Line([(west, y), (east, y)], GRID, 0.6, alpha=0.035)


def _paths(config: SmacConfig, states: Any, t: int) -> Iterator[Mark]:
    """Where the living have walked in the last steps."""
    x, y = (v[max(t + 1 - PATH, 0) : t + 1] for v in (states.units.x, states.units.y))
    if len(x) < 2:
        return
    for i in np.flatnonzero(states.units.health[t] > 0):
        colour = ALLY if i < config.roster.allies else ENEMY
        yield Line(np.stack([x[:, i], y[:, i]], -1), colour, 1.6, alpha=0.5, fade=True)


def _shooting(config: SmacConfig, now: Any) -> Iterator[tuple[int, int, str]]:
    roster = config.roster
    for i in np.flatnonzero((now.fire.shots > 0) & (now.fire.aim >= 0)):
        yield int(i), int(now.fire.aim[i]), "heal" if roster.heals[i] else "ally" if i < roster.allies else "enemy"


def _shots(config: SmacConfig, now: Any) -> Iterator[Mark]:
    """Lines from who shot to whom; a healing beam is broad and green."""
    units = now.units
    for i, j, kind in _shooting(config, now):
        near = np.hypot(units.x[j] - units.x[i], units.y[j] - units.y[i]) < config.roster.touch[i, j] + 1.0
        width = 3.0 if kind == "heal" else 2.2 if near else 1.2
        yield Line([(units.x[i], units.y[i]), (units.x[j], units.y[j])], SHOTS[kind], width, alpha=0.85)


def _hits(config: SmacConfig, now: Any) -> Iterator[Mark]:
    for _, j, kind in _shooting(config, now):
        if kind != "heal":
            yield Dot((now.units.x[j], now.units.y[j]), HIT, "*", 5.8)


def _offsets(config: SmacConfig, now: Any) -> Iterator[Mark]:
    """Arrows of the allies' last offsets, in true length."""
    units, a = now.units, config.roster.allies
    size = np.hypot(*now.offset.T)
    for i in np.flatnonzero((size > 0.05) & (units.health[:a] > 0) & (now.mode >= 2)):
        yield Arrow((units.x[i], units.y[i]), now.offset[i], OFFSET, 1.8)


def _bodies(config: SmacConfig, units: Units) -> Iterator[Mark]:
    roster = config.roster
    living = np.flatnonzero(units.health > 0)
    for i in sorted(living, key=lambda i: roster.types[i].flying):
        kind: UnitType = roster.types[i]
        x, y, colour = float(units.x[i]), float(units.y[i]), ALLY if i < roster.allies else ENEMY
        if kind.flying:
            yield Disc((x + 0.18, y - 0.28), kind.radius, fill="#000000", alpha=0.3)
        ready = units.cooldown[i] <= 0.5
        yield Disc((x, y), kind.radius, colour, "#FFFFFF" if ready and kind.damage else "#d7d2c2", 1.1)
        if len(roster.types) <= 40:
            yield Label((x, y), letter_of(kind.name), "#FFFFFF", 6.5, bold=True)


def _bars(config: SmacConfig, units: Units) -> Iterator[Mark]:
    """Health below, shield above it, over every living unit: as the game shows them."""
    roster, thick = config.roster, 0.17
    for i in np.flatnonzero(units.health > 0):
        width = max(2.0 * float(roster.radius[i]), 0.8)
        left, low = float(units.x[i]) - 0.5 * width, float(units.y[i] + roster.radius[i]) + 0.12
        share = float(units.health[i] / roster.health[i])
        rows = [(share, HEALTH if share > 0.66 else HURT if share > 0.33 else DYING)]
        if roster.shield[i] > 0:
            rows.append((float(units.shield[i] / roster.shield[i]), SHIELD))
        for level, (part, colour) in enumerate(rows):
            bottom = low + 1.15 * thick * level
            yield rectangle(left, bottom, left + width, bottom + thick, BACK)
            yield rectangle(left, bottom, left + width * part, bottom + thick, colour)


# --- the gauges -----------------------------------------------------------------------------------


def _pools(config: SmacConfig, states: Any) -> Plane:
    """Health and shields of both armies over time, as shares of what they started with."""
    a, pool = config.roster.allies, states.units.health + states.units.shield
    time, marks, shares = 0.5 * states.t, [], []
    for side, colour in ((slice(0, a), ALLY), (slice(a, None), ENEMY)):
        share = pool[:, side].sum(1) / config.roster.pool[side].sum()
        curve = np.stack([time, share], 1)
        marks.append(Area(np.concatenate([[[time[0], 0.0]], curve, [[time[-1], 0.0]]]), colour, alpha=0.15))
        marks.append(Line(curve, colour, 1.8))
        shares.append(share.tolist())
    return Plane(
        frames=[_share_names(*now) for now in zip(*shares, strict=True)],
        view=(0.0, 0.0, max(float(time[-1]), 10.0), 1.03),
        history=sorted(marks, key=lambda mark: isinstance(mark, Line)),
        clock=time.tolist(),
        title="share of health and shields left",
        x_label="time, s",
        paper=PANEL,
    )


def _share_names(ours: float, theirs: float) -> list[Mark]:
    rows = (("allies", ours, ALLY, 0.18), ("enemies", theirs, ENEMY, 0.07))
    return [Label((0.15, y), f"{name} {share:.0%}", colour, 7.5, align="left") for name, share, colour, y in rows]


def _counts(config: SmacConfig, states: Any) -> Plane:
    """Units alive, and what the allies are doing."""
    roster, a = config.roster, config.roster.allies
    frames: list[list[Mark]] = []
    titles = []
    for t in range(len(states.t)):
        alive, mode = states.units.health[t] > 0, states.mode[t]
        living = alive[:a]
        doing = (mode >= FIRST_TARGET, (mode >= 2) & (mode < FIRST_TARGET), mode == 1)
        counts = [*(int((d & living).sum()) for d in doing), int((~living).sum())]
        frames.append([mark for row, n in enumerate(counts) for mark in _count(row, n)])
        titles.append(f"allies {living.sum()} of {a}, enemies {alive[a:].sum()} of {roster.enemies}")
    names = ("attack or heal", "move", "stop", "dead")
    return Plane(
        frames=frames,
        view=(0.0, len(names) - 0.4, 1.15 * a, -0.6),
        title=titles,
        x_label="allies",
        y_ticks=[(float(i), name) for i, name in enumerate(names)],
        paper=PANEL,
    )


def _count(row: int, number: int) -> list[Mark]:
    colour = (SHOTS["ally"], OFFSET, QUIET, EDGE)[row]
    name = Label((number, row), str(number), INK, 8.0, offset=(4.0, 0.0), align="left")
    return [rectangle(0.0, row - 0.31, number, row + 0.31, colour), name]
