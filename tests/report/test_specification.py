"""Cost specifications: in words, hashed, and never mixed without a word."""

from __future__ import annotations

import json

import pytest
from support import tiny
from support.run_files import write_files

from trident.cli import main
from trident.errors import TridentError
from trident.report.compare import compare_table
from trident.report.specification import differences, specification, specification_hash

RUN = {
    "env": "tiny", "env_version": 1, "algo": "trident", "config": {"safety": {"method": "lyapunov", "tighten": 0.5}},
    "constraints": [{
        "name": "use", "limit": 0.4, "unit": "rate", "help": "share of steps", "formula": "1[x > 1]",
        "immediate": False,
    }],
}  # fmt: skip


def changed(**parts):
    return RUN | {"constraints": [RUN["constraints"][0] | parts]}


def test_a_constraint_in_words():
    (row,) = specification(RUN)["constraints"]
    assert row["trained to"] == 0.2
    assert row["words"] == (
        "share of steps; 1[x > 1] per step, averaged over all steps of all episodes: <= 0.4 rate; trained to 0.2"
    )


@pytest.mark.parametrize("parts", [
    {"limit": 0.3}, {"unit": "J"}, {"help": "share of hours"}, {"formula": "1[x > 2]"}, {"name": "used"},
    {"immediate": True},
])  # fmt: skip
def test_every_part_of_a_specification_is_in_its_hash(parts):
    other = changed(**parts)
    assert specification(other)["specification"] != specification(RUN)["specification"]
    assert differences(RUN, other)


def test_results_and_learners_are_not_in_the_hash_and_an_older_record_is_no_difference():
    other = RUN | {"algo": "mappo", "config": {}}
    assert specification(other)["specification"] == specification(RUN)["specification"]
    older = changed()
    del older["constraints"][0]["formula"]
    assert differences(RUN, older) == []
    assert specification_hash(RUN["constraints"], RUN | {"env_version": 2}) != specification_hash(
        RUN["constraints"], RUN
    )


def write(folder, run):
    result = {"deterministic": True, "policies": {run["algo"]: [{"reward": 1.0, "cost/use": 0.0}]}}
    write_files(folder, run | {"metrics": [], "rounds": 1}, result, [])
    return folder


def test_runs_with_different_specifications_are_not_mixed_without_a_word(tmp_path):
    a, b = write(tmp_path / "a", RUN), write(tmp_path / "b", changed(limit=0.3))
    with pytest.raises(TridentError, match=r"different cost specifications \(use: limit 0.3 against 0.4\); --mixed"):
        compare_table([a, b])
    assert "Not the same limits" in compare_table([a, b], mixed=True)
    assert "Not the same limits" not in compare_table([a, write(tmp_path / "c", RUN)])


def test_the_command_prints_it(capsys):
    assert tiny
    assert main(["spec", "tiny"]) == 0
    said = capsys.readouterr().out
    assert "limit       0.4 rate" in said
    main(["spec", "tiny", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in found["constraints"]] == ["use", "noise"]
    assert f"specification {found['specification']}" in said
