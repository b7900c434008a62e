"""Closed-form physics of UAV-MEC: against the realised steps, finite differences, and its own promises."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.uav_mec.dynamics import velocity_of
from trident.envs.uav_mec.env import UavMec, UavMecConfig
from trident.envs.uav_mec.physics import (
    Scene,
    assemble,
    chances,
    links,
    min_power_speed,
    next_scene,
    nominal,
    signals,
    task_spread,
    unpack,
)
from trident.types import HybridAction

CONFIG = UavMecConfig(separation=True, grace=0)
ENV = UavMec(CONFIG)
KEYS = jax.random.split(jax.random.key(0), 64)


@pytest.fixture(scope="module")
def walk():
    """32 slots of 64 random walks: physics before each step, the truth after it."""

    def one(key):
        state, first = ENV.reset(key)

        def advance(carry, key):
            state, array = carry
            k_act, k_step = jax.random.split(key)
            action = ENV.scripted["random"](k_act, state)
            said = ENV.physics.signals(array, action), ENV.physics.predict(array, action)
            state, ts = ENV.step(k_step, state, action)
            true = jnp.concatenate([ts.reward[None], ts.cost])
            return (state, ts.state), (*said, true, ts.state, array, action, state)

        return jax.lax.scan(advance, (state, first.state), jax.random.split(key, 32))[1]

    out = jax.jit(jax.vmap(one))(KEYS)
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), out)


def test_signals_explain_what_happens(walk):
    """Without the hope of users that nobody serves, as well as the draw of the tasks allows; with it, hardly worse."""
    said, _, true, _, array, action, _ = walk
    hope = np.asarray(jax.jit(jax.vmap(hope_of))(array, action))
    exact = said - np.eye(said.shape[1])[0] * hope[:, None]
    explained = 1.0 - (exact - true).var(0) / true.var(0)
    assert explained[0] > 0.82  # the rest is the draw of the tasks
    assert (explained[1:3] > 0.8).all()
    np.testing.assert_allclose(exact.mean(0)[:3], true.mean(0)[:3], rtol=0.02)
    assert 1.0 - (said - true)[:, 0].var() / true[:, 0].var() > 0.8
    assert ((said[:, 1:] >= 0) & (said[:, 1:] <= 1)).all()


def hope_of(array, action):
    scene = unpack(CONFIG, array)
    return chances(CONFIG, next_scene(CONFIG, scene, velocity_of(CONFIG, action.params)), links(CONFIG, scene))


def test_predict_is_the_mean_successor(walk):
    _, predicted, _, after, *_ = walk
    n, u = CONFIG.num_uavs, CONFIG.num_users
    np.testing.assert_allclose(predicted[:, : 2 * n], after[:, : 2 * n], atol=1e-5)  # UAVs obey exactly
    places = slice(2 * n, 2 * n + 2 * u)
    metres = 0.5 * CONFIG.area * (predicted - after)[:, places]
    assert np.abs(metres).mean() < 0.3
    assert np.abs(metres.mean()) < 0.01
    assert np.abs(predicted - after).mean() < 0.02


def test_energy_cost_is_calibrated(walk):
    """In the cases physics is unsure about (no multiple of a quarter: four UAVs), its mean is the true mean."""
    said, _, true, *_ = walk
    unsure = np.abs(said[:, 1] - np.round(4 * said[:, 1]) / 4) > 0.02
    assert unsure.sum() > 150
    assert true[unsure, 1].mean() == pytest.approx(said[unsure, 1].mean(), abs=0.025)


def test_gradients_are_those_of_finite_differences(walk):
    *_, array, action, _ = walk
    pick = np.arange(0, 2048, 341)
    params = jnp.asarray(action.params[pick])

    def total(params):
        each = jax.vmap(lambda s, m, p: signals(CONFIG, s, HybridAction(m, p)))
        return each(array[pick], action.mode[pick], params)

    gradient = jax.jit(jax.jacrev(lambda p: total(p).sum(0)))(params)  # [1+K, B, N, P]
    run = jax.jit(total)
    eps = 4e-3
    rng = np.random.default_rng(0)
    for _ in range(6):
        way = jnp.asarray(rng.standard_normal(params.shape), jnp.float32)
        numeric = (run(params + eps * way) - run(params - eps * way)).sum(0) / (2 * eps)
        analytic = (gradient * way).sum((1, 2, 3))
        np.testing.assert_allclose(numeric, analytic, rtol=0.08, atol=0.06)


def test_flying_to_a_user_helps():
    """Reward rises and the coverage cost falls as a UAV flies towards users just outside its coverage."""
    config = UavMecConfig(num_uavs=1, num_users=4, num_hotspots=1, coverage_min=0.5, grace=0, flight="cartesian")
    uav = jnp.array([[150.0, 150.0]])
    user = uav + jnp.array([[131.0, 0.0], [133.0, 5.0], [129.0, -5.0], [60.0, 0.0]])
    reach = jnp.linalg.norm(user - uav, axis=-1)
    scene = Scene(uav, user, jnp.zeros((4, 2)), uav, jnp.zeros((1, 2)), jnp.zeros(()), reach)

    @jax.jit
    @jax.vmap
    def at_speed(vx, ratio):
        array = assemble(config, scene, jnp.zeros((1, 2)), *jnp.zeros((2, 1)), jnp.zeros(1))
        return signals(config, array, HybridAction(jnp.array([0]), jnp.array([[vx, 0.0, ratio]])))

    away, still, towards, other_ratio = at_speed(jnp.array([-0.5, 0.0, 0.5, 0.0]), jnp.array([0.5, 0.5, 0.5, 0.9]))
    assert towards[0] > away[0]  # at the same speed
    assert towards[2] < still[2] - 0.1 < away[2] - 0.2
    np.testing.assert_array_equal(still, other_ratio)  # local computing has no ratio


@pytest.mark.parametrize("capacity", [2, 3])
def test_a_user_without_a_uav_pulls_one_that_has_a_place(capacity):
    """Two users near a UAV and one out of reach: the reward rises towards it, unless the UAV is full."""
    config = UavMecConfig(
        num_uavs=1,
        num_users=3,
        num_hotspots=1,
        capacity=capacity,
        area=800.0,
        coverage_min=0.0,
        grace=0,
        flight="cartesian",
    )
    uav = jnp.array([[150.0, 150.0]])
    user = uav + jnp.array([[0.0, 10.0], [0.0, -10.0], [config.service_radius + 40.0, 0.0]])
    reach = jnp.array([10.0, 10.0, config.service_radius])
    scene = Scene(uav, user, jnp.zeros((3, 2)), uav, jnp.zeros((1, 2)), jnp.zeros(()), reach)
    array = assemble(config, scene, jnp.zeros((1, 2)), *jnp.zeros((2, 1)), jnp.zeros(1))

    def reward(vx):
        return signals(config, array, HybridAction(jnp.array([1]), jnp.array([[vx, 0.0, 1.0]])))[0]

    apart = jax.jit(lambda vx: reward(vx) - reward(-vx))(0.3)
    assert (apart > 0.01) if capacity == 3 else (abs(apart) < 0.01)


def test_the_array_tells_who_serves_whom(walk):
    """Except where the border has stopped two UAVs in one corner."""
    array, state = walk[3], walk[6]
    told = jax.jit(jax.vmap(lambda a: links(CONFIG, unpack(CONFIG, a))))(array)
    pairs = np.linalg.norm(state.uav[:, :, None] - state.uav[:, None], axis=-1) + 1e3 * np.eye(CONFIG.num_uavs)
    apart = pairs.min((1, 2)) > 1.0
    agree = (np.asarray(told, bool) == state.link).all((1, 2))
    assert agree[apart].mean() > 0.99
    assert (np.asarray(told).sum(1) <= 1).all()


def test_array_round_trip(walk):
    """The array holds the state it was packed from."""
    after, state = walk[3], walk[6]
    scene = jax.vmap(lambda a: unpack(CONFIG, a))(after[::100])
    for name in ("uav", "user", "user_vel", "hot", "hot_vel"):
        np.testing.assert_allclose(getattr(scene, name), getattr(state, name)[::100], atol=1e-3)


def test_nominal_is_thrifty_and_takes_the_best_mode(walk):
    array = walk[4]
    some = array[::97]
    action = jax.jit(jax.vmap(lambda s: nominal(CONFIG, s)))(some)
    low, high = ENV.spec.action.low, ENV.spec.action.high
    assert ((action.params >= low[:, 0]) & (action.params <= high[:, 0])).all()
    measure = jax.jit(jax.vmap(lambda s, m, p: signals(CONFIG, s, HybridAction(m, p))))
    chosen = measure(some, action.mode, action.params)
    assert chosen[:, 1].max() < 0.01  # within its energy
    full = action.params.at[..., -1].set(1.0)
    for m in range(3):
        other = measure(some, jnp.full_like(action.mode, m), full)
        assert chosen[:, 0].mean() > other[:, 0].mean()


def test_numbers_of_the_tasks():
    rng = np.random.default_rng(0)
    cycles = 1e-3 * rng.uniform(4, 8, 400_000) * rng.uniform(80, 160, 400_000)
    assert task_spread(CONFIG) == pytest.approx(cycles.std(), rel=0.01)
    assert min_power_speed(CONFIG) == pytest.approx(9.7, abs=0.1)
