"""How well JAX agrees with itself: what single precision leaves open in a policy's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.export.functions import Function
from trident.runtime.parity import ROUNDINGS, TOLERANCE
from trident.runtime.program import Program

Rows = Mapping[str, Any]
FEW = 256
"""Rows that are also computed operation by operation, which is slow."""


def rounding(call: Callable[..., Rows], given: Rows, out: Rows, tries: int = 4) -> np.ndarray:
    """What one rounding of the observations changes in JAX's own parameters [R, N]. Two ways of computing the same in
    single precision cannot agree better than that."""
    rng, spread = np.random.default_rng(0), np.zeros(given["obs"].shape[:2], np.float32)
    for _ in range(tries):
        near = given["obs"] * (1.0 + rng.choice([-1.0, 1.0], given["obs"].shape) * 2.0**-23)
        other = call(**{**given, "obs": near.astype(np.float32)})
        spread = np.maximum(spread, _change(other, out))
    return spread


def between_roundings(
    function: Function, program: Program, given: Rows, out: Rows, spread: np.ndarray, width: np.ndarray
) -> np.ndarray:
    """The same with the difference between JAX compiled and JAX operation by operation, in those rows in which NumPy
    differs by more: the compiler rounds products and sums at once, and next to the edge of an area that can be seen.
    `width` [N, P] of the boxes."""
    off = _change(program(**given), out, np.maximum(width, 1.0))
    rows = np.flatnonzero((off > TOLERANCE + ROUNDINGS * spread).any(axis=1))
    if not 0 < len(rows) <= FEW:
        return spread
    with jax.disable_jit():
        names = list(function.inputs)
        one = lambda *row: function.call(function.weights, **dict(zip(names, row, strict=True)))  # noqa: E731
        slow = jax.device_get(jax.vmap(one)(*(jnp.asarray(given[name][rows]) for name in names)))
    spread = spread.copy()
    spread[rows] = np.maximum(spread[rows], _change(slow, {name: value[rows] for name, value in out.items()}))
    return spread


def _change(other: Rows, out: Rows, unit: Any = 1.0) -> np.ndarray:
    """The largest difference of the parameters [R, N] where the modes are the same."""
    change = (np.abs(np.asarray(other["params"]) - np.asarray(out["params"])) / unit).max(axis=-1)
    return np.where(np.asarray(other["mode"]) == np.asarray(out["mode"]), change, 0.0)
