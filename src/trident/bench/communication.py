"""What the devices of one compiled round say to each other: its collectives, with their bytes and how often they run;
and how many operations it has, each of which a GPU launches as a kernel.

Read from the optimised program's text. A collective in a loop counts as often as the loop runs, where the compiler
knows that; loops that stop by themselves (line searches) count once, and are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}
HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
STEP = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = (?P<shape>\(.*?\)|\S+) (?P<kind>[\w-]+)\(")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
CALLED = re.compile(r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.-]+)")
BRANCHES = re.compile(r"(?:branch_computations|called_computations|calls)=\{([^}]*)\}")
TRIPS = re.compile(r"known_trip_count[^\d]*(\d+)")


FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional", "after-all")
"""Steps that take no kernel of their own."""


class Collective(NamedTuple):
    kind: str
    bytes: int  # of its result, on one device
    times: int  # per round
    open_ended: bool
    """In a loop whose number of steps the data decide: counted for one of them."""


def collectives(text: str) -> list[Collective]:
    """Of a program as `compiled.as_text()` prints it."""
    return [
        Collective(step.kind, _size(step.shape), step.times, step.open_ended)
        for step in _steps(text)
        if step.kind in KINDS
    ]


def kernels(text: str) -> int:
    """How many operations run, one after another or not; what is fused counts as one."""
    return sum(step.times for step in _steps(text) if step.kind not in FREE)


def total(found: list[Collective]) -> tuple[int, int]:
    """(how many collectives, how many bytes) per round."""
    return sum(c.times for c in found), sum(c.times * c.bytes for c in found)


class _Step(NamedTuple):
    kind: str
    shape: str
    times: int
    open_ended: bool


def _steps(text: str) -> Iterator[_Step]:
    bodies = dict(_computations(text))
    entry = next(name for name, (is_entry, _) in bodies.items() if is_entry)
    return _inside(bodies, entry, 1, False)


def _computations(text: str) -> Iterator[tuple[str, tuple[bool, list[str]]]]:
    name, entry, lines = None, False, []
    for line in text.splitlines():
        if name is None:
            if (head := HEAD.match(line)) is not None:
                name, entry, lines = head[2], head[1] is not None, []
        elif line.startswith("}"):
            yield name, (entry, lines)
            name = None
        else:
            lines.append(line)


def _inside(bodies: dict[str, tuple[bool, list[str]]], name: str, times: int, open_ended: bool) -> Iterator[_Step]:
    for line in bodies[name][1]:
        found = STEP.search(line)
        if found is None:
            continue
        kind = found["kind"].removesuffix("-start")
        yield _Step(kind, found["shape"], times, open_ended)
        if kind not in ("while", "call", "conditional", "async"):
            continue  # what is applied to each entry, or fused, is no step of its own
        trips = TRIPS.search(line) if kind == "while" else None
        called = [*CALLED.findall(line), *(n.strip(" %") for m in BRANCHES.findall(line) for n in m.split(","))]
        for inner in dict.fromkeys(called):
            if inner in bodies:
                unknown = kind == "while" and trips is None
                yield from _inside(bodies, inner, times * int(trips[1] if trips else 1), open_ended or unknown)


def _size(shape: str) -> int:
    """Bytes of `f32[2,8]{1,0}`, or of a tuple of such."""
    total = 0
    for dtype, dims in ARRAY.findall(shape):
        count = BYTES.get(dtype, 4)
        for dim in filter(None, dims.split(",")):
            count *= int(dim)
        total += count
    return total
