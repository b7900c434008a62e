"""One frame of discs in the plane: trails, goals, obstacles, and who touches whom."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from trident.report.palette import FRAME, INK, LIMIT, PAPER, QUIET, agent_colour

TRAIL = 20


def draw_discs(
    figure: Figure,
    path: Any,  # [T, N, 2], the last of them is now
    radius: float,
    *,
    half: float,
    landmarks: Any = None,
    goals: Any = None,
    obstacles: Any = None,
    obstacle_radius: float = 0.0,
) -> None:
    figure.clear()
    figure.patch.set_facecolor("white")
    ax = figure.add_axes((0.03, 0.03, 0.94, 0.94))
    ax.set(xlim=(-half, half), ylim=(-half, half), aspect="equal", xticks=[], yticks=[], facecolor=PAPER)
    for spine in ax.spines.values():
        spine.set_color(FRAME)
    now, things = path[-1], [] if obstacles is None else list(obstacles)
    for place in things:
        ax.add_patch(Circle(tuple(place), obstacle_radius, fc=QUIET, ec="none", alpha=0.6))
    for place in () if landmarks is None else landmarks:
        ax.plot(*place, marker="x", ms=9, mew=2, color=INK)
    for i, place in enumerate(now):
        colour = agent_colour(i)
        if goals is not None:
            ax.plot(*goals[i], marker="x", ms=9, mew=2, color=colour)
        ax.plot(*path[-TRAIL:, i].T, lw=1.5, color=colour, alpha=0.5)
        hit = _touches(now, i, 2.0 * radius) or any(np.hypot(*(place - o)) < radius + obstacle_radius for o in things)
        edge: Any = {"ec": LIMIT, "lw": 3.0} if hit else {"ec": INK, "lw": 0.8}
        ax.add_patch(Circle(tuple(place), radius, fc=colour, alpha=0.85, **edge))


def _touches(pos: np.ndarray, i: int, reach: float) -> bool:
    apart = np.hypot(*(pos - pos[i]).T)
    return bool((np.delete(apart, i) < reach).any())
