"""The filter of noisy gradients, against signals and noise of known size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths.gradient_filter import shrink_to_signal


def test_only_what_two_halves_agree_on_is_believed():
    """Signal and noise of known size: the filter keeps the share of the signal, drops a part that is nothing but noise,
    and comes nearer to the truth than the raw mean; without noise it changes nothing."""
    dims, noise = 4000, 2.0
    truth = jnp.stack([jax.random.normal(jax.random.key(0), (dims,)), jnp.zeros(dims)])[:, None] / dims**0.5  # 2 paths

    @jax.jit
    @jax.vmap
    def errors(key):
        halves = 0.5 * truth + 0.5 * noise * jax.random.normal(key, (2, *truth.shape)) * (2 / dims) ** 0.5
        filtered, share = shrink_to_signal(halves)
        return share[:, 0], jnp.sum((filtered[0] - truth.sum((0, 1))) ** 2), jnp.sum((halves - 0.5 * truth) ** 2)

    share, filtered, raw = (np.asarray(x).mean(0) for x in errors(jax.random.split(jax.random.key(1), 200)))
    np.testing.assert_allclose(share, [1 / (1 + noise**2), 0.0], atol=0.03)
    assert filtered == pytest.approx(noise**2 / (1 + noise**2), rel=0.1), "the error that Wiener's filter leaves"
    assert filtered < 0.5 * raw

    clean, share = shrink_to_signal(jnp.stack([0.5 * truth, 0.5 * truth]))
    np.testing.assert_allclose(clean[0], truth.sum((0, 1)), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(share[:, 0], [1.0, 0.0])
