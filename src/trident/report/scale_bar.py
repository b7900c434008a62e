"""How long things are in a picture."""

from __future__ import annotations

import math
from typing import Any


def round_length(most: float) -> float:
    """The largest of 1, 2, 5, 10, 20, ... that is not above `most`."""
    power = 10.0 ** math.floor(math.log10(most))
    return next(step for step in (5.0 * power, 2.0 * power, power) if step <= most)


def scale_bar(ax: Any, unit: str, colour: str) -> None:
    """A bar of a round length in a corner of a map, with its length."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    length = round_length(0.2 * (right - left))
    x, y = left + 0.03 * (right - left), bottom + 0.025 * (top - bottom)
    ax.plot([x, x + length], [y, y], color=colour, lw=3.0, solid_capstyle="butt", zorder=20)
    at = (x + 0.5 * length, y)
    look = {"ha": "center", "va": "bottom", "fontsize": 7.5, "color": colour, "zorder": 20}
    ax.annotate(f"{length:g} {unit}", at, xytext=(0, 3), textcoords="offset points", **look)
