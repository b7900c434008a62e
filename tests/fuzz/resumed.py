"""A run under attack, and the operator who resumes it until it is done: it must end as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.files import bits
from fuzz.tally import Tally
from trident.errors import TridentError
from trident.report import records as recording
from trident.training import session
from trident.training.settings import setup_of

PATIENCE = 300
"""Seconds for a process and what happens to it, on a machine that is busy."""
CHILD = Path(__file__).with_name("child.py")
QUIET = ["--no-video", "--no-references", "--eval-episodes", "0", "--checkpoint-every", "0"]


def command(out: Path, rounds: int) -> list[str]:
    """What an operator types: a new run, or to go on with it."""
    if (out / "run.json").exists():
        return ["resume", str(out)]
    return ["train", "tiny", "--algo", "tiny", "--episodes", str(2 * rounds), "--seeds", "2", "--out", str(out), *QUIET]


def start(out: Path, rounds: int, clock: float = 0.0, pace: float = 0.0) -> subprocess.Popen[str]:
    words, odd = [sys.executable, str(CHILD), *command(out, rounds)], {"CLOCK": str(clock), "PACE": str(pace)}
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | odd)


class Nursery:
    """Processes of the command line that have imported everything already: three seconds of each are saved. What is
    done to them, and how they end, is as with any other."""

    def __init__(self) -> None:
        words = [sys.executable, str(CHILD), "--nursery"]
        self._mother = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def start(self, words: list[str], said: Path, **environment: Any) -> Child:
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        odd = {name: str(value) for name, value in environment.items()}
        self._mother.stdin.write(json.dumps([words, odd, str(said)]).encode() + b"\n")
        return Child(int(self._mother.stdout.readline()), self._mother.stdout, said)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._mother.stdin
        self._mother.stdin.close()
        self._mother.wait()


@dataclass
class Child:
    pid: int
    ended: Any
    """Where its mother tells how it did."""
    said_to: Path
    returncode: int | None = None

    def wait(self, seconds: float) -> int | None:
        """How it ended; None if it has not yet."""
        if self.returncode is None and select.select([self.ended], [], [], max(seconds, 0.0))[0]:
            self.returncode = int(self.ended.readline())
        return self.returncode

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    @property
    def said(self) -> str:
        return self.said_to.read_text(errors="replace")


def outcome(out: Path) -> tuple[list[bytes], list[str]]:
    """Final state and records, but for the wall time."""
    state, _, _ = session.load_state(setup_of(out), out)
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in recording.read(out / "records.jsonl")]
    return bits(state), [json.dumps(row) for row in rows]


def is_done(out: Path, rounds: int) -> bool:
    with suppress(TridentError, OSError):
        rows = recording.read(out / "records.jsonl")
        return bool(rows) and rows[-1]["round"] == rounds and (out / f"checkpoints/{rounds:08d}.json").exists()
    return False


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path | None]:
    """A file system of its own, if this process may mount one; one that an earlier process left there is used."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if not os.path.ismount(place) and subprocess.run(words, capture_output=True).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, leave: int) -> Path:
    """Leaves that many bytes free."""
    status = os.statvfs(place)
    ballast = place / "ballast"
    with suppress(OSError), ballast.open("wb") as file:
        file.write(b"\0" * max(status.f_bavail * status.f_frsize - leave, 0))
    return ballast


def disturb(child: Child, dice: random.Random, longest: float) -> str:
    """Something happens to a process at a random moment; what."""
    if child.wait(dice.uniform(0.0, longest)) is not None:
        return "ended"
    what = dice.choice(["SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "SIGSTOP"])
    child.kill(getattr(signal, what))
    if what == "SIGSTOP":
        time.sleep(dice.uniform(0.0, 1.0))
        child.kill(signal.SIGCONT)
        child.wait(dice.uniform(0.0, 1.0))
        child.kill()
    if child.wait(PATIENCE) is None:
        child.kill()
        child.wait(PATIENCE)
        return "hung"
    return what


CODES = {"ended": (0,), "SIGKILL": (0, -9), "SIGTERM": (0, -15, 143), "SIGINT": (0, -2, 130), "SIGSTOP": (0, -9)}
"""How a process may end of what was done to it: it may have been done before."""


def judge(tally: Tally, what: str, child: Child) -> None:
    """Count what should not have been said, or an end that is not one of the agreed ones."""
    if what == "hung":
        tally.fail("hangs", child.said)
    elif "Traceback" in child.said or "Exception ignored" in child.said or child.returncode not in CODES[what]:
        tally.fail("tracebacks", f"{what}, code {child.returncode}: {child.said[-300:]}")


def kills(tally: Tally, count: int, dice: random.Random, rounds: int = 100) -> None:
    """Runs killed and resumed until that many kills are done; each must end as the undisturbed one."""
    with tempfile.TemporaryDirectory() as place, Nursery() as nursery:
        whole, out, said = Path(place) / "whole", Path(place) / "0", Path(place) / "said"
        for _ in range(2):  # the second time with programs that are compiled already: that is how long it takes
            shutil.rmtree(whole, ignore_errors=True)
            began = time.monotonic()
            child = nursery.start(command(whole, rounds), said)
            if child.wait(PATIENCE):
                raise RuntimeError(child.said)
            longest = time.monotonic() - began
        truth = outcome(whole)

        def pictures() -> str:
            return dice.choice(["yes", "no", "no", "no", "no"])

        while tally.tries < count or out.exists():  # the last one, too, is brought to its end
            with tally.attempt(str(tally.tries), 3 * PATIENCE):
                child = nursery.start(
                    command(out, rounds), said, CLOCK=dice.choice([0.0, -86400.0, 3600.0]), PICTURES=pictures()
                )
                what = disturb(child, dice, longest if tally.tries < count else PATIENCE)
                judge(tally, what, child)
                if is_done(out, rounds):
                    if outcome(out) != truth:
                        tally.fail("lost", what)
                    shutil.rmtree(out)


def disks(tally: Tally, count: int, dice: random.Random, rounds: int = 30) -> None:
    """The disk fills, becomes read-only, or the folder is moved away, while a run goes on; when all is well again it is
    resumed and must end as if nothing had been."""
    with tempfile.TemporaryDirectory() as place, Nursery() as nursery:
        root, whole, said = Path(place) / "disk", Path(place) / "whole", Path(place) / "said"
        root.mkdir()
        if nursery.start(command(whole, rounds), said).wait(PATIENCE):
            raise RuntimeError(said.read_text())
        truth = outcome(whole)
        with small_disk(root, "4m") as disk:
            if disk is None:
                print("no file system can be mounted here: nothing was tried")
                return
            while tally.tries < count:
                out, moment, trouble = disk / "run", dice.choice([0, 0, 1, 3, 10, 20]), dice.choice(TROUBLES)
                what = f"{trouble} at round {moment}"
                with tally.attempt(what, 4 * PATIENCE):
                    child = nursery.start(command(out, rounds), said, PICTURES="no")
                    wait_for_round(child, out, moment)
                    with in_trouble(out, trouble):
                        code = child.wait(PATIENCE)
                        child.kill()
                    if code is None:
                        tally.fail("hangs", f"{what}: {child.said}")
                    elif "Traceback" in child.said or "Exception ignored" in child.said or code not in (0, 74):
                        tally.fail("tracebacks", f"{what}, code {code}: {child.said}")
                    again = nursery.start(command(out, rounds), said, PICTURES="no")
                    if again.wait(PATIENCE) != 0 or outcome(out) != truth:
                        tally.fail("lost", f"{what}, code {code}: {again.said}")
                    shutil.rmtree(out)


TROUBLES = ("0 bytes left", "4096 bytes left", "16384 bytes left", "65536 bytes left", "262144 bytes left",
            "folder moved", "read-only")  # fmt: skip


@contextmanager
def in_trouble(out: Path, trouble: str) -> Iterator[None]:
    disk = out.parent
    if trouble == "folder moved":
        with suppress(FileNotFoundError):  # the run has not made it yet
            out.rename(disk / "moved")
        yield
        if (disk / "moved").exists():
            shutil.rmtree(out, ignore_errors=True)
            (disk / "moved").rename(out)
    elif trouble == "read-only":  # it is refused while a file is open for writing: then it is tried until it is not
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True)
        yield
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    else:
        ballast = fill(disk, int(trouble.split()[0]))
        yield
        ballast.unlink(missing_ok=True)


def wait_for_round(child: Child, out: Path, number: int) -> None:
    """Until its records have that many lines, or it has ended."""
    records = out / "records.jsonl"
    while number and child.wait(0.01) is None:
        if records.exists() and records.read_bytes().count(b"\n") >= number:
            return
