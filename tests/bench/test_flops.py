"""Counting operations, and fitting how they grow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.bench.flops import count_flops, fit_growth

A, B = jnp.ones((8, 16)), jnp.ones((16, 16))
PRODUCT = 2 * 8 * 16 * 16


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 2.5, -1.0])
def test_fit_finds_the_power(exponent):
    x = [4, 8, 16, 32]
    fit = fit_growth(x, [3.0 * v**exponent for v in x])
    np.testing.assert_allclose([fit.exponent, fit.r2, fit.last], [exponent, 1.0, exponent], atol=1e-9)


def test_fit_of_a_sum_of_powers_heads_for_the_larger():
    x = np.array([4, 8, 16, 32])
    fit = fit_growth(x, 100.0 * x + x**2)
    assert 1.0 < fit.exponent < fit.last < 2.0
    assert fit.r2 < 1.0


@pytest.mark.parametrize(("x", "y"), [([4], [1.0]), ([4, 8], [1.0, 0.0]), ([0, 8], [1.0, 2.0])])
def test_fit_refuses_what_has_no_power(x, y):
    with pytest.raises(ValueError, match="positive points"):
        fit_growth(x, y)


def test_one_product():
    assert count_flops(jnp.matmul, A, B) == PRODUCT


def test_loops_are_multiplied_out():
    """5 x 3 products in two nested scans (plus the loops' own counters)."""

    def inner(a, b):
        return jax.lax.scan(lambda c, _: (c @ b, None), a, None, length=3)[0]

    def outer(a, b):
        return jax.lax.scan(lambda c, _: (jax.jit(inner)(c, b), None), a, None, length=5)[0]

    assert count_flops(outer, A, B) == pytest.approx(15 * PRODUCT, rel=1e-3)


def test_a_while_counts_as_often_as_told():
    def search(a, b):
        return jax.lax.while_loop(lambda c: c[0, 0] < 5.0, lambda c: c @ b, a)

    once, four = (count_flops(search, A, B, while_trips=n) for n in (1, 4))
    assert four - once == pytest.approx(3 * PRODUCT, rel=1e-3)


def test_what_is_not_returned_is_not_counted():
    def both(a, b):
        small = a @ b
        return small, jax.lax.scan(lambda c, _: (c @ b, None), small, None, length=100)[0]

    assert count_flops(lambda a, b: both(a, b)[0], A, B) == PRODUCT
