"""`trident resume | eval | report | compare`: what can be done with run directories."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import tyro

from trident import api
from trident.allowed import Length, Name, Range
from trident.cli.options import parse
from trident.cli.page import write_report
from trident.cli.place import Place, placed
from trident.cli.train import finish
from trident.errors import TridentError
from trident.report.figures import draw_figures
from trident.report.loggers import TrackerName, send
from trident.report.marl_eval import marl_eval
from trident.report.merge_seeds import pool
from trident.report.progress import progress_for
from trident.report.tables import result_table
from trident.run_directory import write_text
from trident.training.interrupt import leaving
from trident.training.settings import EnvArgs, Widths, read_run
from trident.training.zoo import is_entry

Runs = Annotated[tuple[Path, ...], Length(0, 10**4)]
Trust = tyro.conf.FlagCreatePairsOff[bool]
RunDirectory = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]


@dataclass(frozen=True)
class ResumeOptions:
    run: RunDirectory
    """Run directory."""
    episodes: Annotated[int, Range(1, 10**12)] | None = None
    """Prolong the run to this many episodes."""
    devices: Annotated[int, Range(1, 2**20)] | None = None
    """Go on with this many devices instead of as many as before: the same results, but for rounding."""
    place: Annotated[Place, tyro.conf.arg(name="")] = field(default_factory=Place)
    trust: Trust = False
    """Import the environment from the module that the run names, which is to run its code."""


def resume(argv: list[str]) -> int:
    text = """\
Go on with an interrupted run; it ends bit for bit like an uninterrupted one.

Examples:
  trident resume runs/my-run
  trident resume runs/my-run --episodes 4000      (prolong it)
  trident resume runs/my-run --devices 1          (on other hardware)
"""
    with placed(argv):
        options = parse(ResumeOptions, argv, "resume", text)
        run = api.resume(options.run, episodes=options.episodes, trust=options.trust, devices=options.devices)
        return finish(run)


@dataclass(frozen=True)
class EvalOptions:
    run: RunDirectory
    """Run directory."""
    episodes: Annotated[int, Range(1, 10**7)] = 200
    """Fresh episodes per seed."""
    env: Name | None = None
    """Another environment with the same spaces, e.g. a variant or another simulator."""
    env_arg: EnvArgs = field(default_factory=dict)
    """What --env is called with, if it is imported."""
    policy: Literal["own", "sampled", "most-likely"] = "own"
    """Draw actions from the policy or take the most likely ones; own: as the algorithm is evaluated (TRIDENT draws
    where there are limits, the others do not)."""
    references: bool = True
    """Play the scripted references too."""
    randomise: Widths = field(default_factory=dict)
    """What the simulator is wrong in, as shares: each episode draws how wrong from [-SHARE, SHARE]."""
    sim_to_real: tyro.conf.FlagCreatePairsOff[bool] = False
    """How far its limits hold in simulators that are wrong by 5, 10 and 20 %, and what to tighten them to."""
    guarded: tyro.conf.FlagCreatePairsOff[bool] = False
    """Fly the exported policy with and without the guard instead, with --faults and without (10 episodes unless told;
    a table, and figures/guarded.png)."""
    faults: Name | None = None
    """What fails on the way: dropout=0.2,delay=2,noise=0.1,nan=0.01,agent-loss=1 (needs --guarded)."""
    trust: Trust = False
    """Import the environment from the module that the run names, which is to run its code."""


def evaluate(argv: list[str]) -> int:
    text = """\
Evaluate every seed of a run, and the scripted references, on fresh episodes.

Examples:
  trident eval runs/my-run
  trident eval runs/my-run --episodes 1000 --policy sampled
  trident eval runs/my-run --guarded --faults dropout=0.2,noise=0.1,agent-loss=1
  trident eval runs/my-run --env smarts-intersection    (another simulator)
  trident eval zoo:uav-mec/trident                      (`trident zoo`)
  trident eval runs/my-run --randomise mass=0.1,wind=0.2
  trident eval runs/my-run --sim-to-real                (how wrong may it be?)
"""
    options = parse(EvalOptions, argv, "eval", text)
    if options.faults and not options.guarded:
        raise TridentError("--faults needs --guarded: `trident eval RUN --guarded --faults dropout=0.2`")
    if options.guarded:
        return _evaluate_guarded(options, any(word.startswith("--episodes") for word in argv))
    run = api.load(options.run, trust=options.trust)
    for note in run.notes:
        print(note, file=sys.stderr)
    if options.env is not None:
        run = run.on(options.env, options.env_arg)
    keep = options.env is None and not is_entry(options.run) and not options.randomise
    if options.sim_to_real:
        return _sim_to_real(run, options, keep)
    if options.randomise:
        run = run.randomised(options.randomise)
    progress = progress_for(sys.stderr)
    with leaving(progress, f"stopped; for the rest: trident eval {options.run}"):
        try:
            result = run.evaluate(
                options.episodes,
                deterministic={"own": None, "sampled": False, "most-likely": True}[options.policy],
                references=options.references,
                write=keep,
                progress=progress,
            )
        finally:
            progress.end()
    print(result_table(run.info, result))
    return 0


def _evaluate_guarded(options: EvalOptions, told: bool) -> int:
    from trident.export.guarded import GUARDED_EPISODES, compare_guarded, parse_faults

    faults, progress = parse_faults(options.faults or ""), progress_for(sys.stderr)
    deterministic = {"own": None, "sampled": False, "most-likely": True}[options.policy]
    try:
        episodes = options.episodes if told else GUARDED_EPISODES
        run = api.load(options.run, trust=options.trust)
        run = run if options.env is None else run.on(options.env, options.env_arg)
        print(compare_guarded(run, faults, episodes, deterministic, progress))
    finally:
        progress.end()
    print(f"\n{options.run / 'figures' / 'guarded.png'}")
    return 0


def _sim_to_real(run: api.Run, options: EvalOptions, keep: bool) -> int:
    from trident.export.sim_to_real import FILE, sim_to_real, table

    progress = progress_for(sys.stderr)
    deterministic = {"own": None, "sampled": False, "most-likely": True}[options.policy]
    try:
        found = sim_to_real(run, options.episodes, deterministic, progress, write=keep)
    finally:
        progress.end()
    print(table(found))
    if keep:
        print(f"\n{run.out / FILE}: `trident export` writes it into the manifest")
    return 0


@dataclass(frozen=True)
class ReportOptions:
    runs: tyro.conf.Positional[Annotated[tuple[Path, ...], Length(1, 1000), tyro.conf.arg(metavar="RUN")]]
    """Run directories."""
    html: Path | None = None
    """Write one page of all of them into this file; it opens in any browser, without a network."""
    no_replay: tyro.conf.FlagCreatePairsOff[bool] = False
    """Do not play episodes for the page (they are for up to four runs with checkpoints)."""
    trust: Trust = False
    """To play them, import the environment from the module that a run names, which is to run its code."""
    markdown: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the table as markdown."""
    trackers: Annotated[tuple[TrackerName, ...], Length(0, 3)] = ()
    """Hand the runs to these trackers instead, from where they stopped (extras of these names)."""
    project: Name = "trident"
    """What trackers file them under."""


def report(argv: list[str]) -> int:
    text = """\
Draw a run's figures and print its table again, or write a page of runs.

Examples:
  trident report runs/my-run
  trident report runs/my-run --markdown
  trident report runs/my-run --html report.html
  trident report runs/* --html all.html
  trident report runs/my-run --trackers wandb mlflow
"""
    options = parse(ReportOptions, argv, "report", text)
    if not options.runs:
        raise TridentError("which run? for example: trident report runs/my-run")
    if options.trackers:
        for run, tracker in product(options.runs, options.trackers):
            read_run(run)
            send(run, tracker, options.project)
            print(f"{run} is with {tracker}")
        return 0
    if options.html is not None:
        print(write_report(options.html, options.runs, not options.no_replay, trust=options.trust))
        return 0
    for run in options.runs:
        for path in draw_figures(run):
            print(path)
        result = api.read_result(run)
        if result is not None:
            print("\n" + result_table(read_run(run), result, "markdown" if options.markdown else "plain"))
    return 0


@dataclass(frozen=True)
class CompareOptions:
    runs: tyro.conf.Positional[Annotated[Runs, tyro.conf.arg(metavar="RUN [RUN ...]")]]
    """Finished run directories of one environment."""
    figure: Path | None = None
    """Also draw their curves into this PNG."""
    markdown: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the table as markdown."""
    mixed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Compare runs whose cost specifications differ (`trident spec RUN`); the table then says so."""
    marl_eval: Path | None = None
    """Write records as JSON for marl-eval, which BenchMARL and Mava use. The runs may then be of several environments,
    without a table."""


def compare(argv: list[str]) -> int:
    text = """\
Put several runs on one environment side by side, from their records alone.

Examples:
  trident compare runs/happo runs/trident
  trident compare benchmarks/uav-mec-v1/* --markdown --figure curves.png
  trident compare runs/*/mappo runs/*/trident --marl-eval out.json
"""
    options = parse(CompareOptions, argv, "compare", text)
    style = "markdown" if options.markdown else "plain"
    if options.marl_eval is not None:
        write_text(options.marl_eval, json.dumps(marl_eval(list(options.runs))))
        print(options.marl_eval)
        if len({read_run(run)["env"] for run in options.runs}) > 1:
            return 0
    print(api.compare(*options.runs, style=style, figure=options.figure, mixed=options.mixed))
    if options.figure is not None:
        print(options.figure)
    return 0


@dataclass(frozen=True)
class PoolOptions:
    runs: tyro.conf.Positional[Annotated[Runs, tyro.conf.arg(metavar="RUN")]]
    """Finished run directories that differ in their seeds alone."""
    out: Path = Path("pooled")
    """Where the pooled records go."""
    any_commit: tyro.conf.FlagCreatePairsOff[bool] = False
    """Pool runs of different commits, too: for changes that leave results alone. The record names all of them."""


def pool_runs(argv: list[str]) -> int:
    text = """\
Pool runs of one method that were trained seed by seed into one record.

Example:
  trident train uav-mec --seeds 0, --out runs/a
  trident train uav-mec --seeds 1,2 --out runs/b
  trident pool runs/a runs/b --out runs/all
"""
    options = parse(PoolOptions, argv, "pool", text)
    pool(list(options.runs), options.out, options.any_commit)
    print(options.out)
    return 0
