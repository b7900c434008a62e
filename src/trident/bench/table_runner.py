"""Methods x environments x seeds: every method on every environment is a run of its own, resumable, and the tables are
made from records.

A run lives in OUT/METHOD, or in OUT/ENVIRONMENT/METHOD if the table has several environments. What is finished is not
run again; what was interrupted is resumed; what crashed is said loudly and listed as missing; what has diverged is
counted as such, and keeps its checkpoints. Several runs may go on at once, each in a process of its own that ends with
this one.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from trident.bench.paper import Campaign
from trident.errors import TridentError
from trident.report.compare import has_ended
from trident.report.paper_table import row_name
from trident.report.records import read
from trident.run_directory import CHECKPOINTS, FIGURES, RECORDS, TENSORBOARD, is_run, read_result, read_run
from trident.training.registry import has_algorithm, make_env
from trident.training.settings import Settings, make_setup
from trident.training.warm_start import check_warm_start

Say = Callable[[str], None]


class Job(NamedTuple):
    """One method on one environment; METHOD+POLICY is warm-started on that scripted policy."""

    env: str
    method: str
    folder: Path
    episodes: int
    seeds: int

    @property
    def algo(self) -> str:
        return self.method.partition("+")[0]

    @property
    def warm_start(self) -> str | None:
        return self.method.partition("+")[2] or None

    @property
    def settings(self) -> Settings:
        return Settings(episodes=self.episodes, seeds=self.seeds, warm_start=self.warm_start)

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
    if steps is not None and steps < 1:
        raise TridentError("--steps must be at least 1")
    several = len(campaign.envs) > 1
    jobs = []
    for name in envs:
        env = make_env(name)
        whole = episodes if steps is None else math.ceil(steps / env.spec.horizon)
        new = [Job(name, m, out / name / m if several else out / m, whole, seeds) for m in methods]
        for job in new:
            if not has_algorithm(job.algo) and job.algo not in env.scripted:
                raise TridentError(f"unknown method {job.algo!r}: `trident list` shows all of them")
        for job in new:  # a grid that is too large, a shield that is missing, a budget of nothing
            setup = make_setup(env, job.algo, job.settings)
            if job.warm_start is not None:
                check_warm_start(setup)
        jobs += new
    return jobs


def usual_jobs() -> int:
    """Runs at once, unless told otherwise: half of the cores this process may use, as one run keeps about two busy."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(usable // 2, 1)


LAUNCH = """\
import os, runpy, signal, sys
parent = int(sys.argv.pop(1))
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != parent:
    sys.exit("the command that started this run has ended")
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""A child that is asked to stop (PR_SET_PDEATHSIG, on Linux) when its parent ends, even by kill -9. It arranges that
itself: between fork and exec is no place for Python in a process that has threads."""


def command_of(job: Job) -> list[str]:
    """Start a run, or go on with it."""
    python = [sys.executable, "-c", LAUNCH, str(os.getpid()), "trident"]
    if is_run(job.folder):
        return [*python, "resume", str(job.folder)]
    budget = ["--episodes", str(job.episodes), "--seeds", str(job.seeds)]
    budget += ["--warm-start", job.warm_start] if job.warm_start else []
    return [*python, "train", job.env, "--algo", job.algo, *budget, "--no-video", "--out", str(job.folder)]


def is_done(job: Job) -> bool:
    if not is_run(job.folder):
        return False
    run = read_run(job.folder)
    if (run["env"], row_name(run)) != (job.env, job.method):
        raise TridentError(f"{job.folder} has a run of {row_name(run)} on {run['env']}: choose another --out")
    settings = run["settings"]
    had = settings["seeds"] if isinstance(settings["seeds"], int) else len(settings["seeds"])
    if (settings["episodes"], had) != (job.episodes, job.seeds):
        raise TridentError(
            f"{job.folder} has a run of {settings['episodes']} episodes and {had} seeds, not of {job.episodes} and "
            f"{job.seeds}: ask for the same, or choose another --out"
        )
    result = read_result(job.folder)
    return result is not None and has_ended(run, result, read(job.folder / RECORDS))


SETTINGS = ("seed", "limit", "start_from", "shielded")
"""What a run may have been told besides its budget."""


def differences(job: Job) -> list[str]:
    """How a run on record differs from what a new one would be: its environment, its settings, its config."""
    run = read_run(job.folder) if is_run(job.folder) else {}
    if "config" not in run:
        return []
    setup = make_setup(job.env, job.algo, job.settings)

    def plain(config):
        return json.loads(json.dumps(asdict(config)))

    settings, config = plain(setup.settings), _paths(plain(setup.algorithm.config))
    pairs = [("environment version", run["env_version"], setup.spec.version)]
    pairs += [(name, run["settings"].get(name, settings[name]), settings[name]) for name in SETTINGS]
    was = _paths(run["config"])
    pairs += [
        (name, was.get(name, None if value else value), value) for name, value in config.items()
    ]  # off may be new
    pairs += [(name, value, None) for name, value in was.items() if name not in config]
    return [f"{name} {_value(old)} (now {_value(new)})" for name, old, new in pairs if old != new]


def _paths(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"step": {"clip": 0.2}} -> {"step.clip": 0.2}"""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _paths(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def _value(value: Any) -> str:
    return "unknown" if value is None else json.dumps(value)


def run_all(jobs: Sequence[Job], at_once: int, say: Say, keep: bool = False) -> dict[Job, str]:
    """Run what is not done yet, `at_once` at a time; {job: why it is missing}. `keep`: finished runs keep their last
    checkpoint, with which they can be evaluated again, exported or put into the zoo."""
    if at_once < 1:
        raise TridentError("--jobs must be at least 1")
    waiting = [job for job in jobs if not is_done(job)]
    for job in jobs:
        if found := differences(job):
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            say(
                f"{name_of(job)}: on record with other values than today's: {', '.join(found[:3])}{more} ({job.folder})"
            )
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
                why = _outcome(process.returncode, job, keep)
                minutes = (time.monotonic() - began) / 60
                left = f"{total - len(waiting) - len(running)}/{total}"
                end = f"CRASHED, {why}" if why else f"done in {minutes:.1f} minutes ({left}){_losses(job)}"
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


def _losses(job: Job) -> str:
    result = read_result(job.folder)
    if not result or not result["diverged"]:
        return ""
    lost = f"{len(result['diverged'])} of {job.seeds} seeds DIVERGED"
    return f", {lost}: their last good states are in {job.folder / 'checkpoints'}"


def _outcome(code: int, job: Job, keep: bool = False) -> str:
    """'' when the run has come to its end, else the last line it said. Of a run that went well only its records are
    kept, unless told otherwise; the checkpoints of one that diverged are what its cause can be found from."""
    result = read_result(job.folder)
    if result is not None and (code == 0 or not result["seeds"]):
        extras = (FIGURES, TENSORBOARD) if keep or result["diverged"] else (CHECKPOINTS, FIGURES, TENSORBOARD)
        for extra in extras:
            shutil.rmtree(job.folder / extra, ignore_errors=True)
        job.log.unlink()
        return ""
    said = [line for line in job.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"exit code {code}: {said[-1] if said else 'it said nothing'} ({job.log})"
