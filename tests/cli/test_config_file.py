"""`trident train --config`: a TOML file or a former run says what the command line can say; what is typed wins."""

from __future__ import annotations

import json
import tomllib

import pytest
from support import tiny  # noqa: F401 (registers itself)
from support.records import write_run

from trident.cli import main
from trident.cli.train import understood
from trident.run_directory import read_run
from trident.training.settings import Settings, describe, make_setup
from trident.training.settings import write_run as write_setup

TOML = """
env = "tiny"
algo = "tiny"
episodes = 30
seeds = [4, 7]
eval-episodes = 3
video = false
workers = 2
warm_start = "random"
out = "there"
trackers = ["mlflow"]
limit = {use = 0.3, noise = 1}
[config]
lr = 0.5
sizes = [3, 4]
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(TOML)
    return "run.toml"


def test_toml_says_everything(file):
    setup, options = understood(["--config", file])
    assert (setup.spec.name, setup.algorithm.name, str(options.out)) == ("tiny", "tiny", "there")
    assert setup.settings == Settings(
        episodes=30, seeds=(4, 7), eval_episodes=3, video=False, workers=2, warm_start="random", trackers=("mlflow",),
        limit={"use": 0.3, "noise": 1},
    )  # fmt: skip
    assert (setup.algorithm.config.lr, setup.algorithm.config.sizes) == (0.5, (3, 4))
    assert setup.spec.limits.tolist() == pytest.approx([0.3, 1.0])


def test_what_is_typed_wins(file):
    words = f"--config={file} --episodes 5 --seeds 1 --limit use=0.2 --algo.lr 0.25 --out here --video --workers None"
    setup, options = understood(words.split())
    assert (setup.settings.episodes, setup.settings.num_seeds, setup.settings.video) == (5, 1, True)
    assert (setup.settings.limit, setup.settings.workers) == ({"use": 0.2, "noise": 1}, None)
    assert (setup.algorithm.config.lr, setup.algorithm.config.sizes, str(options.out)) == (0.25, (3, 4), "here")


def test_another_algorithm_leaves_out_what_was_said_of_the_first(file, capsys):
    assert understood(["--config", file, "--algo", "mappo"])[0].algorithm.name == "mappo"
    assert capsys.readouterr().out == "run.toml sets up tiny: of mappo it says nothing\n"


def test_the_option_of_every_setting_has_the_same_name_in_a_file():
    assert {name.replace("-", "_") for name in tomllib.loads(TOML)} - {"env", "algo", "out", "config"} <= set(
        Settings.__dataclass_fields__
    )


@pytest.mark.parametrize("place", ["old", "old/run.json"])
def test_a_former_run_is_repeated(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    settings = Settings(episodes=7, seeds=(4,), limit={"use": 0.25}, video=False, trackers=("wandb",), project="x")
    setup = make_setup("tiny", "tiny", settings, {"lr": 0.3})
    (tmp_path / "old").mkdir()
    write_setup(tmp_path / "old", setup)
    again, _ = understood(["--config", place])
    mine, its = json.loads(json.dumps(describe(setup))), json.loads(json.dumps(describe(again)))
    assert its["settings"] == mine["settings"] | {"trackers": [], "project": "trident"}
    assert its["config"] == mine["config"]
    assert its["identity"] == mine["identity"]
    assert read_run(tmp_path / "old")["settings"]["trackers"] == ["wandb"]


def test_no_module_is_imported_because_a_file_names_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nasty.py").write_text("open('imported', 'w')\nclass Env: ...\n")
    (tmp_path / "run.toml").write_text('env = "nasty:Env"')
    write_run(tmp_path / "r", env="nasty:Env")
    for file in ("run.toml", "r"):
        assert main(["train", "--config", file]) == 2
        assert "wants the environment nasty:Env, which is made by code of the module 'nasty'" in capsys.readouterr().err
    assert not (tmp_path / "imported").exists()
    assert main(["train", "--config", "run.toml", "--trust"]) == 2
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("env = tiny", "run.toml is not TOML: Invalid value (at line 1, column 7)"),
        ("seeds = " + "[" * 3000, "run.toml is not TOML: it is nested too deeply"),
        ("seeds = " + "9" * 5000, "run.toml is not TOML: Exceeds the limit"),
        ("epsodes = 3", "unknown option 'epsodes' of run.toml: did you mean 'episodes'?"),
        ("[limit]\nus = 3", "unknown constraint 'us' of tiny: did you mean 'use'?"),
        ("[config]\nlrr = 3", "unknown config field 'lrr' of tiny: did you mean 'lr'?"),
        ("episodes = 1.5", "--episodes must be a whole number at least 1 and at most 1e+12, not 1.5"),
        ("limit = 3", "run.toml: limit must be a table, [limit], not 3"),
        ("quick = 1", "run.toml: quick must be true or false, not 1"),
        ("algo = 1", "run.toml: algo must be a text, not 1"),
        (None, "run.toml cannot be read: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(text, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "run.toml").write_text(text)
    assert main(["train", "tiny", "--algo", "tiny", "--config", "run.toml"]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
