"""A pure function of arrays as data: a list of operations, run by NumPy.

    {"format": 1, "inputs": [[name, shape, dtype], ...], "constants": [[slot, name], ...],
     "steps": [[operation, [slots read], [slots written], params], ...], "outputs": [[name, slot], ...]}

A size in a shape is a number, or "3b": three times the batch. Constants stand in a safetensors file by name. Nothing in
it is code: a program can do arithmetic on its inputs and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.runtime.operations import OPERATIONS
from trident.runtime.preparing import Step, prepare, run

FORMAT = 1
KEPT = 8
"""Batch sizes that are kept prepared."""


class Program:
    """Call it with its inputs by name, each [batch, ...]; it returns its outputs by name."""

    def __init__(self, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]):
        try:
            if content["format"] != FORMAT:
                raise TridentError(f"the program has format {content['format']}, this trident runs format {FORMAT}")
            self.inputs = {name: (tuple(shape), np.dtype(kind)) for name, shape, kind in content["inputs"]}
            self.outputs: dict[str, int] = dict(content["outputs"])
            self._constants = {slot: arrays[name] for slot, name in content["constants"]}
            self._constants |= {slot: np.asarray(value, kind) for slot, value, kind in content["literals"]}
            self._steps = [(op, tuple(reads), tuple(writes), params) for op, reads, writes, params in content["steps"]]
            self._slots: int = content["slots"]
        except (KeyError, TypeError, ValueError) as error:
            raise TridentError(f"the program is damaged: {type(error).__name__} {error}") from error
        unknown = sorted({op for op, *_ in self._steps} - OPERATIONS.keys())
        if unknown:
            raise TridentError(f"the program needs operations that this trident does not have: {', '.join(unknown)}")
        self._prepared: dict[int, tuple[list[Any], list[Step], dict[str, int]]] = {}

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        given, batch = self._check(inputs)
        with np.errstate(all="ignore"):
            if batch not in self._prepared:
                while len(self._prepared) >= KEPT:
                    self._prepared.pop(next(iter(self._prepared)))
                self._prepared[batch] = self._prepare(given, batch)
            values, steps, slots = self._prepared[batch]
            values = [*given, *values[len(given) :]]
            run(steps, values)
        return {name: np.asarray(values[slot]) for name, slot in slots.items()}

    def _check(self, inputs: Mapping[str, Any]) -> tuple[list[np.ndarray], int]:
        if inputs.keys() != self.inputs.keys():
            raise TridentError(f"the program takes {', '.join(self.inputs)}, not {', '.join(inputs) or 'nothing'}")
        given = [np.asarray(inputs[name], kind) for name, (_, kind) in self.inputs.items()]
        batch = given[0].shape[0] if given[0].ndim else 0
        for (name, (shape, _)), array in zip(self.inputs.items(), given, strict=True):
            wanted = sized(list(shape), batch)
            if list(array.shape) != wanted or batch < 1:
                raise TridentError(f"{name} must have shape {[s if isinstance(s, int) else 'batch' for s in shape]}, "
                                   f"not {list(array.shape)}")  # fmt: skip
        return given, batch

    def _prepare(self, given: list[np.ndarray], batch: int) -> tuple[list[Any], list[Step], dict[str, int]]:
        steps = [(op, reads, writes, sized(params, batch)) for op, reads, writes, params in self._steps]
        values, left, same = prepare(steps, self._constants, given, self._slots, list(self.outputs.values()))
        return values, left, {name: same.get(slot, slot) for name, slot in self.outputs.items()}


def sized(value: Any, batch: int) -> Any:
    """The same with every "3b" replaced by three batches."""
    if isinstance(value, str) and value.endswith("b") and value[:-1].isdigit():
        return int(value[:-1]) * batch
    if isinstance(value, list | tuple):
        return [sized(each, batch) for each in value]
    if isinstance(value, dict):
        return {name: sized(each, batch) for name, each in value.items()}
    return value
