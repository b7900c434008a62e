"""Rows worked through by parts, so that what lies between two operations stays in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def in_chunks(f: Callable[[Any], Any], rows: Any, most: int) -> Any:
    """f of rows [B, ...], by equal parts of at most `most` rows (at once where there are no such of decent size)."""
    batch = jax.tree.leaves(rows)[0].shape[0]
    counts = [n for n in range(1, batch // max(most // 8, 1) + 1) if batch % n == 0 and batch // n <= most]
    if not counts or counts[0] == 1:
        return f(rows)
    parts = jax.tree.map(lambda x: x.reshape(counts[0], batch // counts[0], *x.shape[1:]), rows)
    return jax.tree.map(lambda x: x.reshape(batch, *x.shape[2:]), jax.lax.map(f, parts))
