"""Where the numbers of a run go beside its records: TensorBoard's event files, and trackers of experiments.

A logger is told of every record, and can neither block nor end the run. TensorBoard's files are written at once
(`trident.report.tensorboard`); whoever keeps a network, a database or threads of its own lives in another process
(`trident.report.trackers`), which follows the records on disk and is left behind if it does not keep up.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, get_args

from trident.errors import TridentError
from trident.report.records import Record
from trident.report.trackers import FOLDER
from trident.run_directory import fresh

TrackerName = Literal["wandb", "mlflow", "trackio"]
PATIENCE = 20.0
"""Seconds that a finished run waits for a tracker."""


class Logger(Protocol):
    """What a run tells of itself while it goes."""

    def write(self, record: Record) -> None: ...
    def close(self) -> None: ...


def check_trackers(names: Iterable[str]) -> None:
    """A TridentError for the first whose package is not installed."""
    for name in names:
        if name not in get_args(TrackerName):
            raise TridentError(f"unknown tracker {name!r}: there are {', '.join(get_args(TrackerName))}")
        if importlib.util.find_spec(name) is None:
            raise TridentError(f"{name} is not installed: pip install 'trident-marl[{name}]'")


class Follower:
    """A tracker in a process of its own, which reads what the run writes: nothing is handed to it, nothing waits."""

    def __init__(self, name: str, folder: Path, project: str, say: Callable[[str], None]):
        self.name, self.folder, self.say = name, folder, say
        self.log = folder / FOLDER / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        try:
            if self.log.parent.is_symlink():
                raise OSError(f"{self.log.parent} is a symbolic link")
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with fresh(self.log).open("wb") as said:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "trident.report.trackers", name, str(folder), project],
                    stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )  # fmt: skip  # in a session of its own, Ctrl-C reaches the training alone
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def write(self, record: Record) -> None:
        if self.process is not None and self.process.poll() is not None:
            self._give_up(self._last_words())

    def close(self, patience: float | None = PATIENCE) -> None:
        """None: wait as long as it takes."""
        self.hang_up()
        if self.process is None:
            return
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self._kill()
            self._give_up(f"it did not keep up within {PATIENCE:g} s")
            return
        except KeyboardInterrupt:
            self._kill()
            raise
        if code:
            self._give_up(self._last_words())
        self.process = None

    def hang_up(self) -> None:
        """There will be no more; it need not be waited for yet."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def _kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _last_words(self) -> str:
        lines: list[str] = []
        with suppress(OSError):
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it ended without a word"

    def _give_up(self, why: str) -> None:
        self.process = None
        self.say(f"{self.name}: {why} ({self.log})")


class Followers:
    """The trackers that a run was asked for; they finish side by side."""

    def __init__(self, run: Path, names: Iterable[str], project: str, say: Callable[[str], None]):
        def tell(name: str) -> Callable[[str], None]:
            again = f"`trident report {run} --trackers {name}` sends the rest"
            return lambda text: say(f"no more for {text}; the run goes on, and {again}")

        self.each = [Follower(name, run, project, tell(name)) for name in names]

    def write(self, record: Record) -> None:
        for one in self.each:
            one.write(record)

    def close(self) -> None:
        for one in self.each:
            one.hang_up()
        deadline = time.monotonic() + PATIENCE
        for one in self.each:
            one.close(max(deadline - time.monotonic(), 0.0))


def send(run: Path, name: str, project: str) -> None:
    """Hand a run that is there to a tracker, whole or from where it stopped; however long that takes."""
    check_trackers([name])
    lost: list[str] = []
    Follower(name, run, project, lost.append).close(patience=None)
    if lost:
        raise TridentError(lost[0])
