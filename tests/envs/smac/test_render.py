"""Frames of a battle show who lives, who shoots and how the armies stand."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from trident.envs.smac.config import SmacConfig
from trident.envs.smac.engine import Fire
from trident.envs.smac.env import Smac, SmacState, initial_units
from trident.envs.smac.scene import ALLY, ENEMY, camera

CONFIG = SmacConfig(map="2s3z")


@pytest.fixture(scope="module")
def states():
    """Three made-up steps: an ally dies in the last one, shot by two enemies."""
    first = jax.device_get(initial_units(CONFIG, jax.random.key(0)))
    rows = []
    for t in range(3):
        health, shots, aim = first.health.copy(), np.zeros(10), np.full(10, -1)
        if t == 2:
            health[0], shots[[5, 6]], aim[[5, 6]] = 0.0, 1.0, 0
        offset = np.array([[0.0, 0.0], [0.6, 0.5], *[[0.0, 0.0]] * 3])
        units, mode = first._replace(health=health), np.array([1, 4, 6, 6, 1])
        rows.append(SmacState(units, np.int32(t), mode, offset, Fire(shots, aim)))
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def bodies(ax):
    return [to_hex(p.get_facecolor()) for p in ax.patches if isinstance(p, Circle)]


def test_figure_shows_the_field_and_how_the_armies_stand(states):
    fig = Figure()
    Smac(CONFIG).draw(fig, states, 2)
    field, pools, counts = fig.axes
    assert field.get_title(loc="left").startswith("2s3z   step 2/120   1.0 s")
    assert bodies(field).count(ALLY) == 4
    assert bodies(field).count(ENEMY) == 5
    assert counts.get_title(loc="left") == "allies 4 of 5, enemies 5 of 5"
    share = 1 - 80 / CONFIG.roster.pool[:5].sum()
    assert pools.lines[0].get_ydata()[-1] == pytest.approx(share)
    FigureCanvasAgg(fig).draw()


def test_axes_get_the_field_alone_and_the_end_is_named(states):
    fig = Figure()
    ax = fig.add_subplot()
    lost = states._replace(units=states.units._replace(health=states.units.health * np.r_[np.zeros(5), np.ones(5)]))
    Smac(CONFIG).draw(ax, lost)
    assert fig.axes == [ax]
    assert "DEFEAT" in ax.get_title(loc="left")


@pytest.mark.parametrize("name", ["2s3z", "6h_vs_8z"])
def test_the_camera_sees_all_the_living_and_nothing_prints_beyond_it(states, name):
    config = SmacConfig(map=name)
    units = jax.device_get(initial_units(config, jax.random.key(0)))
    west, south, east, north = config.field.arena
    x, y = units.x.copy(), units.y.copy()
    x[:2], y[:2] = (west + 1, east - 1), (south + 1, north - 1)  # two who have run into opposite corners
    both = jax.tree.map(lambda *v: np.stack(v), units, units._replace(x=x, y=y))
    seen = states._replace(units=both)
    left, bottom, right, top = camera(config, seen)
    assert ((left < x) & (x < right) & (bottom < y) & (y < top)).all()
    assert (right - left) / (top - bottom) == pytest.approx(12 / 8.5)
    fig = Figure()
    Smac(CONFIG).draw(fig, states, 2)
    assert all(text.get_clip_on() for text in fig.axes[0].texts)


def test_the_camera_follows_a_battle_of_which_nobody_is_left(states):
    gone = states._replace(units=states.units._replace(health=0 * states.units.health))
    assert np.isfinite(camera(CONFIG, gone)).all()


def test_every_sign_of_the_field_is_named_and_it_has_a_scale(states):
    ax = Figure().add_subplot()
    Smac(CONFIG).draw(ax, states)
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"stalker", "zealot", "dead", "hit", "health", "shield", "walked in 5 steps"} <= set(named)
    assert "healing" not in named
    assert any(text.get_text().endswith("grid units") for text in ax.texts)
