"""Simulators outside JAX: played, evaluated and trained through one Python loop."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from support import tiny
from support.simulators import Behind, Tanks

import trident
from trident.errors import TridentError
from trident.report.progress import Silent
from trident.simulation import batch, host
from trident.simulation.evaluate import evaluate
from trident.simulation.rollout import rollout, start
from trident.training import session
from trident.training.settings import Settings, make_setup
from trident.types import Env, HostEnv, HybridAction, Physics


class Quiet(tiny.TinyEnv):
    """Its steps are deterministic, ends are early for some, and a shield forbids large amounts."""

    def step(self, key: Any, state: Any, action: HybridAction) -> Any:
        after, out = super().step(jax.random.key(0), state, action)
        return after, out._replace(terminated=(after.x[2] > 0.97) & ~out.truncated)


def halve(state: Any, action: HybridAction) -> Any:
    return action._replace(params=0.5 * action.params), action.params[:, 0] > 0.1


QUIET = Quiet(shield=halve)


def same(a: Any, b: Any) -> None:
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert np.shape(x) == np.shape(y), jax.tree_util.keystr(path)
        assert np.allclose(x, y, atol=1e-5), jax.tree_util.keystr(path)


@pytest.fixture(scope="module")
def behind() -> Behind:
    return Behind(QUIET)


@pytest.fixture(scope="module")
def learner() -> Any:
    algorithm = make_setup("tiny", "tiny", Settings()).algorithm
    return algorithm, algorithm.init(jax.random.key(5))


def test_the_two_kinds_are_told_apart(behind):
    assert isinstance(Tanks(), HostEnv)
    assert isinstance(behind, HostEnv)
    assert not isinstance(QUIET, HostEnv)
    assert isinstance(QUIET, Env)


def test_a_host_rollout_records_what_a_jax_rollout_does(behind, learner):
    algorithm, state = learner
    begin, run = jax.random.key(1), jax.random.key(2)

    def in_jax() -> Any:
        env = host.FromSeeds(QUIET)

        def policy(key, _, last):
            return algorithm.act(state, last.view, key, False)

        actors, data = rollout(env, policy, run, start(env, begin, 3), 12, shielded=True)
        return actors.last, actors.cut, data

    last, cut, data = jax.device_get(jax.jit(in_jax)())
    actors = host.start([copy.deepcopy(behind) for _ in range(3)], begin)
    mine = host.rollout(host.learned(algorithm)(state), run, actors, 12, shielded=True)
    assert data.terminated.sum() >= 2
    assert data.truncated.sum() >= 2
    same(mine._replace(cost_attribution=None), data)
    same(actors.last._replace(cost_attribution=None), last)
    assert (actors.cut == cut).all()
    assert (mine.cost_attribution == (data.cost > 0)[:, :, None]).all()


@pytest.mark.parametrize("name", ["tiny", "random"])
def test_a_host_evaluation_is_that_of_jax(behind, learner, name):
    algorithm, state = learner
    env, key = host.FromSeeds(QUIET), jax.random.key(3)
    if name == "tiny":
        policy, mine = lambda k, _, last: algorithm.act(state, last.view, k, False), host.learned(algorithm)(state)
    else:
        policy, mine = lambda k, s, _: (env.scripted["random"](k, s), {}), host.scripted("random")
    sums = jax.jit(lambda: evaluate(env, policy, key, 6, shielded=True))()
    assert len(set(np.asarray(sums["length"]).tolist())) > 1, "some episodes end early"
    same(host.evaluate(behind, mine, key, 6, shielded=True), jax.device_get(sums))


def test_training_through_the_host_is_training_in_jax(behind, tmp_path):
    settings = Settings(episodes=12, seeds=2, checkpoint_every=0, shielded=True, warm_start="random")
    twins = {"jax": host.FromSeeds(QUIET), "host": behind}
    for name, env in twins.items():
        session.train(make_setup(env, "tiny", settings), tmp_path / name)
    one, other = ([json.loads(line) for line in (tmp_path / n / "records.jsonl").open()] for n in twins)
    assert len(one) == len(other) == 7
    for a, b in zip(one, other, strict=True):
        assert a["values"].keys() == b["values"].keys()
        for name, value in a["values"].items():
            mine, its = np.array(value, float), np.array(b["values"][name], float)
            assert np.allclose(mine, its, atol=1e-4, equal_nan=True), (a["round"], name)
    assert any(np.isfinite(np.array(b["values"].get("episode_reward", np.nan), float)).all() for b in other)


# --- a simulator that is not JAX at all -----------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> trident.Run:
    out = tmp_path_factory.mktemp("host") / "run"
    return trident.train(Tanks(), "tiny", episodes=8, seeds=2, out=out, eval_episodes=3, progress=Silent())


def test_a_numpy_simulator_is_trained_evaluated_and_reported(run):
    assert len(run.records) == run.rounds == 6
    assert np.isfinite(run.records[-1]["values"]["metric/level"]).all()
    assert run.setup.env.closed == 1
    assert "overflow" in run.table()
    assert (run.out / "figures" / "learning.png").exists()
    again = run.evaluate(3, references=False)
    assert again["policies"]["tiny"] == run.result["policies"]["tiny"]
    assert trident.load(run.out, env=Tanks()).evaluate(3, references=False)["policies"] == again["policies"]


def test_a_resumed_run_starts_its_episodes_anew_and_says_so(run, tmp_path):
    told = []

    class Watch(Silent):
        def say(self, text: str) -> None:
            told.append(text)

    out = tmp_path / "run"
    short = trident.train(Tanks(), "tiny", episodes=4, seeds=2, out=out, eval_episodes=0, progress=Silent())
    longer = trident.resume(out, env=Tanks(), episodes=8, progress=Watch())
    assert (short.rounds, longer.rounds) == (3, 6)
    assert any("start anew" in text for text in told)
    assert longer.records[:3] == short.records
    reward = [r["values"]["reward"] for r in longer.records]
    assert reward[3] != run.records[3]["values"]["reward"]


def test_a_policy_moves_to_another_simulator_only_if_the_spaces_agree(run):
    class Bigger(Tanks):
        spec = replace(Tanks.spec, obs_dim=3)

    class Stronger(Tanks):
        spec = replace(Tanks.spec, action=replace(Tanks.spec.action, high=np.full((3, 2, 1), 6.0, np.float32)))

    class Leaky(Tanks):
        def step(self, action: HybridAction) -> Any:
            self.level = self.level - 1.0
            return super().step(action)

    class Suggesting(Tanks):
        physics = Physics(None, None, None, base_policy=lambda obs: obs)  # type: ignore

    algorithm = replace(run.setup.algorithm, config=SimpleNamespace(base_policy=True))
    correcting = replace(run, setup=run.setup._replace(algorithm=algorithm))
    with pytest.raises(TridentError, match="its obs_dim is 3, not 2"):
        run.on(Bigger())
    with pytest.raises(TridentError, match=r"action.high\[agent 0, mode 0, parameter 0\] is 6, not 5"):
        run.on(Stronger())
    with pytest.raises(TridentError, match="it has a base policy, and they were trained without one"):
        correcting.on(Suggesting())
    leaky = run.on(Leaky()).evaluate(3, references=False)
    level = [r["policies"]["tiny"][0]["metric/level"] for r in (run.result, leaky)]
    assert level[1] < level[0] - 0.5


class Unseeded(Tanks):
    def reset(self, seed: int) -> Any:
        return super().reset(np.random.default_rng().integers(2**31))


class Endless(Tanks):
    def look(self, reward: float, over: np.ndarray) -> Any:
        return super().look(reward, over)._replace(truncated=False)


class Short(Tanks):
    def look(self, reward: float, over: np.ndarray) -> Any:
        return super().look(reward, over)._replace(truncated=self.t >= 7)


class Broken(Tanks):
    def look(self, reward: float, over: np.ndarray) -> Any:
        return super().look(np.nan if self.t == 3 else reward, over)


class Paying(Tanks):
    def look(self, reward: float, over: np.ndarray) -> Any:
        return super().look(reward, over)._replace(cost=np.array([-1.0]))


class Barred(Tanks):
    def look(self, reward: float, over: np.ndarray) -> Any:
        return super().look(reward, over)._replace(mode_mask=np.zeros((3, 2), bool))


class Crashing(Tanks):
    def step(self, action: HybridAction) -> Any:
        raise OSError("the simulator has gone")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Unseeded, "draw from the seed"),
        (Endless, "truncated does not fire at the horizon"),
        (Short, "truncated fires before the horizon"),
        (Broken, "reward is not finite after step 3"),
        (Paying, "a cost is negative after reset"),
        (Barred, "mode_mask allows no mode after reset"),
        (Crashing, "an episode fails .OSError: the simulator has gone"),
    ],
)
def test_the_check_finds_what_is_wrong_with_a_simulator(kind, says):
    trident.check_env(Tanks())
    with pytest.raises(TridentError, match=says):
        trident.check_env(kind())


def test_what_does_not_fit_the_contract_is_named():
    class Wrong(Tanks):
        def look(self, reward: float, over: np.ndarray) -> Any:
            return super().look(reward, over)._replace(cost=np.zeros(2))

    with pytest.raises(
        TridentError, match=r"tanks: reset returns cost as float32\[2\]; the contract asks for float32\[1\]"
    ):
        batch.reset(Wrong(), 0)


def test_a_simulator_with_handles_says_how_to_be_trained():
    class Handle(Tanks):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot pickle a socket")

    assert len(batch.replicate(Handle(), 1)) == 1
    with pytest.raises(TridentError, match=r"cannot be copied .* --algo.envs 1 --seeds 1"):
        batch.replicate(Handle(), 2)
