"""Smooth functions of one number by their Chebyshev series: a few multiplications instead of logarithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev

from trident.envs.uav_mec.fast.elementwise import Elementwise, elementwise


def chebyshev_of(
    f: Callable[[np.ndarray], Any], farthest: float, bend: float, tolerance: float = 1e-6, most: int = 24
) -> Elementwise | None:
    """The shortest series in x / (x + bend) that is off by no more than `tolerance` of f (nowhere zero) in [0,
    farthest]; none, if `most` terms are too few. Numbers outside count as the nearer end.

    `bend` is where f bends most: the series sees [0, bend] as large as all that is beyond.
    """
    half = 0.5 * farthest / (farthest + bend)

    def back(unit: np.ndarray) -> np.ndarray:
        share = half * (unit + 1.0)
        return bend * share / (1.0 - share)

    many = chebyshev.chebinterpolate(lambda unit: f(back(unit)), 8 * most)
    unit = np.linspace(-1.0, 1.0, 2001)
    right = f(back(unit))
    shorter = (many[:terms] for terms in range(2, most + 1))
    value = next((v for v in shorter if np.abs(chebyshev.chebval(unit, v) / right - 1.0).max() <= tolerance), None)
    if value is None:
        return None
    gradient = chebyshev.chebder(value) * bend / half

    def inside(x: Any) -> tuple[Any, Any]:
        x = jnp.clip(x, 0.0, farthest)
        beyond = 1.0 / (x + bend)
        return x * beyond / half - 1.0, beyond

    def steep(x: Any) -> Any:
        unit, beyond = inside(x)
        return series(gradient, unit) * beyond * beyond

    return elementwise(lambda x: series(value, inside(x)[0]), steep)


WELL_BEHAVED = 16.0
"""By how much roundings may grow in the sum of powers, which takes half of the operations."""


def series(coefficients: np.ndarray, x: Any) -> Any:
    """sum_k c_k T_k(x) in [-1, 1]: as a sum of powers, if its terms are not much larger than what they add up to."""
    powers = chebyshev.cheb2poly(coefficients)
    largest = np.abs(chebyshev.chebval(np.linspace(-1.0, 1.0, 101), coefficients)).max()
    return horner(powers, x) if np.abs(powers).sum() <= WELL_BEHAVED * largest else clenshaw(coefficients, x)


def horner(powers: np.ndarray, x: Any) -> Any:
    """sum_k p_k x^k."""
    total = float(powers[-1])
    for p in powers[-2::-1]:
        total = total * x + float(p)
    return total


def clenshaw(coefficients: np.ndarray, x: Any) -> Any:
    """sum_k c_k T_k(x)."""
    twice, one, two = 2.0 * x, 0.0 * x, 0.0 * x
    for c in coefficients[:0:-1]:
        one, two = twice * one - two + float(c), one
    return x * one - two + float(coefficients[0])
