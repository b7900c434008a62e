"""The zoo: entries are small, complete, and do what their cards say."""

import json

import jax
import numpy as np
import pytest
from support import tiny  # noqa: F401 (registers itself)

import trident
from trident.cli import main
from trident.errors import TridentError
from trident.training import zoo
from trident.training.settings import Settings, make_setup

PROBE = "probe-mode/mappo"


def entry(name: str):
    return pytest.param(name, marks=[] if name.startswith("probe-") else [pytest.mark.slow])


@pytest.mark.parametrize("name", [entry(name) for name in zoo.entries()])
def test_an_entry_repeats_its_card_within_the_interval(name):
    card, run = zoo.card_of(zoo.folder_of(name)), trident.load(f"zoo:{name}")
    assert card["parameters"]["bytes"] < zoo.MOST_BYTES
    assert card["seed"] == run.setup.seeds[0]
    (again,) = run.evaluate(card["evaluation"]["episodes"], references=False)["policies"][card["algo"]]
    for quantity, (value, low, high) in ((k, v) for k, v in card["evaluation"].items() if isinstance(v, list)):
        assert low <= value <= high
        assert low - 1e-6 <= again[quantity] <= high + 1e-6, quantity


def test_an_entry_acts_as_the_run_it_was_made_of(tmp_path, capsys):
    run = trident.train("tiny", "tiny", episodes=20, seeds=(3, 4), out=tmp_path / "run", video=False)
    into = tmp_path / "zoo"
    words = ["zoo", "add", str(tmp_path / "run"), "--seed", "4", "--name", "tiny/mine", "--episodes", "5"]
    assert main([*words, "--into", str(into)]) == 0
    folder = into / "tiny" / "mine"
    assert sorted(p.name for p in folder.iterdir()) == ["card.json", "policy.npz", "run.json"]
    with np.load(folder / "policy.npz") as file:
        assert file.files == [".w"], "of the learner's state its actions need no more"
    setup, state = zoo.load_entry(folder)
    np.testing.assert_array_equal(state.w[0], run.state.algo.w[1])
    assert setup.seeds == (4,)
    assert zoo.card_of(folder)["commit"] == run.info["commit"]
    assert main([*words, "--into", str(into)]) == 2
    assert "exists already" in capsys.readouterr().err
    (folder / "policy.npz").write_bytes(b"other")
    with pytest.raises(TridentError, match="not what its card was written for"):
        zoo.load_entry(folder)


def test_what_acting_does_not_need_is_left_out():
    setup = make_setup("probe-mode", "mappo", Settings())
    paths, _ = jax.tree_util.tree_flatten_with_path(zoo._shapes(setup))
    kept = {jax.tree_util.keystr(p) for (p, _), use in zip(paths, zoo.needed(setup), strict=True) if use}
    assert kept
    assert all(path.startswith(".actors") for path in kept)


def test_the_zoo_is_listed_shown_and_nothing_is_written_into_it(capsys):
    before = sorted(zoo.POLICIES.rglob("*"))
    assert main(["zoo"]) == 0
    assert f"zoo:{PROBE}" in capsys.readouterr().out
    assert main(["zoo", PROBE]) == 0
    assert json.loads(capsys.readouterr().out)["algo"] == "mappo"
    assert main(["eval", f"zoo:{PROBE}", "--episodes", "20"]) == 0
    assert "mappo" in capsys.readouterr().out
    assert sorted(zoo.POLICIES.rglob("*")) == before
    assert main(["eval", "zoo:probe-mode/mapo"]) == 2
    assert "did you mean 'probe-mode/mappo'" in capsys.readouterr().err
