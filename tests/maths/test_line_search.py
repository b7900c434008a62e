import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths.trust_region import first_accepted

OLD = {"w": jnp.array([1.0, -0.0, 3e-38]), "index": jnp.int32(-1)}


@jax.jit
def search(threshold, first, last):
    def attempt(index):
        return index >= threshold, {"w": jnp.full(3, jnp.nan) * (index + 1), "index": index}

    return first_accepted(attempt, OLD, first, last)


@pytest.mark.parametrize(("threshold", "first", "last", "expected"), [(3, 0, 8, 3), (0, 5, 8, 5), (7, 0, 8, 7)])
def test_takes_the_first_that_is_accepted(threshold, first, last, expected):
    assert search(threshold, first, last)["index"] == expected


@pytest.mark.parametrize(("first", "last"), [(0, 8), (8, 8), (9, 8)])
def test_without_an_accepted_candidate_the_old_bits_come_back(first, last):
    result = search(100, first, last)
    assert result["index"] == -1
    np.testing.assert_array_equal(np.asarray(result["w"]).view(np.uint32), np.asarray(OLD["w"]).view(np.uint32))


def test_stops_at_the_first_acceptance():
    calls = []

    def attempt(index):
        jax.debug.callback(lambda i: calls.append(int(i)), index)
        return index == 2, {"w": jnp.zeros(3), "index": index}

    jax.block_until_ready(first_accepted(attempt, OLD, 0, 9))
    jax.effects_barrier()
    assert sorted(calls) == [0, 1, 2]


def test_each_row_of_a_vmap_stops_on_its_own():
    result = jax.vmap(lambda t: search(t, 0, 8))(jnp.array([0, 5, 100]))
    np.testing.assert_array_equal(result["index"], [0, 5, -1])


def test_nan_is_not_accepted():
    result = first_accepted(lambda i: (jnp.nan > 0.0 * i, OLD | {"index": i}), OLD, 0, 3)
    assert result["index"] == -1
