"""Power laws and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trident.report.stats import Estimate

# 97.5 % quantiles of Student's t for 1..10 degrees of freedom
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class Power(NamedTuple):
    """y = constant * x ** exponent."""

    exponent: Estimate
    r2: float
    constant: float


def t_quantile(freedom: int) -> float:
    """97.5 %; beyond ten degrees of freedom the first terms of its expansion around the normal's."""
    return _T[freedom - 1] if freedom <= len(_T) else 1.960 + 2.372 / freedom + 2.82 / freedom**2


def fit_power(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> Power:
    """Least squares on logarithms, with the regression's 95 % interval of the exponent."""
    u, v = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    slope, at_zero = np.polyfit(u, v, 1)
    left, spread = np.sum((v - slope * u - at_zero) ** 2), np.sum((v - v.mean()) ** 2)
    half = np.inf
    if len(u) > 2:
        half = t_quantile(len(u) - 2) * np.sqrt(left / (len(u) - 2) / np.sum((u - u.mean()) ** 2))
    r2 = 1.0 if spread < 1e-20 else 1.0 - left / spread
    return Power(Estimate(float(slope), float(slope - half), float(slope + half)), float(r2), float(np.exp(at_zero)))


def fit_powers(x: Sequence[float] | np.ndarray, rows: np.ndarray) -> Power:
    """The mean exponent of independent curves (rows), with the 95 % t-interval of that mean."""
    fits = [fit_power(x, row) for row in np.asarray(rows, float)]
    return Power(
        mean_interval(np.array([f.exponent.value for f in fits])),
        float(np.mean([f.r2 for f in fits])),
        float(np.exp(np.mean(np.log([f.constant for f in fits])))),
    )


def pooled_power(x: Sequence[float] | np.ndarray, rows: np.ndarray) -> Power:
    """The exponent of the root mean square over curves (rows), with a jackknife interval: for curves of which single
    ones may change sign or vanish."""
    rows, u = np.asarray(rows, float), np.log(np.asarray(x, float))

    def slope(part):
        return np.polyfit(u, 0.5 * np.log(np.mean(part**2, axis=0)), 1)

    value, at_zero = slope(rows)
    left = np.array([slope(np.delete(rows, i, axis=0))[0] for i in range(len(rows))])
    half = t_quantile(len(rows) - 1) * np.sqrt((len(rows) - 1) * left.var())
    fitted, seen = value * u + at_zero, 0.5 * np.log(np.mean(rows**2, axis=0))
    r2 = 1.0 - np.sum((seen - fitted) ** 2) / max(np.sum((seen - seen.mean()) ** 2), 1e-20)
    return Power(Estimate(float(value), float(value - half), float(value + half)), float(r2), float(np.exp(at_zero)))


def mean_interval(sample: Sequence[float] | np.ndarray) -> Estimate:
    """Mean of independent numbers and its 95 % t-interval."""
    sample = np.asarray(sample, float)
    value = float(sample.mean())
    if sample.size < 2:
        return Estimate(value, value, value)
    half = t_quantile(sample.size - 1) * float(sample.std(ddof=1)) / np.sqrt(sample.size)
    return Estimate(value, value - half, value + half)


def worst(estimates: Sequence[Estimate], largest: bool = False) -> Estimate:
    """The smallest (or largest) of several estimates: whoever bounds it from that side bounds them all."""
    pick = max if largest else min
    return Estimate(*(pick(e[i] for e in estimates) for i in range(3)))


def span(estimates: Sequence[Estimate]) -> Estimate:
    """The median of several estimates, from the lowest end of any to the highest: for ranges with two sides."""
    values, low, high = zip(*estimates, strict=True)
    return Estimate(float(np.median(values)), float(min(low)), float(max(high)))


def limit_order(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Where the order of a curve without noise is heading: the local slope at the smallest x, give or take its last
    change. `x` falls by a constant factor."""
    slopes = np.diff(np.log(np.asarray(y, float))) / np.diff(np.log(np.asarray(x, float)))
    drift = abs(float(slopes[-1] - slopes[-2]))
    return Estimate(float(slopes[-1]), float(slopes[-1] - drift), float(slopes[-1] + drift))


def share(hits: int, of: int) -> Estimate:
    """A proportion with its 95 % Wilson interval."""
    if of == 0:
        return Estimate(float("nan"), float("nan"), float("nan"))
    p, z = float(hits / of), 1.96
    centre, half = p + z * z / (2 * of), z * np.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return Estimate(p, float((centre - half) / (1 + z * z / of)), float((centre + half) / (1 + z * z / of)))


def median_interval(sample: Sequence[float] | np.ndarray) -> Estimate:
    """The median, between the order statistics that enclose it with at least 95 %."""
    ordered = np.sort(np.asarray(sample, float))
    size = len(ordered)
    outside = np.cumsum([math.comb(size, j) for j in range(size)]) / 2.0**size
    at = int(np.sum(2.0 * outside <= 0.05)) - 1
    if at < 0:
        raise ValueError(f"{size} numbers are too few to enclose a median with 95 %")
    return Estimate(float(np.median(ordered)), float(ordered[at]), float(ordered[size - 1 - at]))
