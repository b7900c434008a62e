"""One frame of a battle with matplotlib."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trident.envs.smac.config import SmacConfig
from trident.envs.smac.scene import scene
from trident.report.scene_figure import draw_scene


def draw(config: SmacConfig, where: Figure | Axes, states: Any) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis); the earlier ones give paths and time lines.

    On a figure: the field, and the armies' strength over time. On axes: the field alone.
    """
    made = scene(config, states)
    draw_scene(made, where, made.length - 1)
