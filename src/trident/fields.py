"""Fields of configs: frozen dataclasses, some of them in groups that are dataclasses themselves."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from trident.errors import TridentError

Config = TypeVar("Config")


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """{"group.field": value}, in the order of declaration."""
    flat = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        grouped = dataclasses.is_dataclass(value)
        flat |= flatten(value, f"{prefix}{field.name}.") if grouped else {prefix + field.name: value}
    return flat


def change(config: Config, changes: Mapping[str, Any], owner: str = "the config") -> Config:
    """The config with some fields changed: {"group.field": value}, {"group": {"field": value}}, or the field's name
    alone. Lists become tuples; an unknown name is a TridentError that names the nearest one."""
    for name, value in changes.items():
        path = spelled_out(config, name, owner)
        head, _, rest = path.partition(".")
        old = getattr(config, head)
        if rest:
            value = change(old, {rest: value}, owner)
        elif dataclasses.is_dataclass(old) and isinstance(value, Mapping):
            value = change(old, value, f"{owner}.{head}")
        config = dataclasses.replace(config, **{head: _tupled(value)})  # pyright: ignore[reportArgumentType]
    return config


def spelled_out(config: Any, name: str, owner: str) -> str:
    """`group.field` of a field that is named alone."""
    flat, own = list(flatten(config)), [f.name for f in dataclasses.fields(config)]
    if name in flat or name in own:
        return name
    found = [path for path in flat if path.rpartition(".")[2] == name]
    if len(found) != 1:
        check_name("config field", name, [*own, *flat], owner)
    return found[0]


def check_name(kind: str, name: str, known: Iterable[str], owner: str) -> None:
    """A TridentError that names the nearest spelling, unless `name` is known."""
    known = list(known)
    if name in known:
        return
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
    raise TridentError(f"unknown {kind} {name!r} of {owner}: {hint}")


def _tupled(value: Any) -> Any:
    return tuple(_tupled(v) for v in value) if isinstance(value, list | tuple) else value
