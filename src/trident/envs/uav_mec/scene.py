"""The drawing of a UAV-MEC episode: the map, and gauges of both limits and of the modes."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import MecState
from trident.report.palette import FILL, INK, LIMIT, QUIET, SAFE, agent_name, mode_colour
from trident.report.scene import (
    Area,
    Disc,
    Dot,
    Key,
    Label,
    Line,
    Mark,
    Plane,
    Raster,
    Scene,
    rectangle,
)

HOTSPOT = "#F4D35E"
TRAIL = 40
"""Slots."""
FEW = 8
"""UAVs up to which rows of a panel are named."""


def scene(config: UavMecConfig, states: MecState) -> Scene:
    """Of an episode's states (NumPy arrays with a leading time axis)."""
    states = jax.tree.map(np.asarray, states)
    count, room = len(states.slot), 0.02 * config.area
    window = (-room, -room, config.area + room, config.area + room)
    plan = Plane(
        frames=[list(_map_marks(config, states, t)) for t in range(count)],
        view=window,
        title=[_title(config, states, t) for t in range(count)],
        unit="m",
    )
    panels = (_energy(config, states), _coverage(config, states), _modes(config, states))
    return Scene(
        plan,
        panels,
        _keys(config),
        agents=states.uav.tolist(),
        widths=(2.05, 1.0),
        heights=(1.15, 1.0, 0.8),
        key_columns=4,
        dark={HOTSPOT: "#8a6d14"},
    )


def _title(config: UavMecConfig, states: MecState, t: int) -> str:
    slot = int(states.slot[t])
    late = "   deployment: coverage is not charged" if slot <= config.grace else ""
    return f"slot {slot}/{config.horizon}{late}"


# --- the map --------------------------------------------------------------------------------------


def _map_marks(config: UavMecConfig, states: MecState, t: int) -> Iterator[Mark]:
    now = jax.tree.map(lambda x: x[t], states)
    for centre in now.hot:
        yield Disc(centre, 1.5 * config.hotspot_spread, fill=HOTSPOT, alpha=0.22)
    for place, mode in zip(now.uav, now.mode, strict=True):
        colour = mode_colour(int(mode))
        yield Disc(place, config.coverage_radius, fill=colour, alpha=0.07)
        yield Disc(place, config.coverage_radius, edge=colour, width=0.9, alpha=0.45)
    yield from _service(config, now)
    for path in np.swapaxes(states.uav[max(t + 1 - TRAIL, 0) : t + 1], 0, 1):
        if len(path) > 1:
            yield Line(path, INK, 1.6, alpha=0.8, fade=True)
    yield from _fogs(config, now)
    for i, place in enumerate(now.uav):
        over = now.energy[i] > config.energy_max
        edge, width = (LIMIT, 2.2) if over else ("#FFFFFF", 1.2)
        yield Dot(place, mode_colour(int(now.mode[i])), "h", 12.2, edge, width)
        yield Label(place, agent_name(i), "#FFFFFF", 7.0, bold=True)


def _service(config: UavMecConfig, now: MecState) -> Iterator[Mark]:
    """The links that serve users, and users by how they are served."""
    for i, u in np.argwhere(now.link):
        yield Line([now.uav[i], now.user[u]], mode_colour(int(now.mode[i])), 1.1, alpha=0.65)
    served = now.link.any(0)
    for place, has, reach in zip(now.user, served, now.reach, strict=True):
        if not has:
            yield Dot(place, LIMIT, "x", 4.9, width=1.5)
        elif reach <= config.coverage_radius:
            yield Dot(place, INK, "o", 4.1)
        else:
            yield Dot(place, "#FFFFFF", "o", 4.1, edge=INK)


def _fogs(config: UavMecConfig, now: MecState) -> Iterator[Mark]:
    for f, place in enumerate(config.fogs):
        colour = mode_colour(f + 1)
        busy = bool((now.mode == f + 1).any())
        yield Dot(place, colour if busy else "#FFFFFF", "s", 11.4, edge=colour, width=2.0)
        if config.num_fogs <= 4:
            yield Label(place, f"fog {f + 1}", colour, 7.5, bold=True, offset=(0.0, -14.0))


def _keys(config: UavMecConfig) -> list[Key]:
    """What the map's signs mean: links by mode, users, UAVs."""
    names = ["computes on board", *(f"sends to fog {f + 1}" for f in range(config.num_fogs))]
    return [
        *(Key(name, Line([], mode_colour(m), 2.5)) for m, name in enumerate(names[:6])),
        Key("hotspot of users", Area([], HOTSPOT, alpha=0.22)),
        Key("UAV", Dot((0, 0), QUIET, "h", 9.0, edge="#FFFFFF")),
        Key("UAV over its energy limit", Dot((0, 0), QUIET, "h", 8.0, edge=LIMIT, width=1.8)),
        Key(f"coverage, {config.coverage_radius:g} m", Dot((0, 0), FILL, "o", 9.0, edge=QUIET)),
        Key(f"flown in {TRAIL} slots", Line([], INK, 1.6, alpha=0.6)),
        Key("user, covered", Dot((0, 0), INK, "o", 4.0)),
        Key("served from afar", Dot((0, 0), "#FFFFFF", "o", 4.0, edge=INK)),
        Key("not served", Dot((0, 0), LIMIT, "x", 5.0)),
    ]


# --- the gauges -----------------------------------------------------------------------------------


def _energy(config: UavMecConfig, states: MecState) -> Plane:
    """Energy of each UAV in this slot against E_max, and how often it was above so far."""
    n, top = config.num_uavs, 1.45 * config.energy_max
    flown = states.slot > 0
    over = (states.energy > config.energy_max) & flown[:, None]
    share = 100 * np.cumsum(over.sum(1)) / np.maximum(n * np.cumsum(flown), 1)
    bars = [[_bar(config, i, float(e), int(m), top) for i, (e, m) in enumerate(zip(*row, strict=True))]
            for row in zip(states.energy, states.mode, strict=True)]  # fmt: skip
    line = Line([(config.energy_max, -0.6), (config.energy_max, n - 0.4)], LIMIT, 1.4, dash="-")
    return Plane(
        frames=[[*row, line] for row in bars],
        view=(0.0, n - 0.4, top, -0.6),
        backdrop=[rectangle(0.0, i - 0.31, top, i + 0.31, FILL) for i in range(n)],
        title=[f"energy per slot, limit {config.energy_max:g} J   ({s:.1f} % over)" for s in share],
        y_ticks=_rows(n, "UAV "),
        paper="#FFFFFF",
    )


def _bar(config: UavMecConfig, row: int, energy: float, mode: int, top: float) -> Mark:
    colour = LIMIT if energy > config.energy_max else mode_colour(mode)
    return rectangle(0.0, row - 0.31, min(energy, top), row + 0.31, colour)


def _coverage(config: UavMecConfig, states: MecState) -> Plane:
    """Share of covered users over time; red where it was charged for being too low."""
    time, share = states.slot, (states.reach <= config.coverage_radius).mean(1)
    charged = time > config.grace
    low = (share < config.coverage_min - 1e-6) & charged
    below = 100 * np.cumsum(low) / np.maximum(np.cumsum(charged), 1)
    least = config.coverage_min
    lacks = [
        rectangle(t - 0.5, s, t + 0.5, least, LIMIT, 0.6) for t, s, bad in zip(time, share, low, strict=True) if bad
    ]
    return Plane(
        frames=[[Line([(0.0, least), (config.horizon, least)], LIMIT, 1.4, dash="-")] for _ in time],
        view=(0.0, 0.0, float(config.horizon), 1.02),
        backdrop=[
            rectangle(0.0, 0.0, config.grace, 1.02, FILL),
            Label((0.5 * config.grace, 0.3), "not charged", INK, 6.0, turned=True),
        ],
        history=[Line(np.stack([time, share], 1), SAFE, 1.5), *lacks],
        clock=time.tolist(),
        title=[f"share of users covered, limit {least:g}   ({b:.1f} % below)" for b in below],
        paper="#FFFFFF",
    )


def _modes(config: UavMecConfig, states: MecState) -> Plane:
    """Mode of every UAV over time."""
    chosen, n = states.mode[states.slot > 0], config.num_uavs
    box = (0.0, n - 0.5, float(len(chosen)), -0.5)
    colours = [mode_colour(m) for m in range(config.num_fogs + 1)]
    return Plane(
        frames=[[] for _ in states.slot],
        view=(0.0, n - 0.5, float(config.horizon), -0.5),
        history=[Raster(box, chosen.T.tolist(), colours)] if len(chosen) else [],
        clock=(states.slot - states.slot[0] + (states.slot[0] > 0)).tolist(),
        title="mode of each UAV, in the colours of the map",
        x_label="slot",
        y_ticks=_rows(n),
        paper="#FFFFFF",
    )


def _rows(count: int, before: str = "") -> list[tuple[float, str]]:
    return [(float(i), before + agent_name(i)) for i in range(count if count <= FEW else 0)]
