"""Seeds one after another, each by the program of one seed.

A program over several seeds is compiled for their number, and the compiler orders sums by it: a seed's numbers then
depend, by rounding, on how many are trained beside it. Taken one by one they are those of the seed trained alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def first_seed(tree: Any) -> Any:
    """Shapes of one seed, [1, ...], of those of all."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), tree)


def all_seeds(tree: Any, seeds: int) -> Any:
    """Shapes of all seeds, [seeds, ...], of those of one."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((seeds, *x.shape[1:]), x.dtype), tree)


def each(function: Callable[..., Any], seeds: int, trees: int = 1) -> Callable[..., Any]:
    """`function` takes and gives trees of one seed, [1, ...]; the result those of all, [seeds, ...]. Its first `trees`
    arguments have seeds."""

    def run(*arguments: Any) -> Any:
        def of(i: int) -> Any:
            return jax.tree.map(lambda x: x[i : i + 1], arguments[:trees])

        parts = [function(*of(i), *arguments[trees:]) for i in range(seeds)]
        return jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)

    return run
