"""Cooperative coverage against a twin in plain Python, and its own contract."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import uav_coverage_numpy as twin

from trident.envs.checks.values import check_env
from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import squares
from trident.envs.uav_coverage.env import VARIANTS, UavCoverage, initial_state
from trident.envs.uav_coverage.physics import lloyd_targets, pack, unpack
from trident.errors import TridentError

CONFIG = CoverageConfig(num_obstacles=2, points=9, grace=10, horizon=40)
BATCH, STEPS = 6, 30


@pytest.fixture(scope="module")
def env():
    return UavCoverage(CONFIG)


@pytest.fixture(scope="module")
def episodes(env):
    """(states, actions, noise, states after, timesteps, arrays, signals, predictions) [BATCH, STEPS, ...]"""

    @jax.jit
    @jax.vmap
    def play(key):
        state, _ = env.reset(key)
        chosen = jax.random.randint(key, (), 0, 2)

        def advance(state, key):
            noise_key, act_key = jax.random.split(key)
            noise = jax.random.normal(noise_key, (CONFIG.num_hotspots, 2))
            tries = [env.scripted[name](act_key, state) for name in ("lloyd", "random")]
            action = jax.tree.map(lambda *x: jnp.stack(x)[chosen], *tries)
            after, out = env.transition(state, noise, action)
            array = pack(CONFIG, state)
            again = pack(CONFIG, unpack(CONFIG, array))
            still = env.transition(state, jnp.zeros_like(noise), action)[1].state
            said = env.physics.signals(array, action), env.physics.predict(array, action)
            return after, (state, action, noise, after, out, (array, again, still, *said))

        return jax.lax.scan(advance, state, jax.random.split(key, STEPS))[1]

    return jax.device_get(play(jax.random.split(jax.random.key(0), BATCH)))


def test_agrees_with_the_twin_step_by_step(episodes):
    states, actions, noise, after, out, _ = episodes
    seen = {"crowded": 0, "apart": 0, "needy": 0}
    for b in range(BATCH):
        for t in range(b % 3, STEPS, 3):
            row = {k: v[b, t] for k, v in states._asdict().items()}
            want, paid = twin.step(CONFIG, row, noise[b, t], actions.mode[b, t], actions.params[b, t].astype(float))
            for name, value in want.items():
                np.testing.assert_allclose(getattr(after, name)[b, t], value, rtol=2e-4, atol=5e-3, err_msg=name)
            np.testing.assert_allclose(out.reward[b, t], paid["reward"], atol=1e-4)
            if np.abs(paid["quality"] - CONFIG.sector_min).min() > 1e-4:
                np.testing.assert_allclose(out.cost[b, t, 0], paid["cost"][0], atol=1e-6)
            np.testing.assert_allclose(out.cost[b, t, 1], paid["cost"][1], atol=1e-6)
            np.testing.assert_array_equal(out.cost[b, t] > 0, out.margin[b, t] < 0)
            seen["crowded" if paid["cost"][1] else "apart"] += 1
            seen["needy"] += paid["cost"][0] > 0
    assert min(seen.values()) > 0, seen


def test_state_array_holds_what_evolves_and_predicts_its_mean(episodes):
    array, again, still, _, predicted = episodes[-1]
    np.testing.assert_allclose(again, array, atol=1e-4)
    np.testing.assert_allclose(predicted, still, atol=1e-3)


def test_signals_know_the_reward_and_see_costs(episodes):
    out, signals = episodes[4], episodes[-1][3]
    np.testing.assert_allclose(signals[..., 0], out.reward, atol=0.02)  # hotspots drift by little in a slot
    for k in range(2):
        assert np.corrcoef(signals[..., 1 + k].ravel(), out.cost[..., k].ravel())[0, 1] > 0.7
    assert (signals[..., 1:] >= 0).all()
    assert (signals[..., 1:] <= 1).all()


def test_lloyds_targets_are_centres_of_cells_and_never_make_it_worse():
    """The classic property: the weighted sum of squared distances to the nearest UAV falls with every step."""
    c = CoverageConfig(hotspot_speed=0.0)

    @jax.jit
    def run(key):
        from trident.envs.uav_coverage.dynamics import importance

        state = initial_state(c, key)
        weight, places = importance(c, state.hot, state.obstacle), jnp.asarray(c.places)

        def advance(s, _):
            loss = (weight * squares(s.uav, places).min(0)).sum()
            return s._replace(uav=lloyd_targets(c, s)), loss

        return jax.lax.scan(advance, state, length=25)[1]

    loss = np.asarray(run(jax.random.key(3)))
    assert (np.diff(loss) <= 1e-2).all()
    assert loss[-1] < 0.6 * loss[0]


def test_a_uav_sees_only_what_is_near(env):
    """Importance and others beyond its sight and hearing change nothing of an observation but the sector in need."""
    state = jax.jit(env.reset)(jax.random.key(0))[0]
    place = jnp.array([[60.0, 60.0], [60.0, 120.0], [500.0, 560.0], [540.0, 500.0], [560.0, 560.0], [500.0, 500.0]])
    state = state._replace(uav=place, radius=jnp.full(6, 90.0), obstacle=jnp.array([[300.0, 300.0], [90.0, 300.0]]))
    look = jax.jit(lambda s: env._look(s)[0])
    one = look(state)
    other = look(state._replace(uav=place.at[4].set(jnp.array([545.0, 575.0]))))
    np.testing.assert_array_equal(one[:2], other[:2])
    assert (np.asarray(one)[2:] != np.asarray(other)[2:]).any(1).all()


@pytest.mark.slow
def test_references_rank_as_they_should():
    """Lloyd detects most and breaks nothing; the planner earns more; greedy leaves sectors out; hold does nothing."""
    env = UavCoverage()

    def fleet(key, name):
        def advance(state, key):
            after, out = env.step(key, state, env.scripted[name](key, state))
            return after, jnp.stack([out.reward, *out.cost, out.metrics["detected"] * env.config.horizon / 90])

        return jax.lax.scan(advance, env.reset(key)[0], jax.random.split(key, env.config.horizon))[1].mean(0)

    names = ("lloyd", "planner", "greedy", "hold", "base-policy")
    run = jax.jit(lambda keys: {n: jax.vmap(lambda k, n=n: fleet(k, n))(keys).mean(0) for n in names})
    score = jax.device_get(run(jax.random.split(jax.random.key(5), 32)))
    limit = dict.fromkeys(("lloyd", "planner"), env.spec.limits)
    assert all((score[name][1:3] <= limit[name]).all() for name in limit)
    assert score["lloyd"][3] == max(s[3] for s in score.values())
    assert score["planner"][0] > max(score["lloyd"][0], score["base-policy"][0])
    assert score["greedy"][1] > 2 * env.spec.limits[0]
    assert score["hold"][0] == min(s[0] for s in score.values())


@pytest.mark.slow
@pytest.mark.parametrize("obstacles", [0, 2])
def test_keeps_the_contract(obstacles):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(UavCoverage(CoverageConfig(num_obstacles=obstacles, horizon=30)), stochastic=True)


@pytest.mark.parametrize("name", ["uav-coverage", "uav-coverage-n12"])
def test_every_variant_has_the_shapes_it_declares(name):
    env = UavCoverage(VARIANTS[name])
    spec = env.spec

    def one(key):
        state, _ = env.reset(key)
        return env.step(key, state, env.shield(state, env.scripted["base-policy"](key, state))[0])[1]

    out = jax.eval_shape(one, jax.random.key(0))
    assert out.obs.shape == (spec.num_agents, spec.obs_dim)
    assert out.state.shape == (spec.state_dim,)
    assert set(out.metrics) == {m.name for m in spec.metrics}
    assert (spec.kind_of == 0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_uavs": 200, "area": 600.0}, "200 UAVs with 30 m between them do not fit"),
        ({"num_obstacles": 8, "obstacle_radius": 120.0}, "num_obstacles"),
        ({"radius": (200.0, 100.0)}, "radius"),
        ({"points": 10}, "multiple"),
        ({"num_hotspots": 0}, "num_hotspots"),
        ({"energy_weight": -1.0}, "energy_weight"),
    ],
)
def test_a_config_that_cannot_be_is_one_clear_line(change, words):
    with pytest.raises(TridentError, match=words) as error:
        CoverageConfig(**change)
    assert "\n" not in str(error.value)
