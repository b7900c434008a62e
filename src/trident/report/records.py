"""A run's records: one JSON line per round.

    {"round": 3, "env_steps": 9600, "episodes": 96.0, "seconds": 1.9, "diverged": {}, "values": {name: [per seed]},
     "digest": "..."}

`values` holds one number per seed (null: not finite, or of a seed that has diverged). Round 0, if present, holds
what a warm start measured. The last line may be torn by a crash: it is then ignored. Each line's digest is of the line
and of the digest before it, the first one's of the run: lines that were changed, lost or are of another run are found
and named. Lines of earlier versions have none.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trident.errors import StorageError, TridentError
from trident.renamed import modern_record
from trident.run_directory import RUN, RUN_SCHEMA, write_text
from trident.sealed import DIGEST, digest_of, parse, read_bytes, read_sealed, seal, unseal

Record = dict[str, Any]
MOST_BYTES = 2**33
MOST_LINE = 2**24
GLANCE = 2**20


class Line(NamedTuple):
    """One of a file that has been proved so far."""

    record: Record
    digest: str  # running
    text: bytes  # as it stands in the file


class RecordWriter:
    """Appends lines; each is handed to the operating system at once, `sync` makes them durable."""

    def __init__(self, path: Path, digest: str) -> None:
        """`digest`: of the last line that is there."""
        self.path, self.digest = path, digest
        try:
            self._file = path.open("ab")
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error

    def append(self, record: Record) -> None:
        sealed = seal(plain(record), self.digest)
        try:
            if os.stat(self.path).st_ino != os.fstat(self._file.fileno()).st_ino:
                raise StorageError(f"{self.path} was replaced while the run was writing it")
            self._file.write(json.dumps(sealed, allow_nan=False).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise StorageError(f"could not write {self.path}: {error.strerror or error}") from error
        self.digest = sealed[DIGEST]

    def sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"could not write {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        with suppress(OSError):  # what could not be written has been told before
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


def first_digest(run: dict[str, Any]) -> str:
    """What the first line of a run's records follows: whose they are."""
    identity = run["identity"]
    return digest_of([run["env"], run["algo"], [str(seed) for seed in identity["seeds"]], identity.get("config hash")])


def _start(path: Path) -> str:
    run = path.with_name(RUN)
    return first_digest(read_sealed(run, RUN_SCHEMA)) if run.exists() else ""


def read(path: Path) -> list[Record]:
    """All whole records. A torn last line is dropped; a broken line elsewhere is an error."""
    return [modern_record(line.record) for line in proved(path)]


def last_line(path: Path) -> Record | None:
    """The last whole record, unproved: for a glance at a run that is being written. None if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - GLANCE, 0))
            record = parse(file.read().rpartition(b"\n")[0].rpartition(b"\n")[2])
        return record if next(_faults(record, record["round"] - 1), None) is None else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def proved(path: Path, last_round: float = math.inf) -> Iterator[Line]:
    """Lines up to `last_round`, each as soon as it is known to be what was written; the first that is not is an
    error. Nothing after `last_round` is looked at: whatever is there will be written again."""
    if not path.exists() and not path.is_symlink():
        return
    digest = _start(path)
    lines, sealed, round_ = read_bytes(path, MOST_BYTES).split(b"\n"), False, None
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        if (-1 if round_ is None else round_) >= last_round:
            return
        try:
            line = _prove(text, digest, sealed, round_)
        except ValueError as error:
            if number == len(lines):  # the line in which a crash tore it
                return
            raise TridentError(f"{path} is damaged at line {number}: {error}") from error
        yield line
        digest, sealed, round_ = line.digest, sealed or DIGEST.encode() in text, line.record["round"]


def _prove(text: bytes, before: str, sealed: bool, last: int | None) -> Line:
    if len(text) > MOST_LINE:
        raise ValueError("it is longer than any line is")
    content = parse(text)
    if sealed and isinstance(content, dict) and DIGEST not in content:
        raise ValueError("it has no digest, unlike those before it")
    record = unseal(content, before)
    fault = next(_faults(record, last), None)
    if fault is not None:
        raise ValueError(fault)
    return Line(record, content.get(DIGEST) or digest_of(record, before), text)


def _faults(record: Record, last: int | None) -> Iterator[str]:
    round_, values = record.get("round"), record.get("values")
    if type(round_) is not int or (round_ != last + 1 if last is not None else round_ not in (0, 1)):
        yield f"its round is {round_!r}" + ("" if last is None else f", after round {last}")
    for name in ("env_steps", "episodes", "seconds"):
        if not _is_number(record.get(name)) or record[name] < 0:
            yield f"its {name} must be a number at least 0"
    if not isinstance(record.get("diverged"), dict):
        yield "its diverged must be an object"
    for what in record.get("diverged") or {}:
        entry = record["diverged"][what]
        if not isinstance(entry, dict) or type(entry.get("round")) is not int or type(entry.get("quantity")) is not str:
            yield f"its diverged.{what} must have a round and a quantity"
    if not isinstance(values, dict):
        yield "its values must be an object"
        return
    lengths = {len(row) if isinstance(row, list) else -1 for row in values.values()}
    if -1 in lengths or len(lengths) > 1:
        yield "its values must be lists of one length"
    elif not all(x is None or _is_number(x) for row in values.values() for x in row):
        yield "its values must be numbers or null"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def truncate(path: Path, last_round: int) -> tuple[list[Record], str]:
    """Drop the records after `last_round`, atomically; returns those that stay, and their digest."""
    if path.is_symlink():
        raise TridentError(f"{path} is a symbolic link: put the file itself in its place")
    kept = list(proved(path, last_round))
    write_text(path, b"".join(line.text + b"\n" for line in kept).decode())
    digest = kept[-1].digest if kept else _start(path)
    return [modern_record(line.record) for line in kept], digest


def lines_of(run: dict[str, Any], records: list[Record]) -> str:
    """The content of a whole file."""
    digest, lines = first_digest(run), []
    for record in records:
        sealed = seal(plain(record), digest)
        digest = sealed[DIGEST]
        lines.append(json.dumps(sealed, allow_nan=False) + "\n")
    return "".join(lines)


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


def spent(records: list[Record], name: str, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(env_steps [R], cost so far [R, seeds], what the limit allows so far [R]), in cost x steps: if the cost is the
    rate of an event, its number of steps."""
    steps, cost = series(records, f"cost/{name}")
    return steps, np.cumsum(cost * np.diff(steps, prepend=0.0)[:, None], axis=0), limit * steps
