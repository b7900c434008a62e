"""A colour means one thing, in every picture."""

import itertools
import re
from pathlib import Path

from matplotlib.colors import to_rgb

import trident
from trident.report.palette import METHODS, MODES, OTHERS, SERIES, method_styles
from trident.report.scale_bar import round_length
from trident.training.presets import ALGORITHMS

SOURCE = Path(trident.__file__).parent
LIKENESS = 0.12
"""Colours nearer than this in RGB are hard to tell apart."""


def test_no_two_colours_of_a_palette_are_alike():
    for palette in (MODES[:8], SERIES, (*METHODS.values(), *OTHERS)):
        for one, other in itertools.combinations(palette, 2):
            assert sum((a - b) ** 2 for a, b in zip(to_rgb(one), to_rgb(other), strict=True)) ** 0.5 > LIKENESS, one


def test_trident_is_the_most_visible_line():
    """Regression: it was drawn dark grey, as MAPPO was."""
    styles = dict(zip(ALGORITHMS, method_styles(list(ALGORITHMS)), strict=True))
    ours = styles.pop("trident")
    assert ours["ls"] == "-"
    assert all(
        ours["lw"] > s["lw"] and ours["zorder"] > s["zorder"] and ours["color"] != s["color"] for s in styles.values()
    )


def test_every_run_of_a_comparison_can_be_told_apart():
    names = [*ALGORITHMS, "trident", "my-own"]
    looks = [(s["color"], s["ls"]) for s in method_styles(names)]
    assert len(set(looks)) == len(looks)
    variant, model = method_styles(["mappo-lag-residual", "mappo-lag"])
    assert variant["color"] == model["color"]
    assert variant["ls"] != model["ls"]


def test_a_method_looks_the_same_whoever_stands_beside_it():
    assert method_styles(["qmix"])[0] == method_styles(["my-own", "mappo", "qmix"])[2]


def test_nobody_but_the_palette_has_colours_of_modes_or_methods():
    known = {c.lower() for c in (*MODES, *METHODS.values())}
    for path in SOURCE.rglob("*.py"):
        if path.name != "palette.py":
            found = set(re.findall(r"#[0-9a-f]{6}", path.read_text(encoding="utf-8").lower()))
            assert not found & known, path


def test_a_bar_has_a_round_length():
    assert [round_length(x) for x in (0.99, 1.0, 4.9, 5.0, 60.0, 230.0)] == [0.5, 1, 2, 5, 50, 200]
