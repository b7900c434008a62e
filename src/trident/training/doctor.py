"""What of a run's files can be proved, and cutting it back to that."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trident.errors import TridentError
from trident.report import records as recording
from trident.run_directory import (
    CHECKPOINTS,
    RECORDS,
    RESULT,
    RUN,
    RUN_SCHEMA,
    alone,
    is_run,
    own_folder,
    read_result,
    read_run,
    write_json,
    write_text,
)
from trident.sealed import parse, read_bytes, schema_faults
from trident.training import checkpoint

DAMAGED = "damaged"
"""Folder of a run into which a repair moves what cannot be used."""


@dataclass
class Diagnosis:
    """The state of every file; a fault is a line."""

    run_fault: str | None = None
    edited: bool = False
    """run.json is not what was written, but whole, and what the checkpoints say of the run agrees with it."""
    result_fault: str | None = None
    records_fault: str | None = None
    round: int = 0
    """The last one that the records prove."""
    good: list[int] = field(default_factory=list)
    """Rounds of checkpoints that can be used, newest first: their records lead up to them."""
    bad: dict[int, str] = field(default_factory=dict)
    """Why the others cannot."""

    @property
    def damaged(self) -> bool:
        return bool(self.run_fault or self.result_fault or self.records_fault or self.bad)

    @property
    def verdict(self) -> str:
        if self.run_fault and not self.edited:
            return "without its run.json a run cannot go on; its records can still be read by hand"
        if not self.damaged:
            return f"everything is as it was written; the newest checkpoint is of round {self._newest}"
        return f"it can go on from round {self._newest}" + (
            " (`--repair` cuts it back to that)" if self.damaged else ""
        )

    @property
    def _newest(self) -> int:
        return self.good[0] if self.good else 0

    def lines(self) -> list[str]:
        files = {RUN: self.run_fault, RECORDS: self.records_fault, RESULT: self.result_fault}
        found = [f"{name}: {fault or 'good'}" for name, fault in files.items()]
        found[1] += f", up to round {self.round}"
        found += [f"{CHECKPOINTS}, round {r}: {self.bad.get(r, 'good')}" for r in sorted({*self.good, *self.bad})]
        return [*found, self.verdict]


def examine(out: Path) -> Diagnosis:
    if not is_run(out):
        raise TridentError(f"{out} is not a run directory: it has no {RUN}")
    found = Diagnosis(run_fault=_fault(lambda: read_run(out)), result_fault=_fault(lambda: read_result(out)))
    manifests = _manifests(out, found)
    found.edited = found.run_fault is not None and _is_of(out, manifests)
    digests = _records(out, found)
    for round_ in sorted(manifests, reverse=True):
        records = manifests[round_].get("records")
        if round_ and round_ not in digests:
            found.bad[round_] = f"the records end at round {found.round}"
        elif records is not None and round_ in digests and records != digests[round_]:
            found.bad[round_] = "the records are not what led to it"
        else:
            found.good.append(round_)
    return found


def repair(out: Path, found: Diagnosis) -> list[str]:
    """Cut back to the newest state that can be proved; says what was done. Nothing is deleted."""
    if found.run_fault and not found.edited:
        raise TridentError(f"{out} cannot be repaired: {found.verdict}")
    done = []
    with alone(out):
        if found.edited:
            content = _content(out / RUN)
            _move(out, out / RUN, done)
            write_json(out / RUN, content)
            done.append(f"{RUN}: sealed anew, its checkpoints agree with it")
        for round_ in found.bad:
            for suffix in (".npz", ".json"):
                _move(out, out / CHECKPOINTS / f"{round_:08d}{suffix}", done)
        if found.records_fault:
            last = found.good[0] if found.good else found.round
            kept = b"".join(line.text + b"\n" for line in _whole(out / RECORDS) if line.record["round"] <= last)
            _move(out, out / RECORDS, done)
            write_text(out / RECORDS, kept.decode())
            done.append(f"{RECORDS}: cut back to round {last}")
        if found.result_fault:
            _move(out, out / RESULT, done)
    return done


def _manifests(out: Path, found: Diagnosis) -> dict[int, dict[str, Any]]:
    folder, good = out / CHECKPOINTS, {}
    for round_ in checkpoint.rounds(folder):
        try:
            good[round_] = checkpoint.prove(folder, round_)
        except (checkpoint.Corrupt, TridentError) as error:
            found.bad[round_] = str(error)
    return good


def _records(out: Path, found: Diagnosis) -> dict[int, str]:
    """round -> running digest, as far as the records can be proved."""
    digests: dict[int, str] = {}
    try:
        for line in recording.proved(out / RECORDS):
            found.round, digests[line.record["round"]] = line.record["round"], line.digest
    except TridentError as error:
        if found.run_fault is None or "damaged at line" in str(error):
            found.records_fault = str(error)
    return digests


def _whole(path: Path) -> list[recording.Line]:
    lines = []
    try:
        for line in recording.proved(path):
            lines.append(line)
    except TridentError:
        pass
    return lines


def _content(path: Path) -> dict[str, Any]:
    return {k: v for k, v in parse(read_bytes(path)).items() if k != "digest"}


def _is_of(out: Path, manifests: dict[int, dict[str, Any]]) -> bool:
    """Whether run.json is whole, and the identity in it that of a checkpoint."""
    try:
        content = _content(out / RUN)
    except (TridentError, ValueError, AttributeError):
        return False
    if next(schema_faults(RUN_SCHEMA, content), None) is not None:
        return False
    identity = content["identity"]
    return any(all(m["identity"].get(k) == v for k, v in identity.items()) for m in manifests.values())


def _fault(read: Any) -> str | None:
    try:
        read()
    except TridentError as error:
        return str(error)
    return None


def _move(out: Path, path: Path, done: list[str]) -> None:
    if not path.exists() and not path.is_symlink():
        return
    folder = own_folder(out, DAMAGED)
    name, count = path.name, 1
    while (folder / name).exists():
        name, count = f"{path.name}.{count}", count + 1
    os.rename(path, folder / name)
    done.append(f"{path.relative_to(out)}: moved to {DAMAGED}/{name}")
