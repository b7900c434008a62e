"""What happens on another machine: it says what it is, and runs a job there as `local` would have."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import trident
from trident.errors import TridentError
from trident.launch import child
from trident.launch.job import Job, is_finished, resume_words, train_words
from trident.report import records
from trident.run_directory import RECORDS, ask_to_stop, is_in_use, is_run

PACKAGES = ("jax", "jaxlib", "numpy", "optax")
SAME = "install the same everywhere"
LOOK = 2.0
"""Seconds between two looks at a log."""


class Machine(NamedTuple):
    """What decides whether a machine computes what another one would."""

    name: str
    versions: dict[str, str]


@cache
def this_machine() -> Machine:
    """Nothing is imported for it: versions are those of the installed packages, trident's that of its sources."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    sources = hashlib.sha256()
    for path in sorted(Path(trident.__file__).parent.rglob("*.py")):
        sources.update(path.read_bytes())
    return Machine(socket.gethostname(), found | {"trident": f"{trident.__version__} ({sources.hexdigest()[:8]})"})


def faults(here: Machine, there: Machine, sees_folder: bool, folder: Path) -> Iterator[str]:
    """What keeps a machine from running jobs that are planned here."""
    for name, version in here.versions.items():
        other = there.versions.get(name, "none")
        if other != version:
            yield f"{there.name} has {name} {other}, here is {version}: {SAME}"
    if not sees_folder:
        yield f"{there.name} does not see {folder}: put --out on storage that all machines share"


def look(token: Path) -> tuple[Machine, bool]:
    """Asked of each machine: what it is, and whether it can write beside this file."""
    answer = token.with_name(f"{token.name}-{socket.gethostname()}-{os.getpid()}")
    try:
        sees = token.exists()
        if sees:
            answer.touch()
            answer.unlink()
    except OSError:
        sees = False
    return this_machine(), sees


def mark(name: str) -> str:
    """The line with which a job of this name begins its log."""
    return f"--- {name} on "


class Work:
    """A job, as it is sent. `checkpoint` is submitit's: what is to be done when the time is over or others go first."""

    def __init__(
        self, job: Job, cores: int, name: str, env: dict[str, str] | None = None, planned: Machine | None = None
    ) -> None:
        """`planned`: the machine to be like, where machines could not be asked before."""
        self.job, self.cores, self.name, self.env, self.planned = job, cores, name, env or {}, planned
        self._train = train_words(job)
        self._process = None

    def __call__(self) -> int:
        """The exit code. Whoever wrote the run before is waited for: it was asked to stop."""
        job = self.job
        if self.planned is not None:
            for fault in faults(self.planned, this_machine(), job.folder.parent.is_dir(), job.folder):
                raise TridentError(fault)
        try:
            while is_in_use(job.folder):
                time.sleep(LOOK)
            with job.log.open("a", encoding="utf-8") as log:
                log.write(f"{mark(self.name)}{socket.gethostname()}\n")
            if is_finished(job.folder):
                return 0
            with child.own_cores(self.cores) as cores:
                words = resume_words(job) if is_run(job.folder) else self._train
                env = {**os.environ, **self.env}
                self._process = child.start(child.command(words, cores), job.log, env)
                return self._wait()
        except KeyboardInterrupt:
            return self.stop()

    def _wait(self) -> int:
        """In small steps: what asks a job to stop cannot reach into a system call."""
        assert self._process is not None
        while (code := self._process.poll()) is None:
            time.sleep(0.2)
        return code

    def stop(self) -> int:
        if self._process is None:
            return 130
        self._process.terminate()
        return self._wait()

    def checkpoint(self):
        from submitit.helpers import DelayedSubmission  # pyright: ignore[reportMissingImports]

        self.stop()
        self._process = None
        return DelayedSubmission(self)


class Sighting:
    """Where a job was seen to begin, by its log: nobody is asked."""

    def __init__(self, job: Job, name: str) -> None:
        self._log, self._mark, self._looked, self.where = job.log, mark(name), 0.0, ""

    def look(self, clock: Callable[[], float] = time.monotonic) -> str:
        if not self.where and clock() - self._looked > LOOK:
            self._looked = clock()
            text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
            self.where = text.rpartition(self._mark)[2].partition("\n")[0] if self._mark in text else ""
        return self.where


def asked_to_stop(job: Job) -> bool:
    """Whether the run could be asked, by a file in its folder, to save and stop after its round; one that has not
    played a round cannot, and has nothing to lose."""
    if records.last_line(job.folder / RECORDS) is None:
        return False
    ask_to_stop(job.folder)
    return True


def last_line(error: BaseException) -> str:
    """What a traceback from elsewhere ends with."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def named(jobs: Sequence[Job]) -> list[tuple[Job, str]]:
    """Each with a name of its own, and a folder that is called the same everywhere."""
    for job in jobs:
        job.folder.parent.mkdir(parents=True, exist_ok=True)
    return [(replace(job, folder=job.folder.resolve()), uuid.uuid4().hex[:8]) for job in jobs]
