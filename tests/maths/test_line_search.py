"""Backtracking: the first acceptable fraction, how often it looks, and exact restoration."""

import jax
import jax.numpy as jnp
import numpy as np

from trident.maths.line_search import line_search, move


def search(limit, enabled=True, backtracks=5):
    def accept(fraction):
        return fraction <= limit, {"seen": fraction, "score": 2.0 * fraction}

    return line_search(accept, enabled, backtracks, 0.5)


run = jax.jit(search, static_argnames="backtracks")


def test_takes_the_first_acceptable_fraction():
    for limit, want in ((2.0, 1.0), (1.0, 1.0), (0.6, 0.5), (0.07, 0.0625)):
        fraction, aux = run(limit)
        assert float(fraction) == want
        assert float(aux["seen"]) == want
        assert float(aux["score"]) == 2.0 * want


def test_gives_exactly_zero_when_nothing_is_acceptable():
    fraction, aux = run(0.06)
    assert float(fraction) == 0.0
    assert float(aux["seen"]) == 0.0625  # the last of 1, 1/2, 1/4, 1/8, 1/16
    assert float(run(jnp.nan)[0]) == 0.0
    assert float(run(2.0, backtracks=0)[0]) == 0.0


def test_disabled_looks_at_nothing():
    fraction, aux = run(2.0, enabled=False)
    assert float(fraction) == 0.0
    assert float(aux["seen"]) == 0.0


def test_stops_looking_once_accepted():
    looked = []

    def accept(fraction):
        jax.debug.callback(lambda f: looked.append(float(f)), fraction)
        return fraction < 0.4, ()

    line_search(accept, True, 10, 0.5)
    jax.effects_barrier()
    assert looked == [1.0, 0.5, 0.25]


def test_every_seed_of_a_batch_has_its_own_fraction():
    fraction, aux = jax.jit(jax.vmap(search))(jnp.array([0.3, 2.0, 0.01]))
    np.testing.assert_array_equal(fraction, [0.25, 1.0, 0.0])
    np.testing.assert_array_equal(aux["seen"], [0.25, 1.0, 0.0625])


def test_fraction_zero_restores_the_same_bits():
    params = {"w": jnp.array([-0.0, 1e-42, 3.0, -7.5]), "b": jnp.array([[0.1]])}
    wild = {"w": jnp.array([1.0, jnp.nan, jnp.inf, -jnp.inf]), "b": jnp.array([[jnp.nan]])}
    fraction, _ = run(0.0)
    restored = jax.jit(move)(params, wild, fraction)
    for old, new in zip(jax.tree.leaves(params), jax.tree.leaves(restored), strict=True):
        assert np.asarray(old).tobytes() == np.asarray(new).tobytes()
    moved = move(params, {"w": jnp.ones(4), "b": jnp.ones((1, 1))}, jnp.array(0.5))
    np.testing.assert_allclose(moved["w"], np.asarray(params["w"]) + 0.5)
