"""Backtracking along a step, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Accept = Callable[[Float[Array, ""]], tuple[Bool[Array, ""], Any]]


def line_search(
    accept: Accept, enabled: bool | Bool[Array, ""], backtracks: int, ratio: float
) -> tuple[Float[Array, ""], Any]:
    """(fraction, aux) of the first accepted candidate among ratio^j, j = 0 .. backtracks - 1.

    `accept(fraction)` says whether old + fraction * step will do, and returns whatever it computed on the way. If no
    candidate is accepted the fraction is exactly 0, and aux is that of the last one tried; if `enabled` is False
    nothing is tried and aux is zeros. A candidate whose test is NaN is not accepted.
    """
    ok, aux = jax.eval_shape(accept, jnp.ones(()))
    empty = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), aux)

    def searching(carry: tuple[Array, Array, Array, Any]) -> Array:
        tried, _, done, _ = carry
        return ~done & (tried < backtracks)

    def attempt(carry: tuple[Array, Array, Array, Any]) -> tuple[Array, Array, Array, Any]:
        tried, fraction, _, _ = carry
        done, aux = accept(fraction)
        return tried + 1, jnp.where(done, fraction, fraction * ratio), done, aux

    # one loop body, so `accept` is compiled once; nothing is tried when the first `done` is already True
    start = (jnp.zeros((), int), jnp.ones(()), ~jnp.asarray(enabled, ok.dtype), empty)
    tried, fraction, done, aux = jax.lax.while_loop(searching, attempt, start)
    return jnp.where(done & (tried > 0), fraction, 0.0), aux


def move(params: Any, step: Any, fraction: Float[Array, ""]) -> Any:
    """params + fraction * step; with fraction 0 the very same bits, whatever `step` holds (-0.0, inf and NaN)."""
    return jax.tree.map(lambda p, s: jnp.where(fraction == 0, p, p + fraction.astype(p.dtype) * s), params, step)
