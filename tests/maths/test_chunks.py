import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths.chunks import in_chunks


@pytest.mark.parametrize(("rows", "parts"), [(8, 1), (512, 1), (1024, 2), (3200, 8), (2047, 23), (1021, 1)])
def test_rows_are_worked_through_by_parts(rows, parts):
    """Into as few equal parts as fit; at once if that would take tiny ones (1,021 is prime)."""
    seen = []

    def double(x):
        seen.append(x["a"].shape)
        return {"twice": 2 * x["a"], "sum": x["b"].sum(-1)}

    x = {"a": jnp.arange(rows), "b": jnp.arange(3.0 * rows).reshape(rows, 3)}
    got = in_chunks(double, x, 512)
    assert seen[0] == (rows // parts,)
    np.testing.assert_array_equal(got["twice"], 2 * x["a"])
    np.testing.assert_array_equal(got["sum"], x["b"].sum(-1))
