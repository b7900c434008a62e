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
from typing import Any

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

from trident.errors import TridentError
from trident.renamed import modern_result, modern_run

RUN, RECORDS, RESULT = "run.json", "records.jsonl", "result.json"
CHECKPOINTS, FIGURES, TENSORBOARD = "checkpoints", "figures", "tensorboard"
PARTIAL = ".partial"
"""Ends the name of a file that is being written."""


# --- writing --------------------------------------------------------------------------------------


def write(path: Path, fill: Callable[[Any], Any]) -> None:
    """A file that is there whole or not at all, whatever happens: another name, sync, rename, sync the directory."""
    partial = path.with_name(path.name + PARTIAL)
    partial.unlink(missing_ok=True)  # it may be a link to somebody's file
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
        raise TridentError(f"cannot write to {path}: {error.strerror or error}") from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1) + "\n")


def check_empty(out: Path) -> None:
    """What a crash left of a file that was being written is nothing."""
    if out.exists() and (not out.is_dir() or any(not p.name.endswith(PARTIAL) for p in out.iterdir())):
        raise TridentError(f"{out} is not empty: `trident resume {out}` goes on with it, --out chooses another place")


@contextmanager
def alone(out: Path, make: bool = False) -> Iterator[None]:
    """One process at a time writes a run. The lock is on the directory itself: it leaves no file behind, and the system
    drops it when the process ends, however that happens."""
    try:
        if make:
            out.mkdir(parents=True, exist_ok=True)
        directory = None if fcntl is None else os.open(out, os.O_RDONLY)
    except OSError as error:
        raise TridentError(f"cannot write to {out}: {error.strerror or error}") from error
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


# --- reading --------------------------------------------------------------------------------------


def is_run(out: Path) -> bool:
    return (out / RUN).is_file()


def read_run(out: Path) -> dict[str, Any]:
    if not is_run(out):
        raise TridentError(f"{out} is not a run directory: it has no {RUN}")
    return modern_run(_read(out / RUN))


def read_result(out: Path) -> dict[str, Any] | None:
    """None if it has not been evaluated yet."""
    return modern_result(_read(out / RESULT)) if (out / RESULT).is_file() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TridentError(f"{path} is damaged: it is not JSON") from error
    if not isinstance(content, dict):
        raise TridentError(f"{path} is damaged: it is not a JSON object")
    return content
