"""The audit log: one JSON line for every decision, order and start, each chained to the one before by its hash.

    {"n": 17, "at": "2026-...", ..., "prev": "<hash of line 16>", "hash": "<sha256 of this line without it>"}

A changed, removed or inserted line breaks the chain. Lines cut off at the end do not: keep the head that
`trident audit LOG` prints elsewhere, and hand it back as `--head`. A full disk never stops the control loop: what could
not be written is counted, told once on stderr, and noted in the log as soon as there is room.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trident.errors import TridentError
from trident.runtime.message import encode

GENESIS = "0" * 64
NAME = "audit-{:06d}.jsonl"


class Audit:
    """Appends to `audit-000001.jsonl`, `audit-000002.jsonl`, ... of a directory; a new one after `rotate` bytes."""

    def __init__(self, folder: str | Path, rotate: int = 64 * 2**20, say: Any = None):
        self.folder, self.rotate = Path(folder), rotate
        self.say = say or (lambda text: print(f"trident: {text}", file=sys.stderr))
        self.lost = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            older = files_of(self.folder)
            self.number, self.head, self._file = len(older), GENESIS, -1
            if older:
                last = _last(older)
                self.head, self.count = (last["hash"], last["n"] + 1) if last else (GENESIS, 0)
                self.number = int(older[-1].stem.split("-")[1])
            else:
                self.count = 0
            self._open()
        except OSError as error:
            raise TridentError(f"cannot write the audit log to {self.folder}: {error.strerror or error}") from error

    def decision(
        self, packed: dict[str, Any], decision: Any, orders: dict[str, Any], now: float, took: float, whole: float
    ) -> None:
        action, reasons = decision
        text = json.dumps(packed, sort_keys=True, separators=(",", ":"))
        self._append({
            "in": packed, "in_sha256": hashlib.sha256(text.encode()).hexdigest(), "now": now, "took": took,
            "ms": round(1e3 * whole, 3), "orders": orders,
            "branch": [r.branch for r in reasons], "why": [r.why for r in reasons],
            "mode": action.mode.tolist(), "params": encode(action.params),
        })  # fmt: skip

    def event(self, event: dict[str, Any]) -> None:
        self._append({"event": event})

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, content: dict[str, Any]) -> None:
        if self.lost:
            content = content | {"lost_before": self.lost}
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        body = {"n": self.count, "at": at, **content, "prev": self.head}
        line = sealed(body)
        try:
            if self._size >= self.rotate:
                self.close()
                self._open()
            self._write((json.dumps(line, separators=(",", ":")) + "\n").encode())
        except OSError as error:
            if not self.lost:
                self.say(f"the audit log cannot be written ({error.strerror or error}); control goes on without it")
            self.lost += 1
            return
        if self.lost:
            self.say(f"the audit log is written again; {self.lost} entries are missing")
        self.lost, self.head, self.count = 0, line["hash"], self.count + 1

    def _write(self, data: bytes) -> None:
        """A whole line or none of it."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _open(self) -> None:
        path = self.folder / NAME.format(self.number + 1)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o640)
        self.number, self._size = self.number + 1, 0


def sealed(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"hash": hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()}


# --- reading --------------------------------------------------------------------------------------


class Report(NamedTuple):
    entries: int
    decisions: int
    head: str
    branches: dict[str, int]
    notes: list[str]
    """What is no fault: entries lost to a full disk, a last line torn by a crash."""


def files_of(log: str | Path) -> list[Path]:
    log = Path(log)
    if log.is_file():
        return [log]
    return sorted(log.glob("audit-*.jsonl")) if log.is_dir() else []


def read(log: str | Path) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """(where it stands, the entry) of every line; None for a line that is torn at a file's end."""
    files = files_of(log)
    if not files:
        raise TridentError(f"{log} is no audit log: there is no audit-*.jsonl in it")
    for path in files:
        data = path.read_bytes()
        for i, line in enumerate(data.splitlines(keepends=True), 1):
            where = f"{path.name}:{i}"
            if not line.endswith(b"\n"):
                yield where, None
                continue
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    raise ValueError
            except (ValueError, RecursionError):
                raise TridentError(f"{where} was tampered with: it is not an entry") from None
            yield where, entry


def verify(log: str | Path, head: str | None = None) -> Report:
    """Follow the chain from its beginning; the first break is a TridentError that says where."""
    files = files_of(log)
    previous, number, notes, branches, decisions = GENESIS, 0, [], {}, 0
    alone = len(files) == 1 and files[0].name != NAME.format(1)
    for where, entry in read(log):
        if entry is None:
            notes.append(f"{where} is torn: the process ended while it was written")
            continue
        if alone and number == 0:  # a file taken out of the middle: its beginning cannot be checked
            previous, number = entry.get("prev"), entry.get("n", 0)
            notes.append("only this file: the chain before it was not followed")
        body = {k: v for k, v in entry.items() if k != "hash"}
        if entry.get("hash") != sealed(body)["hash"]:
            raise TridentError(f"{where} was tampered with: its content does not fit its hash")
        if entry.get("prev") != previous or entry.get("n") != number:
            raise TridentError(f"{where} does not follow the entry before it: lines were removed, inserted or moved")
        if "lost_before" in entry:
            notes.append(f"{where}: {entry['lost_before']} entries before it could not be written")
        previous, number = entry["hash"], number + 1
        decisions += "branch" in entry
        for branch in entry.get("branch", ()):
            branches[branch] = branches.get(branch, 0) + 1
    if head is not None and head != previous:
        raise TridentError(f"{log} ends at {previous[:16]}..., not at the head you kept: it was cut short or replaced")
    return Report(number, decisions, previous, branches, notes)


def _last(files: list[Path]) -> dict[str, Any] | None:
    for path in reversed(files):
        for line in reversed(path.read_bytes().splitlines(keepends=True)):
            if line.endswith(b"\n"):
                try:
                    return json.loads(line)
                except (ValueError, RecursionError):
                    return None
    return None


def seconds_of(log: str | Path) -> list[float]:
    """How long every decision took, in seconds."""
    return [1e-3 * entry["ms"] for _, entry in read(log) if entry is not None and "ms" in entry]


def plain(value: Any) -> Any:
    """As JSON can carry it."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)[:200]
