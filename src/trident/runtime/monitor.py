"""The monitor: whether the learned policy is to be trusted in this step. It decides nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from trident.runtime.bundle import Space


@dataclass(frozen=True)
class Thresholds:
    """Of a bundle: in its manifest, under `monitor`. K costs."""

    limits: tuple[float, ...]
    """Of the mean cost per step."""
    margin: tuple[float, ...]
    """A constraint's margin below this counts as danger."""
    foreseen: tuple[float, ...]
    """So does a cost that physics foresees above this."""
    window: int
    """Steps over which costs are averaged against their limits."""
    novelty: float = 0.5
    """How far outside its recorded range an input may be, in widths of the range."""
    release: float = 0.9
    """Share of its limit that a mean cost must fall below before it is no danger any more."""
    back: int = 5
    """Steps in a row without any danger before the learned policy acts again."""


@dataclass
class Monitor:
    space: Space
    thresholds: Thresholds
    costs: deque[np.ndarray] = field(init=False)
    over: np.ndarray = field(init=False)  # [K] whose mean has passed its limit and not yet come back

    def __post_init__(self) -> None:
        self.costs = deque(maxlen=max(1, self.thresholds.window))
        self.over = np.zeros(len(self.thresholds.limits), bool)
        self._sum = np.zeros(len(self.thresholds.limits))
        self._width = np.maximum(self.space.obs_high - self.space.obs_low, 0.1)

    def novelty(self, obs: np.ndarray) -> np.ndarray:
        """By how much of its range every agent's strangest input [N] lies outside it."""
        beyond = np.maximum(self.space.obs_low - obs, obs - self.space.obs_high) / self._width
        return beyond.max(axis=1, initial=0.0)

    def strange(self, obs: np.ndarray) -> np.ndarray:
        return self.novelty(obs) > self.thresholds.novelty

    def spend(self, cost: np.ndarray | None) -> None:
        """Take in what the last step cost; a step of which nothing is known cost nothing."""
        if cost is None:
            return
        if len(self.costs) == self.costs.maxlen:
            self._sum -= self.costs[0]
        self.costs.append(cost.astype(float))
        self._sum = self._sum + self.costs[-1] if np.isfinite(self._sum).all() else np.sum(self.costs, axis=0)
        mean, limits = self.means, np.array(self.thresholds.limits)
        self.over = (mean > limits) | (self.over & (mean > self.thresholds.release * limits))

    @property
    def means(self) -> np.ndarray:
        """Spent over the window, per step of a full window: at the start little has been spent."""
        return np.maximum(self._sum, 0.0) / (self.costs.maxlen or 1)

    def danger(self, margin: np.ndarray | None, foreseen: np.ndarray | None) -> str:
        """What speaks against the policy for the whole team, "" if nothing."""
        if self.over.any():
            return f"cost {int(np.argmax(self.over))} is over its limit"
        if margin is not None and (margin < self.thresholds.margin).any():
            return f"margin {int(np.argmin(margin - np.array(self.thresholds.margin)))} is too small"
        if foreseen is not None:
            worst = foreseen.max(axis=0)  # of the steps ahead
            if (worst > self.thresholds.foreseen).any() or not np.isfinite(worst).all():
                return f"cost {int(np.argmax(worst - np.array(self.thresholds.foreseen)))} is foreseen"
        return ""
