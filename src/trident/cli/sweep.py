"""`trident sweep`."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from trident.bench.sweep import plan_sweep, summary
from trident.bench.table_runner import run_table
from trident.cli.options import parse
from trident.cli.page import write_report
from trident.errors import TridentError
from trident.launch.board import Board
from trident.launch.job import Job
from trident.launch.options import LaunchOptions, make_launcher
from trident.report.compare import compare_table
from trident.run_directory import REPORT

TEXT = """\
Train every combination of settings, environments and seeds in a TOML file.

Examples:
  trident sweep sweep.toml --plan                   what would be run
  trident sweep sweep.toml --jobs 4 --cores 2
  trident sweep sweep.toml --launcher slurm --slurm partition=cpu time=600

sweep.toml:
  envs = ["uav-mec"]
  algos = ["mappo", "trident-scratch"]
  episodes = 500
  seeds = 3
  [grid]
  limit.energy = [0.005, 0.01]         # settings of the run
  algo.lr = [1e-3, 5e-4]               # settings of the algorithm
  [[runs]]                             # single ones besides the grid
  algo.lr = 1e-4

The same command goes on after Ctrl-C or a kill.
"""


@dataclass(frozen=True)
class SweepOptions:
    file: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FILE.toml")]]
    """What is run."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder of the runs; runs/FILE if left out."""
    plan: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say what would be run, and run nothing."""
    keep: tyro.conf.FlagCreatePairsOff[bool] = False
    """Keep the last checkpoints."""
    markdown: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the tables as markdown."""
    launch: Annotated[LaunchOptions, tyro.conf.arg(name="")] = field(default_factory=LaunchOptions)


def sweep(argv: list[str]) -> int:
    options = parse(SweepOptions, argv, "sweep", TEXT)
    out = options.out or Path("runs") / options.file.stem
    jobs = plan_sweep(options.file, out)
    print(summary(jobs))
    if options.plan:
        for job in jobs:
            print(f"{job.name}: {job.episodes:,} episodes, {job.folder}")
        return 0
    with closing(make_launcher(options.launch)) as launcher:
        missing = run_table(jobs, launcher, Board(sys.stderr), options.keep)
    if len(missing) == len(jobs):
        raise TridentError(f"nothing finished: {'; '.join(f'{job.name}: {why}' for job, why in missing.items())}")
    done = [job for job in jobs if job not in missing]
    page = _tables(done, "markdown")
    (out / "sweep.md").write_text(page + "\n", encoding="utf-8")
    print("\n" + (page if options.markdown else _tables(done, "plain")))
    print(write_report(out / REPORT, [job.folder for job in done], replay=False))
    for job, why in missing.items():
        print(f"missing: {job.name}: {why}")
    return 1 if missing else 0


def _tables(jobs: list[Job], style: str) -> str:
    parts = []
    for env in dict.fromkeys(job.env for job in jobs):
        folders = [job.folder for job in jobs if job.env == env]
        parts.append(f"{env}\n\n{compare_table(folders, style, mixed=True)}")
    named = [f"{job.folder.name}: {job.label}" for job in jobs if job.label and job.label not in job.folder.name]
    return "\n\n".join([*parts, *["\n".join(dict.fromkeys(named))] * bool(named)])
