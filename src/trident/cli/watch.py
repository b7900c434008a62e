"""`trident watch`: runs in the browser while they train."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trident.allowed import Range
from trident.cli.options import parse
from trident.errors import TridentError
from trident.report.page.server import serving

READY = 20.0
"""Seconds that a server may take to say where it is."""


@dataclass(frozen=True)
class WatchOptions:
    places: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN|FOLDER")]]
    """Run directories, or folders of them."""
    port: Annotated[int | None, Range(1, 65535)] = None
    """Port on this machine (default: 8420, or any that is free)."""
    with_parent: tyro.conf.Suppress[tyro.conf.FlagCreatePairsOff[bool]] = False
    """End when standard input does."""


def watch(argv: list[str]) -> int:
    text = """\
Serve a page that shows runs while they train; only this machine can see it.

Examples:
  trident watch runs/my-run
  trident watch runs              every run in a folder, new ones included

Ctrl-C ends it, and no training. From elsewhere: ssh -L 8420:localhost:8420.
"""
    options = parse(WatchOptions, argv, "watch", text)
    if not options.places:
        raise TridentError("watch what? for example: trident watch runs")
    if missing := [str(p) for p in options.places if not p.is_dir()]:
        raise TridentError(f"{missing[0]} is not a folder")
    try:
        with serving(list(options.places), options.port) as (server, address):
            print(address, flush=True)
            if options.with_parent:
                os.nice(15)  # training comes first
                threading.Thread(target=_follow, args=(server.shutdown,), daemon=True).start()
            with suppress(KeyboardInterrupt):
                server.serve_forever(poll_interval=0.5)
    except (OSError, OverflowError) as error:
        raise TridentError(f"cannot serve on port {options.port}: {error}; try another --port") from error
    return 0


def _follow(end: object) -> None:
    """Whoever started this process holds the other end of its standard input, until it is gone."""
    with suppress(OSError):
        while sys.stdin.buffer.read(1):
            pass
    end()  # pyright: ignore[reportCallIssue]


@contextmanager
def watched(out: Path) -> Iterator[str | None]:
    """A server of its own process, at low priority, beside a training; its address, or None if there is none to be
    had. It ends with the training."""
    command = [sys.executable, "-m", "trident", "watch", str(out), "--with-parent"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield _address(child)
    finally:
        with suppress(OSError):
            child.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
        try:
            child.wait(timeout=3)
        except subprocess.TimeoutExpired:
            child.kill()


def _address(child: subprocess.Popen[str]) -> str | None:
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(child.stdout.readline()), daemon=True)  # pyright: ignore
    reader.start()
    reader.join(READY)
    return said[0].strip() or None if said else None
