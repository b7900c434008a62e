"""Runs trained seed by seed, pooled: as if all seeds had been trained at once."""

from __future__ import annotations

import json

import pytest
from support.run_files import write_files

from trident.errors import TridentError
from trident.report.merge_seeds import pool
from trident.report.records import lines_of, read
from trident.run_directory import read_run


def write_run(folder, seeds, rewards, references=False, deterministic=True, **changes):
    settings = {"episodes": 10, "seeds": seeds, "seed": 0, "references": references}
    run = {"env": "e", "env_version": 1, "algo": "a", "config": {"lr": 1}, "commit": "c", "settings": settings}
    run["rounds"] = 2
    policies = {"a": [{"reward": r} for r in rewards]} | ({"random": [{"reward": -9.0}]} if references else {})
    result = {
        "episodes": 5,
        "deterministic": deterministic,
        "shielded": False,
        "seeds": seeds,
        "diverged": {},
        "policies": policies,
    }
    row = {"env_steps": 8, "episodes": 1.0, "seconds": 2.0, "diverged": {}, "values": {"reward": rewards}}
    write_files(folder, run | changes, result, [{"round": i} | row for i in (1, 2)])
    return folder


def test_pooled_seeds_stand_side_by_side(tmp_path):
    one, two = write_run(tmp_path / "1", [0], [-1.0]), write_run(tmp_path / "2", [1, 2], [-2.0, -3.0], references=True)
    pool([one, two], tmp_path / "all")
    run, result = (json.loads((tmp_path / "all" / name).read_text()) for name in ("run.json", "result.json"))
    assert run["settings"]["seeds"] == result["seeds"] == [0, 1, 2]
    assert [row["reward"] for row in result["policies"]["a"]] == [-1.0, -2.0, -3.0]
    assert result["policies"]["random"] == [{"reward": -9.0}]
    records = read(tmp_path / "all" / "records.jsonl")
    assert [r["values"]["reward"] for r in records] == [[-1.0, -2.0, -3.0]] * 2
    assert records[0]["seconds"] == 4.0


@pytest.mark.parametrize(
    ("seeds", "changes", "message"),
    [
        ([0], {}, "occurs twice"),
        ([1], {"config": {"lr": 2}}, "'config'"),
        ([1], {"commit": "d"}, "'commit'"),
        ([1], {"deterministic": False}, r"evaluated differently \(deterministic\)"),
    ],
)
def test_what_differs_in_more_than_seeds_does_not_pool(tmp_path, seeds, changes, message):
    one, two = write_run(tmp_path / "1", [0], [-1.0]), write_run(tmp_path / "2", seeds, [-2.0], **changes)
    with pytest.raises(TridentError, match=message):
        pool([one, two], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_nothing_is_written_if_the_runs_do_not_fit(tmp_path):
    one, two = write_run(tmp_path / "1", [0], [-1.0]), write_run(tmp_path / "2", [1], [-2.0])
    (two / "records.jsonl").write_text((two / "records.jsonl").read_text().splitlines()[0] + "\n")
    with pytest.raises(TridentError, match="not finished"):
        pool([one, two], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_what_a_warm_start_measured_is_kept(tmp_path):
    folders = [write_run(tmp_path / str(i), [i], [-1.0]) for i in (0, 1)]
    for folder in folders:
        rows = read(folder / "records.jsonl")
        first = rows[0] | {"round": 0, "values": {"warm_start/agreement": [0.9]}}
        (folder / "records.jsonl").write_text(lines_of(read_run(folder), [first, *rows]))
    pool(folders, tmp_path / "all")
    rows = read(tmp_path / "all" / "records.jsonl")
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert rows[0]["values"] == {"warm_start/agreement": [0.9, 0.9]}


def test_commits_pool_if_told_to_and_are_all_named(tmp_path):
    one = write_run(tmp_path / "1", [0], [-1.0], config={"lr": 1}, commit="c")
    two = write_run(tmp_path / "2", [1], [-2.0], config={"lr": 1, "new": False}, commit="d")
    with pytest.raises(TridentError, match="'config'"):
        pool([one, two], tmp_path / "all")
    pool([one, two], tmp_path / "all", commits=True)
    run = json.loads((tmp_path / "all" / "run.json").read_text())
    assert (run["commit"], run["config"]) == ("c, d", {"lr": 1, "new": False})
    other = write_run(tmp_path / "3", [2], [-3.0], config={"lr": 2}, commit="d")
    with pytest.raises(TridentError, match="'config'"):
        pool([one, other], tmp_path / "both", commits=True)
