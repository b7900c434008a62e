"""Pictures of a flight show what happened and name their signs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.env import UavNoFly
from trident.report.over_time import SHIELD, TRAJECTORY
from trident.report.scene import Area, Dot, Line
from trident.report.scene_figure import draw_scene


@pytest.fixture(scope="module")
def flight():
    env = UavNoFly(NoFlyConfig(num_maps=2))

    @jax.jit
    def play(key):
        state, _ = env.reset(key)
        step = lambda s, k: (env.step(k, s, env.scripted["straight"](k, s))[0],) * 2  # noqa: E731
        return state, jax.lax.scan(step, state, jax.random.split(key, 48))[1]

    first, rest = jax.device_get(play(jax.random.key(1)))
    return env, jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), first, rest)


def test_a_frame_shows_the_map_and_the_gauges(flight):
    env, states = flight
    fig = Figure()
    draw_scene(env.scene(states, np.ones((48, 1), bool)), fig, 40)
    plan, near, power, modes = fig.axes
    assert plan.get_title(loc="left").startswith("t = 20.0 s")
    named = " ".join(text.get_text() for text in plan.get_legend().get_texts())
    for word in ("no-fly zone", "flown", "waypoint cell", "goal", "shield acts", "within a zone"):
        assert word in named
    np.testing.assert_allclose(near.lines[-1].get_ydata(), np.clip(states.clearance[:41], -10, 40))
    np.testing.assert_allclose(power.lines[-1].get_ydata(), states.power[:41])
    np.testing.assert_array_equal(modes.images[0].get_array()[0], states.mode[1:41])
    FigureCanvasAgg(fig).draw()


def test_every_frame_shows_what_had_happened_by_then(flight):
    env, states = flight
    changed = np.zeros((48, 1), bool)
    changed[10] = True
    scene = env.scene(states, changed)
    way = np.asarray(states.place + states.offset)
    assert len(scene.map.backdrop) == env.config.num_zones + 2  # and the goal
    zones = [mark.points for mark in scene.map.backdrop if isinstance(mark, Area)]
    np.testing.assert_array_equal(zones, env.maps.zones[int(states.map[0])])
    for t, frame in enumerate(scene.map.frames):
        flown = [mark.points for mark in frame if isinstance(mark, Line) and mark.colour == TRAJECTORY]
        assert len(flown) == (t > 0)
        np.testing.assert_array_equal(flown[0] if flown else way[:1], way[: t + 1])
        rings = [mark.at for mark in frame if isinstance(mark, Dot) and mark.edge == SHIELD]
        np.testing.assert_array_equal(rings, way[11:12] if t >= 11 else np.zeros((0, 2)).tolist())
        inside = [mark for mark in frame if isinstance(mark, Dot) and mark.shape == "X"]
        assert len(inside) == (states.clearance[1 : t + 1] < 0.0).sum()
        np.testing.assert_array_equal(scene.agents[t], [way[t]])
    assert (states.clearance[1:] < 0.0).any()


def test_the_figure_shows_the_way_grow(flight):
    env, states = flight
    fig = Figure()
    env.figure(fig, states)
    titles = [f"({panel})  t = {time:.1f} s" for panel, time in zip("abcd", (6, 12, 18, 24), strict=True)]
    assert [ax.get_title(loc="left") for ax in fig.axes] == titles
    flown = [max(len(line.get_xdata()) for line in ax.lines if line.get_color() == TRAJECTORY) for ax in fig.axes]
    assert flown == [13, 25, 37, 49]
    zones = {len(ax.patches) for ax in fig.axes}
    assert zones == {env.config.num_zones + 1}  # and the goal
    FigureCanvasAgg(fig).draw()
