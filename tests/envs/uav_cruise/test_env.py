"""Heterogeneous cruise against a twin in plain Python, and its own contract."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import uav_cruise_numpy as twin

from trident.envs.checks.values import check_env
from trident.envs.uav_cruise.config import CruiseConfig
from trident.envs.uav_cruise.dynamics import RELAY, RETURN, reached
from trident.envs.uav_cruise.env import VARIANTS, UavCruise
from trident.envs.uav_cruise.physics import pack, unpack
from trident.errors import TridentError

CONFIG = CruiseConfig(area=700.0, base_radio=1.0, num_points=14, charging=3.0, need_rate=0.1)
BATCH, STEPS = 6, 60


@pytest.fixture(scope="module")
def env():
    return UavCruise(CONFIG)


@pytest.fixture(scope="module")
def episodes(env):
    """(states, actions, lots, states after, timesteps, arrays, signals, predictions) [BATCH, STEPS, ...]"""

    @jax.jit
    @jax.vmap
    def play(key, chosen):
        state, _ = env.reset(key)
        state = state._replace(battery=state.battery * jax.random.uniform(key, (CONFIG.num_uavs,), minval=0.2))

        def advance(state, key):
            lots_key, act_key = jax.random.split(key)
            lots = jax.random.uniform(lots_key, (CONFIG.num_points,))
            tries = [env.scripted[name](act_key, state) for name in ("greedy", "random", "base-policy")]
            action = jax.tree.map(lambda *x: jnp.stack(x)[chosen], *tries)
            after, out = env.transition(state, lots, action)
            array = pack(CONFIG, state)
            again = pack(CONFIG, unpack(CONFIG, array))
            never = env.transition(state, jnp.ones_like(lots), action)[1].state
            said = env.physics.signals(array, action), env.physics.predict(array, action)
            return after, (state, action, lots, after, out, (array, again, never, *said))

        return jax.lax.scan(advance, state, jax.random.split(key, STEPS))[1]

    return jax.device_get(play(jax.random.split(jax.random.key(2), BATCH), jnp.arange(BATCH) % 3))


def test_agrees_with_the_twin_step_by_step(episodes):
    states, actions, lots, after, out, _ = episodes
    seen = {"crowded": 0, "low": 0, "lost": 0, "made": 0, "landed": 0, "relaying": 0}
    for b in range(BATCH):
        for t in range(b % 2, STEPS, 2):
            row = {k: v[b, t] for k, v in states._asdict().items()}
            role, params = actions.mode[b, t], actions.params[b, t].astype(float)
            want, paid = twin.step(CONFIG, row, lots[b, t], role, params)
            for name, value in want.items():
                got = getattr(after, name)[b, t]
                np.testing.assert_allclose(got, value, rtol=3e-4, atol=1e-2, err_msg=f"{name} {b} {t}")
            np.testing.assert_allclose(out.reward[b, t], paid["reward"], atol=2e-3)
            np.testing.assert_allclose(out.cost[b, t], paid["cost"], atol=1e-6)
            np.testing.assert_array_equal(out.cost[b, t] > 0, out.margin[b, t] < 0)
            for name, happened in zip(("crowded", "low", "lost"), paid["cost"] > 0, strict=True):
                seen[name] += happened
            seen["made"] += paid["made"]
            seen["landed"] += (np.array(want["power"]) == 0).sum()
            seen["relaying"] += (role == RELAY).sum()
    assert min(seen.values()) > 0, seen


def test_state_array_holds_what_evolves_and_predicts_its_mean(episodes):
    array, again, never, _, predicted = episodes[-1]
    np.testing.assert_allclose(again, array, atol=1e-4)
    np.testing.assert_allclose(predicted, never, atol=2e-3)


def test_signals_know_the_reward_and_see_costs(episodes):
    out, signals = episodes[4], episodes[-1][3]
    assert np.corrcoef(signals[..., 0].ravel(), out.reward.ravel())[0, 1] > 0.9
    for k in range(3):
        assert np.corrcoef(signals[..., 1 + k].ravel(), out.cost[..., k].ravel())[0, 1] > 0.8
    assert (signals[..., 1:] >= 0).all()
    assert (signals[..., 1:] <= 1).all()


def test_a_chain_of_links_reaches_as_far_as_its_hops():
    links = np.zeros((6, 7), np.float32)
    links[0, -1] = 1.0
    for i in range(1, 6):
        links[i, i - 1] = links[i - 1, i] = 1.0
    np.testing.assert_array_equal(reached(jnp.asarray(links)), [1, 1, 1, 1, 0, 0])
    assert 0.25 <= float(reached(0.5 * jnp.asarray(links))[1]) < 0.4  # 0.25, and ways there and back again


def test_kinds_learn_apart_and_agents_of_a_kind_together(env):
    np.testing.assert_array_equal(env.spec.kind_of, [0, 0, 1, 1, 2, 2])


@pytest.mark.slow
def test_references_rank_as_they_should():
    """The planner and the base policy serve within the limits; who never returns or stays at home does not serve."""
    env = UavCruise()

    def fleet(key, name):
        def advance(state, key):
            after, out = env.step(key, state, env.scripted[name](key, state))
            return after, jnp.stack([out.reward, *out.cost])

        return jax.lax.scan(advance, env.reset(key)[0], jax.random.split(key, env.config.horizon))[1].mean(0)

    names = ("planner", "base-policy", "greedy", "hold")
    run = jax.jit(lambda keys: {n: jax.vmap(lambda k, n=n: fleet(k, n))(keys).mean(0) for n in names})
    score = jax.device_get(run(jax.random.split(jax.random.key(5), 32)))
    assert (score["base-policy"][1:] <= env.spec.limits).all()
    assert score["planner"][0] > score["base-policy"][0] > 2 * max(score["greedy"][0], score["hold"][0])
    assert (score["greedy"][1:] > 10 * env.spec.limits).all()
    assert score["hold"][1:].max() == 0.0


@pytest.mark.slow
def test_keeps_the_contract():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(UavCruise(CruiseConfig(horizon=30)), stochastic=True)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_every_variant_has_the_shapes_it_declares(name):
    env = UavCruise(VARIANTS[name])
    spec = env.spec

    def one(key):
        state, _ = env.reset(key)
        return env.step(key, state, env.shield(state, env.scripted["base-policy"](key, state))[0])[1]

    out = jax.eval_shape(one, jax.random.key(0))
    assert out.obs.shape == (spec.num_agents, spec.obs_dim)
    assert out.state.shape == (spec.state_dim,)
    assert set(out.metrics) == {m.name for m in spec.metrics}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fleet": ("relay", "bomber")}, "unknown kind 'bomber'"),
        ({"fleet": ("scout",)}, "at least two"),
        ({"fleet": ("scout",) * 40}, "40 landing pads 40 m apart do not fit"),
        ({"pad_gap": 20.0}, "pad_gap"),
        ({"base": (2.0, 0.1)}, "base"),
        ({"reserve": 0.9}, "reserve"),
    ],
)
def test_a_config_that_cannot_be_is_one_clear_line(change, words):
    with pytest.raises(TridentError, match=words) as error:
        CruiseConfig(**change)
    assert "\n" not in str(error.value)


def test_who_returns_is_charged_and_loaded_on_its_own_pad(env):
    state = jax.jit(env.reset)(jax.random.key(0))[0]
    state = state._replace(battery=0.5 * state.battery, payload=jnp.zeros(6))
    hold = env.scripted["hold"](jax.random.key(0), state)
    after, _ = jax.jit(env.step)(jax.random.key(1), state, hold)
    np.testing.assert_allclose(after.battery - state.battery, CONFIG.charging * CONFIG.slot, rtol=1e-5)
    np.testing.assert_array_equal(after.payload, CONFIG.of_kind("payload"))
    assert (np.asarray(hold.mode) == RETURN).all()
