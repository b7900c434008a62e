"""Tuning: spaces of equal size around every preset, trials of one budget, pruned and resumed by what runs record, and
values that a study chose. What needs Optuna (the extra `tune`) is left out where it is not there."""

import json
from pathlib import Path

import pytest
from support.run_files import write_files

from trident.bench import tuning
from trident.bench.search_spaces import SPACES, Choice
from trident.bench.tuning import Budget, score, usual, write_tuned
from trident.cli import main
from trident.errors import TridentError
from trident.launch.job import Status
from trident.report.records import lines_of
from trident.run_directory import read_run
from trident.training import tuned
from trident.training.registry import default_config, make_env
from trident.training.settings import Settings, make_setup

LIMITS = {"energy": 0.01, "coverage": 0.03}


def test_every_method_has_as_many_settings_and_its_preset_is_among_them():
    env = make_env("uav-mec")
    for method, space in SPACES.items():
        assert len(space) == 4
        for name, value in usual(method, space).items():
            kind = space[name]
            assert value in kind.values if isinstance(kind, Choice) else kind.low <= value <= kind.high, (method, name)
        ends = [
            {n: k.values[i] if isinstance(k, Choice) else (k.low, k.high)[i] for n, k in space.items()} for i in (0, -1)
        ]
        for changes in ends:
            make_setup(env, method, Settings(episodes=16, seeds=1), changes)


def test_only_those_who_are_told_of_limits_are_judged_by_them():
    seeds = [
        {"reward": -5.0, "cost/energy": 0.03, "cost/coverage": 0.0},
        {"reward": -6.0, "cost/energy": 0.01, "cost/coverage": 0.02},
    ]
    assert score("mappo", seeds, LIMITS) == -5.5
    assert score("macpo", seeds, LIMITS) == pytest.approx(-5.5 - 10.0 * 0.01)


def test_seeds_of_tables_are_not_tuned_on(capsys):
    with pytest.raises(TridentError, match="must be 100 or higher"):
        Budget(800, (100, 3))


def test_without_optuna_the_way_out_is_named(monkeypatch, capsys):
    monkeypatch.setattr(tuning.importlib.util, "find_spec", lambda name: None)
    assert main(["tune", "uav-mec"]) == 2
    assert "pip install 'trident-marl[tune]'" in capsys.readouterr().err


def test_what_a_study_chose_takes_the_place_of_older_values(tmp_path, monkeypatch):
    path, env = tmp_path / "tuned.json", make_env("uav-mec")
    for method, values in {
        "mappo": {"epochs": 10},
        "trident-scratch": {"safety.tighten": 0.7},
        "trident": {"critic.lr": 2e-3},
    }.items():
        write_tuned(path, "uav-mec", method, {"values": values, "study": {"trials": 16}})
    monkeypatch.setattr(tuned, "TUNED", dict(tuned.TUNED))
    monkeypatch.setattr(tuned, "RESIDUAL_TUNED", dict(tuned.RESIDUAL_TUNED))
    tuned.add_studies(json.loads(path.read_text()))
    monkeypatch.setattr("trident.training.registry.TUNED", tuned.TUNED)
    monkeypatch.setattr("trident.training.registry.RESIDUAL_TUNED", tuned.RESIDUAL_TUNED)
    mappo, shielded = default_config("mappo", env), default_config("shielded", env)
    assert (mappo.epochs, mappo.lr) == (10, 5e-4), "of the older entry nothing is left"
    assert shielded.epochs == 10
    assert default_config("trident-no-stgc", env).safety.tighten == 0.7, "ablations have what TRIDENT has"
    residual = default_config("trident", env)
    assert (residual.critic.lr, residual.step.trust_region) == (2e-3, 0.003)


# --- with Optuna ----------------------------------------------------------------------------------


class Fake:
    """A launcher whose runs are written by hand: round after round with every look, better with a smaller lr."""

    at_once = 1

    def __init__(self, bad: tuple[int, ...] = (), dies_at: int = 10**9) -> None:
        self.bad, self.dies_at, self.started, self.stopped, self.rounds = bad, dies_at, [], [], {}

    def check(self, folder: Path) -> None: ...

    def start(self, jobs):
        self.started += [job.folder.name for job in jobs]
        for job in jobs:
            self.rounds[job] = 0
        return list(jobs)

    def poll(self, job):
        if job in self.stopped:
            return Status("ended", 143)
        self.rounds[job] += 2
        if len(self.started) > self.dies_at:
            raise KeyboardInterrupt
        number = int(job.folder.name[-3:])
        reward = -8.0 if number in self.bad else -5.0 - job.config["lr"]
        done = min(self.rounds[job], 10)
        self.write(job, reward, done)
        return Status("ended", 0) if done == 10 else Status("running")

    def stop(self, job) -> None:
        self.stopped.append(job)

    def write(self, job, reward: float, done: int) -> None:
        seeds, costs = list(job.seeds), {f"cost/{name}": 0.0 for name in LIMITS}
        run = {"env": "uav-mec", "env_version": 2, "algo": job.algo, "rounds": 10, "commit": "abc",
               "settings": {"episodes": job.episodes, "seeds": seeds}}  # fmt: skip
        result = {"policies": {job.algo: [{"reward": reward, **costs} for _ in seeds]}, "seeds": seeds}
        rows = [
            {"round": i, "env_steps": i, "episodes": 1.0, "seconds": 1.0, "diverged": {},
             "values": {"reward": [reward] * len(seeds)} | {name: [0.0] * len(seeds) for name in costs}}
            for i in range(1, done + 1)
        ]  # fmt: skip
        write_files(job.folder, run, result if done == 10 else None, [])
        (job.folder / "records.jsonl").write_text(lines_of(read_run(job.folder), rows))


@pytest.fixture
def quick(monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(tuning, "PAUSE", 0.0)


def test_a_study_prunes_by_records_goes_on_after_a_kill_and_says_what_it_chose(quick, tmp_path, capsys):
    budget, said = Budget(16, (100, 101)), []
    first = Fake(bad=(5,), dies_at=3)
    with pytest.raises(KeyboardInterrupt):
        tuning.tune(tuning.Study("uav-mec", "mappo", tmp_path, budget), 7, first, said.append)
    assert first.started == ["trial-000", "trial-001", "trial-002", "trial-003"]
    assert [job.folder.name for job in first.stopped] == ["trial-003"], "asked to save"

    second, study = Fake(bad=(5,)), tuning.Study("uav-mec", "mappo", tmp_path, budget)
    tuning.tune(study, 7, second, said.append)
    assert second.started == ["trial-003", "trial-004", "trial-005", "trial-006"]
    assert any("trial 5: pruned after" in line for line in said)
    tuning.tune(study, 7, Fake(), said.append)  # nothing is left to be done

    found = study.best()
    trials = {t.number: t for t in study.trials}
    assert trials[0].params["lr"] == 5e-4
    pruned = [t.number for t in trials.values() if t.state.name == "PRUNED"]
    assert 5 in pruned
    assert (found["study"]["trials"], found["study"]["pruned"]) == (7, len(pruned))
    assert found["study"]["seeds"] == [100, 101]
    best = min((t for t in trials.values() if t.state.name == "COMPLETE"), key=lambda t: t.user_attrs["config"]["lr"])
    assert found["values"] in ({}, best.user_attrs["config"])
    assert found["study"]["commits"] == ["abc"]
    assert len({t.params["lr"] for t in trials.values()}) == 7, "proposals are not repeated after a kill"

    command = ["tune", "uav-mec", "--methods", "mappo", "--show", "--episodes", "16", "--out", str(tmp_path)]
    assert main([*command, "--tuned", str(tmp_path / "tuned.json")]) == 0
    assert json.loads((tmp_path / "tuned.json").read_text())["uav-mec"]["mappo"] == json.loads(json.dumps(found))
    assert capsys.readouterr().out.splitlines()[2].split()[:4] == ["mappo", "7", str(len(pruned)), "0"]
    with pytest.raises(TridentError, match="another budget"):
        tuning.Study("uav-mec", "mappo", tmp_path, Budget(32, (100, 101)))


def test_a_trial_that_crashes_or_diverges_has_failed(quick, tmp_path):
    class Crash(Fake):
        def poll(self, job):
            return Status("ended", 70) if job.folder.name == "trial-001" else super().poll(job)

    study = tuning.Study("uav-mec", "mappo", tmp_path, Budget(16, (100,)))
    tuning.tune(study, 3, Crash(), lambda _: None)
    assert [t.state.name for t in study.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert study.best()["study"]["failed"] == 1
