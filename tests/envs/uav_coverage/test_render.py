"""Pictures of the partition show what is there and name their signs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.env import UavCoverage


@pytest.fixture(scope="module")
def episode():
    env = UavCoverage(CoverageConfig(num_obstacles=1, grace=4))

    @jax.jit
    def play(key):
        state, _ = env.reset(key)
        step = lambda s, k: (env.step(k, s, env.scripted["lloyd"](k, s))[0],) * 2  # noqa: E731
        return state, jax.lax.scan(step, state, jax.random.split(key, 12))[1]

    first, rest = jax.device_get(play(jax.random.key(1)))
    return env, jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), first, rest)


def test_a_frame_shows_the_map_and_the_gauges(episode):
    env, states = episode
    fig = Figure()
    env.draw(fig, states, 10, changed=np.ones((12, 6), bool))
    plan, sectors, power, modes = fig.axes
    assert plan.get_title(loc="left") == "t = 10 s"
    named = " ".join(text.get_text() for text in plan.get_legend().get_texts())
    for word in ("importance", "partition", "sensing radius", "sector below", "obstacle"):
        assert word in named
    assert len(sectors.lines) == 9 + 2  # each, the least of them, the minimum
    np.testing.assert_allclose(power.lines[3].get_ydata(), states.power[1:11, 3])
    np.testing.assert_array_equal(modes.images[0].get_array(), states.mode[1:11].T)
    FigureCanvasAgg(fig).draw()


def test_edges_lie_between_the_two_nearest(episode):
    env, states = episode
    fig = Figure()
    env.figure(fig, states)
    assert [ax.get_title(loc="left")[:12] for ax in fig.axes] == ["(a)  t = 0 s", "(b)  t = 2 s", "(c)  t = 12 "]
    last = fig.axes[-1]
    edges = [path.vertices for c in last.collections if hasattr(c, "levels") for path in c.get_paths() if len(path)]
    points = np.concatenate(edges)
    away = np.sort(np.linalg.norm(points[:, None] - states.uav[-1][None], axis=-1), axis=1)
    np.testing.assert_allclose(away[:, 0], away[:, 1], atol=3.0)
    FigureCanvasAgg(fig).draw()
