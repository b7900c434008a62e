"""Pictures of a cruise show roles, kinds and links and name their signs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trident.envs.uav_cruise.dynamics import link_room
from trident.envs.uav_cruise.env import UavCruise
from trident.report.over_time import SHIELD
from trident.report.palette import LIMIT, QUIET, mode_colour
from trident.report.scene import Dot, Line
from trident.report.scene_figure import draw_scene


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
    draw_scene(env.scene(states, np.ones((15, 6), bool)), fig, 12)
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
    curves = [line.get_ydata() for line in battery.lines if len(line.get_xdata()) == 13]
    np.testing.assert_allclose(curves, share.T, rtol=1e-6)
    np.testing.assert_array_equal(roles.images[0].get_array(), states.role[1:13].T)
    FigureCanvasAgg(fig).draw()


def test_every_frame_shows_who_is_linked_and_who_is_in_need(episode):
    env, states = episode
    changed = np.zeros((15, 6), bool)
    changed[3, 2] = True
    scene = env.scene(states, changed)
    for t, frame in enumerate(scene.map.frames):
        now = jax.tree.map(lambda x, t=t: x[t], states)
        room = np.asarray(link_room(env.config, jnp.asarray(now.uav), jnp.asarray(now.role))) >= 0.0
        on = np.append(now.linked, True)
        links = [mark for mark in frame if isinstance(mark, Line) and mark.colour == QUIET]
        pairs = sum(room[i, j] and on[i] and on[j] for i in range(6) for j in range(i + 1, 7))
        assert len(links) == pairs
        needs = [mark.at for mark in frame if isinstance(mark, Dot) and mark.edge == LIMIT]
        np.testing.assert_array_equal(np.reshape(needs, (-1, 2)), now.point[now.need > 0.5])
        acted = [mark.at for mark in frame if isinstance(mark, Dot) and mark.edge == SHIELD]
        np.testing.assert_array_equal(np.reshape(acted, (-1, 2)), now.uav[2:3] if t == 4 else np.zeros((0, 2)))


def test_the_figure_has_ways_in_the_colours_of_their_roles(episode):
    env, states = episode
    fig = Figure()
    env.figure(fig, states)
    for i in range(6):
        for t, role in enumerate(states.role[1:, i]):
            ends = states.uav[t : t + 2, i].astype(float).tolist()
            over = [line for line in fig.axes[0].lines if _passes(line, ends) and line.get_lw() == 1.5]
            assert [line.get_color() for line in over] == [mode_colour(int(role))]
    FigureCanvasAgg(fig).draw()


def _passes(line, ends):
    points = line.get_xydata().tolist()
    return any(points[k : k + 2] == ends for k in range(len(points) - 1))
