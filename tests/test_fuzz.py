"""A small slice of `make fuzz`: every attack that needs no process of its own, with other dice than there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz import environments, files, values
from fuzz.tally import Tally
from support import tiny

from trident.training import session

SLICES = {
    "commands": (values.commands, 20), "configs": (values.configs, 15), "arguments": (values.arguments, 60),
    "files": (files.damaged, 25), "strangers": (files.strangers, 6), "environments": (environments.environments, 12),
}  # fmt: skip


@pytest.mark.parametrize("name", SLICES)
def test_nothing_breaks_it(name, monkeypatch, tmp_path):
    if name in ("files", "strangers"):
        monkeypatch.setattr(session, "build", tiny.share_builds())
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path(tmp_path) / "cache"))
    attack, count = SLICES[name]
    tally = Tally()
    attack(tally, count, random.Random(7))
    assert tally.tries == count
    assert tally.examples == []
    assert tally.refused + tally.sound == count


def test_the_tally_counts_what_it_should():
    tally = Tally()
    with tally.attempt("a traceback"):
        raise KeyError("x")
    with tally.attempt("an exit"):
        raise SystemExit(3)
    with tally.attempt("sound"):
        pass
    assert (tally.tries, tally.tracebacks, tally.sound, tally.failures) == (3, 2, 1, 2)
