"""Statistics against plain Python (oracles/statistics_plain.py) and SciPy; safety of single episodes; marl-eval."""

import json
from pathlib import Path

import numpy as np
import pytest
from oracles import statistics_plain as oracle
from scipy.stats import mannwhitneyu
from support.records import CONSTRAINTS, record, write_run

from trident.cli import main
from trident.report.marl_eval import marl_eval
from trident.report.safety import first_feasible, improvement_table, safety_table
from trident.report.stats import bootstrap_iqm, improvement, iqm, performance_profile
from trident.run_directory import read_result, write_json

RNG = np.random.default_rng(3)
OURS = [RNG.normal(0.4, 1.0, n).round(1).tolist() for n in (5, 7, 10)]
THEIRS = [RNG.normal(0.0, 1.0, n).round(1).tolist() for n in (6, 5, 10)]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 10])
def test_interquartile_mean_is_the_oracles(n):
    values = RNG.normal(size=n).tolist()
    np.testing.assert_allclose(iqm(np.array(values)), oracle.interquartile_mean(values))


def test_probability_of_improvement_is_the_oracles_and_mann_whitneys():
    np.testing.assert_allclose(improvement(OURS, THEIRS).value, oracle.improvement(OURS, THEIRS))
    u = mannwhitneyu(OURS[0], THEIRS[0]).statistic / (len(OURS[0]) * len(THEIRS[0]))
    np.testing.assert_allclose(improvement(OURS[:1], THEIRS[:1]).value, u)
    assert improvement([[2.0, 2.0]], [[1.0]]) == (1.0, 1.0, 1.0)
    assert improvement([[1.0]], [[1.0]]).value == 0.5
    assert np.isnan(improvement([[]], [[1.0]]).value)


def test_intervals_agree_with_an_independent_bootstrap():
    def both(tasks):
        return oracle.improvement(tasks[:3], tasks[3:])

    ours = improvement(OURS, THEIRS)
    np.testing.assert_allclose(ours[1:], oracle.interval(OURS + THEIRS, both, 3000, 1), atol=0.025)
    whole = lambda tasks: oracle.interquartile_mean([x for xs in tasks for x in xs])  # noqa: E731
    ours = bootstrap_iqm(OURS)
    np.testing.assert_allclose(ours.value, whole(OURS))
    np.testing.assert_allclose(ours[1:], oracle.interval(OURS, whole, 3000, 2), atol=0.06)


def test_performance_profiles_are_the_oracles():
    levels = [-1.0, 0.0, 0.5, 9.0]
    share, low, high = performance_profile(OURS, levels)
    np.testing.assert_allclose(share, [oracle.profile(OURS, x) for x in levels])
    bounds = [oracle.interval(OURS, lambda tasks, x=x: oracle.profile(tasks, x), 3000, 4) for x in levels]
    np.testing.assert_allclose(np.stack([low, high], 1), bounds, atol=0.03)


def with_safety(folder: Path) -> Path:
    result = read_result(folder)
    assert result is not None
    extra = {"safe/episodes": 0.25, "safe/agents": 0.75, "worst/energy": 0.5, "worst/coverage": 0.125}
    policies = {name: [seed | extra for seed in seeds] for name, seeds in result["policies"].items()}
    write_json(folder / "result.json", result | {"policies": policies})
    return folder


def test_the_safety_table_has_episodes_agents_the_worst_and_the_first_feasible_round(tmp_path):
    # costs fall as 1 + 3 / round, one seed's 2 % above another's: limit 0.01 = 0.004 (1 + 3 / 2), and 0.004 * 1.04 * 2
    folder = with_safety(write_run(tmp_path / "trident", costs=(0.004, 0.002)))
    row = next(line for line in safety_table([folder]).splitlines() if "| trident" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["trident", "25.0", "75.0", "0.5", "0.125", "43"]  # rounds 2, 3 and 3 of 16 episodes
    old = write_run(tmp_path / "old")
    assert safety_table([old]) == ""  # records of before are read all the same


def test_a_seed_that_never_kept_its_limits_is_said():
    run = {"constraints": CONSTRAINTS, "horizon": 200}
    rows = [record(i, (0.004, 0.002), 2) for i in (1, 2, 3, 4)]
    for row in rows:
        row["values"]["cost/energy"][1] = 0.5
    np.testing.assert_array_equal(first_feasible(run, rows), [32.0, np.inf])


def test_improvement_is_over_each_other_run(tmp_path):
    folders = [write_run(tmp_path / name, name) for name in ("mappo", "trident")]
    result = read_result(folders[0])
    assert result is not None
    for seed in result["policies"]["mappo"]:
        seed |= {"reward": seed["reward"] - 1.0, "cost/energy": 0.5}
    write_json(folders[0] / "result.json", result)
    header, _, mappo, trident = improvement_table(folders, "markdown").splitlines()
    assert "P(trident earns more)" in header
    assert mappo.endswith("| 1.00 | 1.00 |")
    assert trident.endswith("| - | - |")


def test_marl_eval_gets_every_seed_as_many_steps_and_the_evaluation(tmp_path, capsys):
    one = write_run(tmp_path / "a" / "mappo", "mappo", rounds=30)
    two = write_run(tmp_path / "b" / "mappo", "mappo", rounds=12, env="intersection")
    data = marl_eval([one, two])["trident"]
    assert set(data) == {"uav-mec", "intersection"}
    seed = data["uav-mec"]["mappo"]["seed_2"]
    assert [seed[f"step_{i}"]["step_count"] for i in (0, 11)] == [3 * 3200, 30 * 3200]
    assert set(seed) == {*(f"step_{i}" for i in range(12)), "absolute_metrics"}
    assert seed["absolute_metrics"]["reward"] == [-5.22]
    rewards = [-5.0 - 4.0 / i - 0.02 for i in (1, 2, 3)]
    np.testing.assert_allclose(seed["step_0"]["reward"], [np.mean(rewards)])
    assert seed["step_0"]["safety_energy"][0] < 0.0
    out = tmp_path / "out.json"
    assert main(["compare", str(one), str(two), "--marl-eval", str(out)]) == 0
    assert json.loads(out.read_text()) == {"trident": data}  # an environment of its own for each key
    assert capsys.readouterr().out.strip() == str(out)
