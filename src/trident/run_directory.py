"""A run directory: the names of its files, how they are written (whole or not at all) and read, and who may write.

    run.json        what the run is (trident.training.settings)
    records.jsonl   one line per round (trident.report.records)
    result.json     its last evaluation
    checkpoints/    the newest states (trident.training.checkpoint)

`figures/` and `tensorboard/` can be made anew from the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

from trident.allowed import Name, Range, Seed
from trident.errors import StorageError, TridentError
from trident.renamed import modern_result, modern_run
from trident.sealed import read_sealed, seal

RUN, RECORDS, RESULT = "run.json", "records.jsonl", "result.json"
CHECKPOINTS, FIGURES, TENSORBOARD = "checkpoints", "figures", "tensorboard"
FAULT = "fault-"
"""Begins the name of a report of an unexpected error."""
REPORT = "report.html"
"""The page that a training leaves."""
STOP = "stop"
"""A file whose being there asks the run to stop after its round, by whoever cannot reach its process."""
PARTIAL = ".partial"
"""Ends the name of a file that is being written."""


# --- writing --------------------------------------------------------------------------------------


def write(path: Path, fill: Callable[[Any], Any]) -> None:
    """A file that is there whole or not at all, whatever happens: another name, sync, rename, sync the directory."""
    partial = fresh(path.with_name(path.name + PARTIAL))
    with partial.open("xb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_text(path: Path, text: str) -> None:
    try:
        write(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise StorageError(f"cannot write to {path}: {error.strerror or error}") from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    """With a digest of itself, by which reading it tells whether it is still what was written."""
    write_text(path, json.dumps(seal(content), indent=1) + "\n")


def own_folder(out: Path, name: str) -> Path:
    """A folder of a run, made if it is not there; never a link to somewhere else."""
    folder = out / name
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror or error}") from error
    if folder.is_symlink():
        raise TridentError(f"{folder} is a symbolic link: put the folder itself in its place")
    return folder


def fresh(path: Path) -> Path:
    """Its place, emptied: what is there may be a link to somebody's file, or a pipe."""
    path.unlink(missing_ok=True)
    return path


def check_empty(out: Path) -> None:
    """What a crash left of a file that was being written is nothing, and so is the report of a fault."""
    if out.exists() and not out.is_dir():
        raise TridentError(f"{out} is not a folder: --out chooses another place")
    if out.exists() and any(_counts(path) for path in out.iterdir()):
        raise TridentError(f"{out} is not empty: `trident resume {out}` goes on with it, --out chooses another place")


def _counts(path: Path) -> bool:
    return not path.name.endswith(PARTIAL) and not path.name.startswith(FAULT)


@contextmanager
def alone(out: Path, make: bool = False) -> Iterator[None]:
    """One process at a time writes a run. The lock is on the directory itself: it leaves no file behind, and the system
    drops it when the process ends, however that happens."""
    try:
        if make:
            out.mkdir(parents=True, exist_ok=True)
        directory = None if fcntl is None else os.open(out, os.O_RDONLY)
    except OSError as error:
        raise StorageError(f"cannot write to {out}: {error.strerror or error}") from error
    try:
        if fcntl is not None and directory is not None:
            with suppress(OSError):  # a file system without locks
                try:
                    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise TridentError(f"{out} is in use: another process is writing this run") from None
        yield
    finally:
        if directory is not None:
            os.close(directory)


def is_in_use(out: Path) -> bool:
    """Whether a process is writing this run now."""
    if not out.is_dir():
        return False
    try:
        with alone(out):
            return False
    except StorageError:
        return False
    except TridentError:
        return True


def ask_to_stop(out: Path) -> None:
    (out / STOP).touch()


def is_asked_to_stop(out: Path) -> bool:
    """Whether somebody has asked; hearing it takes the question away."""
    if not (out / STOP).exists():
        return False
    (out / STOP).unlink(missing_ok=True)
    return True


# --- reading --------------------------------------------------------------------------------------


NUMBER = Annotated[float, Range()]
COUNT = Annotated[int, Range(0, 2**62)]
RUN_SCHEMA = {
    "env": Name,
    "env_version": int,
    "algo": Name,
    "config": {...: object},
    "settings": {"seeds": [Seed], "episodes": COUNT},
    "rounds": COUNT,
    "steps_per_round": COUNT,
    "horizon": COUNT,
    "agents": COUNT,
    "modes": [str],
    "constraints": [{"name": Name, "limit": NUMBER, "unit?": str, "help?": str}],
    "metrics": [{"name": Name, "better": str, "unit": str, "per": str | None}],
    "scripted": [Name],
    "identity": {"env": Name, "algo": Name, "seeds": [Seed]},
    "versions": {...: str | None},
    "host": {"cores": int | None, "device": str},
    "commit": str | None,
}
RESULT_SCHEMA = {
    "episodes": COUNT,
    "deterministic": bool,
    "shielded": bool,
    "seeds": [Seed],
    "diverged": {...: {"round": COUNT, "quantity": str}},
    "policies": {...: [{...: float | None}]},
    "pending?": [str],
}


def is_run(out: Path) -> bool:
    return (out / RUN).is_file()


def read_run(out: Path) -> dict[str, Any]:
    if not is_run(out):
        raise TridentError(f"{out} is not a run directory: it has no {RUN}")
    return modern_run(read_sealed(out / RUN, RUN_SCHEMA))


def read_result(out: Path) -> dict[str, Any] | None:
    """None if it has not been evaluated yet."""
    return modern_result(read_sealed(out / RESULT, RESULT_SCHEMA)) if (out / RESULT).is_file() else None
