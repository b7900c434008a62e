"""Statistics over seeds and tasks in plain Python, by their definitions: no arrays, no sorting tricks."""

from __future__ import annotations

import random


def interquartile_mean(values: list[float], copies: int = 4) -> float:
    """Every sample four times over, so that a quarter is a whole number of copies; the outer quarters are dropped."""
    many = sorted(v for v in values for _ in range(copies))
    quarter = len(many) // 4
    middle = many[quarter : len(many) - quarter]
    return sum(middle) / len(middle)


def improvement(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """Per task the share of pairs that ours wins, a tie half a win (Mann-Whitney's U over the number of pairs)."""
    tasks = []
    for xs, ys in zip(ours, theirs, strict=True):
        won = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x in xs for y in ys)
        tasks.append(won / (len(xs) * len(ys)))
    return sum(tasks) / len(tasks)


def profile(tasks: list[list[float]], threshold: float) -> float:
    return sum(sum(x > threshold for x in xs) / len(xs) for xs in tasks) / len(tasks)


def interval(tasks: list[list[float]], statistic, resamples: int, seed: int) -> tuple[float, float]:
    """Percentile bootstrap, seeds drawn anew within each task."""
    draw = random.Random(seed)
    found = sorted(statistic([[draw.choice(xs) for _ in xs] for xs in tasks]) for _ in range(resamples))
    return found[int(0.025 * resamples)], found[int(0.975 * resamples)]
