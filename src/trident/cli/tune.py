"""`trident tune`: as many trials, of one budget, on the same seeds, for every method."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from trident.allowed import Length, Name, Names, Range, Seed
from trident.bench.search_spaces import SPACES, space_of
from trident.bench.tuning import Budget, Study, require_optuna, tune, write_tuned
from trident.cli.options import parse
from trident.errors import TridentError
from trident.launch.options import LaunchOptions, make_launcher
from trident.report.tables import plain
from trident.run_directory import write_text
from trident.training.registry import make_env


@dataclass(frozen=True)
class TuneOptions:
    env: tyro.conf.Positional[Annotated[Name, tyro.conf.arg(metavar="ENV")]]
    """Environment."""
    methods: Annotated[Names, tyro.conf.arg(metavar="NAME ...")] = tuple(SPACES)
    """Methods, TRIDENT included; all with a search space if left out."""
    trials: Annotated[int, Range(1, 10**5)] = 16
    """Trials of each method; the first one has the preset's values."""
    episodes: Annotated[int, Range(1, 10**12)] = 800
    """Training episodes of each trial, per seed."""
    seeds: Annotated[Annotated[tuple[Seed, ...], Length(1, 64)], tyro.conf.arg(metavar="I ...")] = (100, 101)
    """Seeds of each trial; 100 or higher, since those below are the tables' own."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Folder of the journal and the trials; runs/tune-ENV if left out."""
    tuned: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Write chosen values into this file, e.g. src/trident/training/tuned.json."""
    show: tyro.conf.FlagCreatePairsOff[bool] = False
    """Run nothing: show, and with --tuned write, what is in the journal."""
    launch: Annotated[LaunchOptions, tyro.conf.arg(name="")] = field(default_factory=LaunchOptions)


TEXT = """\
Tune methods by as many trials of one budget each (Optuna, the extra `tune`).

Examples:
  trident tune uav-mec --methods mappo macpo trident-scratch --trials 16
  trident tune uav-mec --show --tuned src/trident/training/tuned.json

Trials are pruned by their records. The same command goes on after a kill.
"""


def tune_methods(argv: list[str]) -> int:
    options = parse(TuneOptions, argv, "tune", TEXT)
    require_optuna()
    make_env(options.env)
    for method in options.methods:
        space_of(method)
    out, budget = options.out or Path("runs") / f"tune-{options.env}", Budget(options.episodes, options.seeds)
    if options.show and not out.is_dir():
        raise TridentError(f"{out} has no study yet")
    studies = [Study(options.env, method, out, budget) for method in options.methods]
    if not options.show:
        with closing(make_launcher(options.launch)) as launcher:
            try:
                for study in studies:
                    tune(study, options.trials, launcher, lambda text: print(text, file=sys.stderr, flush=True))
            except KeyboardInterrupt:
                raise TridentError("interrupted: every run was saved, and the same command goes on") from None
    table = plain(["method", "trials", "pruned", "failed", "preset", "best", "chosen"], [_row(s) for s in studies])
    print(table)
    write_text(out / "tuned.txt", table + "\n")
    if options.tuned is not None:
        for study in studies:
            write_tuned(options.tuned, options.env, study.method, study.best())
        print(options.tuned)
    return 0


def _row(study: Study) -> list[str]:
    try:
        found = study.best()
    except TridentError:
        return [study.method, str(len(study.trials)), "-", "-", "-", "-", "-"]
    said, usual = found["study"], found["study"]["preset's score"]
    chosen = ", ".join(f"{name} {value:g}" for name, value in found["values"].items()) or "the preset's values"
    counts = [str(said[name]) for name in ("trials", "pruned", "failed")]
    return [study.method, *counts, "-" if usual is None else f"{usual:.4f}", f"{said['score']:.4f}", chosen]
