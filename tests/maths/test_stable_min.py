"""The minimum whose gradient survives compilation, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths.stable_min import first_minimum, stable_min


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_value_and_gradient(axis):
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    value, slope = jax.jit(lambda x: (stable_min(x, axis), jax.grad(lambda x: stable_min(x, axis).sum())(x)))(x)
    np.testing.assert_array_equal(value, x.min(axis))
    np.testing.assert_array_equal(slope, np.expand_dims(x.min(axis), axis) == x)


def test_a_tie_goes_to_the_first_and_infinity_is_no_obstacle():
    x = jnp.array([[2.0, 1.0, 1.0], [jnp.inf, jnp.inf, 3.0]])
    np.testing.assert_array_equal(first_minimum(x, 1), [[False, True, False], [False, False, True]])
    np.testing.assert_array_equal(stable_min(x, 1), [1.0, 3.0])
