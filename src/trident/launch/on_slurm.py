"""Jobs as an array of Slurm's, by submitit. They do not end with this process: they are told to when it is stopped, and
if it is killed, what the same command starts later waits for them.

A job whose time is over, or that others go before, saves, is put into the queue again and goes on there.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trident.errors import TridentError, one_line
from trident.launch import remote
from trident.launch.job import Job, Status

EXTRA = "--launcher slurm needs the extra slurm: pip install 'trident-marl[slurm]'"
MANY = 2**16
MINUTES = 24 * 60
TIMEOUTS = 1000
"""A run may be cut by its time limit as often as it likes: it goes on where it was."""
OURS = ("time", "cluster")
KILLED = (
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "TIMEOUT",
    "FAILED",
    "INTERRUPTED",
    "FINISHED",
    "COMPLETED",
)
"""States of jobs that ended without a result."""


class Handle(NamedTuple):
    sent: Any
    job: Job
    seen: remote.Sighting


class OnSlurm:
    def __init__(self, options: Mapping[str, str], at_once: int | None, cores: int, gpus: float) -> None:
        try:
            import submitit  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise TridentError(EXTRA) from None
        self._submitit, self._cluster = submitit, options.get("cluster", "slurm")
        if self._cluster not in ("slurm", "local"):
            raise TridentError(f"--slurm cluster={self._cluster}: there are slurm, and local to try it without one")
        if self._cluster == "slurm" and shutil.which("sbatch") is None:
            raise TridentError("no Slurm here: sbatch is not found (--slurm cluster=local tries it without one)")
        if not float(gpus).is_integer():
            raise TridentError(f"--gpus {gpus:g}: Slurm gives whole GPUs")
        self.at_once, self._cores = MANY, cores
        self._parameters = _parameters(options, at_once, cores, int(gpus))
        self._executor: Any = None

    def check(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._executor = self._submitit.AutoExecutor(
            folder=folder.resolve() / ".slurm", cluster=self._cluster, slurm_max_num_timeout=TIMEOUTS
        )
        try:
            self._executor.update_parameters(**self._parameters)
        except (ValueError, TypeError, NameError) as error:
            raise TridentError(f"--slurm: {one_line(error)}") from None

    def start(self, jobs: Sequence[Job]) -> list[Handle]:
        new, here = remote.named(jobs), remote.this_machine()
        try:
            with self._executor.batch():
                sent = [self._executor.submit(remote.Work(job, self._cores, name, planned=here)) for job, name in new]
        except self._submitit.core.utils.FailedJobError as error:
            raise TridentError(f"Slurm refuses: {one_line(error)}") from None
        return [Handle(s, job, remote.Sighting(job, name)) for s, (job, name) in zip(sent, new, strict=True)]

    def poll(self, handle: Handle) -> Status:
        where = handle.seen.look()
        if not handle.sent.done():
            return Status("running" if where else "waiting", where=where)
        if handle.sent.paths.result_pickle.exists():
            try:
                return Status("ended", handle.sent.result(), where=where)
            except self._submitit.core.utils.FailedJobError as error:
                return Status("ended", 2, remote.last_line(error), where)
        state = handle.sent.state
        if state.startswith(KILLED):
            return Status("ended", -9, f"{state}{f' on {where}' if where else ''}", where)
        return Status("ended", 130, state, where)

    def stop(self, handle: Handle) -> None:
        if not remote.asked_to_stop(handle.job):
            handle.sent.cancel()

    def close(self) -> None: ...


def _parameters(options: Mapping[str, str], at_once: int | None, cores: int, gpus: int) -> dict[str, Any]:
    """`options` go to sbatch as they are, but for those of ours."""
    minutes = options.get("time", str(MINUTES))
    if not minutes.isdigit():
        raise TridentError(f"--slurm time={minutes}: it is a whole number of minutes")
    rest = {name: value for name, value in options.items() if name not in OURS}
    return {
        "name": "trident",
        "timeout_min": int(minutes),
        "cpus_per_task": cores,
        "gpus_per_node": gpus,
        "slurm_array_parallelism": at_once or MANY,
        "slurm_additional_parameters": rest,
    }
