"""Files that carry their own proof: JSON objects with a digest of themselves, lines with a running one; and reading
them as if a stranger had made them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trident.allowed import kind_fault
from trident.errors import TridentError

DIGEST = "digest"
MOST_BYTES = 2**26
"""Of a JSON file; the largest run.json so far has 60 KiB."""


def digest_of(content: Any, before: str = "") -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256((before + text).encode()).hexdigest()[:32]


def seal(content: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The object with its digest, which is its last entry; `before` is the digest of what it follows."""
    plain = json.loads(json.dumps({k: v for k, v in content.items() if k != DIGEST}, allow_nan=False))
    return plain | {DIGEST: digest_of(plain, before)}


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Of a regular file of a sensible size: no links, pipes or devices."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror or str(error)
        raise TridentError(f"{path} cannot be read: {reason}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise TridentError(f"{path} cannot be read: it is not a regular file")
        if status.st_size > most:
            raise TridentError(f"{path} cannot be read: {status.st_size:,} bytes are more than any such file has")
        return file.read(most + 1)


def parse(data: bytes) -> Any:
    """JSON without numbers that are not finite and without control characters; ValueError says what is wrong."""
    try:
        content = json.loads(data, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
        _check_texts(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError("it is not JSON") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    return content


def unseal(content: Any, before: str = "") -> dict[str, Any]:
    """The object without its digest; ValueError if that is wrong. Objects of earlier versions have none."""
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    rest = {k: v for k, v in content.items() if k != DIGEST}
    if DIGEST not in content and re.fullmatch(r"[0-9a-f]{32}", str(next(reversed(content.values()), ""))):
        raise ValueError("its digest has lost its name")
    if DIGEST in content and content[DIGEST] != digest_of(rest, before):
        raise ValueError("its content is not what was written")
    return rest


def read_sealed(path: Path, schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        content = unseal(parse(read_bytes(path)))
        for fault in schema_faults(schema, content):
            raise ValueError(fault)
    except ValueError as error:
        raise TridentError(f"{path} is damaged: {error}") from error
    return content


def schema_faults(schema: Any, content: Any, where: str = "") -> Iterator[str]:
    """`schema` is {"name": schema}, where a name that ends with "?" may be missing, [schema of each entry],
    {...: schema of each value}, or a kind of `trident.allowed`. Entries that it does not name are let be."""
    if isinstance(schema, dict):
        if not isinstance(content, dict):
            yield f"{where or 'it'} must be an object"
            return
        inner = schema.get(...)
        for name, part in schema.items() if inner is None else ((name, inner) for name in content):
            bare = name.removesuffix("?") if inner is None else name
            if bare in content:
                yield from schema_faults(part, content[bare], f"{where}.{bare}".lstrip("."))
            elif bare == name:
                yield f"it has no {f'{where}.{bare}'.lstrip('.')}"
    elif isinstance(schema, list):
        if not isinstance(content, list):
            yield f"{where} must be a list"
            return
        for i, entry in enumerate(content):
            yield from schema_faults(schema[0], entry, f"{where}[{i}]")
    else:
        fault = kind_fault(schema, content)
        if fault is not None:
            yield f"{where} must be {fault}"


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is too large")
    return value


def _whole(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"{text[:20]}... is too large")
    return int(text)


def _check_texts(content: Any) -> None:
    """What is read is shown on terminals, where control characters would be obeyed."""
    if isinstance(content, str) and not content.isprintable():
        raise ValueError(f"it has control characters, in {content[:40]!r}")
    if isinstance(content, dict):
        for key, value in content.items():
            _check_texts(key)
            _check_texts(value)
    elif isinstance(content, list):
        for value in content:
            _check_texts(value)
