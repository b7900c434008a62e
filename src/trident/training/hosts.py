"""Several hosts as one: each runs the same program on its own devices, `jax.distributed` joins them.

All of them play and learn; host 0 alone writes and speaks. What one decides (to stop, to save) all decide, once a
round, since a host that leaves the others in a sum would leave them for ever. One that dies is noticed by its silence:
the others say so in one line and end, and the run is resumed from its last checkpoint.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

import trident
from trident.errors import HostLost, TridentError, one_line

SILENCE = 30
"""Seconds without a sign of life after which a host counts as gone."""
PATIENCE = 300
"""Seconds that hosts wait for each other at the start."""
SIGNS = ("gloo", "nccl", "coordination", "distributed service", "heartbeat", "connection closed", "socket closed")
"""What the libraries' errors speak of when another host is gone."""
SHARING = 15
"""Seconds after which a file that host 0 wrote is there for all."""
EXCHANGED = 4096
"""Most bytes that hosts tell each other at once."""


class Membership(NamedTuple):
    address: str  # of host 0
    hosts: int
    number: int


class _State:
    joined = False
    run: Path | None = None
    log: Any = None  # what the libraries write by themselves
    handler: Any = None  # must outlive its registration
    spoken = threading.Lock()  # the last word is said once


def first() -> bool:
    """Whether this host writes and speaks."""
    return jax.process_index() == 0


def several() -> bool:
    return jax.process_count() > 1


# --- joining --------------------------------------------------------------------------------------


def membership(text: str | None) -> Membership | str | None:
    """What --hosts says: (address, count, index); "auto", to be asked of the cluster; None, alone."""
    if text is None:
        return "auto" if _is_step_of_many() else None
    if text in ("auto", "none"):
        return None if text == "none" else text
    address, *numbers = text.split(",")
    port = address.rpartition(":")[2]
    if len(numbers) != 2 or not all(n.isdigit() for n in (*numbers, port)) or address == port:
        raise TridentError(
            f"--hosts wants ADDRESS:PORT,COUNT,INDEX, e.g. 10.0.0.1:4321,2,0, auto or none, not {text!r}"
        )
    count, index = map(int, numbers)
    if not 0 <= index < count:
        raise TridentError(f"--hosts {text}: hosts of {count} have the numbers 0 to {count - 1}, not {index}")
    return Membership(address, count, index)


def _is_step_of_many() -> bool:
    """Started by `srun` as one of several tasks."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in os.environ


@contextmanager
def joined(text: str | None) -> Iterator[None]:
    """Before anything else of jax: be one of the hosts that `text` speaks of."""
    mine = membership(text)
    if mine is None or mine == Membership(mine[0], 1, 0):
        yield
        return
    _keep_streams()
    _hear_abort()
    try:
        _join(mine)
        yield
        part()
    except SystemExit as end:
        _leave(None, end.code if isinstance(end.code, int) else 0)
    except BaseException as error:
        if os.environ.get("TRIDENT_DEBUG"):
            traceback.print_exc()
        told = loss(error) or error
        if isinstance(told, TridentError):
            _leave(str(told), told.code)
        _leave(*("interrupted", 130) if isinstance(error, KeyboardInterrupt) else (one_line(error), 70))


def _join(mine: Membership | str) -> None:
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    known = mine._asdict() if isinstance(mine, Membership) else {}
    names = {"address": "coordinator_address", "hosts": "num_processes", "number": "process_id"}
    where: dict[str, Any] = {names[k]: v for k, v in known.items()}
    if known:
        where["cluster_detection_method"] = "deactivate"
    try:
        jax.distributed.initialize(**where, initialization_timeout=PATIENCE, heartbeat_timeout_seconds=SILENCE)
    except Exception as error:
        what = f"host 0 at {known['address']}" if known else "a cluster"
        raise TridentError(f"--hosts: cannot join {what} ({_brief(error)})") from error
    _State.joined = True
    counts = [sum(d.process_index == i for d in jax.devices()) for i in range(jax.process_count())]
    odd = next((i for i, n in enumerate(counts) if n != counts[0]), None)
    if odd is not None:
        raise TridentError(
            f"hosts need as many devices as each other: host 0 has {counts[0]}, host {odd} {counts[odd]}"
        )
    check_same({"trident": trident.__version__, "jax": jax.__version__, "python": platform.python_version(), **_kind()})


def _kind() -> dict[str, str]:
    """What rounds differently elsewhere: all hosts must find the same numbers, or they part ways in a loop."""
    kind = jax.devices()[0].device_kind
    if jax.default_backend() != "cpu":
        return {"device": kind}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {"machine": platform.machine()}
    return {"processor": next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), kind)}


def part() -> None:
    """Training is over: from here on everybody is alone."""
    if _State.joined:
        _State.joined = False
        jax.distributed.shutdown()


# --- agreeing -------------------------------------------------------------------------------------


def agreed(flag: int | None) -> int | None:
    """The largest flag that any host has raised; None if none has. All hosts ask at the same place."""
    if not several():
        return flag
    return int(np.max(multihost_utils.process_allgather(np.int32(flag or 0)))) or None


def exchange(text: str) -> list[str]:
    """What each host says."""
    if not several():
        return [text]
    said = text.encode()[:EXCHANGED]
    rows = multihost_utils.process_allgather(np.frombuffer(said.ljust(EXCHANGED, b"\0"), np.uint8))
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in np.asarray(rows)]


def check_same(mine: dict[str, Any]) -> None:
    """A TridentError, on all hosts, that names the first thing in which two of them differ."""
    base, *others = map(json.loads, exchange(json.dumps(mine)))
    for i, other in enumerate(others, start=1):
        for name, value in base.items():
            if other[name] != value:
                raise TridentError(f"hosts need the same {name}: host 0 has {value}, host {i} has {other[name]}")


def check_shared(path: Path) -> None:
    """What host 0 has just written is what every host sees; file systems between them take their time."""
    if not several():
        return
    exchange("")  # it is written
    first_said, *others = exchange(_digest(path))
    for i, said in enumerate(others, start=1):
        if said != first_said:
            raise TridentError(f"host {i} does not see {path} as host 0 wrote it: all hosts need the same storage")


def _digest(path: Path) -> str:
    end = time.monotonic() + SHARING
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.2)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


# --- when another is gone -------------------------------------------------------------------------


def loss(error: BaseException | str) -> HostLost | None:
    """What to say if an error means that another host is gone."""
    text = str(error).lower()
    if not _State.joined or not any(sign in text for sign in SIGNS):
        return None
    again = f"; start all of them again with `trident resume {_State.run}`" if _State.run else ""
    return HostLost(f"another host is gone: stopped, what the last checkpoint holds is safe{again}")


def remember(run: Path) -> None:
    """What is to be resumed."""
    _State.run = run


def _leave(text: str | None, code: int) -> NoReturn:
    """At once: an orderly end would wait for the others."""
    if _State.spoken.acquire(blocking=False):
        with suppress(OSError, ValueError):  # the reader of our output may be gone
            sys.stdout.flush()
            if text is not None:
                print(f"trident: {text}", file=sys.stderr, flush=True)
        os._exit(code)
    threading.Event().wait()  # the other thread is about to end the process
    raise AssertionError


def _keep_streams() -> None:
    """XLA and gloo write at length to the descriptors 1 and 2. Python's own streams move to others."""
    _State.log = tempfile.TemporaryFile()  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        number = stream.fileno()
        own = os.fdopen(os.dup(number), "w", buffering=1, encoding=stream.encoding, errors=stream.errors)
        os.dup2(_State.log.fileno(), number)
        setattr(sys, name, own)


def _hear_abort() -> None:
    """XLA aborts the process when the coordinator or another host is gone, from a thread of its own and without asking.
    Python hears of signals too late for that: the C library is told."""

    def react(number: int) -> None:
        _State.log.seek(0)
        said = _State.log.read().decode(errors="replace")
        lost = loss(said)
        _leave(str(lost) if lost else f"aborted: {_brief(said[-400:])}", lost.code if lost else 128 + number)

    _State.handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(react)
    library = ctypes.CDLL(None)
    library.signal.restype = ctypes.c_void_p
    library.signal(signal.SIGABRT, _State.handler)


def _brief(error: Any) -> str:
    return " ".join(str(error).split())[:200]
