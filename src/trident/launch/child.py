"""A training in a process of its own, which ends with the process that started it and may have cores of its own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

LAUNCH = """\
import os, runpy, signal, sys
parent, cores = int(sys.argv.pop(1)), sys.argv.pop(1)
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
if os.getppid() != parent:
    sys.exit("the command that started this run has ended")
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""A child that is asked to stop (PR_SET_PDEATHSIG, on Linux) when its parent ends, even by kill -9. It arranges that
itself: between fork and exec is no place for Python in a process that has threads. Its cores are taken before jax is
imported: XLA makes as many threads as it may use cores, whatever OMP_NUM_THREADS says."""


def command(words: Sequence[str], cores: Sequence[int] = ()) -> list[str]:
    """`trident WORDS`, on these cores if any are given."""
    listed = ",".join(map(str, sorted(cores)))
    return [sys.executable, "-c", LAUNCH, str(os.getpid()), listed, "trident", *words]


def start(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is for whoever started it, who asks it to stop, once."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=env, start_new_session=True)


def last_words(log: Path) -> str:
    """The last line of a log, and where more stands."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    said = [line for line in text.splitlines() if line.strip()]
    return f"{said[-1] if said else 'it said nothing'} ({log})"


def usable_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def own_cores(count: int | None) -> Iterator[tuple[int, ...]]:
    """`count` cores that no other job on this machine has, as long as there are so many; none in particular (None).

    A core is taken by a lock on a file of its name, which the system drops when the process ends.
    """
    if count is None or fcntl is None or not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    places = Path(tempfile.gettempdir()) / f"trident-cores-{os.getuid()}"
    places.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        free, taken = [], []
        for core in usable_cores():
            file = (places / str(core)).open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                taken.append(core)
                continue
            if len(free) < count:
                free.append(core)
                stack.callback(file.close)
            else:
                file.close()
        shared = random.sample(taken, min(count - len(free), len(taken)))
        yield tuple(sorted([*free, *shared]))
