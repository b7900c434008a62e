"""The reference `nominal` does what the physics takes for granted, from the state that critics read."""

import jax
import numpy as np
import pytest

from trident.training.registry import ENVS


@pytest.mark.parametrize("name", ["uav-mec", "uav-mec-velocity", "intersection", "smac-3m"])
def test_nominal_is_the_action_of_the_physics(name):
    env = ENVS[name].make()

    @jax.jit
    def both(key):
        state, step = env.reset(key)
        state, step = env.step(key, state, env.scripted["random"](key, state))
        return env.scripted["nominal"](key, state), env.physics.nominal(step.state)

    for reference, base_policy in zip(*map(jax.tree.leaves, both(jax.random.key(0))), strict=True):
        np.testing.assert_allclose(reference, base_policy, atol=1e-5)
