"""Counts of what attacks met, and the attack's own clock."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from trident.errors import TridentError, UnexpectedError

PATIENCE = 60
"""Seconds of processor time after which something counts as hanging."""
ASLEEP = 10
"""As many times that on the wall clock: who waits for something takes no processor time, and others take it away."""
EXAMPLES = 20


class Hang(BaseException):
    """Not an Exception: nothing that is attacked may catch it."""


@dataclass
class Tally:
    """What came of a number of tries. Everything but the first three is a failure."""

    tries: int = 0
    refused: int = 0
    sound: int = 0
    tracebacks: int = 0
    silent: int = 0
    hangs: int = 0
    lost: int = 0
    seconds: float = 0.0
    """Of processor time, without what child processes took."""
    examples: list[str] = field(default_factory=list)
    keep: Callable[[dict[str, Any]], None] = lambda _: None
    """Called after every try."""

    @property
    def failures(self) -> int:
        return self.tracebacks + self.silent + self.hangs + self.lost

    def fail(self, kind: str, what: Any) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.examples.append(f"{kind}: {what}"[:400])

    @contextmanager
    def attempt(self, what: Any, patience: int = PATIENCE) -> Iterator[None]:
        """A try: a TridentError of one line is as it should be; whatever else is raised is a failure. What is neither
        has been sound."""
        began, failures, refused = time.process_time(), self.failures, self.refused
        with _clock(patience):
            try:
                yield
            except Hang:
                self.fail("hangs", what)
            except UnexpectedError as error:
                self.fail("tracebacks", f"{what}: {error}")
            except TridentError as error:
                if "\n" in str(error):
                    self.fail("tracebacks", f"{what}: more than one line: {error}")
                else:
                    self.refused += 1
            except (Exception, SystemExit) as error:
                self.fail("tracebacks", f"{what}: {type(error).__name__}: {error}")
        self.tries += 1
        self.sound += (failures, refused) == (self.failures, self.refused)
        self.seconds += time.process_time() - began
        self.keep(self.plain())

    def plain(self) -> dict[str, Any]:
        plain = asdict(self) | {"examples": self.examples[:EXAMPLES], "seconds": round(self.seconds, 1)}
        return {name: value for name, value in plain.items() if name != "keep"}


@contextmanager
def _clock(patience: int) -> Iterator[None]:
    """It rings again and again: an exception that is raised inside a callback of somebody's is swallowed there."""
    clocks = ((signal.SIGALRM, signal.ITIMER_REAL, patience * ASLEEP), (signal.SIGPROF, signal.ITIMER_PROF, patience))
    before = [signal.signal(number, _hang) for number, _, _ in clocks]
    try:
        for _, timer, seconds in clocks:
            signal.setitimer(timer, seconds, 1)
        yield
    finally:
        for (number, timer, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _hang(*_: Any) -> None:
    raise Hang
