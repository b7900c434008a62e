"""Command-line options from dataclasses (tyro), with every mistake answered in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
import typing
from typing import TypeVar

import tyro

from trident.allowed import check_value, fields
from trident.errors import TridentError
from trident.renamed import OPTIONS, current

T = TypeVar("T")


HELP, HELP_ALL = ("-h", "--help"), "--help-all"


def wants_help(argv: list[str]) -> bool:
    return any(word in (*HELP, HELP_ALL) for word in argv)


def parse(options: type[T], argv: list[str], command: str, description: str, brief: str | None = None) -> T:
    """`options` is a dataclass whose field docstrings are the help texts. Of a command with many options --help shows
    `brief`, and --help-all everything."""
    argv = [current(word, OPTIONS) for word in argv]
    if not wants_help(argv):
        _check_names(options, argv, command)
    elif brief is not None and HELP_ALL not in argv:
        print(brief)
        raise SystemExit(0)
    argv = ["--help" if word == HELP_ALL else word for word in argv]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = tyro.cli(
                options,
                prog=f"trident {command}",
                description=description,
                args=argv,
            )
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        raise TridentError(f"{_first_message(said.getvalue())} (`trident {command} --help`)") from None
    return _checked(parsed)


def _checked(options: T) -> T:
    """Groups of options are checked where they are used: together with what they are used on."""
    for name, kind, value in fields(options):
        if not dataclasses.is_dataclass(value):
            check_value(f"--{name.replace('_', '-')}", kind, value)
    return options


def _check_names(options: type, argv: list[str], command: str) -> None:
    known, seen = dict(_names(options, "")), set()
    for word in argv:
        name = word.partition("=")[0].replace("_", "-")
        if not name.startswith("--"):
            continue
        if name in known:
            if name in seen and typing.get_origin(known[name]) is dict:  # only the last would count
                raise TridentError(f"{name} stands twice: give it once, with all its values ({name} A=1 B=2)")
            seen.add(name)
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise TridentError(f"unknown option {name}: {hint}`trident {command} --help` shows all of them")


def _names(options: type, prefix: str) -> typing.Iterator[tuple[str, typing.Any]]:
    """Every option's spelling, as tyro makes them, and its type."""
    hints = typing.get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):  # pyright: ignore[reportArgumentType]
        hint, name = hints[field.name], field.name.replace("_", "-")
        kind = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        for extra in getattr(hint, "__metadata__", ()):
            name = getattr(extra, "name", None) if getattr(extra, "name", None) is not None else name
        if dataclasses.is_dataclass(kind):
            yield from _names(kind, f"{prefix}{name}." if name else prefix)  # pyright: ignore[reportArgumentType]
        else:
            yield f"--{prefix}{name}", kind
            if kind is bool:
                yield f"--{prefix}no-{name}", kind


def _first_message(box: str) -> str:
    """What tyro's error box says first. In Unicode its title is part of the frame, in ASCII a line of its own."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box).strip()
    parts = [" ".join(part.replace("│", " ").split()) for part in re.split(r"(?m)^.*[─-]{6,}.*$", text)]
    parts = [part for part in parts if part]
    return next(iter(parts if text.startswith("╭") else parts[1:]), "the arguments cannot be understood")
