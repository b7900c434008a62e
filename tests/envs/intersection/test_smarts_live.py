"""The SMARTS adapter, live: `make test-smarts`."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import jax
import numpy as np
import pytest
from support.lanes import read_lanes

import trident
from trident import api
from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.smarts.env import SmartsIntersection, SmartsRoad
from trident.report.progress import PlainProgress
from trident.simulation import batch
from trident.training import session
from trident.training.settings import Settings, make_setup

missing = importlib.util.find_spec("smarts") is None
pytestmark = [pytest.mark.smarts, pytest.mark.skipif(missing, reason="needs the extra smarts")]
DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def env():
    env = SmartsIntersection()
    batch.reset(env, 0)
    yield env
    env.close()


def test_smarts_still_does_what_was_recorded(env):
    with np.load(DATA / "smarts_aim.npz") as tape:
        tape = dict(tape)
    batch.reset(env, int(tape["seed"]))
    for t in range(80):
        before = env.env_state
        batch.step(env, batch.as_numpy(env.scripted["aim"](jax.random.key(0), before)))
        for i in np.flatnonzero(before.phase == 1):
            box = env._entries(env.env_state)
            assert np.isclose(float(box.x[i]), tape["x"][t, i], atol=0.02), (t, i)
            assert np.isclose(float(box.y[i]), tape["y"][t, i], atol=0.02), (t, i)


def test_the_map_it_builds_is_the_recorded_one(env):
    config = IntersectionConfig()
    road = env._road
    assert isinstance(road, SmartsRoad)
    built = read_lanes(Path(road._folder.name) / "map.net.xml", config)
    recorded = read_lanes(DATA / "map.net.xml", config)
    assert built.keys() == recorded.keys()
    assert all(np.allclose(built[name], recorded[name], atol=0.011) for name in built)


def test_a_seed_repeats_its_episode(env):
    def play(seed: int) -> np.ndarray:
        batch.reset(env, seed)
        action = batch.as_numpy(env.scripted["random"](jax.random.key(1), env.env_state))
        return np.stack([batch.step(env, action).obs for _ in range(15)])

    first, other, again = play(5), play(6), play(5)
    assert np.allclose(first, again, atol=1e-5)
    assert not np.allclose(first, other, atol=1e-2)


def test_a_contact_ends_both_vehicles(env):
    """A standing vehicle is put in the way of another one."""
    batch.reset(env, 11)
    t = env.env_state
    first = int(np.flatnonzero(t.phase == 1)[0])
    other = (first + 4) % 8  # of the same arm
    ahead = {name: np.array(getattr(t, name)) for name in t._fields}
    for name in ("x", "y", "heading", "cos", "sin", "lane", "movement"):
        ahead[name][other] = ahead[name][first]
    ahead["y"][other] = ahead["y"][first] + 12.0
    ahead["phase"][other], ahead["speed"][other] = 1, 0.0
    before = t.phase == 1
    env.env_state = t._replace(**ahead)
    env._exchange(before)
    crashed = []
    for _ in range(25):
        out = batch.step(env, batch.as_numpy(env.scripted["aggressive"](jax.random.key(0), env.env_state)))
        crashed.append(out.metrics["collisions"])
        if out.cost[0] > 0:
            break
    assert crashed[-1] == 200.0
    assert set(np.flatnonzero(env.env_state.phase == 3)) == {first, other}


def test_a_short_training_and_a_video(tmp_path):
    told, out = io.StringIO(), tmp_path / "run"
    config = {"envs": 1, "steps": 75, "hidden": (8,), "critic_hidden": (8,)}
    setup = make_setup("smarts-intersection", "mappo", Settings(episodes=1, seeds=1), config)
    session.train(setup, out, PlainProgress(told, every=0.0))
    run = trident.load(out)
    assert run.rounds == len(run.records) == 4
    assert np.isfinite([r["values"]["reward"] for r in run.records]).all()
    assert "round 4/4" in told.getvalue()
    ours = run.on("intersection").evaluate(2, references=False)
    assert np.isfinite(ours["policies"]["mappo"][0]["reward"])
    env = trident.make_env("smarts-intersection")
    files = api.render(env, api.scripted_policy(env, "aim"), tmp_path, "aim", steps=8)
    assert (tmp_path / "episode.gif") in files
    env.close()
