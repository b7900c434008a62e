"""Scripted policies and the shield of UAV-MEC."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.uav_mec.dynamics import flight_params, speed_of, velocity_of
from trident.envs.uav_mec.env import UavMec, UavMecConfig
from trident.envs.uav_mec.scripted import shield
from trident.types import HybridAction

ENV = UavMec()
LOW, HIGH, USED = ENV.spec.action.low, ENV.spec.action.high, ENV.spec.action.used


RESET = jax.jit(lambda key: ENV.reset(key)[0])


def fresh(seed):
    return RESET(jax.random.key(seed))


def play(name, episodes, shielded=False):
    policy = ENV.scripted[name]

    def one(key):
        state, _ = ENV.reset(key)

        def advance(state, key):
            k_act, k_step = jax.random.split(key)
            action = policy(k_act, state)
            changed = jnp.zeros(4, bool)
            if shielded:
                action, changed = ENV.shield(state, action)
            state, ts = ENV.step(k_step, state, action)
            return state, (ts.metrics, action, changed)

        return jax.lax.scan(advance, state, jax.random.split(key, 60))[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3), episodes)))


@pytest.fixture(scope="module")
def planner():
    return play("planner", 6)


@pytest.fixture(scope="module")
def chance():
    return play("random", 24)


def rate(metrics, name):
    return metrics[name].sum() / metrics["charged"].sum() if name == "cv" else metrics[name].mean()


def test_planner_obeys_the_limits_and_beats_the_others(planner, chance):
    metrics = planner[0]
    assert rate(metrics, "cv") < 0.01
    assert rate(metrics, "ev") < 0.01
    assert metrics["reward"].mean() > -6.5  # a third of these slots is deployment
    assert chance[0]["reward"].mean() < -9.0
    for mode in ("local", "fog1", "fog2"):
        assert metrics[mode].mean() > 0.05


def test_random_is_uniform_in_polar_terms(chance):
    _, action, _ = chance
    velocity = np.asarray(velocity_of(ENV.config, jnp.asarray(action.params)))
    speed = np.linalg.norm(velocity, axis=-1)
    heading = np.arctan2(velocity[..., 1], velocity[..., 0])
    assert np.quantile(speed, [0.25, 0.5, 0.75]) == pytest.approx([7.5, 15.0, 22.5], abs=0.7)
    assert np.quantile(heading, [0.25, 0.5, 0.75]) == pytest.approx([-np.pi / 2, 0, np.pi / 2], abs=0.12)
    assert np.bincount(action.mode.ravel()) / action.mode.size == pytest.approx([1 / 3] * 3, abs=0.02)


@pytest.mark.parametrize("who", ["planner", "chance"])
def test_actions_stay_in_their_boxes_and_unused_parameters_are_zero(who, request):
    _, action, _ = request.getfixturevalue(who)
    agent = np.arange(4)
    low, high, used = (x[agent, action.mode] for x in (LOW, HIGH, USED))
    assert ((action.params >= low) & (action.params <= high)).all()
    assert (action.params[~used] == 0).all()


def test_greedy_heads_for_the_nearest_lost_user():
    state = fresh(0)
    user = jnp.full((20, 2), 590.0).at[0].set(jnp.array([130.0, 100.0])).at[1].set(jnp.array([100.0, 190.0]))
    uav = jnp.array([[100.0, 100.0], [20.0, 590.0], [10.0, 580.0], [30.0, 580.0]])
    link = jnp.zeros((4, 20), bool).at[0, 1].set(True)
    state = state._replace(uav=uav, user=user, link=link)
    greedy = jax.jit(ENV.scripted["greedy"])
    action = greedy(jax.random.key(0), state)
    velocity = velocity_of(ENV.config, action.params)
    np.testing.assert_allclose(velocity[0], [25.0, 0.0], atol=0.1)
    assert action.mode[0] == 1  # the fog at (150, 150)
    alone = greedy(jax.random.key(0), state._replace(link=link.at[0, 0].set(True)))
    towards = velocity_of(ENV.config, alone.params)[0]
    np.testing.assert_allclose(towards, 25.0 * np.array([15.0, 45.0]) / np.hypot(15.0, 45.0), atol=0.1)


def test_shield_keeps_a_random_policy_within_its_limits():
    metrics, _, changed = play("random", 5, shielded=True)
    assert rate(metrics, "ev") < 0.01
    assert rate(metrics, "cv") < 0.04
    assert 0.1 < changed.mean() < 0.9


@pytest.fixture(scope="module")
def filtered():
    config = UavMecConfig()
    return config, jax.jit(lambda s, a: shield(config, s, a))


def covered_state():
    """Every UAV hovers above five users: coverage is safe, so only energy can ask for a change."""
    state = fresh(2)
    uav = jnp.array([[100.0, 100.0], [500.0, 100.0], [100.0, 500.0], [500.0, 500.0]])
    ring = 20.0 * jnp.stack([jnp.cos(jnp.arange(5) * 1.2), jnp.sin(jnp.arange(5) * 1.2)], -1)
    user = (uav[:, None] + ring[None]).reshape(20, 2)
    return state._replace(uav=uav, user=user, user_vel=jnp.zeros((20, 2)), hot=uav, hot_vel=jnp.zeros((4, 2)))


def test_shield_leaves_a_safe_action_alone_and_clips_only_what_it_must(filtered):
    config, run = filtered
    velocity = jnp.array([[9.7, 0.0], [0.0, 28.0], [0.0, 0.0], [-15.0, 0.0]])
    mode, ratio = jnp.array([0, 1, 0, 1]), jnp.array([0.0, 1.0, 0.0, 1.0])
    params = jnp.concatenate([flight_params(config, velocity), ratio[:, None]], -1)
    action, changed = run(covered_state(), HybridAction(mode, params))
    np.testing.assert_array_equal(changed, [False, True, True, False])
    np.testing.assert_array_equal(action.params[0], params[0])
    np.testing.assert_array_equal(action.params[3], params[3])
    np.testing.assert_array_equal(action.mode, mode)
    after = velocity_of(config, action.params)
    assert after[1, 0] == pytest.approx(0.0, abs=0.05)  # too fast: the same heading at the fastest speed that fits
    assert 21.0 < float(after[1, 1]) < 21.7
    assert 1.0 < float(speed_of(after)[2]) < 9.7  # hovering with five local tasks: the slowest flight that fits


def test_shield_holds_the_last_covering_uavs(filtered):
    """Ten users are needed (and two kept in reserve): three UAVs may not all leave their five."""
    config, run = filtered
    state = covered_state()
    away = jnp.array([[-20.0, 0.0], [20.0, 0.0], [0.0, 20.0], [0.0, 20.0]])
    behind = state.uav - 122.0 * jnp.sign(away)
    user = (behind[:, None] + 0.15 * (state.user.reshape(4, 5, 2) - state.uav[:, None])).reshape(20, 2)
    state = state._replace(user=user)
    params = jnp.concatenate([flight_params(config, away), jnp.ones((4, 1))], -1)
    action, changed = run(state, HybridAction(jnp.ones(4, jnp.int32), params))
    moved = state.uav + config.slot * velocity_of(config, action.params)
    far = state.uav + config.slot * away

    def covered(places):
        return int((jnp.linalg.norm(places[:, None] - user[None], axis=-1).min(0) <= config.coverage_radius).sum())

    assert covered(far) < 10 <= covered(moved)
    assert changed.any()
