"""Counts of what attacks met, and the attack's own clock."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from trident.errors import TridentError, UnexpectedError

PATIENCE = 60
"""Seconds after which something counts as hanging."""


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
    examples: list[str] = field(default_factory=list)

    @property
    def failures(self) -> int:
        return self.tracebacks + self.silent + self.hangs + self.lost

    def fail(self, kind: str, what: Any) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.examples.append(f"{kind}: {what}"[:400])

    @contextmanager
    def attempt(self, what: Any, patience: int = PATIENCE) -> Iterator[None]:
        """A try: a TridentError of one line is as it should be; whatever else is raised is a failure. What is sound is
        for the caller to say."""
        self.tries += 1
        began = time.monotonic()
        before = signal.signal(signal.SIGALRM, _hang)
        signal.alarm(patience)
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
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            self.seconds += time.monotonic() - began

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"examples": self.examples[:20], "seconds": round(self.seconds, 1)}


def _hang(*_: Any) -> None:
    raise Hang
