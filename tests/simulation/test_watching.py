"""Episodes to be watched: what is said of them is what was played, expected and drawn."""

from __future__ import annotations

import copy
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny  # noqa: F401  (registers the environment)

from trident.simulation import watching
from trident.simulation.episode import play, play_many
from trident.simulation.step import scripted
from trident.training import showing
from trident.training.registry import make_env
from trident.training.settings import Settings, make_setup
from trident.types import Expectation, HybridAction, Moments


@pytest.fixture(scope="module")
def played():
    env = make_env("probe-chain")
    keys = jax.random.split(jax.random.key(0), 4)
    return env, keys, play_many(env, scripted(env, "random"), keys)


def test_many_episodes_are_the_single_ones(played):
    env, keys, many = played
    one = play(env, scripted(env, "random"), keys[2])
    for mine, alone in zip(jax.tree.leaves(many[2]), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(np.asarray(mine, float), np.asarray(alone, float), rtol=1e-5, atol=1e-6)


def test_the_best_the_median_and_the_worst_by_violations(played):
    env, _, many = played
    rank = {watching.violation(env.spec, e): i for i, e in enumerate(many)}
    picked = dict(watching.choose(env.spec, many))
    assert picked["best"] == rank[min(rank)]
    assert picked["worst"] == rank[max(rank)]
    assert len(set(picked.values())) == len(picked)
    assert watching.choose(env.spec, many[:1]) == [("best", 0)]


def test_a_track_says_what_was_played(played, told):
    env, _, (episode, *_) = played
    track = json.loads(json.dumps(told[0]))
    assert track["length"] == len(episode.steps.reward)
    np.testing.assert_allclose(track["reward"], episode.steps.reward, rtol=1e-3)
    np.testing.assert_allclose(track["cost"], episode.steps.cost, rtol=1e-3, atol=1e-6)
    assert track["mode"] == episode.action.mode.tolist()
    np.testing.assert_allclose(track["obs"][0], episode.first.obs, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(track["obs"][1], episode.steps.obs[0], rtol=1e-2, atol=1e-6)
    used = env.spec.action.used[np.arange(env.spec.num_agents), episode.action.mode[0]]
    assert [[v is not None for v in row] for row in track["param"][0]] == used.tolist()


def test_the_closed_form_of_an_agent_is_what_its_nominal_action_would_lack(played, told):
    env, _, (episode, *_) = played
    track = told[0]
    first, action = jnp.asarray(episode.first.state), jax.tree.map(lambda x: jnp.asarray(x[0]), episode.action)
    whole, nominal = env.physics.signals(first, action), env.physics.nominal(first)
    np.testing.assert_allclose(track["closed_form"][0], whole, rtol=1e-3, atol=1e-6)
    mode = action.mode.at[0].set(nominal.mode[0])
    without = env.physics.signals(first, HybridAction(mode, action.params.at[0].set(nominal.params[0])))
    np.testing.assert_allclose(track["share"][0][0], whole - without, rtol=1e-2, atol=1e-5)


def test_draws_tell_how_sure_a_policy_is(played):
    env, _, (episode, *_) = played
    spec = env.spec
    n, p = spec.num_agents, spec.action.num_params

    def act(view, key):  # mode 0 in three of four draws, parameters around a half
        mode = jnp.where(jax.random.uniform(key, (n,)) < 0.75, 0, spec.action.num_modes - 1)
        return HybridAction(mode, 0.5 + 0.1 * jax.random.normal(key, (n, p)))

    alike = episode._replace(intended=episode.intended._replace(mode=np.zeros_like(episode.intended.mode)))
    found = watching._draws(spec, watching.questions(env, act), watching._before(alike), alike)
    chance = np.array(found["chance"])
    assert chance[..., 0].mean() == pytest.approx(0.75, abs=0.05)
    np.testing.assert_allclose(chance.sum(-1), 1.0, atol=1e-2)
    assert np.mean(found["mean"]) == pytest.approx(0.5, abs=0.05)
    assert 0.02 < np.mean(found["spread"]) < 0.2


def test_what_came_is_the_discounted_sum_to_the_end(played):
    env, _, (episode, *_) = played
    discount = jnp.array([0.5, *([0.0] * env.spec.num_constraints)])
    expect = lambda moments: Expectation({"critics": jnp.zeros((len(moments.state), len(discount)))}, discount)  # noqa: E731
    track = watching.track(env, env.spec, "random", episode, watching.questions(env, expect=expect))
    reward = np.asarray(episode.steps.reward, float)
    by_hand = sum(0.5**k * r for k, r in enumerate(reward))
    assert track["came"][0][0] == pytest.approx(by_hand, rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(np.array(track["came"])[:, 1:], episode.steps.cost, rtol=1e-3, atol=1e-6)


def test_an_environment_without_a_drawing_has_one(played):
    env, _, (episode, *_) = played
    assert not hasattr(env, "scene")
    assert watching.scene_of(env, episode).length == len(episode.steps.reward) + 1


@pytest.mark.parametrize(("algo", "voices"), [("trident-scratch", ["closed form", "critics"]), ("mappo", ["critics"])])
def test_a_learners_critics_are_asked(played, algo, voices):
    _, _, (episode, *_) = played
    algorithm = make_setup("probe-chain", algo, Settings()).algorithm
    before = watching._before(episode)
    moments = jax.tree.map(jnp.asarray, Moments(before.obs, before.state, episode.action))
    values, discount = algorithm.expect(algorithm.init(jax.random.key(0)), moments)
    assert sorted(values) == sorted(voices)
    for value in values.values():
        assert value.shape == (len(episode.changed), len(discount))
        assert np.isfinite(value).all()


def test_a_run_is_watched_beside_a_scripted_policy_on_the_same_episodes():
    setup = make_setup("tiny", "tiny", Settings(), {"lr": 0.1})
    replay = showing.replay(setup, setup.algorithm.init(jax.random.key(0)), True, beside="random")
    assert replay["played"] == 12
    own, other = replay["episodes"][-1]["tracks"]
    assert (own["name"], other["name"]) == ("tiny", "random")
    assert own["obs"][0] == other["obs"][0]  # they start alike
    assert "chance" in own
    assert "chance" not in other
    json.dumps(replay, allow_nan=False)


# --- what a page can hold -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(played):
    env, _, many = played
    ask = watching.questions(env)
    return [watching.track(env, env.spec, "own", episode, ask) for episode in many]


def content(played, told):
    env, _, _ = played
    tracks = lambda i: [copy.deepcopy(told[i]), copy.deepcopy(told[i])]  # noqa: E731
    episodes = [{"rank": rank, "number": 1, "tracks": tracks(i)} for i, rank in enumerate(("best", "median", "worst"))]
    return watching.about(env, env.spec) | {"played": 4, "episodes": episodes}


def test_what_does_not_fit_is_left_out_in_order_and_said(played, told):
    whole = content(played, told)
    assert showing.fitted(content(played, told), 10**9)["left_out"] == []
    less = showing.fitted(content(played, told), showing.size(whole) - 1)
    assert less["left_out"] == ["observations"]
    assert "obs" not in less["episodes"][0]["tracks"][0]
    least = showing.fitted(content(played, told), 10)
    assert [e["rank"] for e in least["episodes"]] == ["worst"]
    (track,) = least["episodes"][0]["tracks"]
    assert len(track["reward"]) == track["length"] == len(track["mode"])
    assert len(track["scene"]["map"]["frames"]) == track["length"] + 1
    assert showing.size(least) < showing.size(whole) / 4
