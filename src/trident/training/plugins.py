"""Environments and algorithms of other packages: found by entry points, imported when their name is first used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trident.errors import TridentError


def find(group: str, built_in: Container[str]) -> dict[str, EntryPoint]:
    """The entry points of a group by name. A name that is taken is refused with a warning."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in built_in:
            warnings.warn(f"{describe(point)} is left out: the name is built in", stacklevel=2)
        elif found.setdefault(point.name, point) is not point:
            warnings.warn(f"{describe(point)} is left out: {describe(found[point.name])} has that name", stacklevel=2)
    return found


def describe(point: EntryPoint) -> str:
    return f"the plug-in {point.name!r} of the package {package(point)}"


def package(point: EntryPoint) -> str:
    return (point.dist is not None and point.dist.name) or point.module


def attempt(point: EntryPoint, function: Callable[[], Any]) -> Any:
    """What the plug-in's function returns; whatever goes wrong in it is one line that names its package."""
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise broken(point, f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def broken(point: EntryPoint, reason: str) -> TridentError:
    return TridentError(f"{describe(point)} cannot be used: {reason}")
