"""Environments by import string: what they are called, what can be wrong, and whose code is run."""

import json
import sys
from pathlib import Path

import pytest
from support import tiny

import trident
from trident import api
from trident.cli import main, show
from trident.errors import TridentError
from trident.training import names
from trident.training.registry import make_env
from trident.training.session import new_folder
from trident.training.settings import Settings, make_setup, parse_env_args, setup_of, write_run

MODULE = """
from dataclasses import replace
from support.tiny import TinyEnv

class Field(TinyEnv):
    "A field of tiny things."
    def __init__(self, level=1, wind=False):
        spec = replace(TinyEnv.spec, horizon=TinyEnv.spec.horizon + level)
        self.__dict__.update(level=level, wind=wind, spec=spec)

def factory(level=1):
    return Field(level)

made = Field()

def broken():
    raise OSError("no licence")

number = 3
"""


@pytest.fixture
def its_place(tmp_path, monkeypatch):
    (tmp_path / "its_place.py").write_text(MODULE)
    (tmp_path / "needs_more.py").write_text("import absent_module")
    (tmp_path / "misspelt.py").write_text("import os\nos.pth")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget()
    yield tmp_path
    forget()


def forget():
    """As in another process."""
    sys.modules.pop("its_place", None)
    names._asked_for.clear()


FEW = ["--algo", "tiny", "--episodes", "4", "--seeds", "1", "--eval-episodes", "0", "--no-video"]


@pytest.mark.parametrize("name", ["its_place:Field", "its_place:factory", "its_place:made"])
def test_a_class_a_function_or_an_object_of_ones_own(its_place, name):
    assert make_env(name).spec.name == "tiny"


def test_the_commands_take_it(its_place, capsys, monkeypatch):
    name, checked = "its_place:Field", []
    monkeypatch.setattr(show, "find_faults", lambda env: checked.append(env.level) or [])
    monkeypatch.setattr(show, "find_doubts", lambda env: [])
    assert main(["check", name, "--env-arg", "level=2", "wind=true"]) == 0
    assert checked == [2]
    assert main(["list", name]) == 0
    assert "A field of tiny things." in capsys.readouterr().out
    assert main(["train", name, *FEW, "--env-arg", "level=2", "--out", "run"]) == 0
    said = json.loads((its_place / "run/run.json").read_text())
    assert (said["env"], said["settings"]["env_arg"]) == (name, {"level": 2})
    run = trident.load("run")
    assert run.on(name, {"level": 5}).setup.env.level == 5
    assert (run.setup.env.level, run.setup.spec.name) == (2, name)
    assert new_folder(run.setup).name.startswith("its_place-Field-tiny-")


def test_python_takes_it_too(its_place, monkeypatch):
    monkeypatch.setattr(api, "start", lambda setup, *_: setup)
    setup = trident.train("its_place:Field", "tiny", env_args={"level": 3, "wind": True})
    assert (setup.env.level, setup.env.wind, setup.settings.env_arg) == (3, True, {"level": 3, "wind": True})
    with pytest.raises(TridentError, match="env_args are for an environment that is made by its name"):
        trident.train(tiny.TinyEnv(), "tiny", env_args={"level": 3})
    with pytest.raises(TridentError, match="uav-mec takes no arguments"):
        trident.train("uav-mec", env_args={"level": 3})


def test_what_one_reads_is_not_imported_without_trust(its_place, capsys):
    Path("run").mkdir()
    write_run(Path("run"), make_setup("its_place:factory", "tiny", Settings(env_arg={"level": 4})))
    forget()
    for words in (["resume", "run"], ["eval", "run"], ["render", "run"], ["render", "run", "--policy", "random"]):
        capsys.readouterr()
        assert main(words) == 2, words
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert (
            "this run wants the environment its_place:factory, which is made by code of the module 'its_place'" in said
        )
    assert "its_place" not in sys.modules
    assert main(["eval", "run", "--trust"]) == 2
    assert "no readable checkpoint in run" in capsys.readouterr().err  # it went on
    forget()
    setup = setup_of(Path("run"), trust=True)
    assert (setup.spec.name, setup.env.level) == ("its_place:factory", 4)


def test_a_class_that_is_imported_already_is_trusted_but_no_function_is(its_place):
    make_env("its_place:Field"), make_env("its_place:factory")
    names._asked_for.clear()  # imported by somebody else
    assert make_env("its_place:Field", trusted=False).level == 1
    with pytest.raises(TridentError, match="--trust"):
        make_env("its_place:factory", trusted=False)
    with pytest.raises(TridentError, match="--trust"):
        make_env("os:system", {"command": "touch pwned"}, trusted=False)
    with pytest.raises(TridentError, match="--trust"):
        make_env("gymnasium:its_place:Field-v0", trusted=False)
    assert not (its_place / "pwned").exists()


WRONG = {
    "nowhere.at_all:Env": "there is no module 'nowhere', neither in",
    "its_place.inside:Env": "there is no module 'its_place.inside'",
    "needs_more:Env": "the module 'needs_more' does not import: it needs 'absent_module', which is missing",
    "misspelt:Env": "the module 'misspelt' does not import: AttributeError: module 'os' has no attribute 'pth'",
    "its_place:Fields": "the module 'its_place' has no 'Fields': did you mean 'Field'?",
    "its_place:broken": "its_place:broken cannot be made: OSError: no licence",
    "its_place:number": "its_place:number is no environment: it is of the type int",
    "its_place:Field.reset": "its_place:Field.reset cannot be made: TypeError",
    "gymnasium:": "unknown environment 'gymnasium:'",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_had_is_one_line(its_place, name, capsys):
    assert main(["train", name]) == 2
    said = capsys.readouterr().err
    assert WRONG[name] in said
    assert said.count("\n") == 1
    assert not (its_place / "runs").exists()


def test_arguments_are_read_as_what_they_look_like():
    words = ["a=3", "b=0.5", "c=true", "d=False", "e=hills", "f=1e3", 'g="3"']
    found = {"a": 3, "b": 0.5, "c": True, "d": False, "e": "hills", "f": 1000.0, "g": "3"}
    assert parse_env_args(words) == found
    with pytest.raises(TridentError, match="--env-arg wants NAME=VALUE"):
        parse_env_args(["level"])


def test_arguments_that_do_not_fit_are_one_line(its_place, capsys):
    assert main(["train", "its_place:Field", "--env-arg", "slope=3"]) == 2
    assert "its_place:Field cannot be made: TypeError" in capsys.readouterr().err
