"""Panels of a scene over time: curves against limits, and rows of modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trident.report.palette import LIMIT, agent_name
from trident.report.scene import Label, Line, Mark, Plane, Raster

FEW = 8
"""Agents up to which rows are named."""
TRAJECTORY, SHIELD = "#E255A1", "#C026D3"
"""A way that was flown; an action that a shield has altered."""


def over_time(time: Any, end: float, low: float, high: float, **more: Any) -> Plane:
    """A window of time from 0 to `end`; `time`: of every frame."""
    more.setdefault("frames", [[] for _ in time])
    return Plane(view=(0.0, low, end, high), clock=np.asarray(time).tolist(), paper="#FFFFFF", **more)


def curve(time: Any, values: Any, colour: str, width: float = 1.5, alpha: float = 1.0) -> Line:
    return Line(np.stack([np.asarray(time, float), np.asarray(values, float)], 1), colour, width, alpha)


def bound(value: float, end: float) -> Line:
    """A limit."""
    return Line([(0.0, value), (end, value)], LIMIT, 1.4, dash="-")


def names(of: Sequence[tuple[str, str]], end: float, height: float) -> list[Mark]:
    """What curves mean, (text, colour), in a row along the top."""
    step = end / len(of)
    return [Label(((i + 0.5) * step, height), text, colour, bold=True) for i, (text, colour) in enumerate(of)]


def mode_rows(
    modes: Any,
    colours: Sequence[str],
    step: float,
    time: Any,
    end: float,
    title: Any,
    rows: Sequence[str] = (),
    **more: Any,
) -> Plane:
    """Modes [T, N] over time, a row for each agent. A step takes `step`, the first ends at the second `time`."""
    modes = np.asarray(modes)
    count = modes.shape[1]
    box = (0.0, count - 0.5, len(modes) * step, -0.5)
    shown = [(float(i), rows[i] if rows else agent_name(i)) for i in range(count if count <= FEW else 0)]
    past: list[Mark] = [Raster(box, modes.T.tolist(), list(colours))] if len(modes) else []
    return over_time(time, end, count - 0.5, -0.5, history=past, title=title, y_ticks=shown, **more)


def trail(way: Any, length: int, colour: str, width: float) -> list[Line]:
    """The last steps of a way [T, 2], older ones fainter; a third of its places is as good to look at."""
    last = np.asarray(way)[-length - 1 :][::-3][::-1]
    return [Line(last, colour, width, fade=True)] if len(last) > 1 else []


def acted(changed: Any, frames: int, agents: int) -> np.ndarray:
    """[T + 1, N]: whether a shield altered the action that led to each frame; `changed` [T, N] or None."""
    acts = np.zeros((frames, agents), bool)
    if changed is not None and len(changed):
        acts[1:] = np.asarray(changed, bool)[: frames - 1]
    return acts
