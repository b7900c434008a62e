"""Flights under faults: what arrives, and that the guard's answer to it is counted."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from support import tiny

import trident
from trident.errors import TridentError
from trident.export import bundle as exporting
from trident.export.guarded import Faults, Link, compare_guarded, parse_faults
from trident.report.progress import Silent


def test_faults_as_they_are_typed():
    assert parse_faults("dropout=0.2,delay=2,noise=0.1,agent-loss=1") == Faults(0.2, 2, 0.1, 0.0, 1)
    assert parse_faults("") == Faults()
    for wrong, message in (
        ("droput=0.2", "did you mean 'dropout'"), ("delay=1.5", "wants NAME=NUMBER"), ("noise", "wants NAME=NUMBER"),
        ("noise=-1", "wants NAME=NUMBER"), ("dropout=2", "are shares"), ("noise=nan", "wants NAME=NUMBER"),
    ):  # fmt: skip
        with pytest.raises(TridentError, match=message):
            parse_faults(wrong)


def carried(faults, steps=400, agents=3):
    link = Link(faults, np.random.default_rng(0), agents, steps)
    return [link.carry(np.full((agents, 5), float(t), np.float32), t) for t in range(steps)]


def test_a_link_without_faults_carries_everything():
    assert all(
        made == t and sorted(rows) == [0, 1, 2] and all((row == t).all() for row in rows.values())
        for t, (rows, made) in enumerate(carried(Faults()))
    )


def test_a_link_loses_delays_spoils_and_falls_silent():
    share = lambda flown: np.mean([len(rows) / 3 for rows, _ in flown])  # noqa: E731
    assert share(carried(Faults(dropout=0.3))) == pytest.approx(0.7, abs=0.05)
    late = carried(Faults(delay=2))
    assert (late[0], late[1]) == (({}, -2), ({}, -1))
    assert (late[7][0][1] == 5).all()
    spoilt = [np.isnan(row).sum() for rows, _ in carried(Faults(nan=0.5)) for row in rows.values()]
    assert np.mean(spoilt) == pytest.approx(0.5, abs=0.05)
    noisy = np.array([rows[0] - t for t, (rows, _) in enumerate(carried(Faults(noise=0.2)))])
    assert noisy.std() == pytest.approx(0.2, abs=0.02)
    silent = carried(Faults(agent_loss=1))
    assert [len(silent[0][0]), len(silent[-1][0])] == [3, 2]


def test_with_and_without_the_guard_stand_side_by_side(tmp_path, monkeypatch):
    usual = exporting.thresholds  # tiny's margins are low all the time, and it has no base policy
    loose = {"margin": [-9.0, -9.0], "limits": [9.0, 9.0], "novelty": 9.0}
    monkeypatch.setattr(exporting, "thresholds", lambda *given: usual(*given) | loose)
    quick = {"references": False, "video": False, "progress": Silent()}
    run = trident.train(tiny.TinyEnv(), "tiny", episodes=4, seeds=1, out=tmp_path / "run", eval_episodes=0, **quick)
    text = compare_guarded(run, Faults(agent_loss=2), 3)
    rows = [line for line in text.splitlines() if re.match("(no )?faults, ", line)]
    assert [re.split(r"  +", row)[0] for row in rows] == [
        "no faults, as it is", "no faults, guarded", "faults, as it is", "faults, guarded",
    ]  # fmt: skip
    found = json.loads((run.out / "guarded.json").read_text())["flights"]
    branches = [f["branches"] for f in found if f["guarded"]]
    assert branches[0]["fail-safe"] == 0.0
    assert branches[1]["fail-safe"] > 0.2, "both agents fall silent in the first half of the episode"
    assert sum(branches[1].values()) == pytest.approx(1.0)
    assert (run.out / "figures" / "guarded.png").stat().st_size > 5_000
