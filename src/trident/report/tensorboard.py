"""TensorBoard events, one file per seed, thinned to about a thousand points per curve.

Written by whoever calls, without threads or queues: what cannot be written is left out, with one line, and can neither
block nor end a run.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.summary import scalar

from trident.report.records import Record

protocol: Any = event_pb2  # its classes are made when it is imported

POINTS = 1000
FLUSH_EVERY = 20.0
"""Seconds between flushes, each of which waits for the disk."""


class Board:
    def __init__(
        self, folder: Path, seeds: tuple[int, ...], total_rounds: int, done_steps: int, say: Callable[[str], None]
    ) -> None:
        self._every, self._say, self._folder = max(1, total_rounds // POINTS), say, folder
        self._writers: list[EventsWriter] = []
        self._flushed = time.monotonic()
        self._try(lambda: self._open(seeds, done_steps))

    def write(self, record: Record) -> None:
        if record["round"] % self._every == 0 and self._writers:
            self._try(lambda: self._write(record))

    def close(self) -> None:
        for writer in self._writers:
            self._try(writer.close)

    def _open(self, seeds: tuple[int, ...], done_steps: int) -> None:
        if self._folder.is_symlink():
            raise OSError("it is a symbolic link")
        for seed in seeds:
            place = self._folder / f"seed-{seed}"
            if place.is_symlink():
                raise OSError(f"{place.name} is a symbolic link")
            place.mkdir(parents=True, exist_ok=True)
            self._writers.append(EventsWriter(str(place / "events"), f".{os.getpid()}.{done_steps}"))
            if done_steps:  # events of rounds that will be played again do not count
                start = protocol.SessionLog(status=protocol.SessionLog.START)
                self._writers[-1].write_event(
                    protocol.Event(wall_time=time.time(), step=done_steps + 1, session_log=start)
                )

    def _write(self, record: Record) -> None:
        for name, values in record["values"].items():
            for writer, value in zip(self._writers, values, strict=True):
                if value is not None and math.isfinite(value):
                    event = protocol.Event(
                        wall_time=time.time(), step=record["env_steps"], summary=scalar(name, float(value))
                    )
                    writer.write_event(event)
        if time.monotonic() - self._flushed > FLUSH_EVERY:
            self._flushed = time.monotonic()
            for writer in self._writers:
                writer.flush()

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except Exception as error:  # whatever a logger's library does, the run goes on
            self._say(f"no more TensorBoard events: {self._folder}: {getattr(error, 'strerror', None) or error}")
            self._writers = []
