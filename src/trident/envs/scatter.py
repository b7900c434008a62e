"""Places drawn at random, with room between them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.types import Key

TRIES = 32


def scatter(key: Key, half: float, room: np.ndarray) -> Float[Array, "X 2"]:
    """X places in [-half, half]^2, drawn one after another: number i at least room[i, j] from every j before it. Where
    none of the tries has room everywhere it is the one that lacks least."""
    count = len(room)
    tries = jax.random.uniform(key, (count, TRIES, 2), minval=-half, maxval=half)

    def put(places: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, None]:
        i, candidates, wanted = inputs
        distance = jnp.sqrt(jnp.sum((candidates[:, None] - places[None]) ** 2, axis=-1))
        lack = jnp.where(jnp.arange(count) < i, wanted - distance, 0.0).max(axis=1, initial=0.0)
        return places.at[i].set(candidates[jnp.argmin(lack)]), None

    rows = jnp.arange(count), tries, jnp.asarray(room, jnp.float32)
    return jax.lax.scan(put, jnp.zeros((count, 2)), rows)[0]
