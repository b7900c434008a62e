"""Verdicts, fits, the record and the command."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.run_files import write_files

from trident.cli import main
from trident.report.records import plain
from trident.report.stats import Estimate
from trident.verify import runner, samples, shaping, training_curves
from trident.verify.claim import CORRECTED, FAILS, HOLDS, MISSING, UNDECIDED, VERDICTS, Check, Evidence, exact, verdict
from trident.verify.fits import (
    fit_power,
    fit_powers,
    limit_order,
    mean_interval,
    median_interval,
    pooled_power,
    share,
    span,
)
from trident.verify.registry import CLAIMS, EXPERIMENTS

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "theory" / "record.json"
YES, NO = Check("", exact(1.0), 0.0, 2.0), Check("", exact(3.0), 0.0, 2.0)
UNCLEAR = Check("", Estimate(1.9, 1.5, 2.3), 0.0, 2.0)
NOTHING = Check("", exact(float("nan")), 0.0, 2.0)


@pytest.mark.parametrize(
    ("printed", "corrected", "wanted"),
    [
        ((YES, YES), (), HOLDS),
        ((YES, NO), (), FAILS),
        ((NO,), (YES,), CORRECTED),
        ((NO,), (YES, NO), FAILS),
        ((NO,), (UNCLEAR,), FAILS),
        ((UNCLEAR, YES), (YES,), UNDECIDED),
        ((UNCLEAR, NO), (), FAILS),
        ((NOTHING,), (), UNDECIDED),
        ((NO,), (NOTHING,), FAILS),
        ((NO, NOTHING), (YES,), CORRECTED),
    ],
)
def test_verdicts_follow_from_the_numbers(printed, corrected, wanted):
    assert verdict(Evidence(printed, corrected)) == wanted
    assert verdict(Evidence(printed, corrected, "nothing to see")) == MISSING


@pytest.mark.parametrize("ends", [(-np.inf, np.inf), (np.nan, 1.0), (3.0, np.inf)])
def test_what_is_not_finite_decides_nothing(ends):
    assert Check("", Estimate(1.0, *ends), 0.0, 2.0).answer == "unclear"


def test_shares_and_medians_have_intervals():
    assert np.isnan(share(0, 0).value)
    assert share(16, 32).low < 0.5 < share(16, 32).high
    found = median_interval(np.arange(12.0))
    assert (found.value, found.low, found.high) == (5.5, 2.0, 9.0)  # 1 - 2 P(at most 2 heads of 12) = 96 %
    with pytest.raises(ValueError, match="too few"):
        median_interval([1.0, 2.0, 3.0])
    both = span([Estimate(1.0, 0.9, 1.1), Estimate(2.0, 1.9, 2.5), Estimate(1.2, 1.1, 1.3)])
    assert both == Estimate(1.2, 0.9, 2.5)


def test_fits_recover_known_powers():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(fit_power(x, 3.0 * x**-0.5)[1:], (1.0, 3.0))
    rows = 2.0 * x**1.5 * np.exp(0.05 * rng.normal(size=(20, 4)))
    for found in (fit_powers(x, rows), pooled_power(x, rows)):
        assert found.exponent.low < 1.5 < found.exponent.high
        assert found.exponent.high - found.exponent.low < 0.1
    heading = limit_order([0.4, 0.2, 0.1, 0.05], [t**2 + t**3 for t in (0.4, 0.2, 0.1, 0.05)])
    assert heading.low < 2.06 < heading.high < 2.2
    assert mean_interval([1.0]) == Estimate(1.0, 1.0, 1.0)


def test_the_committed_record_has_every_claim_and_only_derived_verdicts():
    record = runner.read_record(RECORD)
    assert set(record["claims"]) == {c.name for c in CLAIMS}
    for claim in CLAIMS:
        row = record["claims"][claim.name]
        assert row["verdict"] == verdict(runner.evidence_of(row)), claim.name
        assert row["verdict"] in VERDICTS
    for experiment in EXPERIMENTS:  # and the claims follow from the data beside them
        data = record["experiments"][experiment.name]["data"]
        for claim in experiment.claims:
            assert_same(runner.judge(claim, data), record["claims"][claim.name], claim.name)


def assert_same(found, wanted, where):
    """Words, answers and verdicts exactly; numbers up to the rounding of another processor."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key in wanted:
            assert_same(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12), where
    else:
        assert found == wanted, where


def test_names_of_claims_and_experiments_are_unique():
    names = [c.name for c in CLAIMS] + [e.name for e in EXPERIMENTS]
    assert len([c.name for c in CLAIMS]) == len({c.name for c in CLAIMS})
    assert all(len(runner.choose([n])) == 1 for n in names)


def test_dialled_physics_explains_what_it_says():
    q = np.random.default_rng(0).normal(size=4000)
    for r2 in samples.R2:
        left = q - samples.closed_form(q, r2, float(q.mean()))
        np.testing.assert_allclose(1.0 - left.var() / q.var(), r2, atol=1e-12)
    # n to an error of 0.01 on 1 / n, wherever it lies
    assert abs(samples.samples_to([10, 20, 40], [0.1, 0.05, 0.025], 0.01) - 100) < 1e-6
    assert abs(samples.samples_to([10, 1000], [0.1, 0.001], 0.01) - 100) < 1e-6


def test_features_left_out_save_by_their_number_and_not_by_what_they_explain():
    lq, rng = samples.system(), np.random.default_rng(0)
    test = samples.draw_sample(lq, rng, 512, 0.0)
    found = samples._left_out(lq, rng, test, float(test.q.var()), repeats=60)
    left = 1.0 - np.array(found["known"]) / found["features"]
    np.testing.assert_allclose(found["kept"], 1.0, rtol=1e-6)
    np.testing.assert_allclose(found["left_out"], left, rtol=0.25)
    assert np.all(np.array(found["left_out"]) > 2.0 * (1.0 - np.array(found["r2"])))


def test_linear_quadratic_targets_are_unbiased():
    lq, rng = samples.system(), np.random.default_rng(0)
    noisy = samples.draw_sample(lq, rng, 200_000, 0.7)
    gap = noisy.target - noisy.q
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(gap.size)


def write_run(folder, violation_power):
    """A record whose cumulative excess over the limit 0 grows as K^power and whose mean gap to 0 is K^-0.5."""
    k = np.arange(1, 129)
    excess = np.diff(k**violation_power, prepend=0.0)
    reward = -np.diff(k * k**-0.5, prepend=0.0)
    run = {"algo": "trident", "constraints": [{"name": "use", "limit": 0.0}]}
    lines = [
        {"round": int(i), "env_steps": int(i), "episodes": float(i), "values": {"reward": [r, r], "cost/use": [e, e]}}
        for i, r, e in zip(k, reward, excess, strict=True)
    ]
    write_files(folder, run, {"policies": {"planner": [{"reward": 0.0}]}}, lines)


def curve_verdicts():
    data = runner.short(plain(training_curves.measure(0, lambda _: None)))
    return {c.name: verdict(c.judge(data)) for c in training_curves.CLAIMS}


@pytest.mark.parametrize(("power", "wanted"), [(0.5, HOLDS), (1.0, FAILS)])
def test_rates_are_read_off_training_records(tmp_path, monkeypatch, power, wanted):
    write_run(tmp_path / "trident", power)
    monkeypatch.setattr(training_curves, "records_folder", lambda: tmp_path)
    found = curve_verdicts()
    assert found["uav-violation"] == wanted
    assert found["uav-suboptimality"] == HOLDS
    assert found["uav-macpo"] == found["uav-physics"] == found["uav-r2"] == MISSING


def test_samples_saved_by_physics_are_those_from_scratch():
    rounds = np.array([8, 16, 32, 64])
    run = {"algo": "trident", "rounds": rounds, "r2_phys": np.array([0.5]), "physics": "none"}
    data = {
        "runs": {
            "trident-scratch": run | {"physics": "residual", "base_policy": False, "gap": [8.0 / rounds]},
            "trident-no-physics": run | {"base_policy": False, "gap": [16.0 / rounds]},
            "trident-a-residual": run | {"base_policy": True, "gap": [0.01 / rounds]},
        }
    }
    judge = next(c.judge for c in training_curves.CLAIMS if c.name == "uav-physics")
    assert verdict(judge(data)) == HOLDS  # half the rounds at R2 = 1/2
    del data["runs"]["trident-no-physics"]
    assert verdict(judge(data)) == MISSING  # what starts from a base policy says nothing of samples


def test_who_violates_nothing_has_no_rate_and_still_less_than_macpo():
    run = {
        "rounds": [8, 16, 32],
        "gap": [[1.0, 0.7, 0.5]],
        "r2_phys": [0.9],
        "physics": "residual",
        "base_policy": True,
    }
    safe, unsafe = run | {"violation": [[0.0, 0.0, 0.0]]}, run | {"violation": [[1.0, 2.0, 3.0]]}
    data = {"runs": {"trident": safe, "macpo": unsafe}}
    names = ("uav-violation", "uav-macpo")
    verdicts = {c.name: verdict(c.judge(data)) for c in training_curves.CLAIMS if c.name in names}
    assert verdicts == {"uav-violation": MISSING, "uav-macpo": HOLDS}
    trident, macpo = training_curves.exponents(data).splitlines()[2:]
    assert trident.startswith("| trident | 1 | none | - | - | -0.50 [")
    assert macpo.startswith("| macpo | 1 | 0.79 [")


def test_without_records_nothing_is_judged(monkeypatch):
    monkeypatch.setattr(training_curves, "records_folder", lambda: None)
    assert set(curve_verdicts().values()) == {MISSING}


def test_command(tmp_path, capsys):
    assert main(["verify", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(c.name in listed for c in CLAIMS)
    out, page = tmp_path / "record.json", tmp_path / "page.md"
    page.write_text("before\n<!-- verdicts: by hand -->\nstale\n<!-- end of verdicts -->\nafter\n")
    assert main(["verify", "table-reward", "--out", str(out), "--docs", str(page)]) == 0
    said = capsys.readouterr().out
    assert "table-reward" in said
    assert CORRECTED in said
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| table-reward |" in text
    assert "stale" not in text
    first = json.loads(out.read_text())
    assert main(["verify", "arithmetic", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["claims"] == first["claims"]
    assert main(["verify", "--show", str(out)]) == 0
    assert "13.5" in capsys.readouterr().out


def test_the_seed_decides_everything_and_figures_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shaping, "GAMES", 30)
    monkeypatch.setattr(shaping, "_fixed_points", partial(shaping._fixed_points, steps=50))
    found = []
    for i, seed in enumerate(("3", "3", "4")):
        out, figures = tmp_path / f"{i}.json", tmp_path / f"figures-{i}"
        words = ["verify", "invariance", "--seed", seed, "--out", str(out), "--figures", str(figures)]
        assert main(words) == 0
        record = json.loads(out.read_text())
        found.append((record["experiments"]["invariance"]["data"], record["claims"]))
        picture = (figures / "invariance.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) > 5_000
    assert found[0] == found[1]
    assert found[0][0]["shaping"] != found[2][0]["shaping"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("verify stcg-order", "unknown claim 'stcg-order': did you mean 'stgc-order'?"),
        ("verify --show nowhere.json", "nowhere.json is not a record of `trident verify`"),
        ("verify table-reward --docs nowhere.md", "cannot read nowhere.md"),
        ("verify invariance --seed -1", "--seed must be at least 0"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_what_is_finished_survives_an_interruption(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    broken = [runner.choose(["arithmetic"])[0], type(EXPERIMENTS[0])("late", "never ends", interrupted, ())]
    monkeypatch.setattr(runner, "choose", lambda names: broken)
    out = tmp_path / "record.json"
    assert main(["verify", "--out", str(out)]) == 130
    assert "table-reward" in json.loads(out.read_text())["claims"]
    assert str(out) in capsys.readouterr().out.replace("\n", "")
