"""Noisy gradients: the signal fraction of one, estimated from two halves of its batch."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def shrink_to_signal(halves: Float[Array, "2 paths J D"]) -> tuple[Float[Array, "J D"], Float[Array, "paths J"]]:
    """What two halves of a batch have in common, and the share of each part that this is.

    With g = g1 + g2, g_i = s/2 + noise: E[4 g1.g2] = |s|^2 and E|g|^2 = |s|^2 + |noise|^2, so that of all multiples
    of g the one by 4 g1.g2 / |g|^2 is nearest to s (Wiener's filter). The parts are filtered apart: a cost can be plain
    in the mode and nothing but noise in the parameters, and an unfiltered step would spend its trust region on noise.
    """
    first, second = halves
    both = first + second
    common = 4.0 * jnp.sum(first * second, axis=-1) / jnp.maximum(jnp.sum(both**2, axis=-1), 1e-20)
    share = jnp.clip(common, 0.0, 1.0)
    return jnp.sum(share[..., None] * both, axis=0), share
