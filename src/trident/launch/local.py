"""Jobs as processes of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from trident.errors import TridentError
from trident.launch import child
from trident.launch.job import Job, Status, words


def usual_jobs(cores: int | None = None) -> int:
    """Jobs at once, unless told otherwise: as many as find cores of their own, or half of the cores this process may
    use, as one run keeps about two busy."""
    return max(len(child.usable_cores()) // (cores or 2), 1)


class Handle(NamedTuple):
    process: subprocess.Popen[bytes]
    held: ExitStack  # its cores


class Local:
    def __init__(self, at_once: int | None = None, cores: int | None = None) -> None:
        """`cores`: of each job, which nobody else gets; None: all of them for all."""
        usable = len(child.usable_cores())
        if cores is not None and cores > usable:
            raise TridentError(f"--cores {cores}: this process may use {usable}")
        self.at_once = usual_jobs(cores) if at_once is None else at_once
        self._cores = cores

    def check(self, folder: Path) -> None: ...

    def start(self, jobs: Sequence[Job]) -> list[Handle]:
        return [self._start(job) for job in jobs]

    def _start(self, job: Job) -> Handle:
        held = ExitStack()
        cores = held.enter_context(child.own_cores(self._cores))
        return Handle(child.start(child.command(words(job), cores), job.log), held)

    def poll(self, handle: Handle) -> Status:
        code = handle.process.poll()
        if code is None:
            return Status("running")
        handle.held.close()
        return Status("ended", code)

    def stop(self, handle: Handle) -> None:
        handle.process.terminate()

    def close(self) -> None: ...
