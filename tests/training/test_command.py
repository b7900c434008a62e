"""The command of a run repeats it: parsed again, it gives the same setup."""

import json
import shlex
from pathlib import Path

import pytest

from trident.cli.train import understood
from trident.run_directory import read_run
from trident.training.command import command_of
from trident.training.settings import Settings, describe, make_setup

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def parsed(command):
    _, _, *argv = shlex.split(command)
    return understood(argv)[0]


@pytest.mark.parametrize(
    ("algo", "settings", "config"),
    [
        ("trident-scratch", Settings(), {}),
        ("mappo", Settings(episodes=7, seeds=(4,), seed=3, limit={"use": 0.25}, video=False), {"lr": 0.01}),
        ("trident-scratch", Settings(seeds=2), {"step": {"filter": False, "updates": 3}, "reward_hidden": (8, 8)}),
    ],
)
def test_the_command_gives_the_same_run_again(algo, settings, config):
    setup = make_setup("probe-constrained", algo, settings, config)
    run = json.loads(json.dumps(describe(setup)))
    again = parsed(command_of(run))
    assert again.algorithm.config == setup.algorithm.config
    assert describe(again)["settings"] == run["settings"]
    assert again.spec.limits.tolist() == setup.spec.limits.tolist()


def test_a_warm_start_brings_its_own_settings_on_the_command_line_too():
    settings = Settings(warm_start="random")
    setup = make_setup("probe-constrained", "trident-scratch", settings)
    assert setup.algorithm.config != make_setup("probe-constrained", "trident-scratch", Settings()).algorithm.config
    words = "trident train probe-constrained --algo trident-scratch --warm-start random"
    assert parsed(words).algorithm.config == setup.algorithm.config


@pytest.mark.parametrize("name", ["trident", "mappo-lag", "qmix", "macpo"])
def test_commands_of_old_records_are_understood_today(name):
    assert parsed(command_of(read_run(BENCHMARKS / "uav-mec-v1" / name))).rounds == 125


def test_what_has_no_name_has_no_command():
    run = read_run(BENCHMARKS / "uav-mec-v1" / "trident")
    assert command_of(run | {"env": "my-own"}) is None
    assert command_of(run | {"algo": "my-own"}) is None


def test_no_module_is_imported_because_a_record_names_it(tmp_path, monkeypatch):
    (tmp_path / "nasty.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    run = read_run(BENCHMARKS / "uav-mec-v1" / "trident")
    assert command_of(run | {"env": "nasty:Env"}) is None
