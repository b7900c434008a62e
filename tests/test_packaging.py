"""The wheel and the sdist: what is in them, and a wheel that works where nothing else of the project is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OUTSIDE = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def call(*words: str | Path, folder: Path) -> str:
    child = subprocess.run(words, cwd=folder, env=OUTSIDE, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout


def build(source: Path, target: str, out: Path) -> Path:
    call(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", out, folder=source)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    names = content(wheel)
    assert {"trident/py.typed", "trident/__init__.pyi", "trident/cli/__init__.py"} <= names
    assert {name.split("/")[0] for name in names} == {"trident", f"trident_marl-{VERSION}.dist-info"}
    page = {
        f"trident/report/page/web/{name}" for name in ("app.js", "page.css", "uplot/uPlot.iife.js", "uplot/LICENSE")
    }
    assert page <= names
    assert sum(name.endswith("LICENSE") and "dist-info" in name for name in names) == 2
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == source


def test_the_sdist_builds_the_same_wheel(wheel, tmp_path):
    sdist = build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path / "source", filter="data")
    source = tmp_path / "source" / f"trident_marl-{VERSION}"
    assert {"src", "tests", "examples", "LICENSE", "README.md"} <= {path.name for path in source.iterdir()}
    assert not (source / "benchmarks").exists()
    assert content(build(source, "wheel", tmp_path / "again")) == content(wheel)


def test_an_installed_wheel_works_without_the_repository(wheel, tmp_path):
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    python, command = (tmp_path / "venv" / "bin" / name for name in ("python", "trident"))
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    call(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, folder=tmp_path)
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # those of the tests: no network here
    where = call(python, "-c", "import trident; print(trident.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    assert call(command, "--version", folder=tmp_path) == f"trident {VERSION}\n"
    assert "trident COMMAND --help" in call(command, "--help", folder=tmp_path)
    listed = call(command, "list", folder=tmp_path)
    assert re.search(r"^  uav-mec ", listed, re.MULTILINE)
    assert re.search(r"^  trident ", listed, re.MULTILINE)
    code = "import trident, numpy as np; run = trident.load('zoo:probe-mode/mappo'); spec = run.setup.spec"
    code += "; print(run.act(np.zeros((spec.num_agents, spec.obs_dim), np.float32)).mode.shape)"
    assert call(python, "-c", code, folder=tmp_path).strip() == "(1,)"


def test_one_version_everywhere():
    places = {"src/trident/__init__.py": r'^__version__ = "(.*)"$', "CITATION.cff": r"^version: (.*)$"}
    for place, pattern in places.items():
        assert re.findall(pattern, (ROOT / place).read_text(), re.MULTILINE) == [VERSION], place
