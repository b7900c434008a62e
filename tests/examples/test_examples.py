"""Every example runs in an empty folder and says nothing on stderr."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from support import tiny  # noqa: F401 (compiled programs are shared for the length of the test session)

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "first_run": "cost speeding <= 0.05 rate",
    "load_and_act": "step  reward  heat  modes",  # it loads programs from the cache: XLA's complaints are kept away
    "compare": "policy     reward  effort",
    "own_environment": "cost overflow <= 0.02 rate",
    "own_physics": "share of actions changed by the shield",
    "own_algorithm": "reinforce       random    nominal",
}


@pytest.mark.parametrize("name", SAYS)
def test_it_runs_and_prints_its_table(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capfd.readouterr()
    assert SAYS[name] in said.out
    assert said.err == ""
    assert list((tmp_path / "runs").glob("*/checkpoints/*.npz"))


def test_what_they_teach_is_public_and_short():
    found = {path.stem: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert found.keys() == SAYS.keys()
    for name, text in found.items():
        assert len(text.splitlines()) < 80, name
        assert not re.search(r"(import|from) trident\.", text), f"{name} reaches behind `import trident`"
