"""Jobs as tasks of a Ray cluster, which finds a machine with room for each.

Ray's own retries are off: what is lost with its worker or its node is resumed by the campaign, like everywhere else.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trident.errors import TridentError, one_line
from trident.launch import remote
from trident.launch.job import Job, Status

EXTRA = "--launcher ray needs the extra ray: pip install 'trident-marl[ray]'"
START = "`ray start --head` begins one on this machine, --address HOST:PORT names another"
COUNT = 5.0
"""Seconds between two counts of what fits on the nodes."""
PATIENCE = 180.0
"""Seconds that a node has to say what it is."""


def connect(address: str | None) -> Any:
    """The module, connected."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise TridentError(EXTRA) from None
    address = address or os.environ.get("RAY_ADDRESS", "auto")
    if "://" in address:
        raise TridentError(f"--address {address}: run this on a machine of the cluster, and name it as HOST:PORT")
    _check_answers(address)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, logging_level="ERROR")
    except Exception as error:
        where = "on this machine" if address in ("auto", "local") else f"at {address}"
        said = "" if isinstance(error, ConnectionError) else f" ({one_line(error)})"
        raise TridentError(f"no Ray cluster that can be used {where}{said}: {START}") from None
    return ray


def _check_answers(address: str) -> None:
    """Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return
    if not port.isdigit():
        raise TridentError(f"--address wants HOST:PORT, not {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, OverflowError) as error:
        raise TridentError(f"no Ray cluster at {address} ({error}): {START}") from None


def room(resources: Mapping[str, float], cores: int, gpus: float) -> int:
    """How many runs fit on a node."""
    fit = resources.get("CPU", 0) // cores
    return int(min(fit, resources.get("GPU", 0) // gpus) if gpus else fit)


class Handle(NamedTuple):
    ref: Any
    job: Job
    seen: remote.Sighting


class OnRay:
    def __init__(self, address: str | None, at_once: int | None, cores: int, gpus: float) -> None:
        self._ray = connect(address)
        self._cores, self._gpus, self._at_once = cores, gpus, at_once
        self._counted, self._room = -COUNT, 0

    @property
    def at_once(self) -> int:
        """As many as fit on the nodes that are there now, unless told: a search wants to know what came of its first
        trials before it starts more. A cluster that grows by demand is told."""
        if self._at_once is not None:
            return self._at_once
        if time.monotonic() - self._counted > COUNT:
            self._counted = time.monotonic()
            self._room = sum(room(node["Resources"], self._cores, self._gpus) for node in self._nodes())
        return max(self._room, 1)

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def check(self, folder: Path) -> None:
        rooms = [node for node in self._nodes() if room(node["Resources"], self._cores, self._gpus)]
        if not rooms:
            asked = f"{self._cores} cores" + f" and {self._gpus:g} GPUs" * bool(self._gpus)
            raise TridentError(f"no node of the Ray cluster has the {asked} of a run: lower --cores or --gpus")
        with _token(folder) as token:
            for node, answer in [(node, self._ask(node, token)) for node in rooms]:
                there, sees = self._answer(node, answer)
                name = f"node {node['NodeManagerAddress']}"
                for fault in remote.faults(remote.this_machine(), there._replace(name=name), sees, folder.resolve()):
                    raise TridentError(fault)

    def _ask(self, node: dict[str, Any], token: Path) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore

        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        return self._ray.remote(remote.look).options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote(token)

    def _answer(self, node: dict[str, Any], answer: Any) -> tuple[remote.Machine, bool]:
        try:
            return self._ray.get(answer, timeout=PATIENCE)
        except Exception as error:
            raise TridentError(
                f"node {node['NodeManagerAddress']} cannot run trident ({remote.last_line(error)}): {remote.SAME}"
            ) from None

    def start(self, jobs: Sequence[Job]) -> list[Handle]:
        return [self._start(job, name) for job, name in remote.named(jobs)]

    def _start(self, job: Job, name: str) -> Handle:
        env = {} if float(self._gpus).is_integer() else {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        task = self._ray.remote(_run).options(
            num_cpus=self._cores, num_gpus=self._gpus, max_retries=0, name=f"trident {job.name}"
        )
        return Handle(task.remote(remote.Work(job, self._cores, name, env)), job, remote.Sighting(job, name))

    def poll(self, handle: Handle) -> Status:
        ray = self._ray
        done, _ = ray.wait([handle.ref], timeout=0)
        where = handle.seen.look()
        if not done:
            return Status("running" if where else "waiting", where=where)
        lost = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError,
                ray.exceptions.ObjectLostError, ray.exceptions.LocalRayletDiedError)  # fmt: skip
        try:
            return Status("ended", ray.get(handle.ref), where=where)
        except (ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return Status("ended", 130, "stopped", where)
        except lost as error:
            return Status("ended", -9, f"{type(error).__name__}{f' on {where}' if where else ''}", where)
        except ray.exceptions.RayError as error:
            return Status("ended", 70, remote.last_line(error), where)

    def stop(self, handle: Handle) -> None:
        if not remote.asked_to_stop(handle.job):  # cancelling does not reach a worker that is waiting for its training
            self._ray.cancel(handle.ref, force=False, recursive=False)

    def close(self) -> None:
        self._ray.shutdown()


def _run(work: remote.Work) -> int:
    return work()


@contextmanager
def _token(folder: Path) -> Iterator[Path]:
    """A file of a name that nobody has heard of."""
    folder.mkdir(parents=True, exist_ok=True)
    token = folder.resolve() / f".trident-{uuid.uuid4().hex}"
    token.touch()
    try:
        yield token
    finally:
        token.unlink(missing_ok=True)
