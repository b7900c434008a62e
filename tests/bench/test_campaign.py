"""Tables of methods: what is run, what is skipped, what is missing, and how records become rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from trident.bench import campaign as c
from trident.cli import main
from trident.errors import TridentError
from trident.report.versus import convergence, versus_table

CONSTRAINTS = [{"name": "energy", "limit": 0.01, "unit": "rate"}, {"name": "coverage", "limit": 0.03, "unit": "rate"}]


def write_run(folder: Path, algo: str, rewards: list[float], episodes: int = 4, diverged: dict | None = None) -> Path:
    folder.mkdir(parents=True)
    seeds = list(range(len(rewards)))
    run = {
        "env": "uav-mec", "algo": algo, "constraints": CONSTRAINTS, "horizon": 200,
        "settings": {"episodes": episodes, "seeds": len(seeds)},
    }  # fmt: skip
    score = lambda r: {"reward": r, "metric/ev": 0.02, "metric/cv": 0.05, "cost/energy": 0.02, "cost/coverage": 0.05}  # noqa: E731
    policies = {"random": [score(-9.0) for _ in seeds], algo: [score(r) for r in rewards]}
    result = {"policies": policies, "seeds": seeds, "diverged": diverged or {}}
    rows = [
        {"round": i + 1, "env_steps": 3200 * (i + 1), "episodes": 16.0 * (i + 1), "seconds": 60.0 * (i + 1),
         "diverged": {}, "values": {"reward": [-9.0 + 0.3 * min(i, 8)] * len(seeds), "cost/energy": [0.1] * len(seeds),
         "cost/coverage": [0.3] * len(seeds)}}
        for i in range(20)
    ]  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_rows_hold_ours_the_printed_and_the_training(tmp_path):
    one = write_run(tmp_path / "mappo", "mappo", [-6.0, -6.2])
    two = write_run(tmp_path / "macpo", "macpo", [-6.5, -6.5], diverged={"1": "loss"})
    columns, printed = ("reward", "metric/ev", "total"), {"mappo": (-5.24, 0.172, 0.287)}
    table = versus_table([one, two], columns, printed, {"madac": "exit code 1"})
    random, mappo, macpo, madac = table.splitlines()[2:]
    assert "-6.10 [-6.20, -6.00] (-5.24)" in mappo
    assert "2.0 [2.0, 2.0] (17.2)" in mappo
    assert "7.0 [7.0, 7.0] (28.7)" in mappo
    assert "40.0 [40.0, 40.0]" in mappo
    assert mappo.rstrip(" |").endswith("20.0")  # minutes
    assert "macpo (1 of 2 seeds diverged)" in macpo
    assert "madac (missing)" in madac
    assert random.startswith("| random")


def test_convergence_is_where_the_smoothed_reward_has_gone_its_way(tmp_path):
    folder = write_run(tmp_path / "x", "mappo", [-6.0])
    run = json.loads((folder / "run.json").read_text())
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    # rewards rise by 0.3 for 8 rounds; means of five go from -8.4 to -6.6; 95 % of it is reached at round index 11
    np.testing.assert_allclose(convergence(run, records), [3200 * 12 / 200])


def test_finished_runs_are_kept_and_others_started_or_resumed(tmp_path):
    write_run(tmp_path / "mappo", "mappo", [-6.0, -6.1])
    assert c.is_done(tmp_path / "mappo", 4, 2)
    with pytest.raises(TridentError, match="4 episodes and 2 seeds, not of 8 and 2"):
        c.is_done(tmp_path / "mappo", 8, 2)
    assert not c.is_done(tmp_path / "happo", 4, 2)
    assert "train" in c.command_of("uav-mec", "happo", tmp_path / "happo", 4, 2)
    (tmp_path / "mappo" / "result.json").unlink()
    assert "resume" in c.command_of("uav-mec", "mappo", tmp_path / "mappo", 4, 2)


def test_a_crash_is_told_and_counts_as_missing(tmp_path, monkeypatch):
    says: list[str] = []
    monkeypatch.setattr(
        c, "command_of", lambda *_: [c.sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"]
    )
    missing = c.run_all(c.CAMPAIGNS["table1"], ["mappo"], tmp_path, 4, 2, 1, says.append)
    assert "exit code 3: out of luck" in missing["mappo"]
    assert any("CRASHED" in text for text in says)


def test_every_row_of_every_table_can_be_run():
    for campaign in c.CAMPAIGNS.values():
        c.check_methods(campaign, campaign.methods)
        assert all(len(numbers) == len(campaign.columns) for numbers in campaign.paper.values())


def test_unknown_methods_are_refused_before_anything_runs(tmp_path, capsys):
    assert main(["bench", "table1", "--methods", "mapo", "--out", str(tmp_path)]) == 2
    assert "unknown method 'mapo'" in capsys.readouterr().err


def test_the_command_prints_and_draws_what_is_on_record(tmp_path, capsys):
    for name, reward in {"mappo": -6.0, "macpo": -6.5}.items():
        write_run(tmp_path / name, name, [reward, reward - 0.1])
        seeds = json.loads((tmp_path / name / "result.json").read_text())
        for policy in seeds["policies"].values():
            for seed in policy:
                seed |= {"metric/exec": 5.0, "metric/energy": 60.0, "metric/throughput": 20.0}
        (tmp_path / name / "result.json").write_text(json.dumps(seeds))
    done = main(
        ["bench", "table1", "--methods", "mappo", "macpo", "--episodes", "4", "--seeds", "2", "--out", str(tmp_path)]
    )
    assert done == 0
    assert "-6.05 [-6.10, -6.00] (-5.24)" in capsys.readouterr().out
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert (tmp_path / "front.png").stat().st_size > 10_000
