"""Pictures of the partition show what is there and name their signs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.env import UavCoverage
from trident.envs.uav_coverage.scene import IMPORTANCE, importances, partition
from trident.report.palette import LIMIT
from trident.report.scene import Area, Raster
from trident.report.scene_figure import draw_scene


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
    draw_scene(env.scene(states, np.ones((12, 6), bool)), fig, 10)
    plan, sectors, power, modes = fig.axes
    assert plan.get_title(loc="left") == "t = 10 s"
    named = " ".join(text.get_text() for text in plan.get_legend().get_texts())
    for word in ("importance", "partition", "sensing radius", "sector below", "obstacle"):
        assert word in named
    assert len(sectors.lines) == 9 + 2  # each, the least of them, the minimum
    np.testing.assert_allclose(power.lines[3].get_ydata(), states.power[1:11, 3])
    np.testing.assert_array_equal(modes.images[0].get_array(), states.mode[1:11].T)
    FigureCanvasAgg(fig).draw()


def test_frames_show_importance_and_the_sectors_in_need(episode):
    env, states = episode
    c, scene = env.config, env.scene(states)
    for t in (0, 12):
        frame = scene.map.frames[t]
        (field,) = (mark for mark in frame if isinstance(mark, Raster))
        cells = np.array(field.cells)

        def level(place, cells=cells):
            column, row = (int(v / c.area * len(cells)) for v in place)
            return cells[len(cells) - 1 - row, column]

        assert level(states.obstacle[t, 0]) <= 1  # nothing is of importance there
        assert level(c.places[np.argmax(importances(c, states)[t])]) > 0.6 * len(IMPORTANCE)
        low = [mark for mark in frame if isinstance(mark, Area) and mark.edge == LIMIT]
        least = np.array(scene.panels[0].history[-1].points)[t, 1]
        assert bool(low) == (t > c.grace and least < c.sector_min)


def test_cells_hold_what_is_nearest_and_fill_the_region():
    rng = np.random.default_rng(0)
    uav, side = rng.uniform(0.0, 600.0, (6, 2)), 600.0
    cells = partition(uav, side)
    assert sum(area(cell) for cell in cells) == pytest.approx(side**2)
    for i, cell in enumerate(cells):
        away = np.linalg.norm(cell[:, None] - uav, axis=-1)
        np.testing.assert_array_less(away[:, i], away.min(1) + 1e-6)
        border = ((cell < 1e-6) | (cell > side - 1e-6)).any(1)
        second = np.sort(away, axis=1)[:, 1]
        np.testing.assert_allclose(away[~border, i], second[~border])
    assert len(partition(uav[:1], side)[0]) == 4
    twins = partition(np.zeros((2, 2)) + 300.0, side)  # two in one place
    assert all(area(cell) == pytest.approx(side**2) for cell in twins)


def area(cell):
    x, y = cell.T
    return 0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))


def test_the_figure_shows_the_partition_at_three_times(episode):
    env, states = episode
    fig = Figure()
    env.figure(fig, states)
    assert [ax.get_title(loc="left")[:12] for ax in fig.axes] == ["(a)  t = 0 s", "(b)  t = 2 s", "(c)  t = 12 "]
    FigureCanvasAgg(fig).draw()
