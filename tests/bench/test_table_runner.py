"""Tables of methods: what is run, what is skipped, what is missing, and how records become rows."""

import io
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from support.run_files import whole_result, write_files

from trident.bench import table_runner as c
from trident.bench.paper import CAMPAIGNS, HARD, SCENARIOS
from trident.cli import main
from trident.errors import TridentError
from trident.launch import child
from trident.launch.board import Board
from trident.launch.job import Job, words
from trident.launch.local import Local
from trident.report.compare import load_runs
from trident.report.figures import draw_front
from trident.report.page.document import read_page
from trident.report.paper_table import convergence, grid_table, over_training, versus_table
from trident.report.records import lines_of
from trident.report.stats import bootstrap, bootstrap_groups
from trident.run_directory import read_run, write_json
from trident.training.registry import ALGORITHMS, make_env

CONSTRAINTS = [{"name": "energy", "limit": 0.01, "unit": "rate"}, {"name": "coverage", "limit": 0.03, "unit": "rate"}]


def job(folder: Path, episodes: int, seeds: int) -> Job:
    return Job("uav-mec", folder.name, folder, episodes, seeds)


def run_table(jobs: list[Job], says: list[str]) -> dict[Job, str]:
    stream = io.StringIO()
    missing = c.run_table(jobs, Local(1), Board(stream))
    says += stream.getvalue().splitlines()
    return missing


def write_run(folder: Path, algo: str, rewards: list[float], episodes: int = 4, diverged: dict | None = None) -> Path:
    seeds = list(range(len(rewards)))
    run = {
        "env": "uav-mec",
        "env_version": make_env("uav-mec").spec.version,
        "algo": algo,
        "constraints": CONSTRAINTS,
        "horizon": 200,
        "metrics": [],
        "settings": {"episodes": episodes, "seeds": seeds},
        "rounds": 20,
    }

    def score(r):
        return {"reward": r, "metric/ev": 0.02, "metric/cv": 0.05, "cost/energy": 0.02, "cost/coverage": 0.05}

    policies = {"random": [score(-9.0) for _ in seeds], algo: [score(r) for r in rewards]}
    good = [s for s in seeds if str(s) not in (diverged or {})]
    result = {"policies": policies, "seeds": good, "diverged": diverged or {}, "deterministic": algo != "macpo"}
    rows = [
        {
            "round": i + 1,
            "env_steps": 3200 * (i + 1),
            "episodes": 16.0 * (i + 1),
            "seconds": 60.0 * (i + 1),
            "diverged": {},
            "values": {
                "reward": [-9.0 + 0.3 * min(i, 8)] * len(seeds),
                "cost/energy": [0.1] * len(seeds),
                "cost/coverage": [0.3] * len(seeds),
            },
        }
        for i in range(20)
    ]
    write_files(folder, run, result, rows)
    return folder


def test_rows_hold_ours_the_printed_and_the_training(tmp_path):
    one = write_run(tmp_path / "mappo", "mappo", [-6.0, -6.2])
    two = write_run(tmp_path / "macpo", "macpo", [-6.5, -6.5], diverged={"1": {"round": 1, "quantity": "loss"}})
    columns, printed = ("reward", "metric/ev", "total"), {"mappo": (-5.24, 0.172, 0.287)}
    table = versus_table([one, two], columns, printed, {"madac": "exit code 1: no | luck"})
    random, mappo, macpo, madac, _, notes = table.splitlines()[2:]
    assert "-6.10 [-6.20, -6.00] (-5.24)" in mappo
    assert "2.00 [2.00, 2.00] (17.2)" in mappo
    assert "7.00 [7.00, 7.00] (28.7)" in mappo
    assert "40.0 [40.0, 40.0]" in mappo
    assert mappo.rstrip(" |").endswith("20.0")  # minutes
    assert "macpo (sampled, 1 of 2 seeds diverged)" in macpo
    assert madac.startswith("| madac (missing: exit code 1: no / luck) | - |")
    assert random.startswith("| random |")
    assert notes == "Minutes: the rounds of all seeds, without compilation and evaluation."


def test_a_run_whose_seeds_all_diverged_is_a_row_and_one_without_runs_a_table(tmp_path):
    gone = {"0": {"round": 1, "quantity": "loss"}, "1": {"round": 7, "quantity": "loss"}}
    folder = write_run(tmp_path / "macpo", "macpo", [], episodes=4, diverged=gone)
    records = (folder / "records.jsonl").read_text().splitlines(keepends=True)[:7]
    rows = [json.loads(line) for line in records]
    for row in rows:  # the first seed had no values at all
        row["values"] = {name: [None, -9.0] for name in ("reward", "cost/energy", "cost/coverage")}
    (folder / "records.jsonl").write_text(lines_of(read_run(folder), rows))
    other = write_run(tmp_path / "mappo", "mappo", [-6.0, -6.0])
    row = versus_table([other, folder], ("reward", "total"), {"macpo": (-5.0,)}, {}).splitlines()[-3]
    assert row.startswith("| macpo (sampled, 2 of 2 seeds diverged) | - (-5.00) | - |")
    draw_front([(f.name, *load_runs([f])[0][:2]) for f in (other, folder)], tmp_path / "front.png")
    assert (
        versus_table([], ("reward",), {}, {"qmix": "no luck"}).splitlines()[2].startswith("| qmix (missing: no luck)")
    )


def test_references_come_from_the_run_that_knows_most_of_them_and_one_seed_has_no_interval(tmp_path):
    one, two = write_run(tmp_path / "a", "mappo", [-6.0]), write_run(tmp_path / "b", "happo", [-6.5])
    result = json.loads((two / "result.json").read_text())
    result["policies"] = {"greedy": result["policies"]["random"]} | result["policies"]
    write_json(two / "result.json", result)
    *rows, _, notes = versus_table([one, two], ("reward",), {}, {}).splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| greedy (scripted)", "-9.00"],
        ["| random (scripted)", "-9.00"],
        ["| mappo", "-6.00"],
        ["| happo", "-6.50"],
    ]
    assert "one evaluation, without an interval" in notes


def test_a_table_goes_between_the_marks_of_a_page(tmp_path, capsys, monkeypatch):
    for method, reward in (("mappo", -6.0), ("happo", -6.5)):
        write_run(tmp_path / "runs" / method, method, [reward, reward])
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table1: by a command -->\nstale\n<!-- end of table1 -->\nafter\n")
    words = f"bench table1 --methods mappo happo --episodes 4 --seeds 2 --out {tmp_path / 'runs'} --docs {page}"
    monkeypatch.setitem(CAMPAIGNS, "table1", replace(CAMPAIGNS["table1"], columns=("reward", "total"), paper={}))
    assert main(words.split()) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- table1: by a command -->\n\n| method | Reward |")
    assert "| happo | -6.50 [-6.50, -6.50] |" in text
    assert text.endswith("<!-- end of table1 -->\nafter\n")
    assert "stale" not in text
    assert (tmp_path / "runs" / "table1.md").read_text() in text
    (group,) = read_page(tmp_path / "runs" / "report.html")["groups"]  # the whole table to be looked at
    assert sorted(row[0] for row in group["table"]["rows"]) == ["happo", "mappo"]
    assert "| method" not in capsys.readouterr().out  # the terminal gets a plain one
    page.write_text("<!-- other: by a command -->\n<!-- end of other -->\n")
    assert main([*words.split(), "--mark", "other"]) == 0
    assert "| happo |" in page.read_text()
    page.write_text("no marks\n")
    monkeypatch.setattr("trident.cli.bench.run_table", lambda *_: pytest.fail("said before anything is run"))
    assert main(words.split()) == 2
    assert "has no place for it" in capsys.readouterr().err


def test_convergence_is_where_the_smoothed_reward_has_gone_its_way(tmp_path):
    folder = write_run(tmp_path / "x", "mappo", [-6.0])
    run = json.loads((folder / "run.json").read_text())
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    # rewards rise by 0.3 for 8 rounds; means of five go from -8.4 to -6.6; 95 % of it is reached at round index 11
    np.testing.assert_allclose(convergence(run, records), [3200 * 12 / 200])


def test_finished_runs_are_kept_and_others_started_or_resumed(tmp_path):
    write_run(tmp_path / "mappo", "mappo", [-6.0, -6.1])
    assert c.is_done(job(tmp_path / "mappo", 4, 2))
    with pytest.raises(TridentError, match="4 episodes and 2 seeds, not of 8 and 2"):
        c.is_done(job(tmp_path / "mappo", 8, 2))
    assert not c.is_done(job(tmp_path / "happo", 4, 2))
    assert words(job(tmp_path / "happo", 4, 2))[0] == "train"
    (tmp_path / "mappo" / "result.json").unlink()
    assert not c.is_done(job(tmp_path / "mappo", 4, 2))
    assert words(job(tmp_path / "mappo", 4, 2))[0] == "resume"
    with pytest.raises(TridentError, match="not of 8 and 2"):  # an unfinished run of another budget is not resumed
        c.is_done(job(tmp_path / "mappo", 8, 2))


def test_another_tables_run_is_not_taken_and_a_half_trained_one_not_called_done(tmp_path):
    folder = write_run(tmp_path / "mappo", "mappo", [-6.0, -6.1])
    with pytest.raises(TridentError, match="has a run of mappo on uav-mec: choose another --out"):
        c.is_done(Job("intersection", "mappo", folder, 4, 2))
    records = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(records[:7]))  # evaluated before its end
    assert not c.is_done(job(folder, 4, 2))


def finished_as(monkeypatch, result: dict, code: int) -> None:
    """Runs leave this result, a checkpoint and an exit code."""
    text = (
        "import json, pathlib, sys; out = pathlib.Path(sys.argv[1]); (out / 'checkpoints').mkdir(parents=True); "
        "(out / 'result.json').write_text(sys.argv[2]); sys.exit(int(sys.argv[3]))"
    )
    monkeypatch.setattr(
        child,
        "command",
        lambda words, _: [sys.executable, "-c", text, words[-1], json.dumps(whole_result(result)), str(code)],
    )


@pytest.mark.parametrize(("seeds", "code"), [((0, 1), 0), ((0,), 0), ((), 2)])
def test_diverged_seeds_keep_their_checkpoints_and_are_no_crash(tmp_path, monkeypatch, seeds, code):
    says: list[str] = []
    diverged = {str(s): {"round": 3, "quantity": "loss"} for s in {0, 1} - set(seeds)}
    finished_as(monkeypatch, {"seeds": list(seeds), "diverged": diverged, "policies": {}}, code)
    one = job(tmp_path / "mappo", 4, 2)
    assert run_table([one], says) == {}
    assert (one.folder / "checkpoints").exists() == bool(diverged)
    assert not one.log.exists()
    if diverged:
        assert f"{len(diverged)} of 2 seeds DIVERGED" in says[-2]


def test_a_run_that_is_on_record_with_another_config_is_named(tmp_path):
    folder = write_run(tmp_path / "mappo", "mappo", [-6.0, -6.1])
    one, says = job(folder, 4, 2), []
    setup = c.make_setup("uav-mec", "mappo", c.Settings(episodes=4, seeds=2))
    now = asdict(setup.algorithm.config)
    run = json.loads((folder / "run.json").read_text()) | {"config": dict(now), "env_version": setup.spec.version}

    def differences(**config) -> list[str]:
        write_json(folder / "run.json", run | {"config": run["config"] | config})
        return c.differences(one)

    assert differences() == []
    assert differences(lr=0.5, gone=1) == [f"lr 0.5 (now {now['lr']})", "gone 1 (now unknown)"]
    assert run_table([one], says) == {}  # it stands
    assert len(says) == 1
    assert says[0].startswith("mappo on uav-mec: on record with other values than today's: lr 0.5")
    del run["config"]["lr"], run["config"]["base_policy"]
    assert differences() == [f"lr unknown (now {now['lr']})"], "base policy is off: it had only no name then"
    run["env_version"] = 0
    assert differences()[0] == "environment version 0 (now 2)"


def test_convergence_is_that_of_whole_episodes_where_records_have_them(tmp_path):
    """Regression: a policy that did not learn `converged` because the first round is the start of the episodes."""
    folder = write_run(tmp_path / "x", "mappo", [-6.0, -6.0])
    run = json.loads((folder / "run.json").read_text())
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for i, record in enumerate(records):
        rising = None if i < 4 or i % 2 else float(min(i, 20))
        record["values"] |= {"reward": [-9.0 + i, -9.0 + i], "episode_reward": [None if i < 4 else -6.0, rising]}
    level, rises = convergence(run, records)
    assert np.isnan(level)
    known = [(r["env_steps"], r["values"]["episode_reward"][1]) for r in records]
    known = [(s, v) for s, v in known if v is not None]
    means = [(known[j][0], np.mean([v for _, v in known[j - 4 : j + 1]])) for j in range(4, len(known))]
    goal = means[0][1] + 0.95 * (means[-1][1] - means[0][1])
    assert rises == next(s for s, v in means if v >= goal) / run["horizon"]


def test_who_gets_no_better_or_diverges_has_not_converged(tmp_path):
    folder = write_run(tmp_path / "x", "mappo", [-6.0, -6.0])
    run = json.loads((folder / "run.json").read_text())
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for i, record in enumerate(records):
        record["values"]["reward"] = [-9.0 - 0.1 * i, -9.0 + 0.1 * i if i < 10 else None]
    assert np.isnan(convergence(run, records)).all()
    (folder / "records.jsonl").write_text(lines_of(read_run(folder), records))
    assert versus_table([folder], ("reward",), {}, {}).splitlines()[-3].split(" | ")[-2] == "-"


def test_a_crash_is_told_and_counts_as_missing(tmp_path, monkeypatch):
    says: list[str] = []
    fails = [sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"]
    monkeypatch.setattr(child, "command", lambda *_: fails)
    lost = job(tmp_path / "mappo", 4, 2)
    missing = run_table([lost], says)
    assert "exit code 3: out of luck" in missing[lost]
    assert any("mappo on uav-mec: CRASHED" in text for text in says)


def test_every_row_of_every_table_can_be_run(tmp_path):
    for name, campaign in CAMPAIGNS.items():
        jobs = c.plan(campaign, campaign.envs, campaign.methods, tmp_path / name, 4, None, 1)
        assert len({j.folder for j in jobs}) == len(jobs) == len(campaign.envs) * len(campaign.methods)
        assert set(campaign.paper) <= set(campaign.envs)
        for rows in campaign.paper.values():
            assert all(len(numbers) <= len(campaign.columns) for numbers in rows.values())
            assert set(rows) <= {*campaign.methods, "random", "greedy"}


@pytest.mark.parametrize(
    ("method", "env", "episodes", "steps", "message"),
    [
        ("qmix", "uav-mec", 4, None, r"qmix cannot be built for uav-mec: .*grid of .*actions"),
        ("shielded", "probe-mode", 4, None, "probe-mode has no shield: shielded needs one"),
        ("mappo", "uav-mec", 0, None, "--episodes must be at least 1"),
        ("mappo", "uav-mec", 4, 0, "--steps must be at least 1"),
    ],
)
def test_what_cannot_run_is_said_before_anything_starts(tmp_path, monkeypatch, method, env, episodes, steps, message):
    preset = ALGORITHMS["qmix"]
    monkeypatch.setitem(ALGORITHMS, "qmix", replace(preset, config=replace(preset.config, levels=30)))
    with pytest.raises(TridentError, match=message) as caught:
        c.plan(CAMPAIGNS["table1"], [env], ["mappo", method], tmp_path, episodes, steps, 1)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_budget_in_steps_is_the_same_on_every_map(tmp_path):
    jobs = c.plan(CAMPAIGNS["table6"], ["smac-3m", "smac-corridor"], ["mappo"], tmp_path, 7, 5_000_000, 1)
    assert [j.episodes for j in jobs] == [83_334, 12_500]  # horizons 60 and 400
    assert [j.folder for j in jobs] == [tmp_path / "smac-3m/mappo", tmp_path / "smac-corridor/mappo"]


def test_the_printed_averages_follow_from_the_printed_maps():
    printed = {
        "qmix": 54.9,
        "mappo": 83.9,
        "facmac": 66.0,
        "happo": 82.4,
        "macpo": 76.9,
        "madac": 78.4,
        "trident": 86.3,
    }
    paper = CAMPAIGNS["table6"].paper
    for method, average in printed.items():
        assert abs(100 * np.mean([paper[env][method][0] for env in HARD]) - average) < 0.06


def write_battle(folder: Path, wins: list[float], steps: int) -> Path:
    folder.mkdir(parents=True)
    run = {
        "env": folder.parent.name,
        "algo": folder.name,
        "constraints": [],
        "horizon": 60,
        "metrics": [],
        "settings": {"episodes": 4, "seeds": [*range(len(wins))]},
        "rounds": 2,
    }
    columns = CAMPAIGNS["table6"].columns[1:]
    policies = {folder.name: [dict.fromkeys(columns, 0.5) | {"metric/win": w} for w in wins]}
    rows = [
        {
            "round": i,
            "env_steps": i * steps // 2,
            "episodes": 1.0,
            "seconds": 1.0,
            "diverged": {},
            "values": {"reward": [0.1 * i] * len(wins), "metric/win": [0.5 * w * i for w in wins]},
        }
        for i in (1, 2)
    ]
    write_files(folder, run, {"policies": policies, "seeds": [*range(len(wins))]}, rows)
    return folder


def test_methods_by_maps(tmp_path):
    maps = ("smac-3m", "smac-8m")
    wins = {("smac-3m", "mappo"): [0.8, 1.0], ("smac-8m", "mappo"): [0.4, 0.4], ("smac-8m", "qmix"): [0.1, 0.3]}
    folders = {env: [write_battle(tmp_path / e / m, w, 1000) for (e, m), w in wins.items() if e == env] for env in maps}
    table = grid_table(folders, ("mappo", "qmix"), "metric/win", {"smac-8m": {"qmix": (0.5,)}}, {}, "plain", 2000)
    header, _, mappo, qmix, _, annotate = table.splitlines()
    assert header.split()[1:3] == list(maps)
    assert "90.0 [80.0, 100.0]" in mappo
    assert "65.0 [60.0, 70.0]" in mappo  # the average; only 3m's seeds differ
    assert mappo.startswith("mappo (unconverged)")
    assert mappo.endswith("1,000")
    assert "20.0 [10.0, 30.0] (50.0)" in qmix
    assert qmix.split("(unconverged)")[1].split()[0] == "-"
    assert "fewer than the paper's 2,000" in annotate
    whole = grid_table(
        folders, ("mappo",), "metric/win", {}, {"pair": maps, "more": (*maps, "smac-MMM2")}, "plain", 500
    )
    assert "unconverged" not in whole
    assert "average (pair)" in whole
    assert "average (more)" not in whole
    alone = {"smac-3m": [write_battle(tmp_path / "one" / "smac-3m" / "mappo", [0.8], 1000)]}
    assert "80.0 (60.0)" in grid_table(alone, ("mappo",), "metric/win", {"smac-3m": {"mappo": (0.6,)}}, {})


def test_the_mean_of_one_group_is_the_plain_bootstrap():
    values = [0.1, 0.4, 0.35, 0.9]
    np.testing.assert_allclose(bootstrap_groups([values]), bootstrap(values), atol=1e-12)
    assert np.isnan(bootstrap_groups([values, []]).value)
    # two independent groups: variances of the means add, a quarter each
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, 400), rng.normal(3, 2, 400)
    e = bootstrap_groups([a, b])
    np.testing.assert_allclose(e.value, (a.mean() + b.mean()) / 2)
    sd = 0.5 * np.sqrt(a.var() / 400 + b.var() / 400)
    np.testing.assert_allclose(e.high - e.low, 2 * 1.96 * sd, rtol=0.1)


def test_a_ratio_over_training_is_one_of_sums():
    run = {"metrics": [{"name": "collisions", "per": "vehicles"}, {"name": "speed", "per": None}]}
    # round 1: 8 of 100 vehicles crash; round 2: 1 of 300
    values = [{"collisions": 8.0, "vehicles": 1.0, "speed": 2.0}, {"collisions": 1 / 3, "vehicles": 3.0, "speed": 4.0}]
    records = [
        {"round": i, "env_steps": i, "values": {f"metric/{k}": [x] for k, x in v.items()}} for i, v in enumerate(values)
    ]
    np.testing.assert_allclose(over_training(run, records, "collisions"), [100 * 9 / 400])
    np.testing.assert_allclose(over_training(run, records, "speed"), [3.0])
    for record in records:
        record["values"]["metric/vehicles"] = [0.0]
    assert np.isnan(over_training(run, records, "collisions")).all()  # nothing was counted, which is not zero


def test_the_command_prints_methods_by_maps_and_each_map(tmp_path, capsys):
    for env in ("smac-3m", "smac-2s3z"):
        write_battle(tmp_path / env / "mappo", [0.9, 0.7], 1000)
    budget = ["--episodes", "4", "--seeds", "2", "--out", str(tmp_path)]
    assert main(["bench", "table6", "--maps", "3m", "2s3z", "--methods", "mappo", *budget]) == 0
    said = capsys.readouterr().out
    assert said.count("80.0 [70.0, 90.0]") == 5  # twice in the grid, its average, and in each map's table
    assert "average (shown)" in said
    assert (tmp_path / "smac-3m" / "curves.png").stat().st_size > 10_000
    assert main(["bench", "table6", "--maps", "3x", "--methods", "mappo", *budget]) == 2
    assert "known maps are 3m" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_campaign_ends_with_a_table_and_is_not_run_again(tmp_path, capsys):
    command = ["bench", "table4-aim", "--methods", "aggressive", "--episodes", "70", "--seeds", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    row = next(line for line in said.out.splitlines() if line.startswith("aggressive (unconverged)"))
    assert 15.0 < float(row.split("(unconverged)")[1].split()[0]) < 45.0  # 29 crash of 100, by 500 episodes elsewhere
    assert sorted(p.name for p in (tmp_path / "aggressive").iterdir()) == ["records.jsonl", "result.json", "run.json"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert "started" not in capsys.readouterr().err


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
        write_json(tmp_path / name / "result.json", seeds)
    done = main(
        ["bench", "table1", "--methods", "mappo", "macpo", "--episodes", "4", "--seeds", "2", "--out", str(tmp_path)]
    )
    assert done == 0
    assert "-6.05 [-6.10, -6.00] (-5.24)" in capsys.readouterr().out
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert (tmp_path / "front.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_damaged_record_is_one_line(tmp_path, name, capsys):
    write_run(tmp_path / "mappo", "mappo", [-6.0])
    (tmp_path / "mappo" / name).write_text('{"torn')
    assert main(f"bench table1 --methods mappo --episodes 4 --seeds 1 --out {tmp_path}".split()) == 2
    assert f"{name} is damaged: it is not JSON" in capsys.readouterr().err


def test_columns_of_the_scenarios_are_what_their_environments_are_evaluated_by():
    for env in SCENARIOS.envs:
        spec = make_env(env).spec
        known = {"reward", *(f"cost/{c.name}" for c in spec.constraints), *(f"metric/{m.name}" for m in spec.metrics)}
        assert set(SCENARIOS.columns_of(env)) <= known
        assert {f"cost/{c.name}" for c in spec.constraints} <= set(SCENARIOS.columns_of(env))


def test_blocks_stand_apart_and_a_warm_start_is_part_of_a_rows_name(tmp_path, capsys, monkeypatch):
    warm = write_run(tmp_path / "mappo+planner", "mappo", [-5.9, -5.8])
    run = json.loads((warm / "run.json").read_text())
    write_json(warm / "run.json", run | {"settings": run["settings"] | {"warm_start": "planner"}, "commit": "d"})
    cold = write_run(tmp_path / "mappo", "mappo", [-6.0, -6.1])
    campaign = replace(CAMPAIGNS["table1"], columns=("reward", "total"), blocks={"A": ("mappo",)})
    monkeypatch.setitem(CAMPAIGNS, "table1", campaign)
    text = f"bench table1 --methods mappo mappo+planner --episodes 4 --seeds 2 --out {tmp_path}"
    assert main([*text.split(), "--markdown"]) == 0
    said = capsys.readouterr().out
    first, second = said.split("**others**")
    assert "**A**" in first
    assert "| mappo | -6.05 [-6.10, -6.00] (-5.24)" in first
    assert "| mappo+planner | -5.85 [-5.90, -5.80] |" in second
    assert "Records of 2 commits: c (mappo); d (mappo+planner)." in second
    assert "mappo is on record with other values than today's: " in second
    start = words(Job("uav-mec", "macpo+planner", tmp_path / "macpo+planner", 4, 2))
    assert start[start.index("--algo") + 1] == "macpo"
    assert start[start.index("--warm-start") + 1] == "planner"
    with pytest.raises(TridentError, match=r"run of mappo on uav-mec: choose another"):
        c.is_done(Job("uav-mec", "mappo+planner", cold, 4, 2))
    with pytest.raises(TridentError, match="qmix has no warm start"):
        c.plan(campaign, ["uav-mec"], ["qmix+planner"], tmp_path, 4, None, 2)


def test_rows_of_unequal_budget_are_never_in_one_table(tmp_path):
    runs = [write_run(tmp_path / "a", "mappo", [-6.0]), write_run(tmp_path / "b", "happo", [-6.0], episodes=8)]
    with pytest.raises(TridentError, match=r"not of one budget: mappo \(4 episodes x 1 seeds\), happo \(8 episodes"):
        versus_table(runs, ("reward",), {}, {})


def test_the_discrete_gradient_is_taken_apart_where_modes_are_many():
    assert all(make_env(env).spec.action.num_modes > 10 for env in CAMPAIGNS["ablations-smac"].envs)
