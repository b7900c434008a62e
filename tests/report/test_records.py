"""Records survive a torn line; statistics agree with independent ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from trident.errors import TridentError
from trident.report import records, stats, tables


def record(round_: int, **values: list) -> records.Record:
    return {
        "round": round_,
        "env_steps": 10 * round_,
        "episodes": 1.0,
        "seconds": 1.0,
        "diverged": {},
        "values": values,
    }


def write(path, *rows) -> None:
    writer = records.RecordWriter(path, "")
    for row in rows:
        writer.append(row)
    writer.close()


def test_records_come_back_with_floats_exact_and_gaps_as_null(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, record(1, a=np.array([0.1, math.nan])), record(2, a=[np.float32(0.1), math.inf], b=(1, 2)))
    rows = records.read(path)
    assert rows[0]["values"]["a"] == [0.1, None]
    assert rows[1]["values"]["a"] == [float(np.float32(0.1)), None]
    steps, values = records.series(rows, "a")
    assert steps.tolist() == [10, 20]
    assert values[:, 0].tolist() == [0.1, float(np.float32(0.1))]
    assert np.isnan(values[:, 1]).all()
    assert records.names(rows) == ["a", "b"]
    assert records.series(rows, "b")[0].tolist() == [20]


def test_a_torn_last_line_is_ignored_and_a_broken_middle_is_not(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, record(1), record(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert [r["round"] for r in records.read(path)] == [1]
    path.write_bytes(b"{torn\n" + whole)
    with pytest.raises(TridentError, match="damaged at line 1"):
        records.read(path)
    assert records.read(tmp_path / "none.jsonl") == []


def test_truncating_cuts_back_to_a_round(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, record(1, a=[0.1]), record(2), record(3))
    first = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(path.read_bytes()[:-3])
    assert [r["round"] for r in records.truncate(path, 1)[0]] == [1]
    assert path.read_bytes() == first


@pytest.mark.parametrize("count", [4, 8, 20])
def test_interquartile_mean_is_the_trimmed_mean(count):
    sample = np.random.default_rng(1).normal(size=count)
    assert np.isclose(stats.iqm(sample), scipy_stats.trim_mean(sample, 0.25))


def test_interquartile_mean_of_odd_samples_shares_the_edges():
    # Of five samples, the middle half of [0, 1] covers 3/4 of the 2nd, all of the 3rd and 3/4 of the 4th.
    assert np.isclose(stats.iqm(np.array([100.0, 1.0, 2.0, 4.0, -50.0])), (0.75 * 1 + 2 + 0.75 * 4) / 2.5)
    assert stats.iqm(np.array([3.0])) == 3.0


def test_bootstrap_agrees_with_scipy_and_repeats_itself():
    sample = np.random.default_rng(2).normal(size=30)
    ours = stats.bootstrap(sample)
    theirs = scipy_stats.bootstrap((sample,), np.mean, method="percentile", rng=3).confidence_interval
    assert np.isclose(ours.value, sample.mean())
    assert np.allclose([ours.low, ours.high], [theirs.low, theirs.high], atol=0.03)
    assert stats.bootstrap(sample) == ours
    assert stats.bootstrap([2.0]) == (2.0, 2.0, 2.0)
    assert stats.bootstrap([2.0, math.nan]) == (2.0, 2.0, 2.0)
    assert math.isnan(stats.bootstrap([]).value)


def test_bootstrap_covers_the_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(4)
    hits = [(e := stats.bootstrap(generator.normal(size=25), resamples=400)).low <= 0.0 <= e.high for _ in range(200)]
    assert 0.88 <= np.mean(hits) <= 0.98


RUN = {
    "constraints": [{"name": "energy", "limit": 0.1, "unit": "rate"}],
    "metrics": [
        {"name": "speed", "unit": "m/s", "better": "higher", "per": None},
        {"name": "reward", "unit": "", "better": "higher", "per": None},
        {"name": "hours", "unit": "", "better": "neither", "per": None},
        {"name": "rest", "unit": "", "better": "neither", "per": "hours"},
    ],
}
RESULT = {
    "policies": {
        "a": [{"reward": 1.0, "cost/energy": 0.05, "metric/speed": 3.0}, {"reward": 3.0, "cost/energy": 0.07}],
        "b": [{"reward": 0.0, "cost/energy": 0.2, "metric/speed": 1.0}] * 2,
    },
    "episodes": 7,
    "deterministic": True,
    "shielded": False,
    "seeds": [0, 2],
    "diverged": {"1": {"round": 17, "quantity": "reward"}},
}


def test_the_result_table_marks_each_constraint_and_names_lost_seeds():
    header, rows = tables.result_rows(RUN, RESULT)
    assert header[1:] == ["a", "b"]
    assert rows[0] == ["reward", "2.0000 [1.0000, 3.0000]", "0.0000 [0.0000, 0.0000]"]
    assert rows[1][0] == "cost energy <= 0.1 rate"
    assert rows[1][1].endswith(" ok")
    assert rows[1][2].endswith(" OVER")
    assert rows[2] == ["speed [m/s] (higher is better)", "3.0000 [3.0000, 3.0000]", "1.0000 [1.0000, 1.0000]"]
    assert [row[0] for row in rows[2:]] == ["speed [m/s] (higher is better)", "rest"]
    text = tables.result_table(RUN, RESULT)
    assert "seed 1 diverged at round 17 (reward) and is left out" in text
    assert tables.result_table(RUN, RESULT, "markdown").splitlines()[1] == "| --- | ---: | ---: |"


def test_one_seed_has_no_interval():
    alone = RESULT | {"policies": {"a": RESULT["policies"]["a"][:1]}}
    header, rows = tables.result_rows(RUN, alone)
    assert header[0] == "per step (one seed: no interval)"
    assert [row[1] for row in rows[:2]] == ["1.0000", "0.0500 ok"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0000"), (0.12345, "0.1235"), (123.456, "123.46"), (1e-7, "1.00e-07"), (math.nan, "-")]
)
def test_numbers_are_readable(value, text):
    assert tables.number(value) == text


def test_plain_tables_align():
    lines = tables.plain(["name", "x"], [["a", "10"], ["long one", "2"]]).splitlines()
    assert lines == ["name       x", "--------  --", "a         10", "long one   2"]


def test_a_table_that_is_too_wide_goes_on_below(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    text = tables.plain(["name", "one", "two", "three"], [["a long one", "1.00", "22.0", "333"]])
    first, *others = (part.splitlines() for part in text.split("\n\n"))
    assert first == ["name         one", "----------  ----", "a long one  1.00"]
    assert [part[0].split() for part in others] == [["name", "two"], ["name", "three"]]
    monkeypatch.setenv("COLUMNS", "80")
    assert "\n\n" not in tables.plain(["name", "one"], [["a", "b"]])


def test_a_result_of_many_policies_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    many = dict.fromkeys(("trident", "random", "greedy", "planner", "base-policy"), RESULT["policies"]["a"])
    text = tables.result_table(RUN, RESULT | {"policies": many, "pending": ["nominal"]})
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in many)
    assert text.count("cost energy <= 0.1 rate") > 1, "every part names its rows"
    assert "not evaluated yet: nominal" in text
