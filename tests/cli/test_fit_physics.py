"""`trident fit-physics` finds the constants of a system that is known, and says what they leave unexplained."""

import re

from trident.cli import main


def test_it_finds_the_constants(capsys):
    assert main(["fit-physics", "support.carts:Carts", "--episodes", "8"]) == 0
    said = capsys.readouterr().out
    for name, truth in (("drag", 0.25), ("push", 3.0)):
        value, low, high = map(float, re.search(rf"{name} .*?([\d.]+) +\[([\d.]+), ([\d.]+)\]", said).groups())
        assert low - 0.02 * truth <= truth <= high + 0.02 * truth
        assert abs(value - truth) < 0.05 * truth
    now = {line.split("  ")[0]: float(line.split()[-1]) for line in said.splitlines() if line.startswith("state ")}
    assert now["state 1"] < 0.02  # what changes a speed, but for the noise
    assert re.search(r"cost speed +[\d.]+ +[\d.]+", said)  # its closed form is a probability
    assert "from 160 steps of 8 episodes" in said


def test_one_constant_of_several(capsys):
    assert main(["fit-physics", "support.carts:Carts", "--episodes", "4", "--constants", "push"]) == 0
    assert "drag" not in capsys.readouterr().out


def test_a_mistake_is_one_line(capsys):
    assert main(["fit-physics", "probe-constrained"]) == 2
    assert "probe-constrained has no constants to fit: give it `constants`" in capsys.readouterr().err
    assert main(["fit-physics", "support.carts:Carts", "--constants", "puhs"]) == 2
    assert "unknown constant 'puhs' of support.carts:Carts: did you mean 'push'?" in capsys.readouterr().err
    assert main(["fit-physics", "support.carts:Carts", "--policy", "nominal"]) == 2
    assert "nominal" in capsys.readouterr().err
