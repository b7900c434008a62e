"""A scene is plain data: what the painters and the page get is what the environment said."""

from __future__ import annotations

import json

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
from matplotlib.figure import Figure

from trident.report.default_scene import default_scene
from trident.report.scene import (
    Area,
    Arrow,
    Disc,
    Dot,
    Key,
    Label,
    Line,
    Plane,
    Raster,
    Scene,
    packed,
    rectangle,
    until,
)
from trident.report.scene_figure import draw_scene

ONE_OF_EACH = [
    Line([(0.0, 0.0), (1.0, None), (2.0, 3.0)], width=2.0),
    Line([(0.0, 0.0), (1.0, 1.0)], fade=True),
    Area([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)], fill="#EEF1F4", alpha=0.5),
    Disc((5.0, 5.0), 1.25, edge="#1F2933"),
    *(Dot((3.0, 4.0), shape=shape, size=9.0) for shape in "oshxXP*>^"),
    Label((1.0, 2.0), "<b>", offset=(0.0, -5.0), box="#EEF1F4"),
    Arrow((1.0, 1.0), (2.0, -1.0)),
    Raster((0.0, 0.0, 4.0, 2.0), [[0, 1, 1, 0], [1, 0, 0, 1]], ["#1F2933", "#EEF1F4"]),
]


def small(**more):
    plane = Plane([ONE_OF_EACH, ONE_OF_EACH[:1]], (0.0, 0.0, 10.0, 10.0), title=["one", "two"], unit="m")
    return Scene(plane, key=[Key(f"sign {i}", mark) for i, mark in enumerate(ONE_OF_EACH)], **more)


def unpacked(scene, mark):
    """A packed mark as (look, coordinates)."""
    return scene["looks"][mark[0]], mark[1:]


def test_a_packed_scene_is_json_with_every_look_told_once():
    scene = json.loads(json.dumps(packed(small())))
    assert len(scene["looks"]) == len({json.dumps(look, sort_keys=True) for look in scene["looks"]})
    look, numbers = unpacked(scene, scene["map"]["frames"][0][3])
    assert look == {"kind": "disc", "edge": "#1F2933"}
    assert numbers == [5.0, 5.0, 1.25]
    look, numbers = unpacked(scene, scene["map"]["frames"][0][0])
    assert numbers == [0.0, 0.0, 1.0, None, 2.0, 3.0]
    look, numbers = unpacked(scene, scene["map"]["frames"][0][-1])
    assert numbers == [0.0, 0.0, 4.0, 2.0, 2, 0, 1, 1, 0, 1, 0, 0, 1]
    assert scene["map"]["title"] == ["one", "two"]


def test_coordinates_are_rounded_to_less_than_can_be_seen():
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 630, (50, 2))
    scene = packed(Scene(Plane([[Dot(p) for p in places]], (0.0, 0.0, 630.0, 630.0))))
    found = np.array([mark[1:] for mark in scene["map"]["frames"][0]])
    assert np.abs(found - places).max() <= 630 / 4000


def test_a_history_ends_at_the_clock():
    assert until(Line([(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]), 1.0).points == [(0.0, 1.0), (1.0, 2.0)]
    assert until(Line([(1.0, 1.0)]), 0.5) is None
    assert until(rectangle(0.0, 0.0, 4.0, 1.0, "#EEF1F4"), 1.5).points[1] == (1.5, 0.0)
    assert until(rectangle(2.0, 0.0, 4.0, 1.0, "#EEF1F4"), 1.5) is None
    raster = Raster((0.0, 0.0, 4.0, 2.0), [[0, 1, 2, 3]], ["#1F2933"] * 4)
    assert until(raster, 2.0) == Raster((0.0, 0.0, 2.0, 2.0), [[0, 1]], ["#1F2933"] * 4)
    assert until(raster, 0.0) is None
    assert until(Dot((3.0, 0.0)), 2.9) is None


def test_every_mark_and_key_can_be_painted():
    figure = Figure()
    panel = Plane([[], []], (0.0, 0.0, 4.0, 2.0), history=ONE_OF_EACH[-1:], clock=[2.0, 4.0], title="modes")
    draw_scene(small(panels=[panel]), figure, 0)
    plan, beside = figure.axes
    assert plan.get_title(loc="left") == "one"
    assert beside.images[0].get_array().shape == (2, 2)
    assert len(plan.get_legend().get_texts()) == len(ONE_OF_EACH)
    figure.canvas.draw()


@pytest.mark.parametrize(("agents", "alive"), [(1, True), (5, False), (40, True)])
def test_any_episode_has_a_picture(agents, alive):
    rng = np.random.default_rng(0)
    steps = 7
    living = np.ones((steps, agents), bool)
    living[3:, 0] = alive
    changed = np.zeros((steps, agents), bool)
    changed[2, 0] = True
    scene = default_scene(
        ["rest", "go"], rng.integers(0, 2, (steps, agents)), rng.uniform(-1, 1, (steps, agents, 3)),
        rng.normal(size=steps), {"heat": rng.uniform(0, 1, steps)}, {"heat": 0.3}, living, changed,
    )  # fmt: skip
    assert scene.length == steps + 1
    assert len(scene.agents[0]) == agents
    names = {key.text for key in scene.key}
    assert "shield acts" in names
    assert ("not alive" in names) is not alive
    json.dumps(packed(scene))
    figure = Figure()
    draw_scene(scene, figure, 4)
    assert [ax.get_title(loc="left") for ax in figure.axes][2:] == [
        "reward of the step",
        "cost heat, mean so far, limit 0.3",
    ]


def test_a_picture_can_be_svg(tmp_path):
    from trident.report.video import write_frame

    write_frame(tmp_path / "last.svg", lambda figure, t: draw_scene(small(), figure, t), 0)
    assert "<svg" in (tmp_path / "last.svg").read_text()
