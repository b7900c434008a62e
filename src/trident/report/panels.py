"""Axes of one look: maps without ticks, gauges with few, strips of modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D

from trident.report.palette import FRAME, INK, PAPER, QUIET, agent_name
from trident.report.scale_bar import scale_bar

TRAJECTORY = "#E255A1"
"""An executed way."""


def map_axes(ax: Axes, low: float, high: float, title: str = "") -> None:
    """A square map in metres."""
    rim = 0.02 * (high - low)
    ax.set(xlim=(low - rim, high + rim), ylim=(low - rim, high + rim), aspect="equal", xticks=[], yticks=[])
    ax.set_facecolor(PAPER)
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_color(FRAME)
    ax.set_title(title, loc="left", fontsize=10, color=INK)
    scale_bar(ax, "m", INK)


def sign(text: str, **look: Any) -> Line2D:
    """An entry of a legend: a marker without a line."""
    return Line2D([], [], ls="", label=text, **look)


def gauge(ax: Axes, title: str, last: float | None = None) -> None:
    """Little more than the curve; time runs from 0 to `last`."""
    ax.set_title(title, loc="left", fontsize=9, color=INK)
    ax.tick_params(labelsize=7, length=2, colors=INK)
    if last is not None:
        ax.set_xlim(0.0, last)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(QUIET)


def mode_strip(
    ax: Axes, modes: np.ndarray, colours: Sequence[str], step: float, title: str, names: Sequence[str] = ()
) -> None:
    """Modes [T, N] over time, a row for each agent."""
    agents = modes.shape[1]
    if len(modes):
        box = (0.0, len(modes) * step, agents - 0.5, -0.5)
        ax.imshow(
            modes.T, aspect="auto", interpolation="nearest", extent=box, cmap=ListedColormap(list(colours)),
            vmin=-0.5, vmax=len(colours) - 0.5,
        )  # fmt: skip
    ax.set_ylim(agents - 0.5, -0.5)
    shown = range(agents if agents <= 8 else 0)
    ax.set_yticks(shown, [names[i] if names else agent_name(i) for i in shown])
    gauge(ax, title)


def trail(ax: Axes, way: np.ndarray, colour: str, width: float = 1.8, fade: bool = True, zorder: float = 4) -> None:
    """A way [T, 2]; its older parts are fainter."""
    if len(way) > 1:
        parts = np.stack([way[:-1], way[1:]], 1)
        alpha = np.linspace(0.1, 0.95, len(parts)) if fade else 1.0
        ax.add_collection(
            LineCollection(list(parts), colors=colour, linewidths=width, alpha=alpha, zorder=zorder, capstyle="round")
        )


def brackets(ax: Axes, centres: np.ndarray, side: float, colour: str, width: float = 1.2) -> None:
    """Cells [K, 2] as brackets: their left and right sides with a hook at each end."""
    half, hook = 0.5 * side, 0.22 * side
    right = np.array([[half - hook, half], [half, half], [half, -half], [half - hook, -half]])
    lines = [centre + sign * right for centre in centres for sign in (np.array([1.0, 1.0]), np.array([-1.0, 1.0]))]
    ax.add_collection(LineCollection(lines, colors=colour, linewidths=width, zorder=3, capstyle="butt"))
