"""The drawing of a heterogeneous cruise: the map, and batteries, freshness and roles beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from trident.envs.uav_cruise.config import KINDS, CruiseConfig
from trident.envs.uav_cruise.dynamics import ROLES, CruiseState, link_room
from trident.report.over_time import SHIELD, acted, bound, curve, mode_rows, names, over_time, trail
from trident.report.palette import INK, LIMIT, QUIET, SAFE, agent_colour, agent_name, mode_colour
from trident.report.scene import Disc, Dot, Key, Label, Line, Mark, Plane, Scene

SHAPES = {"relay": "^", "scout": "o", "carrier": "s"}
TRAIL = 45
"""Slots."""


def scene(config: CruiseConfig, states: CruiseState, changed: Any = None) -> Scene:
    """Of an episode's states (NumPy arrays with a leading time axis); `changed` [T, N]: what a shield has altered."""
    states = jax.tree.map(np.asarray, states)
    c, count, room = config, len(states.clock), 0.02 * config.area
    links, acts = _links(c, states), acted(changed, count, c.num_uavs)
    plan = Plane(
        frames=[list(_map_marks(c, states, links[t], acts[t], t)) for t in range(count)],
        view=(-room, -room, c.area + room, c.area + room),
        backdrop=[Dot(c.base_place, INK, "P", 12.0, edge="#FFFFFF")],
        title=[f"t = {clock * c.slot:.0f} s    {linked.mean():.0%} connected"
               for clock, linked in zip(states.clock.tolist(), states.linked, strict=True)],
        unit="m",
    )  # fmt: skip
    time, end = states.clock * c.slot, c.horizon * c.slot
    panels = (_batteries(c, states, time, end), _freshness(c, states, time, end), _roles(c, states, time, end))
    return Scene(plan, panels, _keys(), states.uav.tolist(), widths=(1.12, 1.0), heights=(1.0, 0.8, 1.0), key_columns=5)


def _keys() -> list[Key]:
    """What the map's signs mean."""
    return [
        *(Key(name, Line([], mode_colour(m), 3.0)) for m, name in enumerate(ROLES)),
        *(Key(f"a {name}", Dot((0, 0), QUIET, SHAPES[name], 8.0, edge=INK)) for name in KINDS),
        Key("fresh point", Dot((0, 0), SAFE, "o", 5.0, edge=SAFE)),
        Key("stale point", Dot((0, 0), "#FFFFFF", "o", 5.0, edge=SAFE)),
        Key("needs a delivery", Dot((0, 0), "", "o", 9.0, edge=LIMIT, width=1.6)),
        Key("link to the base", Line([], QUIET, 1.0)),
        Key("base", Dot((0, 0), INK, "P", 10.0, edge="#FFFFFF")),
        Key("shield acts", Dot((0, 0), "", "o", 8.0, edge=SHIELD, width=1.6)),
    ]


# --- the map --------------------------------------------------------------------------------------


def _links(config: CruiseConfig, states: CruiseState) -> np.ndarray:
    """[T + 1, N, N + 1]: who could talk to whom, and to the base (last)."""
    room = jax.jit(jax.vmap(lambda uav, role: link_room(config, uav, role)))
    return np.asarray(room(states.uav, states.role)) >= 0.0


def _map_marks(c: CruiseConfig, states: CruiseState, link: np.ndarray, acts: np.ndarray, t: int) -> Iterator[Mark]:
    now = jax.tree.map(lambda x: x[t], states)
    places, on = np.concatenate([now.uav, c.base_place[None]]), np.append(now.linked, True)
    for i, j in np.argwhere(link & on[:-1, None] & on):
        if i < j:
            yield Line([places[i], places[j]], QUIET, 0.9)
    for place, fresh, need in zip(now.point, np.exp(-now.age / c.fresh_time), now.need, strict=True):
        yield Dot(place, "#FFFFFF", "o", 6.8, edge=SAFE, width=1.2)
        yield Dot(place, SAFE, "o", 6.8, alpha=round(float(fresh), 1))
        if need > 0.5:
            yield Dot(place, "", "o", 12.2, edge=LIMIT, width=1.5)
    for i, place in enumerate(now.uav):
        colour = mode_colour(int(now.role[i]))
        yield Disc(place, float(c.of_kind("sensor")[i]), fill=colour, alpha=0.08)
        yield from trail(states.uav[: t + 1, i], TRAIL, colour, 1.8)
        edge = SHIELD if acts[i] else "#FFFFFF"
        yield Dot(place, colour, SHAPES[c.fleet[i]], 12.2, edge=edge, width=1.6)
        yield Label(place, agent_name(i), "#FFFFFF", 7.0, bold=True)


# --- the gauges -----------------------------------------------------------------------------------


def _batteries(config: CruiseConfig, states: CruiseState, time: Any, end: float) -> Plane:
    share, count = states.battery / config.of_kind("battery"), config.num_uavs
    uavs = [(agent_name(i), agent_colour(i)) for i in range(count)]
    return over_time(
        time, end, 0.0, 1.25,
        backdrop=[bound(config.reserve, end), *names(uavs, end, 1.14)],
        history=[curve(time, share[:, i], agent_colour(i), 1.3) for i in range(count)],
        title=f"battery of each UAV   (reserve {config.reserve:.0%})",
        y_ticks=[(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")],
    )  # fmt: skip


def _freshness(config: CruiseConfig, states: CruiseState, time: Any, end: float) -> Plane:
    fresh = np.exp(-states.age / config.fresh_time)
    curves = {"fresh": (fresh, SAFE), "connected": (states.linked, INK), "in need": (states.need, LIMIT)}
    return over_time(
        time, end, 0.0, 1.25,
        backdrop=names([(name, colour) for name, (_, colour) in curves.items()], end, 1.14),
        history=[curve(time, values.mean(1), colour, 1.3) for values, colour in curves.values()],
        title="points fresh and in need, UAVs connected (shares)",
        y_ticks=[(0.0, "0"), (0.5, "0.5"), (1.0, "1")],
    )  # fmt: skip


def _roles(config: CruiseConfig, states: CruiseState, time: Any, end: float) -> Plane:
    uavs = [f"{name} {agent_name(i)}" for i, name in enumerate(config.fleet)]
    colours = [mode_colour(m) for m in range(len(ROLES))]
    return mode_rows(states.role[1:], colours, config.slot, time, end, "role of each UAV", uavs, x_label="time, s")


# --- for print ------------------------------------------------------------------------------------


def figure(config: CruiseConfig, where: Any, states: CruiseState, changed: Any = None) -> None:
    """The whole ways in the colours of the roles, beside every UAV's roles over time."""
    from trident.report.scene_figure import draw_map, draw_panel, shared_key  # matplotlib takes a second to import

    made, last = scene(config, states, changed), len(states.clock) - 1
    ways = [way for i in range(config.num_uavs) for way in _way(states.uav[:, i], states.role[1:, i])]
    here = [mark for mark in made.map.frames[last] if not (isinstance(mark, Line) and mark.fade)]
    whole = replace(made, map=replace(made.map, backdrop=[*made.map.backdrop, *ways], frames=[here]), key=())
    where.set_size_inches(10.5, 5.2)
    left, right = where.subplots(1, 2, width_ratios=[1.0, 0.95])
    draw_map(whole, left, 0)
    draw_panel(made, made.panels[-1], right, last)
    for ax, title in ((left, "(a)  trajectories in the colours of the roles"), (right, "(b)  roles over time")):
        ax.set_title(title, loc="left", fontsize=10, color=INK)
    shared_key(made, where, 7)
    where.subplots_adjust(left=0.01, right=0.985, top=0.94, bottom=0.17, wspace=0.2)


def _way(places: Any, roles: Any) -> Iterator[Line]:
    """A whole way [T + 1, 2], one line for every stretch in one role [T]."""
    ends = [0, *(np.flatnonzero(np.diff(np.asarray(roles))) + 1), len(roles)]
    for a, b in pairwise(ends):
        yield Line(places[a : b + 1], mode_colour(int(roles[a])), 1.5, alpha=0.8)
