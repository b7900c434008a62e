"""One run for hours: killed, stopped, starved of disk and shifted in time, resumed each time as an operator would."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fuzz.resumed import fill, outcome, small_disk, start
from trident.report.progress import Silent
from trident.training import session
from trident.training.settings import Settings, make_setup, setup_of

PACE = 0.5
"""Seconds of a round: the machine is left to others meanwhile, and a kill meets every part of one."""
ROUNDS = 100_000
LONGEST = 100.0
"""Seconds until something happens."""
PATIENCE = 600
"""Seconds that a process has for its end: starting one takes minutes on a machine that is busy."""
CODES = {"SIGKILL": (-9,), "SIGTERM": (-15, 143), "SIGINT": (-2, 130), "full disk": (74,), "SIGSTOP": (-9,)}
"""How a process may end of what was done to it."""
CLOCKS = (0.0, 0.0, -86400.0, 3600.0, 1e8)


def soak(out: Path, minutes: float, dice: random.Random) -> dict[str, Any]:
    """What happened; called again it goes on where it was. The run lives on a small file system of its own if this
    process may mount one, and is copied back from there."""
    out.mkdir(parents=True, exist_ok=True)
    note = out / "soak.json"
    told = json.loads(note.read_text()) if note.exists() else {"minutes": 0.0, "happened": {}, "faults": []}
    (out / "disk").mkdir(exist_ok=True)
    with small_disk(out / "disk", "128m") as disk:
        run = (disk or out) / "run"
        if disk is not None and (out / "run").exists() and not run.exists():
            shutil.copytree(out / "run", run)
        end = time.monotonic() + 60 * minutes
        try:
            while (began := time.monotonic()) < end:
                what, fault = disturb(run, disk, dice, min(dice.uniform(0.0, LONGEST), end - began))
                told["happened"][what] = told["happened"].get(what, 0) + 1
                told["faults"] += [fault] if fault else []
                told["minutes"] = round(told["minutes"] + (time.monotonic() - began) / 60, 2)
                note.write_text(json.dumps(told, indent=1) + "\n")
        finally:
            if disk is not None:  # a file system in memory does not outlive the soak
                shutil.rmtree(out / "run", ignore_errors=True)
                shutil.copytree(run, out / "run")
    return told | compared(out)


def disturb(run: Path, disk: Path | None, dice: random.Random, after: float) -> tuple[str, str | None]:
    """Go on with the run and do something to it after that many seconds; what, and what was wrong about its end."""
    child = start(run, ROUNDS, clock=dice.choice(CLOCKS), pace=PACE)
    with suppress(subprocess.TimeoutExpired):
        child.wait(after)
        return "ended by itself", f"code {child.returncode}: {_said(child)}"
    what = dice.choice(["SIGKILL"] * 3 + ["SIGTERM", "SIGINT", "SIGSTOP"] + ["full disk"] * 2 * (disk is not None))
    ballast = fill(disk, dice.choice([0, 4096, 20480])) if disk and what == "full disk" else None
    if ballast is None:
        child.send_signal(getattr(signal, what))
    if what == "SIGSTOP":
        time.sleep(dice.uniform(0.0, 20.0))
        child.send_signal(signal.SIGCONT)
        time.sleep(dice.uniform(0.0, 5.0))
        child.kill()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGUSR1)  # says where it is
        time.sleep(5)
        child.kill()
        return what, f"{what}: hung; {_said(child)}"
    finally:
        if ballast:
            ballast.unlink(missing_ok=True)
    said = _said(child)
    wrong = child.returncode not in CODES[what] or "Traceback" in said or "Exception ignored" in said
    return what, f"{what}: code {child.returncode}: {said}" if wrong else None


def _said(child: subprocess.Popen[str]) -> str:
    return child.communicate()[1][-2000:]


def compared(out: Path) -> dict[str, Any]:
    """The soaked run up to its newest checkpoint against one that nothing happened to."""
    rounds = session.load_state(setup_of(out / "run"), out / "run")[1]

    class UpTo(Silent):
        def update(self, record: dict) -> None:
            if record["round"] == rounds:
                signal.raise_signal(signal.SIGTERM)

    whole = out / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    settings = Settings(episodes=2 * ROUNDS, seeds=2, checkpoint_every=1e6)
    session.train(make_setup("tiny", "tiny", settings), whole, UpTo())
    state, rows = outcome(out / "run")
    return {"rounds": rounds, "cores": len(os.sched_getaffinity(0)),
            "bit for bit": (state, rows[:rounds]) == outcome(whole)}  # fmt: skip
