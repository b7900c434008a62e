"""The drawing of a flight among no-fly zones: the map, and clearance, power and modes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.dynamics import EDGES, HOLD, NoFlyState
from trident.envs.uav_nofly.maps import Maps
from trident.report.over_time import SHIELD, TRAJECTORY, acted, bound, curve, mode_rows, over_time
from trident.report.palette import FRAME, INK, LIMIT, QUIET, SAFE, mode_colour
from trident.report.scene import Area, Arrow, Disc, Dot, Key, Label, Line, Mark, Plane, Scene, rectangle

ZONE, CELL = "#F4B6B6", "#3C9A4B"
SNAPSHOTS = 4


def scene(config: NoFlyConfig, maps: Maps, states: NoFlyState, changed: Any = None) -> Scene:
    """Of an episode's states (NumPy arrays with a leading time axis); `changed` [T, 1]: what a shield has altered."""
    states = jax.tree.map(np.asarray, states)
    c, count, room = config, len(states.clock), 0.02 * config.area
    way, acts = np.asarray(states.place) + np.asarray(states.offset), acted(changed, count, 1)[:, 0]
    plan = Plane(
        frames=[list(_map_marks(c, states, way, acts, t)) for t in range(count)],
        view=(-room, -room, c.area + room, c.area + room),
        backdrop=list(_ground(c, maps, states)),
        title=[f"t = {t * c.step:.1f} s" + ("    at the goal" if there else "")
               for t, there in zip(states.clock.tolist(), states.arrived, strict=True)],
        unit="m",
    )  # fmt: skip
    time, end = states.clock * c.step, c.horizon * c.step
    colours = [QUIET, *(mode_colour(m) for m in range(1, len(EDGES)))]
    chosen = mode_rows(
        states.mode[1:, None], colours, c.step, time, end, "chosen neighbour (grey: hold)", ["UAV"], x_label="time, s"
    )
    panels = (_clearance(c, states, time, end), _power(c, states, time, end), chosen)
    where = [[place] for place in way.tolist()]
    return Scene(plan, panels, _keys(), where, widths=(1.12, 1.0), heights=(1.0, 1.0, 0.5), dark={ZONE: "#5c2b30"})


def _keys() -> list[Key]:
    """What the map's signs mean."""
    return [
        Key("no-fly zone", Area([], ZONE, LIMIT, 1.2)),
        Key("flown", Line([], TRAJECTORY, 2.2)),
        Key("waypoint cell chosen", Label((0, 0), "[ ]", CELL, 9.0)),
        Key("UAV", Dot((0, 0), INK, "h", 9.0, edge="#FFFFFF")),
        Key("start", Dot((0, 0), "#FFFFFF", "o", 6.0, edge=INK)),
        Key("goal", Dot((0, 0), SAFE, "*", 10.0)),
        Key("within a zone", Dot((0, 0), LIMIT, "X", 8.0, edge="#FFFFFF")),
        Key("shield acts", Dot((0, 0), "", "o", 8.0, edge=SHIELD, width=1.5)),
    ]


# --- the map --------------------------------------------------------------------------------------


def _ground(config: NoFlyConfig, maps: Maps, states: NoFlyState) -> Iterator[Mark]:
    for zone in maps.zones[int(states.map[0])]:
        yield Area(zone, ZONE, LIMIT, 1.2)
    yield Disc(states.goal[0], config.goal_radius, fill=SAFE, alpha=0.25)
    yield Dot(states.goal[0], SAFE, "*", 10.5)


def _map_marks(config: NoFlyConfig, states: NoFlyState, way: np.ndarray, acts: np.ndarray, t: int) -> Iterator[Mark]:
    past = slice(1, t + 1)
    for cell in np.unique(states.waypoint[past][states.mode[past] != HOLD], axis=0):
        yield _brackets(cell, 0.8 * config.cell)
    if t:
        yield Line(way[: t + 1], TRAJECTORY, 2.4)
    yield Dot(way[0], "#FFFFFF", "o", 6.0, edge=INK)
    yield from (Dot(way[k], LIMIT, "X", 7.4, edge="#FFFFFF", width=0.8)
                for k in np.flatnonzero(states.clearance[past] < 0.0) + 1)  # fmt: skip
    yield from (Dot(way[k], "", "o", 6.5, edge=SHIELD, width=1.2) for k in np.flatnonzero(acts[: t + 1]))
    yield Dot(way[t], INK, "h", 10.5, edge="#FFFFFF")
    x, y, wind = 0.88 * config.area, 0.92 * config.area, states.wind[t]
    yield Arrow((x, y), 8.0 * wind, QUIET, 1.6)
    yield Label((x, y - 0.05 * config.area), f"wind {np.hypot(*wind):.1f} m/s", INK, 7.0)


def _brackets(centre: np.ndarray, side: float) -> Line:
    """A cell: its left and right sides with a hook at each end."""
    half, hook = 0.5 * side, 0.22 * side
    right = np.array([[half - hook, half], [half, half], [half, -half], [half - hook, -half]])
    return Line(np.concatenate([centre + right, [[np.nan] * 2], centre + right * [-1.0, 1.0]]), CELL, 1.2)


# --- the gauges -----------------------------------------------------------------------------------


def _clearance(config: NoFlyConfig, states: NoFlyState, time: Any, end: float) -> Plane:
    """Signed distance to the nearest zone over time."""
    within, tube = rectangle(0.0, -10.0, end, 0.0, LIMIT, 0.12), rectangle(0.0, 0.0, end, config.tube, FRAME, 0.6)
    return over_time(
        time, end, -10.0, 41.0,
        backdrop=[within, tube, bound(0.0, end)],
        history=[curve(time, np.clip(states.clearance, -10.0, 40.0), TRAJECTORY, 1.6)],
        title=f"distance to the nearest zone, m   (grey: tube of {config.tube:g} m)",
        y_ticks=[(0.0, "0"), (20.0, "20"), (40.0, "40+")],
    )  # fmt: skip


def _power(config: NoFlyConfig, states: NoFlyState, time: Any, end: float) -> Plane:
    """Electric power over time against its limit."""
    most, half = config.max_power, 0.5 * config.step
    over = (states.power > most) & (states.clock > 0)
    share = 100 * np.cumsum(over) / np.maximum(states.clock, 1)
    excess = [rectangle(t - half, most, t + half, p, LIMIT, 0.6)
              for t, p in zip(time[over], states.power[over], strict=True)]  # fmt: skip
    return over_time(
        time, end, 80.0, 1.35 * most,
        backdrop=[bound(most, end)],
        history=[*excess, curve(time, states.power, SAFE)],
        title=[f"electric power, W, limit {most:g}   ({s:.1f} % of the steps over)" for s in share],
    )  # fmt: skip


# --- for print ------------------------------------------------------------------------------------


def figure(config: NoFlyConfig, maps: Maps, where: Any, states: NoFlyState, changed: Any = None) -> None:
    """The flight in snapshots at even times, the last one at its end."""
    from trident.report.scene_figure import draw_maps  # matplotlib takes a second to import

    made, last = scene(config, maps, states, changed), len(states.clock) - 1
    times = [round(last * (k + 1) / SNAPSHOTS) for k in range(SNAPSHOTS)]
    titles = [f"t = {t * config.step:.1f} s" for t in times]
    draw_maps(replace(made, key_columns=8), where, times, titles, (3.2 * SNAPSHOTS, 3.7))
