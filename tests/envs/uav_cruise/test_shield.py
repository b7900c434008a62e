"""Whatever the policy, the shield keeps UAVs apart (an invariant), and brings them home while their batteries last
unless others block the way."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.keep_apart import is_safe
from trident.envs.random_policy import random_action
from trident.envs.uav_cruise.config import CruiseConfig
from trident.envs.uav_cruise.env import UavCruise
from trident.types import HybridAction

CONFIG = CruiseConfig(horizon=150)
OPTIMISED = {"xla_backend_optimization_level": 2}


def wild(env, style, key, state):
    """Uniform every slot; one role and bang-bang for all; everyone to the middle at full speed; away from the base."""
    n = env.config.num_uavs
    chance = random_action(key, env.spec.action, jnp.ones((n, 4), bool))
    top = jnp.asarray(env.config.of_kind("max_speed"))[:, None]
    middle = jnp.sign(state.uav.mean(0) - state.uav) * top
    away = jnp.stack([jnp.sign(jnp.sin(30.0 * style + jnp.arange(n))), jnp.ones(n)], 1) * top
    flown = jnp.where(style < 0.6, middle, away)
    scout = HybridAction(jnp.ones(n, jnp.int32), flown)
    return jax.tree.map(lambda a, b: jnp.where(style < 0.25, a, b), chance, scout)


@pytest.fixture(scope="module")
def play():
    env = UavCruise(CONFIG)

    @jax.jit
    def episodes(keys, shielded):
        def one(key):
            style = jax.random.uniform(key)

            def advance(state, key):
                asked = wild(env, style, key, state)
                passed, changed = env.shield(state, asked)
                action = jax.tree.map(lambda new, old: jnp.where(shielded, new, old), passed, asked)
                after, out = env.step(key, state, action)
                c = env.config
                safe = is_safe(after.uav, after.velocity, c.accel, c.slot, c.separation, jnp.zeros((0, 3)))
                same = (passed.params == asked.params).all(1) & (passed.mode == asked.mode)
                return after, (out.cost, safe, changed, same, out.metrics["stranded"])

            return jax.lax.scan(advance, env.reset(key)[0], jax.random.split(key, CONFIG.horizon))[1]

        return jax.lax.map(one, keys, batch_size=24)

    compiled = episodes.lower(jax.random.split(jax.random.key(0), 48), True).compile(OPTIMISED)
    return lambda seed, shielded: jax.device_get(compiled(jax.random.split(jax.random.key(seed), 48), shielded))


def test_nobody_comes_too_near_and_few_run_low_behind_the_shield(play):
    cost, safe, changed, same, stranded = play(0, jnp.array(True))
    assert cost[..., 0].sum() == 0
    assert safe.all()  # the invariant itself, after every slot
    assert stranded.mean() < 0.01
    assert cost[..., 1].mean() < 0.05
    np.testing.assert_array_equal(changed, ~same)
    assert 0.02 < changed.mean() < 0.95


def test_without_the_shield_the_same_policies_do_both(play):
    cost, safe, _, _, stranded = play(0, jnp.array(False))
    assert (cost[..., 0].sum(1) > 0).mean() > 0.5
    assert not safe.all()
    assert stranded.mean() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_nobody_comes_too_near_in_many_episodes(play, seed):
    cost, safe, _, _, stranded = play(seed, jnp.array(True))
    assert cost[..., 0].sum() == 0
    assert safe.all()
    assert stranded.mean() < 0.01
