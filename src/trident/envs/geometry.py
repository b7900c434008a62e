"""Squares and discs, and who is nearest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

UNSEEN = 1 << 22


def square_to_disc(square: Float[Array, "*n 2"]) -> Float[Array, "*n 2"]:
    """Smooth bijection of [-1, 1]^2 onto the unit disc: (x sqrt(1 - y^2/2), y sqrt(1 - x^2/2))."""
    x, y = square[..., 0], square[..., 1]
    return jnp.stack([x * jnp.sqrt(1.0 - 0.5 * y * y), y * jnp.sqrt(1.0 - 0.5 * x * x)], -1)


def disc_to_square(disc: Float[Array, "*n 2"]) -> Float[Array, "*n 2"]:
    """Inverse of `square_to_disc`."""
    u, v = disc[..., 0], disc[..., 1]
    gap, root8 = u * u - v * v, 8.0**0.5

    def side(base: Array, z: Array) -> Array:
        # the arguments are >= 0 on the disc; rounding can take them below
        return 0.5 * (jnp.sqrt(jnp.maximum(base + root8 * z, 0.0)) - jnp.sqrt(jnp.maximum(base - root8 * z, 0.0)))

    return jnp.clip(jnp.stack([side(2.0 + gap, u), side(2.0 - gap, v)], -1), -1.0, 1.0)


def nearest(
    distance: Float[Array, "N X"], seen: Bool[Array, "N X"], count: int
) -> tuple[Int[Array, "N count"], Bool[Array, "N count"]]:
    """Indices of the `count` nearest of those seen, nearest first, and whether there are so many.

    Distances (at most 2^18, resolved to 1/16) and indices are packed into one integer, so that the smallest number
    says both how near and who, ties fall to the lower index, and `count` masked minima replace a sort or a ranking:
    3 to 7 times faster than counting comparisons with 8 to 32 agents.
    """
    bits = max(1, (distance.shape[1] - 1).bit_length())
    key = jnp.where(seen, (16.0 * distance).astype(jnp.int32), UNSEEN) * (1 << bits) + jnp.arange(distance.shape[1])

    def following(least: Array, _: None) -> tuple[Array, Array]:
        least = jnp.where(key > least[:, None], key, jnp.iinfo(jnp.int32).max).min(1)
        return least, least

    # a scan, not an unrolled loop: unrolled, the compiler computes the keys anew in every pass
    _, best = jax.lax.scan(following, jnp.full(distance.shape[:1], -1, jnp.int32), length=count)
    best = best.T
    return best & ((1 << bits) - 1), (best >> bits) < UNSEEN


def take(traits: Float[Array, "N X F"], index: Int[Array, "N count"], found: Bool[Array, "N count"]) -> Array:
    """The traits of those found, [N, count F], zeros where there are fewer."""
    chosen = jnp.take_along_axis(traits, index[..., None], axis=1)
    return jnp.where(found[..., None], chosen, 0.0).reshape(traits.shape[0], -1)
