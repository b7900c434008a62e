"""A minimum whose gradient survives compilation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def first_minimum(x: Float[Array, "*shape"], axis: int) -> Bool[Array, "*shape"]:
    """True at the first smallest entry along an axis."""
    place = jnp.argmin(jax.lax.stop_gradient(x), axis, keepdims=True)
    return jax.lax.broadcasted_iota(place.dtype, x.shape, axis % x.ndim) == place


def stable_min(x: Float[Array, "*shape"], axis: int) -> Float[Array, "*rest"]:
    """The smallest entry along an axis; its gradient is that of the first smallest entry.

    `jnp.min` shares the gradient among the entries that *equal* the minimum. A compiler that computes the entries
    twice, rounding differently, finds none, and the gradient becomes 0 / 0. Here the place is found first and then
    read."""
    return jnp.where(first_minimum(x, axis), x, 0.0).sum(axis)
