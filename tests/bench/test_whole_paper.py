"""The six tables as one campaign: what it costs is said first, and nothing begins without a yes."""

import io
import sys

import pytest

from trident.bench import cost
from trident.bench.paper import CAMPAIGNS, HARD
from trident.cli import bench, main, paper
from trident.launch.job import Job


@pytest.fixture
def of_the_records(monkeypatch):
    monkeypatch.setattr(paper, "machine_factor", lambda *_: 1.0)


def test_the_cost_is_said_and_nobody_can_be_asked(tmp_path, monkeypatch, capsys, of_the_records):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    monkeypatch.setattr(paper, "run_table", lambda *_, **__: pytest.fail("nobody said yes"))
    assert main(["bench", "paper", "--tables", "table4", "--out", str(tmp_path / "x")]) == 2
    said = capsys.readouterr()
    assert "table4     8  360,000,000" in said.out  # 8 methods x 15,000 episodes of 300 steps x 10 seeds
    assert "nobody can be asked whether to go on: --yes says so" in said.err
    assert not (tmp_path / "x").exists()


def test_one_campaign_runs_then_each_table_is_made(tmp_path, monkeypatch, of_the_records):
    asked, made = [], []
    monkeypatch.setattr(paper, "run_table", lambda jobs, *_, **__: asked.extend(jobs) or {})
    monkeypatch.setattr(paper, "bench", lambda words: made.append(words) or 0)
    tables = "--tables table2 table4 --share 0.001 --seeds 2 --yes"
    assert main(["bench", "paper", *tables.split(), "--out", str(tmp_path)]) == 0
    assert {(job.episodes, job.seeds) for job in asked} == {(20, 2), (15, 2)}
    assert [words[0] for words in made] == ["ablations", "table4-aim"]
    assert made[0][1:] == ["--episodes", "20", "--seeds", "2", "--keep", "--out", str(tmp_path / "table2")]
    assert main(["bench", "paper", "--tables", "table7", "--yes"]) == 2


def test_every_table_is_one_that_can_be_made():
    assert {table.command for table in paper.TABLES.values()} <= {*CAMPAIGNS, *bench.STUDIES}
    assert paper.TABLES["table6"].budget(0.5) == ["--steps", "2500000"]
    assert {*HARD} <= {*CAMPAIGNS["table6"].envs}


def test_what_is_on_no_record_costs_what_its_kin_does(tmp_path):
    known = cost.PACE["uav-mec"]
    assert cost.microseconds("uav-mec", "mappo") == known["mappo"]
    assert cost.microseconds("uav-mec", "mappo+planner") == known["mappo"]
    assert cost.microseconds("uav-mec", "macpo-residual") == known["macpo"]
    assert cost.microseconds("uav-mec", "trident-separate") == known["trident-scratch"]
    assert cost.microseconds("uav-mec-n32", "facmac") == 8 * known["facmac"]
    assert cost.microseconds("uav-mec-n32", "trident") == 8**1.3 * known["trident"]
    smac = cost.PACE["smac-MMM2"]["mappo"]
    assert cost.microseconds("smac-MMM2", "matd3") == smac * known["matd3"] / known["mappo"]
    found = cost.costs({"a": [Job("uav-mec", "mappo", tmp_path, 1000, 2)]}, 0.5)["a"]
    assert found[:2] == (1, 400_000)
    assert found.core_hours == pytest.approx(400_000 * known["mappo"] * 1e-6 * 2 * 0.5 / 3600)
    assert "all" in cost.cost_table({"a": found, "b": found})
