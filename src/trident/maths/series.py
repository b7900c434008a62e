"""Smooth functions of one number as polynomials: a dozen multiplications instead of logarithms and exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev, polynomial

from trident.maths.pointwise import Pointwise, pointwise


def series_of(
    f: Callable[[np.ndarray], Any], low: float, high: float, tolerance: float = 2e-6, most: int = 20
) -> Pointwise | None:
    """The shortest polynomial that is off by no more than `tolerance` of f (nowhere nought) in [low, high], computed in
    single precision; none, if `most` terms are too few. Numbers outside count as the nearer end.

    It is the Chebyshev interpolant, whose errors are spread evenly, written in powers of a number in [-1, 1].
    """
    middle, half = 0.5 * (high + low), 0.5 * (high - low)
    many = chebyshev.chebinterpolate(lambda unit: f(middle + half * unit), 8 * most)
    unit = np.linspace(-1.0, 1.0, 2001, dtype=np.float32)
    right = f(middle + half * unit.astype(np.float64))
    shorter = (chebyshev.cheb2poly(many[:terms]) for terms in range(2, most + 1))
    value = next((v for v in shorter if np.max(np.abs(_horner(v, unit) / right - 1.0)) <= tolerance), None)
    if value is None:
        return None
    slope = polynomial.polyder(value) / half
    inside = lambda x: jnp.clip((x - middle) / half, -1.0, 1.0)  # noqa: E731
    return pointwise(lambda x: _horner(value, inside(x)), lambda x: _horner(slope, inside(x)))


def _horner(coefficients: np.ndarray, x: Any) -> Any:
    total = 0.0 * x
    for c in coefficients[::-1]:
        total = total * x + float(c)
    return total
