"""One frame of an intersection episode with matplotlib."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.dynamics import Traffic
from trident.envs.intersection.scene import scene
from trident.report.scene_figure import draw_scene


def draw(config: IntersectionConfig, where: Figure | Axes, states: Traffic, changed: np.ndarray | None) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis). On a figure with gauges, on axes the map."""
    made = scene(config, states, changed)
    draw_scene(made, where, made.length - 1)
