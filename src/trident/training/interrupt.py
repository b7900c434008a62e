"""Ctrl-C and SIGTERM, heard at once.

Python runs a signal's handler in the main thread, when whatever runs there looks for it. XLA's compiler does (jaxlib
0.10.1, within 0.2 s); loading a program from the cache (2.7 s of CPU time for TRIDENT's round), drawing and simulators
do not. So a thread reads the descriptor that the system's own handler writes to. Only what holds Python's lock can keep
it waiting: garbage collection while a round is traced takes up to 0.8 s. The work itself stays in the main thread.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trident.report.progress import Progress

PATIENCE = 1.5
"""Seconds that the main thread has to hear an interrupt by itself."""
_ours = False
"""Whether the process is the command line's own: only then may a signal end it in the middle of something."""


@contextmanager
def hearing(numbers: tuple[int, ...], note: Callable[[int], None], react: Callable[[int, int], None]) -> Iterator[None]:
    """`note(signal)` runs in the main thread when Python gets to it; `react(signal, how many so far)` in a thread of
    its own, at once and for each of them. Outside the main thread nothing is heard."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)

    def listen() -> None:
        times = 0
        while heard := ear.recv(1):  # b"" when the other end is closed
            if heard[0] in numbers:
                times += 1
                react(heard[0], times)

    thread = threading.Thread(target=listen, name="trident-signals", daemon=True)
    thread.start()
    handlers = {number: signal.signal(number, lambda number, _: note(number)) for number in numbers}
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        mouth.close()
        thread.join()
        ear.close()


@dataclass
class Stop:
    """Whether a run was asked to stop."""

    signal: int | None = None
    begun: bool = False
    """Whether rounds are being played yet."""


@contextmanager
def stopping(progress: Progress, out: Path) -> Iterator[Stop]:
    """The first signal asks the run to stop after its round; the second one ends the process at once. While nothing has
    been played there is nothing to wait for: the command line leaves at the first."""
    stop = Stop()

    def note(number: int) -> None:
        stop.signal = stop.signal or number

    def react(number: int, times: int) -> None:
        if times > 1:
            leave(number, progress)
        note(number)
        if _ours and not stop.begun:
            leave(number, progress, f"stopped while compiling, nothing was lost; to go on: trident resume {out}")
        when = "after this round" if stop.begun else "before the next round"
        progress.say(f"stopping {when} (once more to quit at once)")

    with hearing((signal.SIGTERM, signal.SIGINT), note, react):
        yield stop


@contextmanager
def leaving(progress: Progress, text: str) -> Iterator[None]:
    """For work that may be left at any moment: the command line says `text` and is gone at the first signal."""
    if not _ours:
        yield
        return
    with hearing((signal.SIGTERM, signal.SIGINT), lambda _: None, lambda number, _: leave(number, progress, text)):
        yield


@contextmanager
def own_process() -> Iterator[None]:
    """The command line's process: Ctrl-C is a KeyboardInterrupt, once; if the main thread does not hear it, or it comes
    again, the process ends, without the noise that exceptions make in the middle of clean-up."""
    global _ours
    heard = threading.Event()

    def note(_: int) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def react(number: int, times: int) -> None:
        if times > 1:
            leave(number)
        if not heard.wait(PATIENCE):
            leave(number, text="trident: interrupted")

    _ours = True
    try:
        with hearing((signal.SIGINT,), note, react):
            yield
    finally:
        _ours = False
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to do: dying of it is quieter than Python's way


def leave(number: int, progress: Progress | None = None, text: str | None = None) -> NoReturn:
    """End the process from whichever thread, though another one may be deep in compiled code."""
    with suppress(Exception):  # the reader of our output may be gone
        if progress is not None:
            progress.end()
        if text is not None:
            print(text, file=sys.stdout if progress is not None else sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + number)
