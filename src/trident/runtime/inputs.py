"""The input manager: whatever arrives becomes one row per agent, or a fault with a name. Nothing raises here.

A message is accepted if its observation has the right shape, is finite and within reach, and its stamp and sequence
number are in order. For an agent without one, the last accepted observation is used until it is older than `hold`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trident.runtime.bundle import Space

Rows = Mapping[Any, Any] | Sequence[Any] | np.ndarray | None


@dataclass(frozen=True)
class InputLimits:
    hold: float
    """Seconds for which an agent's last observation stands in for a missing one."""
    stale: float
    """Seconds after which an observation is too old when it arrives."""
    future: float = 0.1
    """Seconds by which a stamp may be ahead of the own clock."""
    reach: float = 10.0
    """How far beyond the recorded range a number can be a measurement at all, in widths of the range."""
    patience: int = 5
    """Messages out of order in a row after which their sender is taken to have started anew."""


@dataclass
class InputManager:
    space: Space
    limits: InputLimits
    now: float = -math.inf
    last: np.ndarray = field(init=False)
    stamp: np.ndarray = field(init=False)
    sequence: np.ndarray = field(init=False)
    strays: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        n = self.space.agents
        self.last = np.zeros((n, self.space.obs_dim), np.float32)
        width = np.maximum(self.space.obs_high - self.space.obs_low, 0.1)
        self._least = self.space.obs_low - self.limits.reach * width
        self._most = self.space.obs_high + self.limits.reach * width
        self.stamp, self.sequence = np.full(n, -math.inf), np.full(n, -1, np.int64)
        self.strays = np.zeros(n, np.int64)

    def accept(
        self, observations: Rows, stamps: Any, sequence: Any, now: float
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """(observations [N, O], which are usable [N], what was wrong with each message, "" if nothing)."""
        n = self.space.agents
        jumped = now < self.now
        if jumped:  # ages mean nothing any more
            self.stamp[:], self.sequence[:] = -math.inf, -1
        self.now = now
        rows = [pick(observations, i, n) for i in range(n)]
        times = [pick(stamps, i, n) if stamps is not None else now for i in range(n)]
        numbers = [pick(sequence, i, n) if sequence is not None else None for i in range(n)]
        faults = [
            "the clock jumped back" if jumped else self._judge(i, *each)
            for i, each in enumerate(zip(rows, times, numbers, strict=True))
        ]
        usable = np.array([not fault for fault in faults])
        held = ~usable & (now - self.stamp <= self.limits.hold)
        return np.where((usable | held)[:, None], self.last, 0.0).astype(np.float32), usable | held, faults

    def _judge(self, i: int, row: Any, time: Any, number: Any) -> str:
        """Takes the message in, or says what is wrong with it."""
        if row is None:
            return "missing"
        values, stamp, count = as_floats(row), as_number(time), None if number is None else as_number(number)
        if values is None or values.shape != self.last[i].shape:
            return "wrong shape"
        if not np.isfinite(values).all():
            return "not finite"
        if ((values < self._least) | (values > self._most)).any():
            return "out of range"
        if stamp is None or (number is not None and (count is None or not -(2**62) < count < 2**62)):
            return "bad stamp"
        if stamp > self.now + self.limits.future:
            return "from the future"
        if self.now - stamp > self.limits.stale:
            return "stale"
        late = stamp < self.stamp[i] or (count is not None and count <= self.sequence[i])
        self.strays[i] = self.strays[i] + 1 if late else 0
        if late and self.strays[i] <= self.limits.patience:
            return "out of order"
        self.strays[i] = 0
        self.last[i], self.stamp[i] = values, stamp
        self.sequence[i] = -1 if count is None else int(count)
        return ""


def pick(rows: Any, i: int, count: int) -> Any:
    """The entry of agent i in a list, an array or a mapping (by number or its spelling); None if there is none."""
    try:
        if isinstance(rows, Mapping):
            return rows.get(i, rows.get(str(i)))
        if isinstance(rows, int | float):
            return rows  # one for all
        if isinstance(rows, str | bytes) or len(rows) != count:
            return None
        return rows[i]
    except Exception:
        return None


def as_floats(value: Any) -> np.ndarray | None:
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(value)
            return array.astype(np.float32) if array.dtype.kind in "fiub" else None
    except Exception:  # whatever a stranger's object does when it is looked at
        return None


def as_number(value: Any) -> float | None:
    try:
        number = float(value) if not isinstance(value, str | bytes) else math.nan
    except Exception:
        return None
    return number if math.isfinite(number) else None


def as_flags(value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Booleans of this shape (0 and 1 will do), or None."""
    array = as_floats(value)
    if array is None or array.shape != shape or not np.isin(array, (0.0, 1.0)).all():
        return None
    return array > 0.5


def as_vector(value: Any, size: int) -> np.ndarray | None:
    array = as_floats(value)
    return array if array is not None and array.shape == (size,) and np.isfinite(array).all() else None
