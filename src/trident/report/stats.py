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


Groups = Sequence[Sequence[float]]
"""Scores of one method: per task, those of its seeds."""


def bootstrap_groups(groups: Groups, level: float = 0.95, resamples: int = 4000) -> Estimate:
    """The mean of the groups' means; each group's finite values are resampled among themselves."""
    return _stratified(groups, lambda drawn: np.mean([s.mean(-1) for s in drawn], axis=0), level, resamples)


def bootstrap_iqm(groups: Groups, level: float = 0.95, resamples: int = 4000) -> Estimate:
    """The interquartile mean of all seeds of all tasks together; seeds are resampled within each task."""
    return _stratified(groups, lambda drawn: iqm(np.concatenate(drawn, axis=-1)), level, resamples)


def improvement(ours: Groups, theirs: Groups, level: float = 0.95, resamples: int = 4000) -> Estimate:
    """Probability that a seed of ours scores higher than one of theirs, ties counting half, averaged over tasks."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} tasks of ours and {len(theirs)} of theirs")

    def probability(drawn: list[np.ndarray]) -> np.ndarray:
        pairs = zip(drawn[: len(ours)], drawn[len(ours) :], strict=True)
        wins = [0.5 + 0.5 * np.sign(x[..., :, None] - y[..., None, :]).mean((-1, -2)) for x, y in pairs]
        return np.mean(wins, axis=0)

    return _stratified([*ours, *theirs], probability, level, resamples)


def relative_change(ours: Sequence[float], base: Sequence[float]) -> Estimate:
    """By how much our mean differs from the base's, as a share of the latter's size."""

    def change(drawn: list[np.ndarray]) -> np.ndarray:
        mine, theirs = (x.mean(-1) for x in drawn)
        return (mine - theirs) / np.abs(theirs)

    return _stratified([ours, base], change, 0.95, 4000)


def growth(sizes: Sequence[float], groups: Groups) -> Estimate:
    """The exponent of a power law through the groups' means, by least squares on the logarithms."""
    x = np.log(np.asarray(sizes, float))
    x = x - x.mean()

    def exponent(drawn: list[np.ndarray]) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.log(np.stack([np.abs(s.mean(-1)) for s in drawn], axis=-1))
        return y @ x / (x @ x)

    return _stratified(groups, exponent, 0.95, 4000)


def performance_profile(
    groups: Groups, thresholds: Sequence[float], level: float = 0.95, resamples: int = 2000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share of runs that score above each threshold, averaged over tasks, and its interval: (share, low, high)."""
    levels = np.asarray(thresholds, float)
    shares = lambda drawn: np.mean([(s[..., None] > levels).mean(-2) for s in drawn], axis=0)  # noqa: E731
    samples, rng = _finite(groups), np.random.default_rng(0)
    if not samples:
        unknown = np.full(levels.shape, np.nan)
        return unknown, unknown, unknown
    low, high = np.quantile(shares(_draws(samples, rng, resamples)), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return shares(samples), low, high


def _stratified(
    groups: Groups, statistic: Callable[[list[np.ndarray]], np.ndarray], level: float, resamples: int
) -> Estimate:
    """A statistic of several groups; each group's finite values are resampled among themselves."""
    samples = _finite(groups)
    if not samples:
        return Estimate(np.nan, np.nan, np.nan)
    draws = statistic(_draws(samples, np.random.default_rng(0), resamples))
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(statistic(samples)), float(low), float(high))


def _draws(samples: list[np.ndarray], rng: np.random.Generator, resamples: int) -> list[np.ndarray]:
    return [s[rng.integers(s.size, size=(resamples, s.size))] for s in samples]


def _finite(groups: Groups) -> list[np.ndarray]:
    """Each group's finite values; nothing if one of them has none."""
    samples = [np.asarray(g, float)[np.isfinite(g)] for g in groups]
    return samples if all(s.size for s in samples) else []
