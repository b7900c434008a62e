"""Run directories as they are found: unfinished, very long, damaged or a stranger's. What can be read is shown, and
what cannot is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trident.errors import TridentError
from trident.renamed import modern_record
from trident.report.records import MOST_LINE, Record, is_trained, proved
from trident.run_directory import RECORDS, RESULT, RUN, read_result, read_run
from trident.sealed import read_bytes

LINES = 40_000
"""Lines of records that are parsed for one page, over all of its runs."""
FEWEST, MOST = 400, 20_000
"""Lines of one run."""
WHOLE = 32_000_000
"""Bytes up to which a file is looked at line by line; of longer ones, lines at even distances are. So it is from an
eighth of that on if it has more than twice the lines that are wanted."""


@dataclass
class Reading:
    """One run directory."""

    folder: Path
    name: str
    run: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    records: list[Record] = field(default_factory=list)
    every: int = 1
    """Of how many rounds one was read."""
    problems: list[str] = field(default_factory=list)

    @property
    def readable(self) -> bool:
        return bool(self.run)

    @property
    def trained(self) -> bool:
        return is_trained(self.run, self.records) or bool(self.result and not self.result.get("pending"))


def find_runs(place: Path) -> list[Path]:
    """The run directory itself, or those below a folder (two levels), the newest last."""
    if (place / RUN).is_file():
        return [place]
    found = {path.parent for pattern in (f"*/{RUN}", f"*/*/{RUN}") for path in place.glob(pattern)}
    return sorted(found, key=lambda folder: (folder / RUN).stat().st_mtime)


def display_names(folders: list[Path]) -> list[str]:
    """Each folder's own name; where two are called alike, with as much of the way to it as tells them apart."""
    paths = [folder.resolve().parts for folder in folders]
    names = []
    for mine in paths:
        length = 1
        while length < len(mine) and sum(p[-length:] == mine[-length:] for p in paths) > 1:
            length += 1
        names.append("/".join(mine[-length:]))
    return names


def read_all(folders: list[Path]) -> list[Reading]:
    most = min(max(LINES // max(len(folders), 1), FEWEST), MOST)
    return [read_one(folder, name, most) for folder, name in zip(folders, display_names(folders), strict=True)]


def read_one(folder: Path, name: str, most: int = MOST) -> Reading:
    reading = Reading(folder, name)
    run = _attempt(reading, RUN, lambda: _whole(read_run(folder)))
    if run is None:
        return reading
    reading.run = run
    reading.result = _attempt(reading, RESULT, lambda: _numbers(read_result(folder)))
    try:
        rows, reading.every, problem = read_records(folder / RECORDS, most)
    except OSError as error:
        rows, problem = [], f"cannot read {folder / RECORDS}: {error.strerror or error}"
    reading.records = [r for r in rows if r["round"] > 0]
    reading.problems += [problem] if problem else []
    return reading


def _attempt(reading: Reading, name: str, read: Callable[[], Any]) -> Any:
    """What `read` gives; None, and a word of the problem, for whatever a stranger's file may do to it."""
    try:
        return read()
    except (TridentError, OSError) as error:
        reading.problems.append(str(error))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        reading.problems.append(f"{reading.folder / name} is damaged ({type(error).__name__}: {error})")
    return None


def read_records(path: Path, most: int = MOST) -> tuple[list[Record], int, str | None]:
    """(records, of how many one was read, what is wrong). The first and the last are always among them."""
    if not path.exists() and not path.is_symlink():
        return [], 1, None
    size = path.lstat().st_size
    try:
        if not path.is_symlink() and path.is_file() and _is_long(path, size, most):
            return _from_a_long_file(path, size, most)
        lines = read_bytes(path, WHOLE).split(b"\n")
    except TridentError as error:
        return [], 1, str(error)
    last = len(lines) - 1
    every = -(-max(last, 1) // most)
    rows: list[Record] = []
    if every == 1:  # short enough to be proved line by line
        try:
            for line in proved(path):
                rows.append(modern_record(line.record))
        except TridentError as error:
            return rows, 1, f"{error}; what is shown ends before it"
        return rows, 1, None
    for i in sorted({*range(0, last, every), last - 1, last}):
        if i < 0 or not lines[i].strip():
            continue
        row = _parse(lines[i])
        if row is None:
            if i == last:  # a crash tears the last line
                break
            return rows, every, f"{path} is damaged at line {i + 1}: what is shown ends before it"
        rows.append(row)
    return rows, every, None


def _is_long(path: Path, size: int, most: int) -> bool:
    if size <= WHOLE // 8:
        return False
    with path.open("rb") as file:
        return size > WHOLE or size > 2 * most * len(file.readline(MOST_LINE))


def _from_a_long_file(path: Path, size: int, most: int) -> tuple[list[Record], int, str | None]:
    """Lines at even distances in bytes: what lies between is not even read."""
    rows: dict[int, Record] = {}
    problem = None
    tail = 1
    with path.open("rb") as file:
        first = file.readline(MOST_LINE)
        if not first.endswith(b"\n"):
            return [], 1, f"{path} is damaged at line 1: it is longer than any line is"
        longest = 16 * len(first) + 2**16  # lines are much alike; what is not must not take for ever
        while not (row := _last_line(file, size, tail * len(first))) and tail < 64:
            tail *= 2
        for place in range(0, size, max(size // most, 1)):
            file.seek(place)
            if place:
                file.readline(longest)
            line = file.readline(longest)
            found = _parse(line)
            if found is not None:
                rows[found["round"]] = found
            elif line.endswith(b"\n"):
                problem = f"{path} is damaged near byte {place}: that line is left out"
    rows |= {row["round"]: row} if row else {}
    ordered = [rows[k] for k in sorted(rows)]
    every = max(round((ordered[-1]["round"] - ordered[0]["round"]) / max(len(ordered) - 1, 1)), 1) if ordered else 1
    return ordered, every, problem


def _last_line(file: Any, size: int, reach: int) -> Record | None:
    file.seek(max(size - min(4 * reach, 2**26), 0))
    parsed = (_parse(line) for line in reversed(file.read().split(b"\n")) if line.strip())
    return next((row for row in parsed if row is not None), None)


def _parse(line: bytes) -> Record | None:
    """A record, or None if the line is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return modern_record(row) if _is_record(row) else None


def _is_record(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("values"), dict):
        return False
    if not all(_is_number(row.get(name)) for name in ("round", "env_steps", "episodes", "seconds")):
        return False
    return isinstance(row.get("diverged"), dict) and all(map(_is_column, row["values"].values()))


def _is_column(values: Any) -> bool:
    return isinstance(values, list) and all(v is None or _is_number(v) for v in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- as the page wants it -------------------------------------------------------------------------


def _whole(run: dict[str, Any]) -> dict[str, Any]:
    """With what may be missing in a record."""
    return run | {"constraints": [{"unit": "", "help": ""} | c for c in run["constraints"]],
                  "metrics": [{"help": ""} | m for m in run["metrics"]]}  # fmt: skip


def _numbers(result: dict[str, Any] | None) -> dict[str, Any] | None:
    """Without values that were not finite."""
    if result is None:
        return None
    known = lambda seed: {k: float(v) for k, v in seed.items() if v is not None}  # noqa: E731
    return result | {"policies": {name: [known(s) for s in seeds] for name, seeds in result["policies"].items()}}
