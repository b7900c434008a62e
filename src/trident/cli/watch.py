"""`trident watch`: runs in the browser while they train."""

from __future__ import annotations

import os
import socket
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
from trident.report.page.server import address_of, listen, serving


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


def serve_beside(folder: str, descriptor: str) -> None:
    """The server's own process beside a training, which comes first. Whoever started it listens already, and holds the
    other end of its standard input, until it is gone."""
    os.nice(15)
    with serving([Path(folder)], at=socket.socket(fileno=int(descriptor))) as (server, _):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.5}, daemon=True).start()
        with suppress(OSError, KeyboardInterrupt):
            while sys.stdin.buffer.read(1):
                pass


@contextmanager
def watched(out: Path) -> Iterator[str | None]:
    """A server of its own process, at low priority, beside a training; its address, or None if there is none to be
    had. Training does not wait for it, however busy the machine is; it ends with the training."""
    try:
        listening = listen()
    except OSError:
        yield None
        return
    with listening:  # whoever asks before the server is there has to wait for it
        address, descriptor = address_of(listening), listening.fileno()
        program = "import sys; from trident.cli.watch import serve_beside; serve_beside(*sys.argv[1:])"
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(out), str(descriptor)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(descriptor,),
        )  # fmt: skip
    try:
        yield address
    finally:
        with suppress(OSError):
            child.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
        try:
            child.wait(timeout=3)
        except subprocess.TimeoutExpired:
            child.kill()
