"""What the page says, against numbers worked out from the records by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.records import write_run

from trident.report.page import curves, words
from trident.report.page.content import page_content
from trident.report.page.reading import find_runs, read_all, read_records
from trident.report.stats import Estimate

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def one(folder):
    return page_content([folder])["runs"][0]


def chart(run, name):
    return next(c for c in run["charts"] if c["name"] == name)


def test_verdicts_follow_the_interval():
    limit = 0.01
    assert words.judge(Estimate(0.005, 0.004, 0.01), limit, 3) == "within"
    assert words.judge(Estimate(0.009, 0.008, 0.011), limit, 3) == "unsure"
    assert words.judge(Estimate(0.02, 0.0101, 0.03), limit, 3) == "over"
    assert words.judge(Estimate(0.009, 0.0, 1.0), limit, 1) == "within"  # one seed has no interval
    assert words.judge(Estimate(np.nan, np.nan, np.nan), limit, 0) == "unknown"


@pytest.mark.parametrize(
    ("costs", "state", "headline"),
    [
        ((0.004, 0.02), "within", "Within both limits"),
        ((0.4, 0.02), "over", "Over its limit: energy"),
        ((0.0095, 0.02), "unsure", "Too close to call: energy"),
    ],
)
def test_a_run_is_judged_by_its_worst_limit(tmp_path, costs, state, headline):
    verdict = one(write_run(tmp_path / "run", costs=costs))["verdict"]
    assert (verdict["state"], verdict["headline"]) == (state, headline)
    energy = verdict["costs"][0]
    assert energy["value"] == pytest.approx(costs[0] * 1.1)  # the mean of 1, 1.1 and 1.2 times
    assert energy["low"] <= energy["value"] <= energy["high"]
    assert verdict["reward"]["best"]["name"] == "planner"


def test_before_it_is_evaluated_the_end_of_training_speaks(tmp_path):
    run = one(write_run(tmp_path / "run", rounds=50, done=20, finished=False))
    assert run["status"] == {
        "state": "unfinished", "round": 20, "rounds": 50, "env_steps": 64000, "seconds": 40.0, "left": 60.0,
    }  # fmt: skip
    assert run["verdict"]["source"] == "training"
    assert run["verdict"]["headline"] == "Within both limits so far"
    last = [0.004 * 1.02 * (1 + 3.0 / r) for r in (19, 20)]
    assert run["verdict"]["costs"][0]["value"] == pytest.approx(np.mean(last))


def test_nobody_is_judged_by_nothing(tmp_path):
    run = one(write_run(tmp_path / "run", done=0, finished=False))
    assert run["verdict"]["state"] == "unknown"
    assert run["charts"] == []


def test_what_training_spent_is_the_records_own_sum(tmp_path):
    energy = one(write_run(tmp_path / "run"))["training"][0]
    assert energy["spent"] == pytest.approx(0.004 * 3200 * 20 * 1.02)
    assert energy["allowed"] == pytest.approx(0.01 * 3200 * 20)
    assert energy["rounds_over"] == pytest.approx(5 / 60)  # all seeds in the first round, two in the second


def test_curves_are_the_records(tmp_path):
    run = one(write_run(tmp_path / "run"))
    (line,) = chart(run, "reward")["lines"]
    assert line["x"] == [3200.0 * r for r in range(1, 21)]
    assert line["mean"] == pytest.approx([-5.0 - 4.0 / r - 0.01 for r in range(1, 21)], abs=1e-4)
    assert line["seeds"][2] == pytest.approx([-5.0 - 4.0 / r - 0.02 for r in range(1, 21)], abs=1e-4)
    assert all(low <= mean <= high for low, mean, high in zip(line["low"], line["mean"], line["high"], strict=True))
    assert chart(run, "cost/energy")["limit"] == 0.01
    assert chart(run, "total/energy")["budget"] == [[0.0, 0.0], [64000.0, 640.0]]


def test_long_curves_are_means_of_stretches_between_their_ends():
    x, values = np.arange(1000.0), np.stack([np.arange(1000.0), np.full(1000, np.nan)], axis=1)
    thin_x, thin = curves.thin(x, values, 50)
    assert len(thin_x) == 50
    assert (thin_x[0], thin_x[-1], thin[0, 0], thin[-1, 0]) == (0.0, 999.0, 0.0, 999.0)
    np.testing.assert_allclose(thin[:, 0], thin_x)  # the mean of a straight line lies on it
    assert np.isnan(thin[:, 1]).all()


def test_intervals_leave_out_what_is_missing():
    values = np.array([[1.0, np.nan, 3.0], [2.0, 2.0, 2.0]])
    low, high = curves.intervals(values)
    assert (low[0], high[0]) == (1.0, 3.0)
    assert (low[1], high[1]) == (2.0, 2.0)


def test_the_method_speaks_plainly(tmp_path):
    said = {d["title"]: d for d in one(write_run(tmp_path / "run"))["diagnoses"]}
    assert said["How updates end"]["text"].startswith("90 % of the updates were feasible")
    assert "82 % of what varies in reward" in said["What physics explains (R2_phys)"]["text"]
    assert "trust region is set to 0.06" in said["How far an update moves the policy"]["text"]
    assert "51 % of such changes came true" in said["Predicted and realised: energy"]["text"]


def test_runs_of_one_environment_stand_side_by_side(tmp_path):
    folders = [
        write_run(tmp_path / name, name, costs) for name, costs in (("trident", (0.004, 0.02)), ("mappo", (0.3, 0.02)))
    ]
    content = page_content([*folders, write_run(tmp_path / "other", env="intersection")])
    (group,) = content["groups"]
    assert [row[0] for row in group["table"]["rows"]] == ["trident", "mappo"]
    assert [row[1]["state"] for row in group["table"]["rows"]] == ["within", "over"]
    text, value, state = group["table"]["rows"][1][3]
    assert text.startswith("33 % [30, 36]")
    assert (value, state) == (pytest.approx(0.33), "over")
    assert len(group["charts"]) == 1 + 2 * 2
    assert [dot["label"] for dot in group["front"]["dots"]] == ["trident", "mappo"]
    assert group["front"]["front"] == [(pytest.approx(2.64), pytest.approx(-5.21))]


def test_runs_called_alike_are_told_apart_by_their_folders(tmp_path):
    folders = [write_run(tmp_path / a / "seed0") for a in ("big", "small")]
    assert [r.name for r in read_all(folders)] == ["big/seed0", "small/seed0"]
    assert find_runs(tmp_path) == folders


# --- what cannot be read --------------------------------------------------------------------------


def test_a_broken_line_ends_the_curves_and_is_named(tmp_path):
    folder = write_run(tmp_path / "run", finished=False)
    lines = (folder / "records.jsonl").read_text().splitlines()
    lines[9] = '{"round": 10, "values": {"reward": ["a"]}}'
    (folder / "records.jsonl").write_text("\n".join(lines) + "\n")
    run = one(folder)
    assert len(chart(run, "reward")["lines"][0]["x"]) == 9
    assert "records.jsonl is damaged at line 10" in run["problems"][0]


def test_a_torn_last_line_is_no_damage(tmp_path):
    folder = write_run(tmp_path / "run", finished=False)
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"round": 21, "env_')
    run = one(folder)
    assert run["problems"] == []
    assert run["status"]["round"] == 20


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("run.json", "{", "run.json is damaged: it is not JSON"),
        ("run.json", '{"env": 3}', "run.json is damaged: env"),
        ("result.json", "[]", "result.json is damaged"),
        ("result.json", '{"policies": {"trident": 3}}', "result.json is damaged"),
    ],
)
def test_damaged_files_are_named_and_the_rest_is_shown(tmp_path, name, text, said):
    folder = write_run(tmp_path / "run")
    (folder / name).write_text(text)
    run = one(folder)
    assert said in run["problems"][0]
    assert ("charts" in run) == (name == "result.json")


def test_anything_in_the_place_of_anything_is_said_and_not_raised(tmp_path, monkeypatch):
    """Every part of run.json and result.json replaced by every other kind of thing."""
    monkeypatch.setattr(curves, "RESAMPLES", 2)
    folder = write_run(tmp_path / "run", rounds=1)
    for name in ("run.json", "result.json"):
        whole = json.loads((folder / name).read_text())
        for part in whole:
            for thing in (None, 3, "x", [], [3], {}, {"a": [1]}, [{"name": 3}], [None]):
                (folder / name).write_text(json.dumps(whole | {part: thing}))
                (run,) = page_content([folder])["runs"]
                assert "verdict" in run or run["problems"]
        (folder / name).write_text(json.dumps(whole))


def test_long_records_are_read_in_steps_with_both_ends(tmp_path):
    folder = write_run(tmp_path / "run", rounds=500, finished=False)
    rows, every, problem = read_records(folder / "records.jsonl", 100)
    assert (rows[0]["round"], rows[-1]["round"], every, problem) == (1, 500, 5, None)
    assert len(rows) <= 102


def test_of_very_long_files_only_lines_at_even_distances_are_read(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", rounds=2000, finished=False)
    monkeypatch.setattr("trident.report.page.reading.WHOLE", 1000)
    rows, every, problem = read_records(folder / "records.jsonl", 100)
    assert (rows[0]["round"], rows[-1]["round"], problem) == (1, 2000, None)
    assert 90 <= len(rows) <= 102
    assert every == 20
    gaps = np.diff([row["round"] for row in rows])
    assert gaps.max() <= 2 * np.median(gaps)


@pytest.mark.parametrize(
    "folder", ["uav-mec-v1/trident", "uav-mec-v1/mappo-lag", "uav-mec-v1/qmix", "uav-mec-v1/shielded"]
)
def test_committed_records_are_shown_whole(folder):
    run = one(BENCHMARKS / folder)
    assert run["problems"] == []
    assert len(chart(run, "reward")["lines"][0]["x"]) == 125
    assert run["verdict"]["state"] == {"trident": "within", "shielded": "within"}.get(Path(folder).name, "over")
