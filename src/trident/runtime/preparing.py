"""What a program does over and over for batches of one size, with all that can be known beforehand done beforehand.

NumPy takes a microsecond or more to be told anything, and a policy tells it hundreds of things: on small teams the
number of steps is the cost. So what does not depend on the inputs is worked out once, the same step is not taken twice,
and arrays are not spread out that are only read by arithmetic that spreads them anyway. No result changes by a bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trident.runtime.operations import ELEMENTWISE, OPERATIONS, thin_shape


class Step(NamedTuple):
    call: Callable[..., Any]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


class _Read(NamedTuple):
    """A step as it stands in the program, sizes filled in."""

    op: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    params: dict[str, Any]


def prepare(
    steps: Sequence[tuple[str, Sequence[int], Sequence[int], Any]],
    constants: Mapping[int, np.ndarray],
    given: Sequence[np.ndarray],
    slots: int,
    outputs: Sequence[int],
) -> tuple[list[Any], list[Step], dict[int, int]]:
    """(values of the constants by slot, steps that are left, where to look for a slot that nobody writes any more)."""
    values: list[Any] = [None] * slots
    for slot, array in [*constants.items(), *enumerate(given)]:
        values[slot] = array
    known, same = set(constants), {}
    left: list[_Read] = []
    taken: dict[str, tuple[int, ...]] = {}
    for op, reads, writes, params in steps:
        step = _Read(op, tuple(same.get(slot, slot) for slot in reads), tuple(writes), params)
        what = json.dumps([op, step.reads, params])
        if what in taken:
            same |= dict(zip(step.writes, taken[what], strict=True))
            continue
        taken[what] = step.writes
        run([Step(OPERATIONS[op](params), step.reads, step.writes)], values)
        if known.issuperset(step.reads):
            known.update(step.writes)
        else:
            left.append(step)
    left, omitted = _narrow(left, values, {same.get(slot, slot) for slot in outputs})
    made = [
        Step(OPERATIONS[step.op](step.params), tuple(omitted.get(slot, slot) for slot in step.reads), step.writes)
        for step in left
    ]
    return [value if slot in known else None for slot, value in enumerate(values)], made, same


def _narrow(steps: list[_Read], values: Sequence[np.ndarray], kept: set[int]) -> tuple[list[_Read], dict[int, int]]:
    """Without broadcasts for arithmetic that has the whole shape from another operand: where NumPy lines the axes up
    by itself they are omitted (what is read instead, by slot), else they only put axes of size 1 in place."""
    readers: dict[int, list[_Read]] = {}
    for step in steps:
        for slot in step.reads:
            readers.setdefault(slot, []).append(step)
    narrow, omitted = set[int](), dict[int, int]()
    out: list[_Read] = []
    for step in steps:
        slot, shape = step.writes[0], np.shape(values[step.writes[0]])

        def spreads(reader: _Read, slot: int = slot, shape: tuple[int, ...] = shape) -> bool:
            others = [r for r in reader.reads if r != slot and r not in narrow]
            return reader.op in ELEMENTWISE and any(np.shape(values[r]) == shape for r in others)

        if step.op != "broadcast_in_dim" or slot in kept or not all(map(spreads, readers.get(slot, ()))):
            out.append(step)
            continue
        narrow.add(slot)
        before, after = np.shape(values[step.reads[0]]), thin_shape(step.params, np.shape(values[step.reads[0]]))
        if (1,) * (len(after) - len(before)) + before == after:
            omitted[slot] = omitted.get(step.reads[0], step.reads[0])
        else:
            out.append(step._replace(op="reshape", params={"new_sizes": list(after)}))
    return out, omitted


def run(steps: Sequence[Step], values: list[Any]) -> None:
    for call, reads, writes in steps:
        out = call(*[values[slot] for slot in reads])
        if len(writes) == 1:
            values[writes[0]] = out
        else:
            for slot, each in zip(writes, out, strict=True):
                values[slot] = each
