"""Pictures of a cruise show roles, kinds and links and name their signs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from trident.envs.uav_cruise.env import UavCruise
from trident.report.palette import mode_colour


@pytest.fixture(scope="module")
def episode():
    env = UavCruise()

    @jax.jit
    def play(key):
        state, _ = env.reset(key)
        step = lambda s, k: (env.step(k, s, env.scripted["random"](k, s))[0],) * 2  # noqa: E731
        return state, jax.lax.scan(step, state, jax.random.split(key, 15))[1]

    first, rest = jax.device_get(play(jax.random.key(1)))
    return env, jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), first, rest)


def test_a_frame_shows_the_map_and_the_gauges(episode):
    env, states = episode
    fig = Figure()
    env.draw(fig, states, 12, changed=np.ones((15, 6), bool))
    plan, battery, _, roles = fig.axes
    named = " ".join(text.get_text() for text in plan.get_legend().get_texts())
    for word in (
        "patrol",
        "scout",
        "relay",
        "return",
        "carrier",
        "stale point",
        "needs a delivery",
        "link to the base",
    ):
        assert word in named
    share = states.battery[:13] / env.config.of_kind("battery")
    np.testing.assert_allclose(battery.lines[2].get_ydata(), share[:, 2], rtol=1e-6)
    np.testing.assert_array_equal(roles.images[0].get_array(), states.role[1:13].T)
    FigureCanvasAgg(fig).draw()


def test_the_figure_has_ways_in_the_colours_of_their_roles(episode):
    env, states = episode
    fig = Figure()
    env.figure(fig, states)
    ways = [c for c in fig.axes[0].collections if hasattr(c, "get_segments") and len(c.get_segments()) == 15]
    assert len(ways) == 6
    for i, way in enumerate(ways):
        want = [to_rgb(mode_colour(int(m))) for m in states.role[1:, i]]
        np.testing.assert_allclose(way.get_colors()[:, :3], want)
    FigureCanvasAgg(fig).draw()
