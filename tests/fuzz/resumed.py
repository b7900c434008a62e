"""A run under attack, and the operator who resumes it until it is done: it must end as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fuzz.files import bits
from fuzz.tally import Tally
from trident.errors import TridentError
from trident.report import records as recording
from trident.training import session
from trident.training.settings import setup_of

PATIENCE = 600
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


def disturb(child: subprocess.Popen[str], dice: random.Random, longest: float) -> str:
    """Something happens to a process at a random moment; what."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(dice.uniform(0.0, longest))
        return "ended"
    what = dice.choice(["SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "SIGSTOP"])
    child.send_signal(getattr(signal, what))
    if what == "SIGSTOP":
        time.sleep(dice.uniform(0.0, 1.0))
        child.send_signal(signal.SIGCONT)
    try:
        child.wait(PATIENCE / 3)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return "hung" if what != "SIGSTOP" else what
    return what


def kills(tally: Tally, count: int, dice: random.Random, rounds: int = 400) -> None:
    """Runs killed and resumed until that many kills are done; each must end as the undisturbed one."""
    with tempfile.TemporaryDirectory() as place:
        whole, out, longest = Path(place) / "whole", Path(place) / "0", 1.0
        began = time.monotonic()
        child = start(whole, rounds)
        said = child.communicate()[1]
        longest = time.monotonic() - began
        if child.returncode:
            raise RuntimeError(said)
        truth = outcome(whole)
        while tally.tries < count:
            with tally.attempt(str(tally.tries), PATIENCE):
                child = start(out, rounds, clock=dice.choice([0.0, -86400.0, 3600.0]))
                what = disturb(child, dice, longest)
                said = child.stderr.read() if child.stderr else ""
                if what == "hung":
                    tally.fail("hangs", said)
                elif "Traceback" in said:
                    tally.fail("tracebacks", said)
                if is_done(out, rounds):
                    if outcome(out) != truth:
                        tally.fail("lost", what)
                    shutil.rmtree(out)
                tally.sound += 1


def disks(tally: Tally, count: int, dice: random.Random, rounds: int = 60) -> None:
    """The disk fills while a run goes on; with room again it is resumed and must end as if it never had."""
    with tempfile.TemporaryDirectory() as place:
        root, whole = Path(place) / "disk", Path(place) / "whole"
        root.mkdir()
        child = start(whole, rounds)
        child.communicate()
        truth = outcome(whole)
        with small_disk(root, "4m") as disk:
            if disk is None:
                return
            while tally.tries < count:
                out = disk / "run"
                with tally.attempt(str(tally.tries), PATIENCE):
                    ballast = fill(disk, dice.choice([0, 4096, 16384, 65536, 262144]))
                    _, said = start(out, rounds).communicate(timeout=PATIENCE)
                    if "Traceback" in said or "Exception ignored" in said:
                        tally.fail("tracebacks", said)
                    ballast.unlink(missing_ok=True)
                    code, said = (child := start(out, rounds)).communicate(timeout=PATIENCE)[1], said
                    if child.returncode or outcome(out) != truth:
                        tally.fail("lost", f"{code} {said}")
                    shutil.rmtree(out)
                    tally.sound += 1
