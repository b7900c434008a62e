"""Methods x environments x seeds: every method on every environment is a run of its own, resumable, and the tables are
made from records.

A run lives in OUT/METHOD, or in OUT/ENVIRONMENT/METHOD if the table has several environments. What is finished is not
run again; what was interrupted is resumed; what crashed is said loudly and listed as missing. Several runs may go on at
once, each in a process of its own.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from trident.bench.paper import Campaign
from trident.errors import TridentError
from trident.report.records import is_trained, read
from trident.train.registry import ALGORITHMS, make_env

Say = Callable[[str], None]


class Job(NamedTuple):
    """One method on one environment."""

    env: str
    method: str
    folder: Path
    episodes: int
    seeds: int

    @property
    def log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")


def plan(
    campaign: Campaign,
    envs: Sequence[str],
    methods: Sequence[str],
    out: Path,
    episodes: int,
    steps: int | None,
    seeds: int,
) -> list[Job]:
    """Every run of a table, environment by environment; mistakes are found before anything is compiled.

    `steps`, if given, is the budget of every run in environment steps, in place of `episodes`.
    """
    several = len(campaign.envs) > 1
    jobs = []
    for name in envs:
        env = make_env(name)
        for method in methods:
            if method not in ALGORITHMS and method not in env.scripted:
                raise TridentError(f"unknown method {method!r}: `trident list` shows all of them")
        whole = episodes if steps is None else math.ceil(steps / env.spec.horizon)
        jobs += [Job(name, m, out / name / m if several else out / m, whole, seeds) for m in methods]
    return jobs


def command_of(job: Job) -> list[str]:
    """Start a run, or go on with it."""
    python = [sys.executable, "-m", "trident"]
    if (job.folder / "run.json").is_file():
        return [*python, "resume", str(job.folder)]
    budget = ["--episodes", str(job.episodes), "--seeds", str(job.seeds)]
    return [*python, "train", job.env, "--algo", job.method, *budget, "--no-film", "--out", str(job.folder)]


def is_done(job: Job) -> bool:
    if not (job.folder / "run.json").is_file():
        return False
    run = json.loads((job.folder / "run.json").read_text(encoding="utf-8"))
    if (run["env"], run["algo"]) != (job.env, job.method):
        raise TridentError(f"{job.folder} has a run of {run['algo']} on {run['env']}: choose another --out")
    settings = run["settings"]
    had = settings["seeds"] if isinstance(settings["seeds"], int) else len(settings["seeds"])
    if (settings["episodes"], had) != (job.episodes, job.seeds):
        raise TridentError(
            f"{job.folder} has a run of {settings['episodes']} episodes and {had} seeds, not of {job.episodes} and "
            f"{job.seeds}: ask for the same, or choose another --out"
        )
    return (job.folder / "result.json").is_file() and is_trained(run, read(job.folder / "records.jsonl"))


def run_all(jobs: Sequence[Job], at_once: int, say: Say) -> dict[Job, str]:
    """Run what is not done yet, `at_once` at a time; {job: why it is missing}."""
    if at_once < 1:
        raise TridentError("--jobs must be at least 1")
    waiting = [job for job in jobs if not is_done(job)]
    running: dict[Job, tuple[subprocess.Popen[bytes], float]] = {}
    missing: dict[Job, str] = {}
    total = len(waiting)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                job.folder.parent.mkdir(parents=True, exist_ok=True)
                with job.log.open("ab") as log:
                    running[job] = (subprocess.Popen(command_of(job), stdout=log, stderr=log), time.monotonic())
                say(f"{name_of(job)}: started")
            for job, (process, began) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[job]
                why = _outcome(process.returncode, job)
                minutes = (time.monotonic() - began) / 60
                left = f"{total - len(waiting) - len(running)}/{total}"
                end = f"CRASHED, {why}" if why else f"done in {minutes:.1f} minutes ({left})"
                say(f"{name_of(job)}: {end}")
                if why:
                    missing[job] = why
            time.sleep(0.2)
    except KeyboardInterrupt:
        raise TridentError("interrupted: every run was saved, and the same command goes on") from None
    finally:
        for process, _ in running.values():  # whatever ended us: they save and stop
            process.terminate()
        for process, _ in running.values():
            process.wait()
        signal.signal(signal.SIGTERM, before)
    return missing


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def name_of(job: Job) -> str:
    return f"{job.method} on {job.env}"


def _outcome(code: int, job: Job) -> str:
    """'' when the run is complete (then only its records are kept), else the last line it said."""
    if code == 0 and (job.folder / "result.json").is_file():
        for extra in ("checkpoints", "figures", "tensorboard"):
            shutil.rmtree(job.folder / extra, ignore_errors=True)
        job.log.unlink()
        return ""
    said = [line for line in job.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"exit code {code}: {said[-1] if said else 'it said nothing'} ({job.log})"
