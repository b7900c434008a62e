"""Trying candidates one after another, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

Attempt = Callable[[Int[Array, ""]], tuple[Bool[Array, ""], Any]]


def first_accepted(attempt: Attempt, nothing: Any, first: int | Int[Array, ""], last: int | Int[Array, ""]) -> Any:
    """The first of the candidates `first` .. `last` - 1 that is accepted; otherwise `nothing`, bit for bit.

    `attempt(index)` returns whether the candidate will do, and the candidate (a pytree like `nothing`). It is compiled
    once, however many kinds of candidates the index stands for. A test that is NaN does not accept.
    """

    def searching(carry: tuple[Array, Array, Any]) -> Array:
        index, found, _ = carry
        return ~found & (index < last)

    def try_next(carry: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
        index, _, _ = carry
        found, candidate = attempt(index)
        return index + 1, found, jax.tree.map(lambda new, old: jnp.where(found, new, old), candidate, nothing)

    start = (jnp.asarray(first, jnp.int32), jnp.bool_(False), nothing)
    return jax.lax.while_loop(searching, try_next, start)[2]
