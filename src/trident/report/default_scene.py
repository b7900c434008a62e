"""The drawing of an episode of which nothing is known but what everybody did and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trident.report.palette import FILL, INK, LIMIT, QUIET, SERIES, agent_name, mode_colour
from trident.report.scene import Disc, Dot, Key, Label, Line, Mark, Plane, Raster, Scene, rectangle

SHIELD = "#c026d3"
RADIUS = 0.32
MANY = 24
"""Agents up to which each has its parameters drawn."""


def default_scene(
    mode_names: list[str],
    mode: Any,  # [T, N]
    unit: Any,  # [T, N, P] parameters in [-1, 1] of their box; NaN where a mode has none
    reward: Any,  # [T]
    costs: Mapping[str, Any],  # [T] each
    limits: dict[str, float],
    alive: Any = None,  # [T, N] after each step
    changed: Any = None,  # [T, N] by a shield
) -> Scene:
    """Agents side by side, each in the colour of its mode with its parameters as columns; modes, reward and costs over
    time beside them."""
    mode, unit = np.asarray(mode), np.asarray(unit)
    steps, count = mode.shape
    living = np.ones((steps, count), bool) if alive is None else np.asarray(alive, bool)
    acts = np.zeros((steps, count), bool) if changed is None else np.asarray(changed, bool)
    columns = int(np.ceil(np.sqrt(count * 1.6)))
    places = [(i % columns + 0.5, -(i // columns) - 0.5) for i in range(count)]
    frames: list[list[Mark]] = [_waiting(places)]
    for t in range(steps):
        row = zip(places, mode[t].tolist(), unit[t], living[t].tolist(), acts[t].tolist(), strict=True)
        frames.append([mark for i, agent in enumerate(row) for mark in _agent(i, *agent, many=count > MANY)])
    rows = -(-count // columns)
    plane = Plane(
        frames,
        (-0.1, -rows - 0.1, columns + 0.1, 0.1),
        title=[f"step {t}/{steps}" for t in range(steps + 1)],
    )
    used = sorted(set(mode.ravel().tolist()))
    keys = [Key(mode_names[m], Dot((0, 0), mode_colour(m), "o", 8.0)) for m in used[:12]]
    keys += [Key("shield acts", Dot((0, 0), "", "o", 8.0, edge=SHIELD, width=2.0))] if acts.any() else []
    keys += [Key("not alive", Dot((0, 0), QUIET, "x", 6.0))] if not living.all() else []
    panels = [_modes(mode, len(mode_names)), _reward(np.asarray(reward, float))]
    panels += [_cost(name, np.asarray(cost, float), limits[name]) for name, cost in list(costs.items())[:3]]
    return Scene(plane, panels, keys, [places] * (steps + 1), widths=(1.4, 1.0))


def _waiting(places: list[tuple[float, float]]) -> list[Mark]:
    """Before the first step."""
    discs = [Disc(place, RADIUS, FILL, QUIET) for place in places]
    return [*discs, *(Label(place, agent_name(i), bold=True) for i, place in enumerate(places))]


def _agent(
    i: int, place: tuple[float, float], mode: int, unit: np.ndarray, alive: bool, changed: bool, many: bool
) -> list[Mark]:
    x, y = place
    if not alive:
        return [Dot(place, QUIET, "x", 12.0, width=2.0), Label((x, y - 0.3), agent_name(i))]
    marks: list[Mark] = [Disc(place, RADIUS, mode_colour(mode), "#FFFFFF")]
    marks += [Disc(place, RADIUS + 0.06, "", SHIELD, 2.0)] if changed else []
    marks.append(Label(place, agent_name(i), "#FFFFFF", 9.0, bold=True))
    shown = [v for v in unit if np.isfinite(v) and not many]
    for k, value in enumerate(shown):
        left, low = x + RADIUS + 0.05 + 0.055 * k, y - 0.25
        if left + 0.04 > x + 0.5:
            break
        marks.append(rectangle(left, low, left + 0.035, low + 0.5, FILL))
        marks.append(rectangle(left, low, left + 0.035, low + 0.25 * (float(value) + 1.0), INK))
    return marks


def _modes(mode: np.ndarray, count: int) -> Plane:
    steps, agents = mode.shape
    box = (0.0, agents - 0.5, float(steps), -0.5)
    raster = Raster(box, mode.T.tolist(), [mode_colour(m) for m in range(count)])
    ticks = [(float(i), agent_name(i)) for i in range(agents if agents <= 8 else 0)]
    return _panel(steps, box, [raster], "mode of each agent", y_ticks=ticks)


def _reward(reward: np.ndarray) -> Plane:
    low, high = float(np.nanmin(reward, initial=0.0)), float(np.nanmax(reward, initial=0.0))
    room = 0.05 * (high - low or 1.0)
    view = (0.0, low - room, float(len(reward)), high + room)
    return _panel(len(reward), view, [_curve(reward, SERIES[0])], "reward of the step")


def _cost(name: str, cost: np.ndarray, limit: float) -> Plane:
    mean = np.cumsum(cost) / np.arange(1, len(cost) + 1)
    top = 1.15 * max(float(np.nanmax(mean, initial=0.0)), limit, 1e-6)
    bar = Line([(0.0, limit), (float(len(cost)), limit)], LIMIT, 1.4, dash="-")
    title = f"cost {name}, mean so far, limit {limit:g}"
    return _panel(len(cost), (0.0, min(0.0, float(np.nanmin(mean, initial=0.0))), float(len(cost)), top),
                  [_curve(mean, SERIES[1])], title, over=[bar])  # fmt: skip


def _curve(values: np.ndarray, colour: str) -> Line:
    return Line(np.stack([np.arange(1, len(values) + 1), values], 1), colour, 1.5)


def _panel(steps: int, view: Any, history: list[Any], title: str, over: Sequence[Mark] = (), **more: Any) -> Plane:
    clock = [float(t) for t in range(steps + 1)]
    return Plane([list(over) for _ in clock], view, history=history, clock=clock, title=title, paper="#FFFFFF", **more)
