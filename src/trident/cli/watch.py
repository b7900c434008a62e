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

from trident.allowed import Length, Range
from trident.cli.options import parse
from trident.errors import TridentError
from trident.report.page.server import serving

READY = 20.0
"""Seconds that a server may take to say where it is."""


@dataclass(frozen=True)
class WatchOptions:
    places: tyro.conf.Positional[Annotated[tuple[Path, ...], Length(1, 1000), tyro.conf.arg(metavar="RUN|FOLDER")]]
    """Run directories, or folders of them."""
    port: Annotated[int, Range(1, 65535)] | None = None
    """Port on this machine (default: 8420, or any that is free)."""


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
            with suppress(KeyboardInterrupt):
                server.serve_forever(poll_interval=0.5)
    except (OSError, OverflowError) as error:
        raise TridentError(f"cannot serve on port {options.port}: {error}; try another --port") from error
    return 0


def serve_beside(folder: str) -> None:
    """The server's own process beside a training, which comes first. Whoever started it holds the other end of its
    standard input, until it is gone."""
    os.nice(15)
    with serving([Path(folder)]) as (server, address):
        print(address, flush=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.5}, daemon=True).start()
        with suppress(OSError, KeyboardInterrupt):
            while sys.stdin.buffer.read(1):
                pass


@contextmanager
def watched(out: Path) -> Iterator[str | None]:
    """A server of its own process, at low priority, beside a training; its address, or None if there is none to be
    had. It ends with the training."""
    program = "import sys; from trident.cli.watch import serve_beside; serve_beside(sys.argv[1])"
    command = [sys.executable, "-c", program, str(out)]
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
