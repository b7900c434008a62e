import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths.batching import map_batches


@pytest.mark.parametrize(("rows", "parts"), [(8, 1), (512, 1), (1024, 2), (3200, 8), (2047, 23), (1021, 1)])
def test_rows_are_worked_through_by_parts(rows, parts):
    """Into as few equal parts as fit; at once if that would take tiny ones (1,021 is prime)."""
    seen = []

    def double(x):
        seen.append(x["a"].shape)
        return {"twice": 2 * x["a"], "sum": x["b"].sum(-1)}

    x = {"a": jnp.arange(rows), "b": jnp.arange(3.0 * rows).reshape(rows, 3)}
    got = map_batches(double, x, 512)
    assert seen[0] == (rows // parts,)
    np.testing.assert_array_equal(got["twice"], 2 * x["a"])
    np.testing.assert_array_equal(got["sum"], x["b"].sum(-1))


@pytest.mark.parametrize(("rows", "shapes"), [(96, (96, 48)), (512, (256, 64)), (37, (37, 37)), (384, (192, 64))])
def test_groups_within_a_part(rows, shapes):
    """Parts one after the other, groups at once; 37 rows have no groups of decent size."""
    seen = []

    def sums(x):
        seen.append(x.shape)
        return x - x.sum(0)

    x = jnp.arange(2.0 * rows).reshape(rows, 2)
    part, group = shapes
    got = jax.jit(lambda x: map_batches(sums, x, 256, 64))(x)
    assert seen[-1] == (group, 2)  # what one of them sees
    right = np.concatenate([np.asarray(g) - np.asarray(g).sum(0) for g in np.split(x, rows // group)])
    np.testing.assert_array_equal(got, right)
    loops = str(jax.make_jaxpr(lambda x: map_batches(sums, x, 256, 64))(x)).count("scan[")
    assert loops == (part < rows)
