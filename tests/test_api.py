"""trident.train and trident.load: a run that acts, evaluates and reports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from support import tiny

import trident
from trident.errors import TridentError
from trident.report.progress import Silent
from trident.run_directory import write_json
from trident.simulation.evaluate import summarise
from trident.training.evaluation import evaluation_keys
from trident.training.session import Outcome, seed_keys


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> trident.Run:
    out = tmp_path_factory.mktemp("api") / "run"
    return trident.train(tiny.TinyEnv(), "tiny", episodes=20, seeds=[0, 1], out=out, eval_episodes=4, progress=Silent())


def test_a_run_leaves_records_result_figures_and_a_video(run):
    assert len(run.records) == run.rounds == 10
    assert set(run.result["policies"]) == {"tiny", "random"}
    assert len(run.result["policies"]["tiny"]) == 2
    figures = {p.name for p in (run.out / "figures").iterdir()}
    assert {"learning.png", "metrics.png", "modes.png", "diagnostics.png", "episode.png", "episode.gif"} <= figures
    assert list((run.out / "tensorboard").glob("seed-*/events*"))
    table = run.table()
    assert "cost use <= 0.4" in table
    assert "moved [m] (higher is better)" in table


def test_what_a_run_is_stands_on_one_line(run):
    assert repr(run) == f"Run(tiny on tiny, 2 seeds, round 10 of 10, {str(run.out)!r})"
    assert repr(run.setup) == "Setup(tiny on tiny, 2 seeds, 10 rounds)"
    assert re.fullmatch(r"RunState\(\d+ arrays, \d+\.\d MB\)", repr(run.state))
    ended = Outcome(run.setup, run.out, run.state, 10, None)
    assert repr(ended) == f"Outcome(tiny on tiny, 2 seeds, round 10 of 10, {str(run.out)!r})"


def test_evaluation_can_be_repeated_and_uses_fresh_episodes(run):
    again = run.evaluate(4, references=False)
    assert again["policies"]["tiny"] == run.result["policies"]["tiny"]
    a, b = again["policies"]["tiny"]
    assert a["reward"] != b["reward"]
    trained, fresh = (jax.random.key_data(f(run.setup)) for f in (seed_keys, evaluation_keys))
    assert not np.isin(fresh, trained).any()


def test_policies_are_flown_as_their_algorithm_wants_it(run):
    assert run.result["deterministic"]
    drawing = replace(run, setup=run.setup._replace(algorithm=replace(run.setup.algorithm, sampled=True)))
    result = drawing.evaluate(4, references=False)
    assert not result["deterministic"]
    assert result["policies"] == run.evaluate(4, deterministic=False, references=False)["policies"]
    assert result["policies"]["tiny"] != run.result["policies"]["tiny"]
    assert (
        drawing.evaluate(4, deterministic=True, references=False)["policies"]["tiny"] == run.result["policies"]["tiny"]
    )
    obs, key = np.zeros((64, 2, 3), np.float32), jax.random.key(0)
    drawn, likely = drawing.act(obs, key=key), run.act(obs, key=key)
    assert not np.array_equal(drawn.mode, likely.mode)
    assert np.array_equal(drawing.act(obs).mode, likely.mode)
    assert np.array_equal(run.act(obs, key=key, deterministic=False).mode, drawn.mode)


def test_loaded_policies_act_as_trained(run):
    loaded = trident.load(run.out, env=tiny.TinyEnv())
    assert loaded.rounds == 10
    obs = np.linspace(-1, 1, 30).reshape(5, 2, 3).astype(np.float32)
    batch = loaded.act(obs)
    assert isinstance(batch.mode, np.ndarray)
    assert (batch.mode.shape, batch.params.shape) == ((5, 2), (5, 2, 1))
    for i in range(5):
        one = loaded.act(obs[i])
        assert np.array_equal(one.mode, batch.mode[i])
        assert np.allclose(one.params, batch.params[i])
    w = np.asarray(run.state.algo.w)
    for seed in (0, 1):
        score = (w[seed] * obs).sum(-1)
        action = loaded.act(obs, seed=seed)
        assert np.array_equal(action.mode, score > 0)
        assert np.allclose(action.params[..., 0], np.clip(np.abs(score), 0, 1), atol=1e-6)


def test_masks_and_keys_reach_the_policy(run):
    obs = np.ones((3, 2, 3), np.float32)
    assert run.act(obs).mode.any()
    only_stay = np.zeros((3, 2, 2), bool)
    only_stay[..., 0] = True
    assert not run.act(obs, mode_mask=only_stay).mode.any()
    small = 0.01 * obs
    a, b = (run.act(small, key=jax.random.key(k), deterministic=False).params for k in (1, 2))
    assert not np.array_equal(a, b)
    assert not np.array_equal(a[0], a[1]), "each row of a batch has its own key"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"obs": np.ones((2, 4))}, r"obs must have shape \[2, 3\] or \[batch, 2, 3\], not \[2, 4\]"),
        ({"obs": np.ones((2, 3)), "seed": 9}, "has no seed 9: its seeds are 0, 1"),
        ({"obs": np.ones((2, 3)), "deterministic": False}, "needs key="),
        ({"obs": [[1, np.nan, 0], [0, 0, 0]]}, "obs of agent 0 is not finite"),
        ({"obs": np.full((4, 2, 3), np.inf)}, "obs of agents 0, 1 is not finite"),
        ({"obs": "here"}, "obs must be an array of numbers"),
        ({"obs": np.ones((2, 3)), "alive": [True]}, r"alive must have shape \[2\], as obs has it, not \[1\]"),
        ({"obs": np.ones((2, 3)), "mode_mask": np.ones((2, 5))}, r"mode_mask must have shape \[2, 2\]"),
        ({"obs": np.ones((2, 3)), "mode_mask": [[1, 1], [0, 0]]}, "mode_mask allows agent 1 no mode"),
        ({"obs": np.ones((2, 3)), "mode_mask": [[1, 1], [0.5, 0]]}, "mode_mask must be an array of booleans"),
        ({"obs": np.ones((2, 3)), "agent": 0}, r"obs of one agent must have shape \[3\]"),
        ({"obs": np.ones(3), "agent": 2}, "agent must be between 0 and 1"),
    ],
)
def test_act_says_what_is_wrong(run, arguments, message):
    with pytest.raises(TridentError, match=message):
        run.act(**arguments)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": {1: 2}}, "unknown config field 1 of tiny"),
        ({"env_arg": np.array([1, 2])}, "--env-arg must be a mapping"),
    ],
)
def test_what_is_no_mapping_of_names_is_one_line(given, message):
    """Regression: a TypeError of difflib, and a ValueError of NumPy."""
    with pytest.raises(TridentError, match=message):
        trident.train("tiny", "tiny", **given)


def test_one_agent_acts_on_its_own_observation(run):
    obs = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)
    team = run.act(obs)
    for agent in (0, 1):
        alone = run.act(obs[agent], agent=agent)
        assert alone.mode == team.mode[agent]
        assert np.allclose(alone.params, team.params[agent])


def test_agents_that_take_no_part_rest_whatever_they_see(run):
    obs = np.array([[1.0, 1.0, 1.0], [np.nan, np.inf, 0.0]])
    action = run.act(obs, alive=[True, False])
    assert (action.mode[0], action.mode[1], action.params[1, 0]) == (1, 0, 0.0)
    safe = trident.FailSafe("go", (1, 0), np.full((2, 1), 0.25, np.float32))
    declared = replace(run, setup=run.setup._replace(spec=replace(run.setup.spec, fail_safe=safe)))
    action = declared.act(obs, alive=[True, False])
    assert (action.mode[1], action.params[1, 0]) == (1, 0.25)
    only_stay = np.array([[True, True], [True, False]])
    assert declared.act(obs, only_stay, alive=[True, False]).mode[1] == 0


def test_a_run_behind_a_shield_acts_behind_it(run):
    env = tiny.TinyEnv()
    object.__setattr__(env, "shield", lambda state, action: (action._replace(mode=0 * action.mode), action.mode > 0))
    settings = replace(run.setup.settings, shielded=True)
    shielded = replace(run, setup=run.setup._replace(env=env, settings=settings))
    obs = np.ones((2, 3))
    assert run.act(obs).mode.all()
    assert not shielded.act(obs, env_state=()).mode.any()
    with pytest.raises(TridentError, match="acts behind its environment's shield"):
        shielded.act(obs)
    with pytest.raises(TridentError, match="needs the whole team"):
        shielded.act(obs[0], agent=0)


def test_an_interrupted_run_is_not_evaluated(tmp_path):
    class Interrupt(Silent):
        def update(self, record):
            if record["round"] == 2:
                os.kill(os.getpid(), signal.SIGINT)

    run = trident.train("tiny", "tiny", episodes=20, seeds=2, out=tmp_path / "run", progress=Interrupt())
    assert (run.rounds, run.stopped_by, run.result) == (2, signal.SIGINT, None)
    with pytest.raises(TridentError, match="has not been evaluated yet"):
        run.table()


def test_an_environment_of_ones_own_must_be_handed_in_again(run, monkeypatch, tmp_path):
    info = json.loads((run.out / "run.json").read_text())
    write_json(tmp_path / "run.json", info | {"env": "mine"})
    with pytest.raises(TridentError, match=r"'mine' is not a registered .*trident.load\(run, env=your_env\)"):
        trident.load(tmp_path)
    with pytest.raises(TridentError, match="not a run directory"):
        trident.load(tmp_path / "nowhere")


def test_a_mistyped_setting_is_named():
    with pytest.raises(TridentError, match=r"unknown setting 'eval_episode' of trident.train: did you mean 'eval_ep"):
        trident.train("tiny", "tiny", eval_episode=3)


def test_summaries_weigh_steps_not_episodes():
    """Two episodes of 1 and 3 steps: means per step, ratios of sums."""
    sums = {
        "length": np.array([1.0, 3.0]),
        "reward": np.array([4.0, 0.0]),
        "cost": np.array([[1.0, 0.0], [0.0, 2.0]]),
        "metric/moved": np.array([1.0, 2.0]),
        "metric/weight": np.array([4.0, 12.0]),
    }
    summary = summarise(tiny.SPEC, sums)
    assert summary["reward"] == 1.0
    assert (summary["cost/use"], summary["cost/noise"]) == (0.25, 0.5)
    assert summary["metric/moved"] == 3.0 / 16.0


def test_importing_trident_is_light():
    code = (
        "import trident, sys; assert 'jax' not in sys.modules; import trident.report.figures, trident.report.progress"
    )
    code += "; assert 'jax' not in sys.modules; trident.check_env; assert 'jax' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_public_names_exist_and_are_typed():
    typed = re.findall(r" as (\w+)$", Path(trident.__file__).with_suffix(".pyi").read_text(), re.MULTILINE)
    assert sorted(trident.__all__) == sorted(typed)
    assert all(getattr(trident, name).__name__ == name for name in typed if name != "BasePolicy")


def test_safety_is_counted_in_whole_episodes_and_for_each_agent():
    """Two episodes of two agents: the first is clean but for its reward, in the second one agent is to blame."""
    sums = {
        "length": np.array([1.0, 4.0]),
        "reward": np.array([4.0, 0.0]),
        "cost": np.array([[0.1, 0.0], [2.0, 1.0]]),
        "violated": np.array([0.0, 2.0]),
        "caused": np.array([[0.0, 0.0], [2.0, 0.0]]),
        "metric/moved": np.array([1.0, 2.0]),
        "metric/weight": np.array([4.0, 12.0]),
    }
    summary = summarise(tiny.SPEC, sums)
    assert (summary["safe/episodes"], summary["safe/agents"]) == (0.5, 0.75)
    assert (summary["worst/use"], summary["worst/noise"]) == (0.5, 0.25)
