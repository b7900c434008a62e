"""The closed form for many rows at once says what the closed form of one row says, and so do its gradients."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.algos.trident.config import TridentConfig
from trident.algos.trident.problem import Problem
from trident.envs.uav_mec.dynamics import backhaul_efficiency, distances, uplink_rate
from trident.envs.uav_mec.env import UavMec, UavMecConfig
from trident.envs.uav_mec.fast import association as links_of_rows
from trident.envs.uav_mec.fast import physics as rows
from trident.envs.uav_mec.physics import SAME_PLACE, Scene, assemble, unpack
from trident.fields import change
from trident.physics.offloading import associate
from trident.physics_value import persistence_sums, physics_parts

CONFIGS = {
    "three constraints": UavMecConfig(separation=True, separation_min=80.0, grace=1),
    "a channel with a kink": UavMecConfig(
        num_uavs=3,
        num_users=7,
        hotspot_share=0.0,
        association_rounds=3,
        flight="course",
        execution="parallel",
        channel="uma-av",
        capacity=2,
        grace=1,
    ),
    "many users": UavMecConfig(flight="cartesian", num_uavs=3, num_users=links_of_rows.FEW + 3, capacity=7, grace=1),
    "one UAV, members only": UavMecConfig(num_uavs=1, hotspot_share=1.0, flight="polar", rotor="zeng", grace=1),
}


def seen(env: UavMec, walks: int, slots: int):
    """States of random walks, and what is done in them."""

    def one(key):
        state, first = env.reset(key)

        def advance(carry, key):
            state, array = carry
            action = env.scripted["random"](key, state)
            state, ts = env.step(key, state, action)
            return (state, ts.state), (array, action)

        return jax.lax.scan(advance, (state, first.state), jax.random.split(key, slots))[1]

    out = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), walks))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), out)


def told_apart(config: UavMecConfig, array):
    """Can every user's UAV be told from the others by its distance?"""
    scene = unpack(config, array)
    gap = jnp.sort(distances(scene.uav, scene.user), axis=0)
    return (jnp.diff(gap, axis=0) > 4 * SAME_PLACE).all()


@pytest.mark.parametrize("name", CONFIGS)
def test_says_the_same_as_row_by_row(name):
    config = CONFIGS[name]
    env = UavMec(config)
    array, action = seen(env, 16, 12)
    count = 1 + env.spec.num_constraints

    def parts(physics):
        return jax.jit(lambda s, a: physics_parts(physics, count, s, a))(array, action)

    got, right = parts(env.physics), parts(replace(env.physics, bulk=None))
    successor = jax.jit(jax.vmap(env.physics.predict))(array, action)
    sure = jax.jit(jax.vmap(lambda s, t: told_apart(config, s) & told_apart(config, t)))(array, successor)
    assert sure.mean() > 0.9
    loose = 2e-4 if config.flight == "course" else 2e-5  # a course is only nearly of length one
    for part, bulk, row in zip(got._fields, got, right, strict=True):
        np.testing.assert_allclose(bulk[sure], row[sure], rtol=loose, atol=loose, err_msg=part)
    assert np.std(right.immediate, axis=0).min() > 1e-3  # there was something to tell


@pytest.mark.parametrize("flight", ["course", "cartesian"])
def test_gradients_are_those_of_the_formulas(flight):
    config = replace(CONFIGS["three constraints"], flight=flight)
    env = UavMec(config)
    array, action = seen(env, 8, 8)
    action = action._replace(params=0.9 * action.params)  # away from the corners
    sure = jax.vmap(lambda s: told_apart(config, s))(array)

    def slopes(physics):
        def values(params):
            parts = physics_parts(physics, 4, array, action._replace(params=params), current=False)
            return parts.immediate + parts.next_step

        def along(p):
            return jax.jvp(values, (action.params,), (jnp.zeros_like(action.params).at[:, 1, p].set(1.0),))[1]

        return jax.jit(lambda: jax.vmap(along)(jnp.arange(env.spec.action.num_params)))()

    got, right = (slopes(physics)[:, sure] for physics in (env.physics, replace(env.physics, bulk=None)))
    off = np.abs(got - right).max((0, 2)) > 1e-3 * (1.0 + np.abs(right).max((0, 2)))
    assert off.mean() < 0.02  # a step later two UAVs may stand equally far from a user
    assert np.abs(right).max() > 0.05


def test_several_actions_in_one_state():
    env = UavMec(UavMecConfig())
    array, action = seen(env, 4, 4)
    other = action._replace(mode=(action.mode + 1) % 3)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b], axis=1), action, other)
    got = jax.jit(lambda: physics_parts(env.physics, 3, array, both, current=True))()
    for k, one in enumerate((action, other)):
        right = jax.jit(lambda one=one: physics_parts(env.physics, 3, array, one, current=True))()
        for of_both, alone in zip(got, right, strict=True):
            np.testing.assert_allclose(of_both[:, k], alone, rtol=1e-5, atol=1e-5)


def test_how_long_changes_last():
    env = UavMec(UavMecConfig())
    array, action = seen(env, 16, 8)
    got, right = (
        jax.jit(lambda s, a, physics=physics: persistence_sums(physics, 3, s, a))(array, action)
        for physics in (env.physics, replace(env.physics, bulk=None))
    )
    np.testing.assert_allclose(got, right, rtol=0.02)


def test_who_serves_whom_after_a_step_needs_no_reading_back():
    """Two UAVs equally far from a user within what the array can tell: the nearer one has it, not the first."""
    config = UavMecConfig(num_uavs=2, num_users=1, hotspot_share=0.0)

    def zeros(n):
        return jnp.zeros((n, 2))

    uav = jnp.array([[200.0, 300.0], [399.99, 300.0]])
    scene = Scene(
        uav, jnp.array([[300.0, 300.0]]), zeros(1), zeros(2) + 300.0, zeros(2), jnp.zeros(()), jnp.full(1, 260.0)
    )
    array = assemble(config, scene, zeros(2), jnp.zeros(2), jnp.zeros(2), jnp.zeros(1))
    standing = rows.read(config, array[None])
    still = rows.do(config, standing, jnp.zeros((2, 2, 1)), jnp.zeros((2, 1), jnp.int32), jnp.zeros((2, 1)))
    assert standing.own[0, 0] == 2  # nobody's, says the array
    assert rows.predict(config, standing, still).own[0, 0] == 1


@pytest.mark.parametrize(("uavs", "users", "capacity"), [(1, 9, 3), (4, 20, 3), (7, 40, 5), (8, 24, 2)])
def test_equal_distances_are_told_apart_by_index(uavs, users, capacity):
    """Distances of whole tens of metres, so that most of those who ask are as far away as somebody else."""
    config = UavMecConfig(num_uavs=uavs, num_users=users, capacity=capacity)
    tens = jax.random.randint(jax.random.key(0), (64, uavs, users), 0, 36)
    distance = 10.0 * tens.astype(jnp.float32) + 5.0
    link = jax.vmap(lambda d: associate(d, config.service_radius, capacity, config.association_rounds))(distance)
    right = jnp.where(link.any(1), link.argmax(1), uavs)
    got = links_of_rows.associate(config, jnp.moveaxis(distance, 0, -1))
    np.testing.assert_array_equal(got.T, right)
    assert (right < uavs).mean() > 0.3


@pytest.mark.parametrize("channel", ["suburban", "urban", "dense-urban", "high-rise", "umi-av"])
def test_radio_links_by_series(channel):
    config = UavMecConfig(channel=channel)
    links = rows.radio(config)
    for formula, fast, farthest in (
        (lambda d: 1.0 / uplink_rate(config, d), links.uplink, config.service_radius),
        (lambda d: 1.0 / (config.uav_bandwidth * backhaul_efficiency(config, d)), links.slowness, config.area),
    ):
        d = jnp.linspace(0.5, farthest, 400)
        with jax.enable_x64(True):
            exact, gradient = jax.jvp(formula, (d.astype(jnp.float64),), (jnp.ones(d.shape, jnp.float64),))
        value, steep = jax.jvp(fast, (d,), (jnp.ones_like(d),))
        np.testing.assert_allclose(value, exact, rtol=1e-5)  # what the formula itself is good for
        np.testing.assert_allclose(steep, gradient, rtol=1e-3, atol=1e-3 * np.abs(gradient).max())


def test_critics_without_the_costs_physics_keep_the_rewards():
    env = UavMec(UavMecConfig(grace=1))
    array, action = seen(env, 4, 4)
    tasks = [Problem(change(TridentConfig(), {"cost_physics": own}), env.spec, env.physics) for own in (False, True)]
    alone, both = (jax.jit(lambda t=t: physics_parts(t.closed_form, 3, array, action))() for t in tasks)
    for without, whole in zip(alone, both, strict=True):
        assert not without[:, 1:].any()
        assert whole[:, 1:].any()
        np.testing.assert_allclose(without[:, 0], whole[:, 0], rtol=1e-6)
