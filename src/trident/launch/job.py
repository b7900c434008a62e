"""What a launcher is given, and what it is: jobs go in, and each is started, watched and stopped, wherever it runs.

A job is one training, and its run directory is all of its state: to start a job again is to resume its run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from trident.report.compare import has_ended
from trident.report.records import read
from trident.run_directory import RECORDS, is_run, read_result, read_run


@dataclass(frozen=True, eq=False)
class Job:
    """One method on one environment; METHOD+POLICY is warm-started on that scripted policy."""

    env: str
    method: str
    folder: Path
    episodes: int
    seeds: int | tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of the run than today's defaults."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The same of the method: path -> value."""
    label: str = ""
    """What tells it from others of the same method and environment."""

    @property
    def name(self) -> str:
        return f"{self.method} on {self.env}" + f", {self.label}" * bool(self.label)

    @property
    def algo(self) -> str:
        return self.method.partition("+")[0]

    @property
    def warm_start(self) -> str | None:
        return self.method.partition("+")[2] or self.settings.get("warm_start")

    @property
    def all_settings(self) -> dict[str, Any]:
        """Of its run, but for the defaults of today."""
        seeds = list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)
        warm = {} if self.warm_start is None else {"warm_start": self.warm_start}
        return {**self.settings, **warm, "episodes": self.episodes, "seeds": seeds}

    @property
    def log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    @property
    def num_seeds(self) -> int:
        return self.seeds if isinstance(self.seeds, int) else len(self.seeds)


def words(job: Job) -> list[str]:
    """What `trident` is told: start the run, or go on with it."""
    return resume_words(job) if is_run(job.folder) else train_words(job)


def train_words(job: Job) -> list[str]:
    from trident.training.command import words_of  # imports jax, which whoever only passes jobs on has no use for

    return [*words_of(job.env, job.algo, {"video": False} | job.all_settings, job.config), "--out", str(job.folder)]


def resume_words(job: Job) -> list[str]:
    trust = ["--trust"] * (":" in job.env)  # whoever planned the job has named it
    return ["resume", str(job.folder), *trust]


def is_finished(folder: Path) -> bool:
    """Whether a run has come to its end."""
    if not is_run(folder) or (result := read_result(folder)) is None:
        return False
    return has_ended(read_run(folder), result, read(folder / RECORDS))


class Status(NamedTuple):
    """Where a job stands."""

    state: Literal["waiting", "running", "ended"]
    code: int | None = None
    """Exit code of a job that has ended; below 0 if its process, or the machine under it, was lost."""
    why: str = ""
    """Of a job that was lost, if more is known than the exit code."""
    where: str = ""
    """The machine."""


class Launcher(Protocol):
    """Where jobs run. `Handle` is whatever it knows a job by."""

    @property
    def at_once(self) -> int:
        """How many jobs may be handed over: it starts them when there is room."""
        ...

    def check(self, folder: Path) -> None:
        """What would keep jobs that write into this folder from running is a TridentError, before anything starts."""
        ...

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        """Hand jobs over; one handle each."""
        ...

    def poll(self, handle: Any) -> Status: ...

    def stop(self, handle: Any) -> None:
        """Ask a job to save and end, which takes until `poll` says so."""
        ...

    def close(self) -> None:
        """Nothing more will be asked."""
        ...
