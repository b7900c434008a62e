"""A run's records: one JSON line per round.

    {"round": 3, "env_steps": 9600, "episodes": 96.0, "seconds": 1.9, "diverged": {}, "values": {name: [per seed]}}

`values` holds one number per seed (null: not finite, or of a seed that has diverged). Round 0, if present, holds
what a warm start measured. The last line may be torn by a crash: it is then ignored.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.renamed import modern_record
from trident.run_directory import write_text

Record = dict[str, Any]


class RecordWriter:
    """Appends lines; each is handed to the operating system at once, `sync` makes them durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")

    def append(self, record: Record) -> None:
        try:
            self._file.write(json.dumps(plain(record), allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise TridentError(f"could not write {self.path}: {error.strerror or error}") from error

    def sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise TridentError(f"could not write {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        self._file.close()


def plain(value: Any) -> Any:
    """Arrays -> lists, numbers that are not finite -> None: what JSON can say."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read(path: Path) -> list[Record]:
    """All whole records. A torn last line is dropped; a broken line elsewhere is an error."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(modern_record(json.loads(line)))
        except ValueError as error:
            if number == len(lines):
                break
            raise TridentError(f"{path} is damaged at line {number}") from error
    return records


def truncate(path: Path, last_round: int) -> list[Record]:
    """Drop the records after `last_round`, atomically; returns those that stay."""
    kept = [r for r in read(path) if r["round"] <= last_round]
    text = "".join(json.dumps(r, allow_nan=False) + "\n" for r in kept)
    write_text(path, text)
    return kept


def is_trained(run: dict[str, Any], records: list[Record]) -> bool:
    """Whether the records go on to the run's planned end."""
    return bool(records) and records[-1]["round"] >= run["rounds"]


def names(records: list[Record]) -> list[str]:
    """Every name that occurs in `values`, in order of appearance."""
    return list(dict.fromkeys(name for record in records for name in record["values"]))


def per_episode(records: list[Record], name: str) -> str:
    """The name under which `name` stands as a mean over whole episodes; `name` itself where no record has one (old
    records, or a run in which none has ended)."""
    found = f"episode_{name}"
    return found if any(v is not None and v == v for r in records for v in r["values"].get(found, ())) else name


def series(records: list[Record], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(env_steps [R], values [R, seeds]) of the records that have `name`; gaps are NaN."""
    rows = [r for r in records if name in r["values"]]
    if not rows:
        return np.empty(0), np.empty((0, 0))
    steps = np.array([r["env_steps"] for r in rows], float)
    values = np.array([r["values"][name] for r in rows], float)
    return steps, values.reshape(len(rows), -1)
