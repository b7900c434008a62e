"""What a decision was asked with, as one value; and as JSON that brings every bit of it back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from trident.runtime.bundle import Space
from trident.runtime.inputs import as_flags, as_floats, as_number, as_vector, pick

MALFORMED = "malformed"


class Message(NamedTuple):
    """All that a decision depends on, as it came (see `Guard.decide`)."""

    observations: Any
    stamps: Any = None
    sequence: Any = None
    mask: Any = None
    alive: Any = None
    margin: Any = None
    cost: Any = None
    state: Any = None
    env_state: Any = None


def pack(message: Message, space: Space) -> dict[str, Any]:
    """Only what is there. What cannot be understood is kept as that: it is refused again in a replay."""
    n, modes = space.low.shape[:2]
    out: dict[str, Any] = {"obs": _rows(message.observations, n, _observation)}
    if message.stamps is not None:
        out["stamps"] = _rows(message.stamps, n, as_number)
    if message.sequence is not None:
        out["sequence"] = _rows(message.sequence, n, as_number)
    flags = {"mask": (message.mask, (n, modes)), "alive": (message.alive, (n,))}
    for name, (value, shape) in flags.items():
        if value is not None:
            array = as_flags(value, shape)
            out[name] = MALFORMED if array is None else encode(array)
    for name, value in (("margin", message.margin), ("cost", message.cost), ("state", message.state)):
        array = None if value is None else as_floats(value)
        if array is not None and as_vector(array, array.size) is not None:
            out[name] = encode(array)
    if isinstance(message.env_state, Mapping):
        out["env_state"] = {str(name): _array(value) for name, value in message.env_state.items()}
    return out


def unpack(packed: Mapping[str, Any]) -> Message:
    fields = {name: _decoded(value) for name, value in packed.items()}
    return Message(fields.pop("obs"), **fields)


def _rows(values: Any, n: int, convert: Any) -> dict[str, Any]:
    rows = {str(i): pick(values, i, n) for i in range(n)}
    return {i: MALFORMED if (v := convert(row)) is None else v for i, row in rows.items() if row is not None}


def _observation(row: Any) -> Any:
    array = as_floats(row)
    return None if array is None or array.size > 2**20 else encode(array)


def _array(value: Any) -> Any:
    """As it is: a shield's state has whole numbers and booleans, too."""
    return MALFORMED if as_floats(value) is None else encode(np.asarray(value))


def _decoded(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {"kind", "shape", "data"}:
            return decode(value)
        return {name: _decoded(each) for name, each in value.items()}
    return value


def encode(array: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"kind": array.dtype.str, "shape": list(array.shape), "data": data}


def decode(packed: Mapping[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), packed["kind"]).reshape(packed["shape"])
