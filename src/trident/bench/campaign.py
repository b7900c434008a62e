"""Methods x seeds on one environment: every method is a run of its own, resumable, and the table is made from records.

A method's run lives in OUT/METHOD. What is finished is not run again; what was interrupted is resumed; what crashed is
said loudly and listed as missing. Several runs may go on at once, each in a process of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trident.errors import TridentError
from trident.train.registry import ALGORITHMS, make_env

Say = Callable[[str], None]


@dataclass(frozen=True)
class Campaign:
    """A table of the paper."""

    env: str
    methods: tuple[str, ...]
    paper: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """method -> the printed numbers, in the order of `columns`"""
    columns: tuple[str, ...] = ()


UAV_COLUMNS = ("reward", "metric/exec", "metric/energy", "metric/throughput", "metric/ev", "metric/cv")
CAMPAIGNS = {
    "table1": Campaign(
        env="uav-mec",
        methods=(
            "maddpg", "matd3", "facmac", "qmix", "mappo", "happo", "mappo-lag", "macpo", "madac", "shielded", "trident",
        ),
        columns=UAV_COLUMNS,
        paper={
            "random": (-10.39, 8.52, 95.1, 12.1, 0.423, 0.681),
            "greedy": (-7.21, 6.18, 78.2, 18.3, 0.312, 0.224),
            "maddpg": (-5.41, 4.92, 64.8, 24.1, 0.187, 0.123),
            "matd3": (-5.18, 4.78, 62.1, 25.8, 0.164, 0.108),
            "facmac": (-5.07, 4.71, 61.3, 26.2, 0.151, 0.097),
            "mappo": (-5.24, 4.82, 63.5, 25.3, 0.172, 0.115),
            "happo": (-5.13, 4.74, 61.8, 26.0, 0.147, 0.094),
            "mappo-lag": (-5.82, 5.21, 60.4, 22.7, 0.058, 0.042),
            "macpo": (-5.61, 5.08, 59.1, 23.4, 0.031, 0.028),
            "madac": (-5.46, 4.62, 59.9, 26.8, 0.034, 0.029),
            "trident": (-4.68, 4.31, 55.8, 28.2, 0.008, 0.006),
        },
    ),
    "ablations": Campaign(
        env="uav-mec",
        methods=(
            "trident", "trident-no-stgc", "trident-stgc", "trident-lagrangian", "trident-no-recovery",
            "trident-no-physics", "trident-additive-physics", "trident-no-trust-region", "trident-no-hybrid",
            "trident-simultaneous", "trident-unconstrained", "trident-paper",
        ),
        columns=("reward", "total"),
        paper={
            "trident": (-4.68, 0.014), "trident-no-stgc": (-4.95, 0.021), "trident-lagrangian": (-4.74, 0.083),
            "trident-no-recovery": (-4.79, 0.039), "trident-no-physics": (-5.12, 0.018),
            "trident-no-trust-region": (-5.04, 0.075), "trident-no-hybrid": (-5.38, 0.024),
            "trident-simultaneous": (-4.81, 0.037), "trident-additive-physics": (-5.03, 0.026),
        },
    ),
}  # fmt: skip
"""The printed numbers of Tables 1 and 2; rates as shares."""


def check_methods(campaign: Campaign, methods: Sequence[str]) -> None:
    """Before anything is compiled."""
    env = make_env(campaign.env)
    for method in methods:
        if method not in ALGORITHMS and method not in env.scripted:
            raise TridentError(f"unknown method {method!r}: `trident list` shows all of them")


def command_of(env: str, method: str, folder: Path, episodes: int, seeds: int) -> list[str]:
    """Start a run, or go on with it."""
    python = [sys.executable, "-m", "trident"]
    if (folder / "run.json").is_file():
        return [*python, "resume", str(folder)]
    train = ["train", env, "--algo", method, "--episodes", str(episodes), "--seeds", str(seeds), "--out", str(folder)]
    return [*python, *train]


def is_done(folder: Path, episodes: int, seeds: int) -> bool:
    if not (folder / "result.json").is_file():
        return False
    settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]
    had = settings["seeds"] if isinstance(settings["seeds"], int) else len(settings["seeds"])
    if (settings["episodes"], had) != (episodes, seeds):
        raise TridentError(
            f"{folder} has a run of {settings['episodes']} episodes and {had} seeds, not of {episodes} and {seeds}: "
            "ask for the same, or choose another --out"
        )
    return True


def run_all(
    campaign: Campaign, methods: Sequence[str], out: Path, episodes: int, seeds: int, jobs: int, say: Say
) -> dict[str, str]:
    """Run what is not done yet, `jobs` at a time; {method: why it is missing}."""
    waiting = [m for m in methods if not is_done(out / m, episodes, seeds)]
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    missing: dict[str, str] = {}
    total = len(waiting)
    out.mkdir(parents=True, exist_ok=True)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                method = waiting.pop(0)
                log = (out / f"{method}.log").open("ab")
                command = command_of(campaign.env, method, out / method, episodes, seeds)
                running[method] = (subprocess.Popen(command, stdout=log, stderr=log), time.monotonic())
                say(f"{method}: started")
            for method, (process, began) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[method]
                why = _outcome(process.returncode, out, method)
                minutes = (time.monotonic() - began) / 60
                left = f"{total - len(waiting) - len(running)}/{total}"
                say(f"{method}: CRASHED, {why}" if why else f"{method}: done in {minutes:.1f} minutes ({left})")
                if why:
                    missing[method] = why
            time.sleep(0.2)
    except KeyboardInterrupt:
        for process, _ in running.values():  # the terminal has interrupted them too: they save and stop
            process.wait()
        raise TridentError("interrupted: every run was saved, and the same command goes on") from None
    return missing


def _outcome(code: int, out: Path, method: str) -> str:
    """'' when the run is complete (then only its records are kept), else the last line it said."""
    log = out / f"{method}.log"
    if code == 0 and (out / method / "result.json").is_file():
        for extra in ("checkpoints", "figures", "tensorboard"):
            shutil.rmtree(out / method / extra, ignore_errors=True)
        log.unlink()
        return ""
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"exit code {code}: {said[-1] if said else 'it said nothing'} ({log})"
