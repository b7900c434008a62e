"""One frame of a UAV-MEC episode with matplotlib."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import MecState
from trident.envs.uav_mec.scene import scene
from trident.report.scene_figure import draw_scene


def draw(config: UavMecConfig, where: Figure | Axes, states: MecState) -> None:
    """Draw the last of `states` (NumPy arrays with a leading time axis); the earlier ones give trails and time lines.

    On a figure: the map and three gauges. On axes: the map, with the gauges as a line of text.
    """
    made = scene(config, states)
    if isinstance(where, Axes):
        made = replace(made, map=replace(made.map, title=f"{made.map.title[-1]}\n{_gauges(config, states)}"))
    draw_scene(made, where, made.length - 1)


def _gauges(config: UavMecConfig, states: MecState) -> str:
    most, share = float(states.energy[-1].max()), float((states.reach[-1] <= config.coverage_radius).mean())
    covered = f"covered {share:.0%} of at least {config.coverage_min:.0%}"
    return f"most energy {most:.0f} of {config.energy_max:g} J    {covered}"
