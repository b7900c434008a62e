"""The shield's invariant: whatever the policy and the wind, the UAV can stop before every zone, and touches none."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.random_policy import random_action
from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.env import UavNoFly
from trident.envs.uav_nofly.shield import is_safe
from trident.types import HybridAction

STORM = NoFlyConfig(num_maps=24, wind=6.5, gust=3.0, max_wind=9.0, offset_lag=2.0)
"""Gusts that keep the UAV at the edge of its tube."""
OPTIMISED = {"xla_backend_optimization_level": 2}


def wild(env, style, key, state):
    """Policies of several kinds: blind to zones at full speed, uniform, bang-bang, hugging with slanted flight."""
    k_one, k_two = jax.random.split(key)
    blind = env.scripted["straight"](key, state)
    mask = jnp.ones((1, 9), bool)  # modes that are masked as well
    chance = random_action(k_one, env.spec.action, mask)
    low, high = jnp.asarray(env.spec.action.low[0, 1]), jnp.asarray(env.spec.action.high[0, 1])
    corner = jnp.where(jax.random.bernoulli(k_two, 0.5, (1, 2)), low, high)
    fast = jnp.stack([high[0], jnp.sign(jnp.sin(50.0 * style)) * high[1]])[None]
    mode = jnp.select([style < 0.25, style < 0.5], [chance.mode, chance.mode], blind.mode)
    params = jnp.select([style < 0.25, style < 0.5, style < 0.75], [chance.params, corner, fast], blind.params)
    return HybridAction(mode, jnp.where(mode[:, None] > 0, params, 0.0))


def program(env, steps):
    @jax.jit
    def flights(keys, shielded):
        def one(key):
            k_reset, k_style, k_run = jax.random.split(key, 3)
            style = jax.random.uniform(k_style)

            def advance(state, key):
                asked = wild(env, style, key, state)
                passed, changed = env.shield(state, asked)
                action = jax.tree.map(lambda new, old: jnp.where(shielded, new, old), passed, asked)
                after, out = env.step(key, state, action)
                zones = jnp.asarray(env.maps.zones)[after.map]
                safe = is_safe(env.config, zones, after.place, after.velocity)
                same = jnp.array_equal(passed.params, asked.params) & (passed.mode == asked.mode).all()
                return after, (out.cost[0], safe, changed[0], same, jnp.linalg.norm(after.offset), out.metrics["near"])

            return jax.lax.scan(advance, env.reset(k_reset)[0], jax.random.split(k_run, steps))[1]

        return jax.lax.map(one, keys, batch_size=64)

    compiled = flights.lower(jax.random.split(jax.random.key(0), 64), True).compile(OPTIMISED)
    return lambda seed, shielded: jax.device_get(compiled(jax.random.split(jax.random.key(seed), 64), shielded))


@pytest.fixture(scope="module")
def play():
    return program(UavNoFly(STORM), 100)


def test_no_zone_is_touched_behind_the_shield(play):
    touched, safe, changed, same, offset, near = play(0, jnp.array(True))
    assert touched.sum() == 0
    assert safe.all()  # the invariant itself, at every step
    np.testing.assert_array_equal(changed, ~same)  # what is safe is left as it is, what is changed is said
    assert 0.02 < changed.mean() < 0.7
    assert offset.max() > 0.98 * STORM.tube  # the wind did its worst
    assert near.mean() > 0.1  # it does not buy safety by keeping far away


def test_without_the_shield_the_same_policies_touch_zones(play):
    touched, safe, *_ = play(0, jnp.array(False))
    assert (touched.sum(1) > 0).mean() > 0.3
    assert not safe.all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_no_zone_is_touched_in_many_flights(play, seed):
    touched, safe, *_ = play(seed, jnp.array(True))
    assert touched.sum() == 0
    assert safe.all()
