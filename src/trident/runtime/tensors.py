"""Arrays by name in the safetensors format: eight bytes of length, a JSON header, then the bytes of every array.

The format is what everybody reads (https://github.com/huggingface/safetensors); these are the few lines of it that
need no package beside NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from trident.errors import TridentError

KINDS = {
    "F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
NAMES = {np.dtype(kind): name for name, kind in KINDS.items()}


def dump(arrays: Mapping[str, np.ndarray]) -> bytes:
    header, parts, offset = {}, [], 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        kind = NAMES[np.dtype(array.dtype).newbyteorder("<")]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def parse(data: bytes, name: str = "the file") -> dict[str, np.ndarray]:
    try:
        size = int.from_bytes(data[:8], "little")
        header, body = json.loads(data[8 : 8 + size]), memoryview(data)[8 + size :]
        arrays = {}
        for key, entry in header.items():
            if key == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= len(body):
                raise ValueError("it is cut short")
            arrays[key] = np.frombuffer(body[begin:end], KINDS[entry["dtype"]]).reshape(entry["shape"])
        return arrays
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TridentError(f"{name} is damaged: {type(error).__name__}") from error
