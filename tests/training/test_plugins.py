"""Other packages bring environments and algorithms by entry points; a broken one costs one line and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import tiny

import trident
from trident.cli import main
from trident.errors import TridentError
from trident.training import registry

pytestmark = pytest.mark.filterwarnings("ignore:the plug-in '(uav-mec|happo)'")

MODULE = """
from dataclasses import dataclass, replace
import trident
from support import tiny

class Field(tiny.TinyEnv):
    '''A field of tiny things.

    More of it.'''

def no_env():
    return 3

def bad_spec():
    return Field(spec=replace(tiny.SPEC, horizon=0))

def fails():
    raise RuntimeError("no licence\\nfor this")

learner = trident.Preset("learns tiny things", tiny.make, tiny.TinyConfig())
no_config = trident.Preset("has no config", tiny.make, None)
"""
POINTS = """
[trident.envs]
field = its_module:Field
uav-mec = its_module:Field
no-env = its_module:no_env
bad-spec = its_module:bad_spec
fails = its_module:fails
absent = its_other_module:Field
[trident.algorithms]
its-learner = its_module:learner
happo = its_module:learner
no-preset = its_module:fails
no-config = its_module:no_config
misspelt = its_module:lerner
"""
FAULTS = {
    "no-env": "environment: has no attribute 'spec'; physics and shield may be None, scripted may be {}",
    "bad-spec": "environment: spec.horizon is 0; it must be a whole number, at least 1",
    "fails": "RuntimeError: no licence for this",
    "absent": "ModuleNotFoundError: No module named 'its_other_module'",
    "no-preset": "it is of the type function, not a trident.Preset",
    "no-config": "its config is not a dataclass with fields",
    "misspelt": "AttributeError: module 'its_module' has no attribute 'lerner'",
}
ALGORITHMS = ("no-preset", "no-config", "misspelt")


def install(folder: Path, name: str, points: str) -> None:
    """As much of a distribution as an installer leaves behind."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    install(tmp_path, "its-package", POINTS)
    (tmp_path / "its_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    envs, algorithms = dict(registry.ENVS), dict(registry.ALGORITHMS)
    yield tmp_path
    sys.modules.pop("its_module", None)
    for table, before in ((registry.ENVS, envs), (registry.ALGORITHMS, algorithms)):
        table.clear()
        table.update(before)


def line(name: str) -> str:
    return f"the plug-in {name!r} of the package its-package cannot be used: {FAULTS[name]}"


def test_what_works_is_listed_and_what_does_not_is_a_line_each(plugin, capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr()
    rows = {row.split()[0]: row for row in said.out.splitlines() if row.startswith("  ")}
    assert "A field of tiny things. (package its-package)" in rows["field"]
    assert rows["its-learner"].endswith("learns tiny things (package its-package)")
    assert "its-package" not in rows["uav-mec"] + rows["happo"]
    assert not rows.keys() & FAULTS.keys()
    assert sorted(said.err.splitlines()) == sorted(f"trident: {line(name)}" for name in FAULTS)


def test_a_plugin_trains_and_is_evaluated_by_its_name(plugin, capsys):
    words = ["--episodes", "4", "--seeds", "1", "--eval-episodes", "2", "--out", "run", "--no-video"]
    assert main(["train", "field", "--algo", "its-learner", "--algo.lr", "0.2", *words]) == 0
    assert "its-learner on field (version 1, 2 agents)" in capsys.readouterr().out
    del registry.ENVS["field"], registry.ALGORITHMS["its-learner"]  # as in another process
    run = trident.load("run")
    assert (run.info["env"], run.setup.algorithm.name, run.setup.algorithm.config.lr) == ("field", "its-learner", 0.2)
    assert main(["check", "field"]) == 0
    assert main(["train", "fields"]) == 2
    assert "unknown environment 'fields': did you mean 'field'?" in capsys.readouterr().err
    assert main(["train", "tiny", "--algo", "its-lerner"]) == 2
    assert "unknown algorithm 'its-lerner': did you mean 'its-learner'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_plugin_that_is_asked_for_is_one_line(plugin, name, capsys):
    words = ["tiny", "--algo", name] if name in ALGORITHMS else [name]
    assert main(["train", *words]) == 2
    assert capsys.readouterr().err == f"trident: {line(name)}\n"
    assert not (plugin / "runs").exists()


def test_names_that_are_taken_are_refused(plugin, tmp_path, monkeypatch):
    install(tmp_path / "other", "zz-other", "[trident.envs]\nfield = its_module:Field\n")
    with pytest.warns(UserWarning, match="'uav-mec' of the package its-package is left out: the name is built in"):
        assert type(trident.make_env("uav-mec")).__name__ == "UavMec"
    with pytest.warns(UserWarning, match="'happo' of the package its-package is left out: the name is built in"):
        assert registry.default_config("happo", tiny.TinyEnv()) == registry.ALGORITHMS["happo"].config
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "other")])
    with pytest.warns(UserWarning, match="'field' of the package zz-other is left out: the plug-in .field. of"):
        assert type(trident.make_env("field")).__name__ == "Field"


def test_plugins_are_imported_only_when_they_are_used(plugin):
    with pytest.warns(UserWarning, match="built in"):
        trident.make_env("tiny")
    assert "its_module" not in sys.modules
    with pytest.warns(UserWarning, match="built in"):
        trident.make_env("field")
    assert "its_module" in sys.modules


def test_help_looks_for_no_plugins():
    code = (
        "import sys\nfrom trident.cli import main\nassert main(['--help']) == 0\nassert 'jax' not in sys.modules"
        "\nassert 'importlib.metadata' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, stdout=subprocess.DEVNULL)


def test_an_algorithm_of_ones_own_is_handed_in(plugin, tmp_path):
    preset = trident.Preset("mine", tiny.make, tiny.TinyConfig(), name="my-own")
    small = {"episodes": 4, "seeds": 1, "eval_episodes": 0, "video": False}
    run = trident.train(tiny.TinyEnv(), preset, out=tmp_path / "run", config={"lr": 0.3}, **small)
    assert (run.setup.algorithm.name, run.setup.algorithm.config.lr) == ("my-own", 0.3)
    del registry.ALGORITHMS["my-own"]
    with pytest.raises(TridentError, match=r"'my-own' is not a registered algorithm: .*trident.load\(run, algo=your_"):
        trident.load(run.out)
    assert trident.load(run.out, algo=preset).setup.algorithm.config.lr == 0.3
    assert trident.resume(run.out, episodes=8, algo=preset).rounds == 4


@pytest.mark.parametrize(
    ("name", "message"), [("", "needs a name"), ("happo", "'happo' is a built-in algorithm: give yours another name")]
)
def test_an_algorithm_of_ones_own_needs_a_name_of_its_own(name, message):
    with pytest.raises(TridentError, match=message):
        trident.train("tiny", trident.Preset("mine", tiny.make, tiny.TinyConfig(), name=name))
