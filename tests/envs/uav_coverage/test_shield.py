"""The invariant of keeping apart: whatever the policy, UAVs can brake before each other and before obstacles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.keep_apart import is_safe
from trident.envs.random_policy import random_action
from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import discs
from trident.envs.uav_coverage.env import UavCoverage
from trident.types import HybridAction

CROWDED = CoverageConfig(num_uavs=7, area=420.0, num_obstacles=2, accel=3.0, horizon=80)
OPTIMISED = {"xla_backend_optimization_level": 2}


def wild(env, style, key, state):
    """Uniform, bang-bang, everyone to the middle at full speed, everyone at the nearest other."""
    n, top = env.config.num_uavs, env.config.max_speed
    chance = random_action(key, env.spec.action, jnp.ones((n, 3), bool))
    low, high = jnp.asarray(env.spec.action.low[:, 1]), jnp.asarray(env.spec.action.high[:, 1])
    corner = jnp.where(jax.random.bernoulli(key, 0.5, (n, 3)), low, high)
    middle = jnp.sign(state.uav.mean(0) - state.uav) * top
    rel = state.uav[None] - state.uav[:, None]
    far = jnp.where(jnp.eye(n, dtype=bool), jnp.inf, (rel**2).sum(-1))
    nearest = jnp.take_along_axis(rel, jnp.argmin(far, 1)[:, None, None], 1)[:, 0]
    attack = jnp.clip(100.0 * nearest, -top, top)
    flown = jnp.select([style < 0.5, style < 0.75], [middle, attack], corner[:, :2])
    move = HybridAction(jnp.ones(n, jnp.int32), corner.at[:, :2].set(flown))
    return jax.tree.map(lambda a, b: jnp.where(style < 0.2, a, b), chance, move)


@pytest.fixture(scope="module")
def play():
    env = UavCoverage(CROWDED)

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
                safe = is_safe(after.uav, after.velocity, c.accel, c.slot, c.separation, discs(c, after.obstacle))
                same = (passed.params == asked.params).all(1) & (passed.mode == asked.mode)
                kept = (passed.params[:, 2] == asked.params[:, 2]).all()
                return after, (out.cost[1], safe, changed, same, kept, out.metrics["gap"], out.metrics["speed"])

            return jax.lax.scan(advance, env.reset(key)[0], jax.random.split(key, CROWDED.horizon))[1]

        return jax.lax.map(one, keys, batch_size=32)

    compiled = episodes.lower(jax.random.split(jax.random.key(0), 64), True).compile(OPTIMISED)
    return lambda seed, shielded: jax.device_get(compiled(jax.random.split(jax.random.key(seed), 64), shielded))


def test_nobody_comes_too_near_behind_the_shield(play):
    crowded, safe, changed, same, sensing, gap, speed = play(0, jnp.array(True))
    assert crowded.sum() == 0
    assert safe.all()  # the invariant itself, after every slot
    np.testing.assert_array_equal(changed, ~same)
    assert sensing.all()  # it takes nothing but speed
    assert 0.02 < changed.mean() < 0.9
    assert gap.min() < 1.2 * CROWDED.separation  # it lets UAVs come as near as they may
    assert speed.mean() > 1.0  # and does not make them stand still


def test_without_the_shield_the_same_policies_come_too_near(play):
    crowded, safe, *_ = play(0, jnp.array(False))
    assert (crowded.sum(1) > 0).mean() > 0.5
    assert not safe.all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_nobody_comes_too_near_in_many_episodes(play, seed):
    crowded, safe, *_ = play(seed, jnp.array(True))
    assert crowded.sum() == 0
    assert safe.all()
