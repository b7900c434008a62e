"""The base policy of `intersection`: the rules of the road for one driver that knows only its own observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.training.registry import ENVS


@pytest.fixture(scope="module")
def drives():
    """32 episodes of everyone following their base policy, and what nominal would have done in the same states."""
    env = ENVS["intersection"].make()

    @jax.jit
    @jax.vmap
    def play(key):
        def step(carry, key):
            state, _ = carry
            alone, fleet = (env.scripted[policy](key, state) for policy in ("base-policy", "nominal"))
            after, now = env.step(key, state, alone)
            return (after, now), (alone, fleet, state.driving, now.metrics, now.state)

        return jax.lax.scan(step, env.reset(key), jax.random.split(key, env.spec.horizon))[1]

    return env, play(jax.random.split(jax.random.key(0), 32))


def test_nobody_crashes_or_leaves_the_lane_and_nearly_all_arrive(drives):
    env, (_, _, _, metrics, _) = drives
    assert np.asarray(metrics["collisions"]).sum() == 0.0
    assert np.asarray(metrics["off_lane"]).sum() == 0.0
    assert np.asarray(metrics["finished"]).sum() > 0.97 * 32 * env.spec.num_agents


def test_it_drives_like_nominal_but_more_carefully(drives):
    _, (alone, fleet, driving, _, _) = drives
    on_road = np.asarray(driving)
    assert (np.asarray(alone.mode) == np.asarray(fleet.mode))[on_road].mean() > 0.999

    def push(a):
        return np.asarray(a.params[..., 0] - jnp.maximum(a.params[..., 1], 0.0))[on_road]

    mine, its = push(alone), push(fleet)
    assert (mine < its + 0.5).all()
    assert (np.abs(mine - its) < 0.5).mean() > 0.8


def test_raw_steering_has_none():
    assert ENVS["intersection-raw"].make().physics.base_policy is None


def test_the_gradient_of_nominal_is_finite_in_a_compiled_batch(drives):
    """With jnp.min in the rules of following, a fifth of these gradients was 0 / 0 (see `trident.maths.stable_min`)."""
    env, (*_, states) = drives
    rows = states[:, :150].reshape(-1, env.spec.state_dim)
    slope = jax.jit(jax.vmap(lambda s: jax.jvp(lambda s: env.physics.nominal(s).params, (s,), (jnp.ones_like(s),))[1]))
    assert np.isfinite(np.asarray(slope(rows))).all()
