"""Functions of one number: the same values and gradients as the formula, with less work."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.uav_mec.fast.chebyshev import chebyshev_of, clenshaw, horner, series
from trident.envs.uav_mec.fast.elementwise import elementwise

X = jnp.linspace(0.5, 3.0, 50)


def formula(x):
    return jnp.log1p(jnp.exp(-x)) / x


def test_values_and_gradients_are_those_of_the_formula():
    fast = elementwise(formula)
    directions = jnp.stack([jnp.ones_like(X), X, -X])

    def along(f):
        return jax.vmap(lambda t: jax.jvp(f, (X,), (t,))[1])(directions)

    np.testing.assert_allclose(fast(X), formula(X))
    np.testing.assert_allclose(along(fast), along(formula), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(jax.grad(fast))(X), jax.vmap(jax.grad(formula))(X), rtol=1e-5)


def test_the_gradient_is_found_once_for_all_directions():
    def count(f):
        return str(jax.make_jaxpr(lambda t: jax.vmap(lambda t: jax.jvp(f, (X,), (t,))[1])(t))(jnp.ones((7, 50))))

    assert count(formula).count("f32[7,50] = ") > 2
    assert count(elementwise(formula)).count("f32[7,50] = ") == 1


def test_a_known_gradient_is_used():
    wrong = elementwise(jnp.sin, lambda x: 0.0 * x + 5.0)
    assert jax.grad(wrong)(1.0) == 5.0


def test_series_of_a_smooth_function():
    def with_logarithm(x):
        return np.log(2.0 + x) / (1.0 + 0.1 * x)

    series = chebyshev_of(with_logarithm, 30.0, 4.0)
    assert series is not None
    x = np.linspace(0.0, 30.0, 501)
    np.testing.assert_allclose(series(jnp.asarray(x, jnp.float32)), with_logarithm(x), rtol=3e-6)
    h = 1e-6
    gradient = (with_logarithm(x + h) - with_logarithm(x - h)) / (2 * h)
    got = jax.vmap(jax.grad(series))(jnp.asarray(x[1:-1], jnp.float32))
    np.testing.assert_allclose(got, gradient[1:-1], atol=2e-5)


def test_series_ends_where_it_was_made_for():
    series = chebyshev_of(lambda x: 2.0 + x, 1.0, 1.0)
    assert series is not None
    np.testing.assert_allclose(series(jnp.array([-1.0, 0.0, 1.0, 5.0])), [2.0, 2.0, 3.0, 3.0], rtol=1e-5)


def test_no_series_for_a_kink():
    assert chebyshev_of(lambda x: 1.0 + np.abs(x - 0.3), 1.0, 1.0) is None


def test_clenshaw_is_the_sum():
    c, x = np.array([1.0, -2.0, 0.5, 3.0]), np.linspace(-1.0, 1.0, 7)
    np.testing.assert_allclose(clenshaw(c, x), np.polynomial.chebyshev.chebval(x, c))


def test_sums_of_powers_only_where_their_terms_are_small():
    """T_12 alone has powers of up to 2^11 that nearly cancel: in single precision they would show."""
    x = jnp.linspace(-1.0, 1.0, 501)
    tame, wild = np.array([1.0, 0.5, 0.1]), np.eye(13)[12]
    for c in (tame, wild):
        np.testing.assert_allclose(series(c, x), np.polynomial.chebyshev.chebval(np.asarray(x, float), c), atol=3e-6)
    powers = np.polynomial.chebyshev.cheb2poly(wild)
    worst = np.abs(horner(powers, x) - np.polynomial.chebyshev.chebval(np.asarray(x, float), wild)).max()
    assert worst > 1e-5
