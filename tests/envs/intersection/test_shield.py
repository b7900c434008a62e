"""The shield's promise: from warm starts nobody collides or leaves the lane, whatever the policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.dynamics import DRIVING
from trident.envs.intersection.env import VARIANTS, Intersection
from trident.types import HybridAction

OPTIMISED = {"xla_backend_optimization_level": 2}
"""These programs run long enough to be worth compiling well."""


def wild(env, style, key, state):
    """Random policies of several kinds; `style` in [0, 1] is constant over an episode."""
    k_mode, k_params, k_hold = jax.random.split(key, 3)
    action = env.scripted["random"](k_params, state)
    low, high = jnp.asarray(env.spec.action.low[0, 0]), jnp.asarray(env.spec.action.high[0, 0])
    corner = jnp.where(jax.random.bernoulli(k_hold, 0.5, action.params.shape), low, high)
    flat_out = jnp.stack([corner[:, 0] * 0 + high[0], corner[:, 0] * 0 + low[1], corner[:, 2]], 1)
    pull = jnp.stack([flat_out[:, 0], flat_out[:, 1], jnp.sign(jnp.sin(40.0 * style)) * high[2] + 0 * corner[:, 2]], 1)
    choice = jnp.floor(style * 4.0)
    params = jnp.select(
        [choice == 0, choice == 1, choice == 2], [action.params, corner, flat_out], pull
    )  # uniform; bang-bang; flat out with wild steering; flat out steering to one side
    mode = jnp.where(jax.random.bernoulli(k_mode, 0.1, action.mode.shape), action.mode, state.lane)
    return HybridAction(mode, params)


def program(env, episodes):
    """(keys, shielded) -> worst values over whole episodes: crashes, off the road, off the lane, largest offset,
    arrivals, share of interventions."""

    def one(key, shielded):
        k_reset, k_style, k_run = jax.random.split(key, 3)
        style = jax.random.uniform(k_style)
        state, _ = env.reset(k_reset)

        def advance(state, key):
            asked = wild(env, style, key, state)
            passed, changed = env.shield(state, asked)
            action = jax.tree.map(lambda new, old: jnp.where(shielded, new, old), passed, asked)
            after, out = env.step(key, state, action)
            settled = (after.phase == DRIVING) & (after.s > -env.config.solid)
            offset = jnp.where(settled, jnp.abs(after.e), 0.0).max()
            bad = (out.metrics["collisions"], out.metrics["off_road"], out.metrics["off_lane"])
            return after, (*bad, offset, out.metrics["finished"], changed.mean())

        _, rows = jax.lax.scan(advance, state, jax.random.split(k_run, env.spec.horizon))
        return jax.tree.map(lambda x: x.sum(), rows[:3]), rows[3].max(), rows[4].sum(), rows[5].mean()

    def run(keys, shielded):
        return jax.lax.map(lambda key: one(key, shielded), keys, batch_size=min(128, episodes))

    compiled = jax.jit(run, compiler_options=OPTIMISED)
    return lambda seed, shielded: jax.device_get(compiled(jax.random.split(jax.random.key(seed), episodes), shielded))


def assert_safe(env, result):
    (crashes, off_road, off_lane), offset, arrived, changed = result
    assert crashes.sum() == 0
    assert off_road.sum() == 0
    assert off_lane.sum() == 0
    assert offset.max() < env.config.tube + 0.1  # what the conflict table allows for
    assert arrived.mean() > 0.3 * env.config.num_vehicles  # it does not buy safety by standing still
    assert changed.mean() > 0.02


@pytest.fixture(scope="module")
def play():
    return program(Intersection(), 256)


def test_nobody_collides_behind_the_shield(play):
    assert_safe(Intersection(), play(0, True))


def test_without_the_shield_the_same_policies_crash(play):
    (crashes, off_road, off_lane), *_ = play(0, False)
    assert (crashes > 0).mean() > 0.3
    assert off_road.sum() > 0
    assert off_lane.sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "episodes"),
    [
        ("intersection", 4096),
        ("intersection-dense", 2048),
        ("intersection-raw", 1024),
        ("intersection-n4", 1024),
        ("intersection-n16", 1024),
        ("intersection-n32", 256),
    ],
)
def test_nobody_collides_in_thousands_of_episodes(name, episodes):
    env = Intersection(VARIANTS[name])
    assert_safe(env, program(env, episodes)(1, True))


def test_safe_actions_pass_untouched():
    """AIM obeys the rules by itself, so the shield has nothing to do."""
    env = Intersection(IntersectionConfig(num_vehicles=4))

    def one(key):
        state, _ = env.reset(key)

        def advance(state, key):
            action = env.scripted["aim"](key, state)
            passed, changed = env.shield(state, action)
            same = (passed.mode == action.mode).all() & (passed.params == action.params).all()
            return env.step(key, state, passed)[0], (changed.any(), same)

        return jax.lax.scan(advance, state, jax.random.split(key, 180))[1]

    changed, same = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 16))
    assert not changed.any()
    assert same.all()


def test_the_change_is_the_least_that_keeps_the_distance():
    """Behind a standing leader: below the cap the pedals are untouched, above it they are cut to the cap."""
    env = Intersection(IntersectionConfig(num_vehicles=8))
    c = env.config
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    n = jnp.arange(8)
    on = (n == 0) | (n == 4)  # both from the south
    state = state._replace(
        phase=jnp.where(on, DRIVING, 2),
        lane=n * 0,
        movement=n * 0 + 1,
        x=jnp.full(8, 1.6),
        e=jnp.zeros(8),
        s=jnp.where(n == 0, -30.0, -44.0),
        y=jnp.where(n == 0, -44.4, -58.4),
        speed=jnp.where(n == 4, 8.0, 0.0),
    )
    shield = jax.jit(env.shield)
    room = (14.0 - c.spacing) / 1.05
    fastest = np.sqrt(0.3**2 + 12.0 * (room - 0.4)) - 0.3
    cap = (fastest - 8.0) / 0.1
    assert cap + c.brake > 0.0
    for accel in (cap - 0.5, cap + 0.5, 3.0):
        pedal = jnp.array([max(accel, 0.0), max(-accel, 0.0), 0.0])
        action = HybridAction(state.lane, jnp.where((n == 4)[:, None], pedal, 0.0))
        passed, changed = shield(state, action)
        got = float(passed.params[4, 0] - jnp.maximum(passed.params[4, 1], 0.0))
        assert got == pytest.approx(min(accel, cap), abs=2e-2)
        assert bool(changed[4]) == (accel > cap)
