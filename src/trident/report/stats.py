"""Means over seeds and how sure we are of them; deterministic, so that a table can be made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
    value: float
    low: float
    high: float


def mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.mean(values, axis=axis)


def iqm(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Interquartile mean: the mean of the middle half; the samples at the quartiles count by their share.

    With n sorted samples, each stands for a stretch of length 1/n of [0, 1]; the weight of a sample is how much
    of its stretch lies in [1/4, 3/4].
    """
    ordered = np.sort(np.asarray(values, float), axis=axis)
    edges = np.linspace(0.0, 1.0, ordered.shape[axis] + 1)
    inside = np.clip(edges, 0.25, 0.75)
    weights = np.diff(inside) / 0.5
    return np.tensordot(ordered, weights, axes=([axis], [0]))


def bootstrap(
    values: Sequence[float] | np.ndarray,
    statistic: Callable[..., np.ndarray] = mean,
    level: float = 0.95,
    resamples: int = 4000,
) -> Estimate:
    """The statistic with a percentile bootstrap interval; values that are not finite are left out."""
    sample = np.asarray(values, float).ravel()
    sample = sample[np.isfinite(sample)]
    if sample.size == 0:
        return Estimate(np.nan, np.nan, np.nan)
    draws = np.random.default_rng(0).integers(sample.size, size=(resamples, sample.size))
    low, high = np.quantile(statistic(sample[draws], axis=-1), [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(statistic(sample, axis=-1)), float(low), float(high))


def bootstrap_groups(groups: Sequence[Sequence[float]], level: float = 0.95, resamples: int = 4000) -> Estimate:
    """The mean of the groups' means; each group's finite values are resampled among themselves."""
    samples = [np.asarray(g, float)[np.isfinite(g)] for g in groups]
    if not samples or any(s.size == 0 for s in samples):
        return Estimate(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    draws = np.mean([s[rng.integers(s.size, size=(resamples, s.size))].mean(-1) for s in samples], axis=0)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(np.mean([s.mean() for s in samples])), float(low), float(high))
