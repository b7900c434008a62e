"""What a run leaves on disk while it goes: records, checkpoints, what loggers make of them. Host 0 alone writes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trident.errors import StorageError
from trident.report.loggers import Followers, Logger
from trident.report.records import Record, RecordWriter
from trident.report.tensorboard import Board
from trident.run_directory import CHECKPOINTS, RECORDS, TENSORBOARD, alone
from trident.training import checkpoint, hosts
from trident.training.loop import CompiledRun, RunState
from trident.training.settings import Setup, identity


@contextmanager
def writing(out: Path, make: bool = False) -> Iterator[None]:
    """Host 0 alone writes."""
    if not hosts.first():
        yield
        return
    with alone(out, make):
        yield


@dataclass
class Journal:
    """Of several hosts only the first has a writer."""

    setup: Setup
    out: Path
    machine: CompiledRun
    writer: RecordWriter | None
    loggers: list[Logger]
    saved_round: int
    saved_at: float

    def write(self, record: Record) -> None:
        if self.writer is not None:
            self.writer.append(record)
        for logger in self.loggers:
            logger.write(record)

    def save(self, state: RunState, round_: int) -> None:
        if finished := round_ >= self.setup.rounds:
            state = state._replace(replay=None)  # nearly all of its size, and only a prolonged run will ask for it
        state = self.machine.to_here(state)
        if self.writer is not None:
            self.writer.sync()  # a checkpoint must never be ahead of its records
            kept = 1 if finished else checkpoint.KEPT
            checkpoint.save(self.out / CHECKPOINTS, state, round_, identity(self.setup), kept, self.writer.digest)
        self.saved_round, self.saved_at = round_, time.monotonic()

    def due(self) -> bool:
        """Hosts' clocks differ: what is due anywhere is due everywhere."""
        return bool(hosts.agreed(time.monotonic() - self.saved_at >= self.setup.settings.checkpoint_every))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        for logger in self.loggers:
            logger.close()


def open_journal(
    setup: Setup,
    out: Path,
    machine: CompiledRun,
    last: Record,
    digest: str,
    saved_round: int,
    say: Callable[[str], None],
) -> Journal:
    """After `last`, whose digest is `digest`."""
    writer, loggers = None, list[Logger]()
    if hosts.first():
        board = Board(out / TENSORBOARD, setup.seeds, setup.rounds, last["env_steps"], say)
        loggers = [board, Followers(out, setup.settings.trackers, setup.settings.project, say)]
        writer = RecordWriter(out / RECORDS, digest)
    return Journal(setup, out, machine, writer, loggers, saved_round, time.monotonic())


def out_of_storage(error: StorageError, journal: Journal) -> StorageError:
    safe = f"round {journal.saved_round} is safe" if journal.saved_round >= 0 else "no round was saved yet"
    again = "make room there, then `trident resume" if journal.saved_round >= 0 else "make room there; `trident resume"
    return StorageError(f"{error}; {safe}: {again} {journal.out}` goes on")
