"""Runs jobs by a launcher until each has come to its end.

What crashed is told and listed as missing; what was lost (its process killed, its machine gone) is resumed, as often as
it gets on between one loss and the next. Whatever ends the campaign, its runs are asked to save and stop, and the same
jobs go on later.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from trident.errors import TridentError
from trident.launch.board import Board, Row
from trident.launch.child import last_words
from trident.launch.job import Job, Launcher, Status
from trident.report.records import last_line
from trident.run_directory import RECORDS

LOSSES = 3
"""A job that is lost so often without a round in between is given up."""
PAUSE = 0.2
INTERRUPTED = "interrupted: every run was saved, and the same command goes on"
Ended = Callable[[Job, Status], str]
"""What a job that has ended has come to: '' if that was its end, else why not."""


def run_all(jobs: Sequence[Job], launcher: Launcher, board: Board, ended: Ended | None = None) -> dict[Job, str]:
    """{job: why it is missing}."""
    ended = ended or outcome
    waiting, missing, losses = list(jobs), {}, {job: [-1, 0] for job in jobs}
    rows = {job: Row(job.name, job.folder) for job in jobs}
    running: dict[Job, Any] = {}
    before = signal.signal(signal.SIGTERM, _interrupt)
    launcher.check(jobs[0].folder.parent)
    try:
        board.begin(list(rows.values()))
        while waiting or running:
            batch = [waiting.pop(0) for _ in range(min(launcher.at_once - len(running), len(waiting)))]
            running |= zip(batch, launcher.start(batch) if batch else [], strict=True)
            for job, handle in list(running.items()):
                status = launcher.poll(handle)
                row = rows[job]
                if status.state != "ended":
                    board.now(row, status.state, status.where)
                    continue
                del running[job]
                if _is_lost(status) and _may_try_again(job, losses[job]):
                    board.lost(row, reason(job, status))
                    waiting.insert(0, job)
                    continue
                why = ended(job, status)
                board.end(row, why)
                if why:
                    missing[job] = why
            board.draw()
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        raise TridentError(INTERRUPTED) from None
    finally:
        _stop_all(launcher, list(running.values()), board)  # whatever ended us: they save and stop
        signal.signal(signal.SIGTERM, before)
    return missing


def outcome(job: Job, status: Status) -> str:
    """What a job that has ended says of it."""
    return "" if status.code == 0 else reason(job, status)


def reason(job: Job, status: Status) -> str:
    if status.why:
        return status.why
    code = status.code or 0
    return f"{f'killed by signal {-code}' if code < 0 else f'exit code {code}'}: {last_words(job.log)}"


def _is_lost(status: Status) -> bool:
    """Ended from outside: by a signal it did not hear, or by SIGTERM, with which machines are taken away."""
    return status.code is None or status.code < 0 or status.code == 128 + signal.SIGTERM


def _may_try_again(job: Job, seen: list[int]) -> bool:
    """`seen`: the round at the last loss, and how often it was lost there."""
    with suppress(TridentError):
        last = last_line(job.folder / RECORDS)
        round_ = last["round"] if last else -1
        seen[:] = [round_, seen[1] + 1 if round_ <= seen[0] else 1]
    return seen[1] < LOSSES


def _stop_all(launcher: Launcher, handles: list[Any], board: Board) -> None:
    if handles:
        board.say(f"stopping {len(handles)} runs after their rounds (once more to leave at once)")
    for handle in handles:
        launcher.stop(handle)
    while any(launcher.poll(handle).state != "ended" for handle in handles):
        time.sleep(PAUSE)
    board.close()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
