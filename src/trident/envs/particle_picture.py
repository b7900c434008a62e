"""The drawing of discs in the plane: trails, goals, obstacles, and who touches whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trident.report.palette import INK, LIMIT, QUIET, agent_colour, agent_name
from trident.report.scene import Disc, Dot, Key, Label, Line, Mark, Plane, Scene

TRAIL = 20
"""Steps."""


def disc_scene(
    path: Any,  # [T + 1, N, 2]
    radius: float,
    *,
    half: float,
    landmarks: Any = None,
    goals: Any = None,
    obstacles: Any = None,
    obstacle_radius: float = 0.0,
) -> Scene:
    """Landmarks and obstacles [T + 1, L, 2], a goal for every agent [T + 1, N, 2]; any of them may be missing."""
    path = np.asarray(path)
    nothing = np.zeros((len(path), 0, 2))
    rest = [nothing if x is None else np.asarray(x) for x in (landmarks, goals, obstacles)]

    def marks(t: int) -> Iterator[Mark]:
        marked, aims, things = (x[t] for x in rest)
        now = path[t]
        yield from (Disc(place, obstacle_radius, fill=QUIET, alpha=0.6) for place in things)
        yield from (Dot(place, INK, "x", 9.0, width=2.0) for place in marked)
        yield from (Dot(place, agent_colour(i), "x", 9.0, width=2.0) for i, place in enumerate(aims))
        for i, place in enumerate(now):
            hit = _touches(now, i, 2.0 * radius) or any(
                np.hypot(*(place - o)) < radius + obstacle_radius for o in things
            )
            yield Line(path[max(t + 1 - TRAIL, 0) : t + 1, i], agent_colour(i), 1.5, alpha=0.5)
            yield Disc(place, radius, agent_colour(i), LIMIT if hit else INK, 3.0 if hit else 0.8, alpha=0.85)
            yield Label(place, agent_name(i), "#FFFFFF", 7.0, bold=True)

    count = len(path)
    plane = Plane([list(marks(t)) for t in range(count)], (-half, -half, half, half),
                  title=[f"step {t}/{count - 1}" for t in range(count)])  # fmt: skip
    return Scene(plane, key=list(_keys(rest)), agents=path.tolist())


def _keys(rest: list[Any]) -> Iterator[Key]:
    landmarks, goals, obstacles = (x.shape[1] > 0 for x in rest)
    yield Key("agent", Dot((0, 0), agent_colour(0), "o", 8.0, edge=INK))
    yield Key("touches something", Dot((0, 0), agent_colour(0), "o", 8.0, edge=LIMIT, width=2.5))
    if landmarks:
        yield Key("to be covered", Dot((0, 0), INK, "x", 7.0, width=2.0))
    if goals:
        yield Key("goal of the agent of its colour", Dot((0, 0), agent_colour(0), "x", 7.0, width=2.0))
    if obstacles:
        yield Key("obstacle", Dot((0, 0), QUIET, "o", 8.0))


def _touches(pos: np.ndarray, i: int, reach: float) -> bool:
    apart = np.hypot(*(pos - pos[i]).T)
    return bool((np.delete(apart, i) < reach).any())
