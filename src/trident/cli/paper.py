"""`trident bench paper`: the paper's six tables at full budget, as one campaign."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from trident.allowed import Names, Range
from trident.bench import scalability, sensitivity
from trident.bench.cost import cost_table, costs, machine_factor
from trident.bench.paper import ABLATIONS, AIM, HARD, SMAC, TABLE1, Campaign
from trident.bench.table_runner import is_done, plan, run_table
from trident.cli.bench import bench
from trident.cli.options import parse
from trident.errors import TridentError
from trident.fields import check_name
from trident.launch.board import Board
from trident.launch.job import Job
from trident.launch.options import LaunchOptions, make_launcher

TEXT = """\
All six tables of the paper at full budget. Says what it costs, and asks.

Examples:
  trident bench paper                          the estimate, then a question
  trident bench paper --tables table1 table2 --share 0.1
  trident bench paper --launcher slurm --slurm partition=cpu time=1440 --yes

tables: table1 (UAV-MEC), table2 (ablations), table3 (scalability), table4
(intersection; its other half is table6's), table5 (sensitivity), table6 (SMAC)

The same command goes on after Ctrl-C or a kill.
"""


class Table(NamedTuple):
    """One of the paper's, with its budget."""

    command: str
    """What `trident bench` calls it."""
    jobs: Callable[[Path, int, int], list[Job]]
    """(folder, episodes, seeds) -> runs"""
    seeds: int
    episodes: int = 0
    steps: int = 0
    """In place of episodes."""

    def budget(self, share: float) -> list[str]:
        if self.steps:
            return ["--steps", str(max(round(share * self.steps), 1))]
        return ["--episodes", str(max(round(share * self.episodes), 1))]


def _campaign(campaign: Campaign, envs: Sequence[str] = ()) -> Callable[[Path, int, int], list[Job]]:
    return lambda out, episodes, seeds: plan(
        campaign, envs or campaign.envs, campaign.methods, out, episodes, None, seeds
    )


def _smac(out: Path, steps: int, seeds: int) -> list[Job]:
    return plan(SMAC, HARD, SMAC.methods, out, 1, steps, seeds)


def _sensitivity(out: Path, episodes: int, seeds: int) -> list[Job]:
    of_level = sensitivity.plan(tuple(sensitivity.KNOBS), out, episodes, seeds)
    return list(dict.fromkeys(job for levels in of_level.values() for job in levels.values()))


TABLES = {
    "table1": Table("table1", _campaign(TABLE1), 10, 20_000),
    "table2": Table("ablations", _campaign(ABLATIONS), 10, 20_000),
    "table3": Table("table3", _campaign(scalability.TABLE3), 5, 20_000),
    "table4": Table("table4-aim", _campaign(AIM), 10, 15_000),
    "table5": Table("table5", _sensitivity, 5, 20_000),
    "table6": Table("table6", _smac, 5, steps=5_000_000),
}
"""The paper's budgets; it says none for Tables 3 and 5, which have those of Table 1 and five seeds."""


@dataclass(frozen=True)
class PaperOptions:
    tables: Names = tuple(TABLES)
    """Which of them."""
    share: Annotated[float, Range(above=0.0, most=1.0)] = 1.0
    """Of the full budget, for a trial."""
    seeds: Annotated[int, Range(1, 2**16)] | None = None
    """In place of the paper's (10, of Tables 3, 5 and 6 five)."""
    yes: tyro.conf.FlagCreatePairsOff[bool] = False
    """Do not ask."""
    out: Path = Path("runs/paper")
    """One folder per table."""
    launch: Annotated[LaunchOptions, tyro.conf.arg(name="")] = field(default_factory=LaunchOptions)


def paper(argv: list[str]) -> int:
    options = parse(PaperOptions, argv, "bench paper", TEXT)
    for name in options.tables:
        check_name("table", name, TABLES, "the paper")
    planned = {name: planned_jobs(name, options) for name in dict.fromkeys(options.tables)}
    todo = {name: [job for job in jobs if not is_done(job)] for name, jobs in planned.items()}
    with closing(make_launcher(options.launch)) as launcher:
        if any(todo.values()):
            print(estimate(todo, options.out), flush=True)
            if not options.yes:
                ask()
        jobs = [job for jobs in planned.values() for job in jobs]
        missing = run_table(jobs, launcher, Board(sys.stderr), keep=True)
    codes = [bench(command(name, options)) for name, jobs in planned.items() if not all(job in missing for job in jobs)]
    for job, why in missing.items():
        print(f"missing: {job.name}: {why}", file=sys.stderr)
    return 1 if missing or any(codes) else 0


def planned_jobs(name: str, options: PaperOptions) -> list[Job]:
    table = TABLES[name]
    amount = int(table.budget(options.share)[1])
    return table.jobs(options.out / name, amount, options.seeds or table.seeds)


def command(name: str, options: PaperOptions) -> list[str]:
    """What makes the table of runs that are done."""
    table = TABLES[name]
    words = [table.command, *table.budget(options.share), "--seeds", str(options.seeds or table.seeds), "--keep"]
    maps = ["--maps", *HARD] if name == "table6" else []
    return [*words, *maps, "--out", str(options.out / name)]


def estimate(todo: dict[str, list[Job]], out: Path) -> str:
    """What is still to be done, and what it costs."""
    factor = machine_factor(out, lambda text: print(text, file=sys.stderr, flush=True))
    found = costs({name: jobs for name, jobs in todo.items() if jobs}, factor)
    hours = sum(cost.core_hours for cost in found.values())
    return (
        f"{cost_table(found)}\n\nCore hours like this machine's ({factor:.2g} of the records' own), without compiling "
        f"and evaluating: {hours / 24:,.1f} days of one core, {hours / 24 / 64:,.1f} of 64."
    )


def ask() -> None:
    if not sys.stdin.isatty():
        raise TridentError("nobody can be asked whether to go on: --yes says so")
    if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise TridentError("nothing was started")
