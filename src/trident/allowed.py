"""What a setting may be. Every field of a config says so by its type, and one check serves the command line, Python,
files and runs that are read back.

    lr: Rate = 5e-4
    critic: Literal["central", "factored"] = "central"

A `bool`, a `Literal` or a `Path` says all there is to say; a number needs a `Range`, a text `TEXT`. What depends on
several fields is said by the config's own `faults()`, a generator of lines.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from trident.errors import TridentError

Config = TypeVar("Config")


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`, the ends included unless `above` or `below` take their place."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    usual: tuple[float, float] | None = None
    """What is outside is allowed, with a word of warning."""

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        low = f"above {_short(self.above)}" if self.above >= self.least else f"at least {_short(self.least)}"
        high = f"below {_short(self.below)}" if self.below <= self.most else f"at most {_short(self.most)}"
        ends = [low] * math.isfinite(max(self.above, self.least)) + [high] * math.isfinite(min(self.below, self.most))
        return " and ".join(ends)


@dataclass(frozen=True)
class Length:
    """How many entries a tuple may have."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least} to {self.most} of them"


@dataclass(frozen=True)
class _Text:
    """Printable, of one line."""

    def __str__(self) -> str:
        return "printable, of one line"


TEXT = _Text()

# --- the usual kinds ------------------------------------------------------------------------------

Count = Annotated[int, Range(1, 2**20)]
"""Environments, steps, minibatches, rows of a batch."""
Rows = Annotated[int, Range(1, 2**31 - 1)]
"""Transitions in memory."""
Passes = Annotated[int, Range(1, 10**5, usual=(1, 10**4))]
Width = Annotated[int, Range(1, 2**16)]
Widths = Annotated[tuple[Width, ...], Length(1, 16)]
"""Hidden layers."""
Rate = Annotated[float, Range(0.0, 10.0, usual=(1e-8, 0.1))]
"""Learning rates."""
Share = Annotated[float, Range(0.0, 1.0)]
Fraction = Annotated[float, Range(0.0, below=1.0)]
Discount = Fraction
Positive = Annotated[float, Range(above=0.0, most=1e9)]
Weight = Annotated[float, Range(0.0, 1e9)]
Clip = Annotated[float, Range(above=0.0, most=10.0, usual=(1e-3, 1.0))]
TrustRegion = Annotated[float, Range(above=0.0, most=100.0, usual=(1e-7, 1.0))]
"""KL divergence of an update."""
Rounds = Annotated[int, Range(0, 10**6)]
LogStd = Annotated[float, Range(-4.0, 1.0)]
"""As wide as actors are: they clip it there."""
Name = Annotated[str, TEXT]
Names = Annotated[tuple[Name, ...], Length(0, 1000)]
Seed = Annotated[int, Range(0, 2**31 - 1)]

# --- the check ------------------------------------------------------------------------------------


def checked(config: Config, prefix: str = "--") -> Config:
    """The config with numbers of NumPy as Python's own; or a TridentError that names option, value and what is allowed.
    What is allowed but hardly meant is a warning."""
    config = _plain(config)
    for fault in faults(config, prefix):
        raise TridentError(fault)
    for doubt in _doubts(config, prefix):
        warnings.warn(doubt, stacklevel=3)
    return config


def check_value(option: str, kind: Any, value: Any) -> Any:
    """One value that is no field of a config, e.g. an argument of the Python API."""
    value = _number(value)
    fault = kind_fault(kind, value)
    if fault is not None:
        raise TridentError(f"{option} must be {fault}, not {_shown(value)}")
    return value


def faults(config: Any, prefix: str = "--") -> Iterator[str]:
    """Everything wrong with a config, one line each; the relations between fields only if each of them is right."""
    found = False
    for name, kind, value in fields(config):
        option = prefix + name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            inside = list(faults(value, f"{option}."))
            found = found or bool(inside)
            yield from inside
        elif (fault := kind_fault(kind, value)) is not None:
            found = True
            yield f"{option} must be {fault}, not {_shown(value)}"
    if not found and hasattr(config, "faults"):
        yield from (line.replace("--", prefix) for line in config.faults())


def undeclared(config: Any) -> list[str]:
    """Fields, groups' included, of which it is not said what they may be."""
    lost = []
    for name, kind, value in fields(config):
        if dataclasses.is_dataclass(value):
            lost += [f"{name}.{inner}" for inner in undeclared(value)]
        elif not _is_declared(kind):
            lost.append(name)
    return lost


def marks(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """`Annotated[T, ...]` -> (T, what is said of it)."""
    return (kind.__origin__, kind.__metadata__) if typing.get_origin(kind) is Annotated else (kind, ())


def fields(config: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, what it may be, value) of every field."""
    kinds = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        yield field.name, kinds[field.name], getattr(config, field.name)


def kind_fault(kind: Any, value: Any) -> str | None:
    """What the value should be, or None if it is."""
    kind, said = marks(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        wanted = [kind_fault(part, value) for part in inner]
        return None if None in wanted else " or ".join(dict.fromkeys(w for w in wanted if w))
    fault = _container_fault(origin, inner, value) if origin is not None else _plain_fault(kind, value)
    allowed = [str(mark) for mark in said if isinstance(mark, Range | Length | _Text)]
    if fault is not None:
        return " ".join([fault, *allowed]) if origin is None else fault
    for mark in said:
        outside = (
            (isinstance(mark, Range) and not mark.holds(value))
            or (isinstance(mark, Length) and not mark.least <= len(value) <= mark.most)
            or (mark is TEXT and not (value.isprintable() and value))
        )
        if outside:
            return str(mark)
    return None


def _container_fault(origin: Any, inner: tuple[Any, ...], value: Any) -> str | None:
    if origin is Literal:
        return None if any(value is x or (type(value) is type(x) and value == x) for x in inner) else _one_of(inner)
    if origin is dict:
        if not isinstance(value, Mapping):
            return "a mapping"
        pairs = [(kind, x) for pair in value.items() for kind, x in zip(inner, pair, strict=True)]
    elif origin is tuple:
        if not isinstance(value, tuple):
            return "a list"
        kinds = [inner[0]] * len(value) if len(inner) == 2 and inner[1] is ... else inner
        if len(kinds) != len(value):
            return f"a list of {len(kinds)}"
        pairs = list(zip(kinds, value, strict=True))
    else:
        return None  # a kind of the user's own
    wrong = next((fault for kind, x in pairs if (fault := kind_fault(kind, x)) is not None), None)
    return None if wrong is None else f"{'names with values' if origin is dict else 'a list of entries'} {wrong}"


def _plain_fault(kind: Any, value: Any) -> str | None:
    if kind is None or kind is types.NoneType:
        return None if value is None else "left out"
    if kind is bool:
        return None if isinstance(value, bool) else "true or false"
    if kind is int:
        return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # A whole number may be too large to be a float at all.
        return None if number and abs(value) <= 1.7e308 else "a finite number"
    if kind is str:
        return None if isinstance(value, str) else "a text"
    if kind is Path:
        return None if isinstance(value, Path | str) else "a path"
    return None


def _one_of(choices: tuple[Any, ...]) -> str:
    return f"one of {', '.join(map(str, choices))}"


def _is_declared(kind: Any) -> bool:
    kind, said = marks(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in (bool, None, types.NoneType, Path) or origin is Literal:
        return True
    if origin in (typing.Union, types.UnionType):
        return all(map(_is_declared, inner))
    if origin in (tuple, dict):
        sized = origin is dict or inner[-1] is not ... or any(isinstance(mark, Length) for mark in said)
        return sized and all(_is_declared(part) for part in inner if part is not ...)
    return kind in (int, float, str) and any(isinstance(mark, Range | _Text) for mark in said)


def _doubts(config: Any, prefix: str) -> Iterator[str]:
    for name, kind, value in fields(config):
        option = prefix + name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from _doubts(value, f"{option}.")
            continue
        for mark in marks(kind)[1]:
            usual = mark.usual if isinstance(mark, Range) else None
            if usual is not None and not usual[0] <= value <= usual[1]:
                yield f"{option} {_shown(value)} is unusual: most runs want it in [{usual[0]:g}, {usual[1]:g}]"


def _plain(config: Any) -> Any:
    changes = {}
    for name, _, value in fields(config):
        plain = _plain(value) if dataclasses.is_dataclass(value) else _number(value)
        if plain is not value:
            changes[name] = plain
    return dataclasses.replace(config, **changes) if changes else config


def _number(value: Any) -> Any:
    """NumPy's numbers as Python's, lists as tuples."""
    if isinstance(value, list | tuple):
        plain = tuple(_number(x) for x in value)
        same = isinstance(value, tuple) and all(a is b for a, b in zip(plain, value, strict=True))
        return value if same else plain
    scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if scalar else value


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**9 else f"{value:g}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
