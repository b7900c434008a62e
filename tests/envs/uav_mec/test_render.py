"""Frames can be drawn on a figure and on axes, and show what they should."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from oracles import uav_mec_numpy as twin

from trident.envs.uav_mec.dynamics import MecState
from trident.envs.uav_mec.env import UavMec, initial_state


@pytest.fixture(scope="module")
def episode():
    """25 slots of a random fleet, played by the NumPy twin (nothing to compile)."""
    env, rng = UavMec(), np.random.default_rng(0)
    c = env.config
    state = jax.jit(lambda key: initial_state(c, key))(jax.random.key(0))
    now, states = {k: np.asarray(v)[None] for k, v in state._asdict().items()}, []
    for _ in range(25):
        tasks = rng.uniform(4, 8, (1, 20)), rng.uniform(80, 160, (1, 20)), rng.standard_normal((1, 20, 2))
        now, _ = twin.step(c, now, *tasks, rng.integers(0, 3, (1, 4)), rng.uniform(0, 1, (1, 4, 3)))
        states.append(MecState(*(now[k][0] for k in MecState._fields)))
    return env, MecState(*map(np.stack, zip(*states, strict=True)))


def test_figure_shows_map_and_gauges(episode):
    env, states = episode
    fig = Figure()
    env.draw(fig, states, 24)
    plan, energy, coverage, modes = fig.axes
    assert plan.get_title(loc="left").startswith("slot 25/200")
    share = 100 * (states.energy > env.config.energy_max).mean()
    assert f"{share:.1f} % over" in energy.get_title(loc="left")
    np.testing.assert_allclose(coverage.lines[0].get_ydata(), (states.reach <= 128.0).mean(1))
    np.testing.assert_array_equal(modes.images[0].get_array(), states.mode.T)


def test_both_ways_to_give_the_past_draw_the_same(episode):
    env, states = episode
    listed = [(MecState(*(x[t] for x in states)), None, None) for t in range(10)]
    pictures = []
    for history, t in ((listed, None), (states, 9)):
        fig = Figure(figsize=(6, 4), dpi=60)
        env.draw(fig, history, t)
        canvas = FigureCanvasAgg(fig)
        canvas.draw()
        pictures.append(np.asarray(canvas.buffer_rgba()))
    np.testing.assert_array_equal(*pictures)
    assert pictures[0].std() > 10


def test_axes_get_the_map_alone(episode):
    env, states = episode
    fig = Figure()
    ax = fig.add_subplot()
    env.draw(ax, states, 3)
    assert fig.axes == [ax]
    assert "coverage is not charged" in ax.get_title(loc="left")


def test_every_sign_of_the_map_is_named_and_it_has_a_scale(episode):
    env, states = episode
    ax = Figure().add_subplot()
    env.draw(ax, states, 24)
    named = " ".join(text.get_text() for text in ax.get_legend().get_texts())
    for word in (
        "on board",
        "fog 1",
        "fog 2",
        "hotspot",
        "coverage, 128 m",
        "flown in 40 slots",
        "covered",
        "not served",
    ):
        assert word in named
    assert "100 m" in [text.get_text() for text in ax.texts]
    bar = next(line for line in ax.lines if line.get_linewidth() == 3.0)
    assert np.ptp(bar.get_xdata()) == pytest.approx(100.0)
