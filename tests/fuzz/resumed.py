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


def start(out: Path, rounds: int, clock: float = 0.0) -> subprocess.Popen[str]:
    words = [sys.executable, str(CHILD), *command(out, rounds)]
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | {"CLOCK": str(clock)}
    )


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
    """A file system of its own, if this process may mount one."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
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


def soak(out: Path, minutes: float, dice: random.Random) -> int:
    """A long run that is killed, stopped, starved of disk and shifted in time, and resumed each time; afterwards it is
    compared with the same number of rounds undisturbed. Called again it goes on where it was."""
    out.mkdir(parents=True, exist_ok=True)
    end, note, rounds = time.monotonic() + 60 * minutes, out / "soak.json", 100_000
    count = json.loads(note.read_text()) if note.exists() else {}
    (out / "disk").mkdir(exist_ok=True)
    with small_disk(out / "disk", "16m") as disk:
        run = (disk or out) / "run"
        if disk is not None and (out / "run").exists():
            shutil.copytree(out / "run", run)
        while time.monotonic() < end:
            ballast = fill(disk, dice.choice([0, 65536, 262144])) if disk and dice.random() < 0.2 else None
            child = start(run, rounds, clock=dice.choice([0.0, 0.0, -86400.0, 3600.0, 1e8]))
            what = disturb(child, dice, 40.0) + (" on a full disk" if ballast else "")
            said = child.stderr.read() if child.stderr else ""
            if ballast:
                ballast.unlink(missing_ok=True)
            what += ", Traceback" * ("Traceback" in said)
            count[what] = count.get(what, 0) + 1
            note.write_text(json.dumps(count, indent=1) + "\n")
        if disk is not None:  # a file system in memory does not outlive the soak
            shutil.rmtree(out / "run", ignore_errors=True)
            shutil.copytree(run, out / "run")
    return _compare(out, count)


def _compare(out: Path, count: dict[str, int]) -> int:
    """The soaked run up to its newest checkpoint against one that nothing happened to."""
    from support import tiny  # noqa: F401  registers both

    from trident.report.progress import Silent
    from trident.training.settings import Settings, make_setup

    setup = setup_of(out / "run")
    state, rounds, _ = session.load_state(setup, out / "run")
    rows = [row for row in recording.read(out / "run" / "records.jsonl") if row["round"] <= rounds]

    class UpTo(Silent):
        def update(self, record: dict) -> None:
            if record["round"] == rounds:
                signal.raise_signal(signal.SIGTERM)

    whole = out / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    settings = Settings(episodes=setup.settings.episodes, seeds=2, checkpoint_every=1e6)
    session.train(make_setup("tiny", "tiny", settings), whole, UpTo())
    truth, names = outcome(whole), [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
    same = (bits(state), [json.dumps(row) for row in names]) == truth
    print(
        f"{sum(count.values())} disturbances {count}; {rounds} rounds: {'as if undisturbed' if same else 'DIFFERENT'}"
    )
    return 0 if same and not any("Traceback" in what or "hung" in what for what in count) else 1
