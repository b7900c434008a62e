"""Methods x environments x seeds: every method on every environment is a run of its own, resumable, and the tables are
made from records.

A run lives in OUT/METHOD, or in OUT/ENVIRONMENT/METHOD if the table has several environments. What is finished is not
run again; what was interrupted is resumed; what crashed is said loudly and listed as missing; what has diverged is
counted as such, and keeps its checkpoints. Where runs go, and how many at once, is the launcher's business.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from trident.bench.paper import Campaign
from trident.errors import TridentError
from trident.launch.board import Board
from trident.launch.campaign import reason, run_all
from trident.launch.job import Job, Launcher, Status, is_finished
from trident.report.paper_table import row_name
from trident.run_directory import CHECKPOINTS, FIGURES, TENSORBOARD, is_run, read_result, read_run
from trident.training.registry import has_algorithm, make_env
from trident.training.settings import Settings, Setup, make_setup
from trident.training.warm_start import check_warm_start
from trident.types import AnyEnv


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
        for job in new:
            check_job(job, env)
        jobs += new
    return jobs


def setup_of(job: Job, env: AnyEnv | None = None) -> Setup:
    """What its run would be if it began today."""
    settings = Settings(**{**job.all_settings, "seeds": job.seeds})
    return make_setup(job.env if env is None else env, job.algo, settings, job.config)


def check_job(job: Job, env: AnyEnv | None = None) -> None:
    """A grid that is too large, a shield that is missing, a budget of nothing is a TridentError."""
    setup = setup_of(job, env)
    if job.warm_start is not None:
        check_warm_start(setup)


def is_done(job: Job) -> bool:
    if not is_run(job.folder):
        return False
    run = read_run(job.folder)
    if (run["env"], row_name(run)) != (job.env, job.method):
        raise TridentError(f"{job.folder} has a run of {row_name(run)} on {run['env']}: choose another --out")
    settings = run["settings"]
    had = settings["seeds"] if isinstance(settings["seeds"], int) else len(settings["seeds"])
    if (settings["episodes"], had) != (job.episodes, job.num_seeds):
        raise TridentError(
            f"{job.folder} has a run of {settings['episodes']} episodes and {had} seeds, not of {job.episodes} and "
            f"{job.num_seeds}: ask for the same, or choose another --out"
        )
    return is_finished(job.folder)


SETTINGS = ("seed", "limit", "env_arg", "start_from", "shielded")
"""What a run may have been told besides its budget."""


def differences(job: Job) -> list[str]:
    """How a run on record differs from what a new one would be: its environment, its settings, its config."""
    run = read_run(job.folder) if is_run(job.folder) else {}
    if "config" not in run:
        return []
    setup = setup_of(job)

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


def run_table(jobs: Sequence[Job], launcher: Launcher, board: Board, keep: bool = False) -> dict[Job, str]:
    """Run what is not done yet; {job: why it is missing}. `keep`: finished runs keep their last checkpoint, with which
    they can be evaluated again, exported or put into the zoo."""
    waiting = [job for job in jobs if not is_done(job)]
    for job in jobs:
        if found := differences(job):
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            board.say(
                f"{job.name}: on record with other values than today's: {', '.join(found[:3])}{more} ({job.folder})"
            )
    return run_all(waiting, launcher, board, partial(ended, board.say, keep)) if waiting else {}


def ended(say: Callable[[str], None], keep: bool, job: Job, status: Status) -> str:
    """'' when the run has come to its end, else the last line it said. Of a run that went well only its records are
    kept, unless told otherwise; the checkpoints of one that diverged are what its cause can be found from."""
    result = read_result(job.folder)
    if result is None or (status.code != 0 and result["seeds"]):
        return reason(job, status)
    extras = (FIGURES, TENSORBOARD) if keep or result["diverged"] else (CHECKPOINTS, FIGURES, TENSORBOARD)
    for extra in extras:
        shutil.rmtree(job.folder / extra, ignore_errors=True)
    job.log.unlink(missing_ok=True)
    if result["diverged"]:
        lost = f"{len(result['diverged'])} of {job.num_seeds} seeds DIVERGED"
        say(f"{job.name}: {lost}: their last good states are in {job.folder / CHECKPOINTS}")
    return ""
