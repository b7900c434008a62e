"""The drawing of cooperative coverage: the partition, and sectors, power and modes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import MODES, CoverageState, importance
from trident.report.over_time import SHIELD, acted, bound, curve, mode_rows, names, over_time, trail
from trident.report.palette import FILL, INK, LIMIT, QUIET, agent_colour, agent_name, mode_colour
from trident.report.scene import Area, Disc, Dot, Key, Label, Line, Mark, Plane, Raster, Scene, rectangle

IMPORTANCE = ("#FFFFEF", "#FFF9CF", "#FFF1B4", "#FEE597", "#FED676", "#FEC05A", "#FEA940", "#F98F2F", "#EE7520")
"""From zero to the most in any place."""
NIGHT = ("#1B1A17", "#2A2418", "#3A2E1A", "#4B381B", "#5C431D", "#6D4D1F", "#7E5820", "#8F6222", "#A06C24")
OBSTACLE = "#B8C0C8"
TRAIL = 60
"""Slots."""
FINER = 2
"""Cells of the picture for one place that is looked at, along a side."""


def scene(config: CoverageConfig, states: CoverageState, changed: Any = None) -> Scene:
    """Of an episode's states (NumPy arrays with a leading time axis); `changed` [T, N]: what a shield has altered."""
    states = jax.tree.map(np.asarray, states)
    c, count, room = config, len(states.clock), 0.02 * config.area
    field, acts = smooth(c, importances(c, states)), acted(changed, count, c.num_uavs)
    each = detection(c, states) @ c.sector_of
    level = np.minimum(field / field.max() * len(IMPORTANCE), len(IMPORTANCE) - 1).astype(int)
    plan = Plane(
        frames=[list(_map_marks(c, states, level[t], each[t], acts[t], t)) for t in range(count)],
        view=(-room, -room, c.area + room, c.area + room),
        title=[f"t = {clock * c.slot:.0f} s" + ("    deployment" if clock <= c.grace else "")
               for clock in states.clock.tolist()],
        unit="m",
    )  # fmt: skip
    time, end = states.clock * c.slot, c.horizon * c.slot
    title = "mode of each UAV: " + ", ".join(MODES)
    colours = [mode_colour(m) for m in range(len(MODES))]
    modes = mode_rows(states.mode[1:], colours, c.slot, time, end, title, x_label="time, s")
    panels = (_sectors(c, states, each, time, end), _power(c, states, time, end), modes)
    dark = dict(zip(IMPORTANCE, NIGHT, strict=True)) | {OBSTACLE: "#56616D"}
    return Scene(plan, panels, _keys(c), states.uav.tolist(), widths=(1.12, 1.0), heights=(1.0, 1.0, 0.9), dark=dark)


def _keys(config: CoverageConfig) -> list[Key]:
    """What the map's signs mean."""
    return [
        Key("importance", Area([], IMPORTANCE[5])),
        Key("edge of the partition", Line([], INK, 1.4)),
        Key("UAV", Dot((0, 0), agent_colour(0), "h", 9.0, edge="#FFFFFF")),
        Key("sensing radius", Dot((0, 0), "", "o", 9.0, edge=agent_colour(0))),
        Key("flown", Line([], QUIET, 2.0)),
        Key("sector", Line([], QUIET, 0.8, dash=":")),
        Key("sector below its minimum", Dot((0, 0), "", "s", 8.0, edge=LIMIT, width=1.5)),
        Key("shield acts", Dot((0, 0), "", "h", 9.0, edge=SHIELD, width=1.5)),
        *([Key("obstacle", Dot((0, 0), OBSTACLE, "o", 8.0, edge=INK))] if config.num_obstacles else []),
    ]


# --- the map --------------------------------------------------------------------------------------


def _map_marks(
    config: CoverageConfig, states: CoverageState, level: np.ndarray, quality: np.ndarray, acts: np.ndarray, t: int
) -> Iterator[Mark]:
    c, now = config, jax.tree.map(lambda x: x[t], states)
    yield Raster((0.0, 0.0, c.area, c.area), level.T[::-1].tolist(), IMPORTANCE)  # rows from the north
    yield from _sector_lines(c, quality, charged=int(now.clock) > c.grace)
    for centre in now.obstacle:
        yield Disc(centre, c.obstacle_radius, OBSTACLE, INK)
    yield from (Area(cell, edge=INK, width=1.4) for cell in partition(now.uav, c.area))
    for i, (place, radius) in enumerate(zip(now.uav, now.radius.tolist(), strict=True)):
        yield Disc(place, radius, fill=agent_colour(i), alpha=0.06)
        yield Disc(place, radius, edge=agent_colour(i), alpha=0.7)
    for i, place in enumerate(now.uav):
        colour = agent_colour(i)
        yield from trail(states.uav[: t + 1, i], TRAIL, colour, 2.0)
        yield Dot(place, colour, "h", 11.4, edge=SHIELD if acts[i] else "#FFFFFF", width=1.4)
        yield Label(place, agent_name(i), "#FFFFFF", 7.0, bold=True)


def _sector_lines(config: CoverageConfig, quality: np.ndarray, charged: bool) -> Iterator[Mark]:
    """The sectors, and a frame around those below their minimum."""
    c = config
    side = c.area / c.sectors
    for k in range(1, c.sectors):
        yield Line([(k * side, 0.0), (k * side, c.area)], QUIET, 0.8, dash=":")
        yield Line([(0.0, k * side), (c.area, k * side)], QUIET, 0.8, dash=":")
    for number in np.flatnonzero(quality < c.sector_min) if charged else ():
        x, y = divmod(int(number), c.sectors)
        ring = np.array([(0.03, 0.03), (0.97, 0.03), (0.97, 0.97), (0.03, 0.97)])
        yield Area(side * (ring + np.array((x, y))), edge=LIMIT, width=1.6)


def partition(uav: np.ndarray, side: float) -> list[np.ndarray]:
    """The Voronoi cell of each UAV [N, 2] within a square: what is left of it nearer than to any other."""
    square = np.array([(0.0, 0.0), (side, 0.0), (side, side), (0.0, side)])
    cells = []
    for i, place in enumerate(uav):
        cell = square
        for other in np.delete(uav, i, axis=0):
            cell = _nearer(cell, place, other)
        cells.append(cell)
    return cells


def _nearer(cell: np.ndarray, place: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The part of a convex polygon that is nearer to `place` than to `other`."""
    depth = (cell - 0.5 * (place + other)) @ (place - other)
    kept = []
    for a, b, from_a, from_b in zip(cell, np.roll(cell, -1, 0), depth, np.roll(depth, -1), strict=True):
        kept += [a] if from_a >= 0.0 else []
        kept += [a + (b - a) * from_a / (from_a - from_b)] if from_a * from_b < 0.0 else []
    return np.array(kept).reshape(-1, 2)


# --- the gauges -----------------------------------------------------------------------------------


def _sectors(config: CoverageConfig, states: CoverageState, each: np.ndarray, time: Any, end: float) -> Plane:
    """Detection of each sector over time against the minimum."""
    c, late = config, states.clock > config.grace
    below = (each < c.sector_min).mean(1) * late
    share = 100.0 * np.cumsum(below) / np.maximum(np.cumsum(late), 1)
    deployed = c.grace * c.slot
    return over_time(
        time, end, 0.0, 1.0,
        backdrop=[rectangle(0.0, 0.0, deployed, 1.0, FILL), Label((0.5 * deployed, 0.1), "not charged", INK, 6.0),
                  bound(c.sector_min, end)],
        history=[*(curve(time, one, QUIET, 0.9) for one in each.T), curve(time, each.min(1), INK, 1.6)],
        title=[f"detection by sector, least {c.sector_min:g}   ({s:.1f} % below)" for s in share],
    )  # fmt: skip


def _power(config: CoverageConfig, states: CoverageState, time: Any, end: float) -> Plane:
    count = config.num_uavs
    return over_time(
        time, end, 80.0, 420.0,
        backdrop=names([(agent_name(i), agent_colour(i)) for i in range(count)], end, 395.0),
        history=[curve(time[1:], states.power[1:, i], agent_colour(i), 1.1) for i in range(count)],
        title="power of each UAV, W (flight and sensor)",
    )  # fmt: skip


# --- what is drawn --------------------------------------------------------------------------------


def importances(config: CoverageConfig, states: CoverageState) -> np.ndarray:
    """[T + 1, Q]: of every place."""
    return np.asarray(jax.jit(jax.vmap(lambda hot, obstacle: importance(config, hot, obstacle)))(
        states.hot, states.obstacle))  # fmt: skip


def smooth(config: CoverageConfig, values: np.ndarray) -> np.ndarray:
    """[T + 1, G, G], by column and row, of values [T + 1, Q] of the places: finer than these are."""
    fine = FINER * config.points
    square = values.reshape(-1, config.points, config.points)
    return np.asarray(jax.image.resize(square, (len(square), fine, fine), "linear"))


def detection(config: CoverageConfig, states: CoverageState) -> np.ndarray:
    """[T + 1, Q]: of every place, by all UAVs together."""
    square = ((states.uav[:, :, None] - config.places) ** 2).sum(-1)
    each = np.maximum(1.0 - square / states.radius[..., None] ** 2, 0.0) ** 2
    return 1.0 - np.prod(1.0 - each, axis=1)


# --- for print ------------------------------------------------------------------------------------


def figure(config: CoverageConfig, where: Any, states: CoverageState, changed: Any = None) -> None:
    """The partition at the start, half-way through the deployment and at the end."""
    from trident.report.scene_figure import draw_maps  # matplotlib takes a second to import

    made, last = scene(config, states, changed), len(states.clock) - 1
    states = jax.tree.map(np.asarray, states)
    found = (detection(config, states) * importances(config, states)).sum(1)
    times = [0, min(config.grace // 2, last), last]
    titles = [f"t = {t * config.slot:.0f} s, detected {found[t]:.0%}" for t in times]
    draw_maps(replace(made, key_columns=9), where, times, titles, (12.0, 4.5))
