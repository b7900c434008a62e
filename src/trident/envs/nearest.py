"""What an agent sees of its nearest neighbours."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def pick_nearest(
    distance: Float[Array, "N X"], seen: Float[Array, "N X"], traits: Float[Array, "N X F"], count: int
) -> Float[Array, "N _"]:
    """Traits of the `count` nearest of those seen, in order of distance, zeros where there are fewer.

    Ranks by comparison and picks by a masked sum: on small arrays both are much faster than sort, gather or einsum.
    """
    d = jnp.where(seen > 0, distance, jnp.inf)
    index = jnp.arange(d.shape[1])
    tied = (d[:, None, :] == d[:, :, None]) & (index[None, None, :] < index[None, :, None])
    rank = ((d[:, None, :] < d[:, :, None]) | tied).sum(-1)
    chosen = (rank[:, None, :] == jnp.arange(count)[None, :, None]) * seen[:, None, :]
    return (chosen[..., None] * traits[:, None]).sum(2).reshape(d.shape[0], -1)
