"""`trident export`: a run becomes a bundle that decides as JAX does, or nothing is left behind."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from support import tiny

import trident
from trident.errors import TridentError
from trident.export import bundle as exporting
from trident.export import stablehlo
from trident.export.bundle import Choices, export
from trident.report.progress import Silent
from trident.runtime import Guard, open_bundle
from trident.runtime.parity import self_test

FEW = Choices(observations=200)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> trident.Run:
    out = tmp_path_factory.mktemp("export") / "run"
    quick = {"references": False, "video": False, "progress": Silent()}
    return trident.train("tiny", "tiny", episodes=4, seeds=[0, 1], out=out, eval_episodes=4, **quick)


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "bundle"
    return folder, export(run, folder, FEW)


def test_the_manifest_says_what_the_bundle_is(run, made):
    folder, manifest = made
    assert manifest == json.loads((folder / "manifest.json").read_text())
    assert manifest["run"]["seed"] == 0
    assert (manifest["env"]["name"], manifest["env"]["version"], manifest["kind"]) == ("tiny", 1, "team")
    assert manifest["spaces"]["modes"] == ["stay", "go"]
    assert manifest["flown"] == "most likely"
    assert [c["limit"] for c in manifest["constraints"]] == [0.4, 2.0]
    row = manifest["evaluation"]["values"]["cost/use"]
    assert row["low"] <= row["value"] <= row["high"]
    assert row["value"] == pytest.approx(np.mean([r["cost/use"] for r in run.result["policies"]["tiny"]]))
    assert set(manifest["files"]) == {p.name for p in folder.iterdir()} - {"manifest.json"}
    assert manifest["fail_safe"]["name"] == "nearest to zero"
    card = (folder / "card.md").read_text()
    assert "# tiny on tiny, 2 agents" in card
    assert "No mode differs" in card


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bundle_decides_as_the_run_does(run, made, tmp_path, seed):
    folder = made[0] if seed == 0 else tmp_path / "second"
    if seed:
        export(run, folder, replace(FEW, seed=seed))
    guard = Guard(folder, deadline=60.0)
    for obs in np.random.default_rng(0).uniform(0, 1, (20, 2, 3)).astype(np.float32):
        action, reasons = guard.decide(obs, margin=[1.0, 1.0])
        wanted = run.act(obs, seed=seed)
        assert np.array_equal(action.mode, wanted.mode)
        assert np.allclose(action.params, wanted.params, atol=1e-6)
        assert {r.branch for r in reasons} == {"policy"}


def test_one_agents_bundle_needs_nothing_but_its_own_observation(run, tmp_path):
    export(run, tmp_path / "one", replace(FEW, agent=1))
    guard = Guard(tmp_path / "one", deadline=60.0)
    obs = np.random.default_rng(1).uniform(0, 1, (2, 3)).astype(np.float32)
    action, _ = guard.decide(obs[1:])
    wanted = run.act(obs)
    assert action.mode.tolist() == [wanted.mode[1]]
    assert np.allclose(action.params, wanted.params[1:], atol=1e-6)


def test_a_sampled_policy_draws_as_jax_does(run, tmp_path):
    manifest = export(run, tmp_path / "drawn", replace(FEW, deterministic=False))
    assert manifest["flown"] == "sampled"
    obs = np.full((2, 3), 0.01, np.float32)
    drawn = [Guard(tmp_path / "drawn", seed=s, deadline=60.0).decide(obs).action.params.tolist() for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    key = jax.random.fold_in(jax.random.key(1), 0)
    assert np.allclose(drawn[2], run.act(obs, key=key, deterministic=False).params, atol=1e-6)


def test_the_bundle_tests_itself_and_runs_in_jax_too(made):
    folder, _ = made
    found = self_test(open_bundle(folder))
    assert found["programs"]["policy"]["modes different"] == 0
    assert set(found["latency"]) == {"load ms", "first ms", "p50 ms", "p99 ms"}
    late = {"deadline": 60.0}
    numpy, jax_ = Guard(folder, **late), Guard(folder, policy=stablehlo.policy(folder), **late)
    for obs in np.random.default_rng(2).uniform(0, 1, (5, 2, 3)):
        one, two = numpy.decide(obs).action, jax_.decide(obs).action
        assert np.array_equal(one.mode, two.mode)
        assert np.allclose(one.params, two.params, atol=1e-6)


def test_nothing_is_exported_that_does_not_agree_with_jax(run, tmp_path, monkeypatch):
    real = exporting.trace

    def off(function, weights, inputs):
        program, arrays = real(function, weights, inputs)
        return program, {name: value + 0.5 if value.dtype == np.float32 else value for name, value in arrays.items()}

    monkeypatch.setattr(exporting, "trace", off)
    with pytest.raises(TridentError, match="does not compute what JAX does, nothing was exported"):
        export(run, tmp_path / "bad", FEW)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_one_line(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for choices, out, message in (
        (replace(FEW, agent=2), "x", "--agent must be between 0 and 1"),
        (replace(FEW, seed=9), "x", "has no seed 9"),
        (FEW, "full", "is not empty"),
    ):
        with pytest.raises(TridentError, match=message):
            export(run, tmp_path / out, choices)
    scripted = trident.train(
        "tiny", "random", episodes=2, seeds=1, out=tmp_path / "r", eval_episodes=0, progress=Silent()
    )
    with pytest.raises(TridentError, match="is scripted"):
        export(scripted, tmp_path / "x", FEW)


def test_recorded_costs_are_those_of_whole_episodes():
    from trident.export.recording import _episode_costs

    cost = np.arange(6.0).reshape(6, 1, 1)
    ended = np.array([0, 1, 0, 0, 1, 0], bool)[:, None]
    assert _episode_costs(cost, ended).ravel().tolist() == [0.5, 3.0]


assert tiny  # the environment of these tests is registered by importing it
