"""What an unexpected exception leaves behind: one line for the user, and a file with everything about it.

An environment of the user's own may raise anything, too: its file and line are what its author wants to know.
"""

from __future__ import annotations

import json
import platform
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from trident.errors import STORAGE, TridentError, UnexpectedError, of_system, one_line, users_place
from trident.report.records import plain
from trident.run_directory import FAULT, RECORDS, RUN, write_text
from trident.sealed import read_bytes
from trident.training import hosts
from trident.training.memory import REMEDY, out_of_memory

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "jaxtyping", "tyro", "rich", "matplotlib", "tensorboardX")
LAST_RECORDS = 3


@contextmanager
def reporting(out: Path) -> Iterator[None]:
    """Whatever goes wrong inside is a TridentError; of what is not the user's doing a report is left in `out`."""
    try:
        yield
    except TridentError:
        raise
    except Exception as error:
        raise explained(error, out) from error


def explained(error: Exception, out: Path) -> TridentError:
    if (lost := hosts.loss(error)) is not None:
        return lost
    if out_of_memory(error):
        return TridentError(f"memory ran out: {REMEDY}; what the last checkpoint holds is safe")
    if isinstance(error, OSError) and (error.filename is not None or error.errno in STORAGE):
        return of_system(error)
    where = users_place(error)
    if where is not None:
        return TridentError(f"code of your own failed in {where}: {one_line(error)}")
    return UnexpectedError(
        f"an unexpected {type(error).__name__}: {one_line(error)[:200]} (please send {write_report(error, out)})"
    )


def write_report(error: BaseException, out: Path) -> Path:
    """Versions, the run, its last records and the traceback, in `out` if it can be written there."""
    content = {
        "error": one_line(error),
        "traceback": traceback.format_exception(error),
        "command": sys.argv,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "devices": [str(device) for device in jax.devices()],
        "run": _text(out / RUN),
        "last records": (_text(out / RECORDS) or "").splitlines()[-LAST_RECORDS:],
    }
    name = f"{FAULT}{time.strftime('%Y%m%d-%H%M%S')}.json"
    for folder in (out, Path.home() / ".cache" / "trident"):
        with suppress(OSError, TridentError):
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / name, json.dumps(plain(content), indent=1) + "\n")
            return folder / name
    return Path("what TRIDENT_DEBUG=1 shows")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _text(path: Path) -> Any:
    try:
        return read_bytes(path).decode(errors="replace")
    except TridentError:
        return None
