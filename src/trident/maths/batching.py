"""Rows worked through by parts, so that what lies between two operations stays in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def map_batches(f: Callable[[Any], Any], rows: Any, most: int, group: int | None = None) -> Any:
    """f of rows [B, ...], by equal parts of at most `most` rows, one after the other; and within a part by groups of at
    most `group` rows, all at once: groups are the first axis of every operation, along which cores share the work.
    Where the rows do not divide into parts of decent size they stay together."""
    batch = jax.tree.leaves(rows)[0].shape[0]
    part = equal_part(batch, most)
    side = equal_part(part, group) if group else part
    if side < part:
        f = by_groups(f, side)
    if part == batch:
        return f(rows)
    parts = jax.tree.map(lambda x: x.reshape(batch // part, part, *x.shape[1:]), rows)
    return jax.tree.map(lambda x: x.reshape(batch, *x.shape[2:]), jax.lax.map(f, parts))


def by_groups(f: Callable[[Any], Any], group: int) -> Callable[[Any], Any]:
    """The same function, of `group` rows at a time, vectorised over these groups."""

    def grouped(rows: Any) -> Any:
        groups = jax.tree.map(lambda x: x.reshape(-1, group, *x.shape[1:]), rows)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.vmap(f)(groups))

    return grouped


def equal_part(batch: int, most: int) -> int:
    """The largest part of at most `most` rows that divides the batch; all of it, where that is less than an eighth of
    `most`."""
    divisors = (size for size in range(min(batch, most), max(most // 8, 1) - 1, -1) if batch % size == 0)
    return next(divisors, batch)
