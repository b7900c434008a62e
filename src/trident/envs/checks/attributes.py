"""Does a JAX environment keep state on itself? Its functions are traced once and then never called again, so what they
leave on `self` is lost, or, worse, a tracer that comes back in the next program."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

PLAIN = (int, float, str, bytes, list, dict, set, tuple)
"""Whose content tells whether they were changed in place."""


def noted(env: Any) -> dict[str, Any]:
    """What its attributes are before anything is called."""
    return {name: _mark(value) for name, value in getattr(env, "__dict__", {}).items()}


def changed_attributes(env: Any, before: dict[str, Any]) -> Iterator[str]:
    after = noted(env)
    for name in after:
        cached = isinstance(getattr(type(env), name, None), cached_property)
        if not cached and after[name] != before.get(name):
            yield f"reset or step changes self.{name}; keep no state on self: return it in the env state"


def _mark(value: Any) -> Any:
    return id(value), repr(value) if isinstance(value, PLAIN) else None
