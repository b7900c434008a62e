"""TensorBoard events, one writer per seed, thinned to about a thousand points per curve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter

from trident.report.records import Record

POINTS = 1000


class Board:
    def __init__(self, folder: Path, seeds: tuple[int, ...], total_rounds: int, done_steps: int) -> None:
        self._every = max(1, total_rounds // POINTS)
        purge = done_steps + 1 if done_steps else None
        self._writers = [SummaryWriter(str(folder / f"seed-{seed}"), purge_step=purge, flush_secs=20) for seed in seeds]

    def write(self, record: Record) -> None:
        if record["round"] % self._every:
            return
        for name, values in record["values"].items():
            for writer, value in zip(self._writers, values, strict=True):
                if np.isfinite(value):
                    writer.add_scalar(name, float(value), record["env_steps"])

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
