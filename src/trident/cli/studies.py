"""`trident bench table3 | table5`: studies of several runs of each method."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trident.allowed import Length, Name, Names, Range
from trident.bench import scalability as fleets
from trident.bench import sensitivity as knobs
from trident.bench.table_runner import differences, plan, run_table
from trident.cli.bench import StudyOptions
from trident.cli.options import parse
from trident.errors import TridentError
from trident.launch.board import Board
from trident.launch.job import Job
from trident.launch.options import make_launcher
from trident.report.paper_table import provenance
from trident.report.study_figures import draw_scaling
from trident.report.tables import check_place, insert
from trident.training.registry import make_env

SCALABILITY = """\
Train fleets of 4 to 32 UAVs; fly them by four's policy; fit exponents of N.

Examples:
  trident bench table3 --episodes 2000 --seeds 3 --out runs/table3
  trident bench table3 --agents 4 8 64 --methods trident --episodes 200
"""


@dataclass(frozen=True)
class ScalabilityOptions(StudyOptions):
    agents: Annotated[
        Annotated[tuple[Annotated[int, Range(4, 256)], ...], Length(1, 7)], tyro.conf.arg(metavar="N ...")
    ] = fleets.SIZES
    """Numbers of UAVs, up to 256."""
    methods: Annotated[Names, tyro.conf.arg(metavar="NAME ...")] = fleets.METHODS
    """Rows."""
    transfer: Annotated[int, Range(0, 10**5)] = 100
    """Fresh episodes in which four's policies fly each size, per seed; 0: none."""


def scalability(argv: list[str]) -> int:
    options = parse(ScalabilityOptions, argv, "bench table3", SCALABILITY)
    out, sizes = options.out or Path("runs/table3"), sorted(set(options.agents))
    _check_docs(options, "table3")
    envs = [fleets.env_of(n) for n in sizes]
    jobs = plan(fleets.TABLE3, envs, options.methods, out, options.episodes, options.steps, options.seeds)
    missing = _run(jobs, options, keep=True)  # checkpoints are what is carried to other sizes
    done = _done(jobs, missing)
    points = fleets.points_of(done, out, _say)
    carried = fleets.transfers(done, sizes, options.transfer, out, _say) if options.transfer else {}
    texts = []
    for style in _styles(options):
        parts = [fleets.size_table(points, quantity, sizes, style) for quantity in fleets.QUANTITIES]
        parts += [fleets.transfer_table(points, carried, sizes, style)] if carried else []
        texts.append("\n\n".join([*parts, *_notes(done, missing)]))
    _finish(options, out, "table3", texts)
    quantities = {
        quantity: {method: [(n, of_point(of_size[n])) for n in sorted(of_size)] for method, of_size in points.items()}
        for quantity, of_point in fleets.QUANTITIES.items()
    }
    exponents = {
        (quantity, method): fleets.exponent(of_size, quantity).value
        for quantity in quantities
        for method, of_size in points.items()
    }
    print(draw_scaling(quantities, exponents, _figure(options, out, "scaling.png")))
    return 1 if missing else 0


SENSITIVITY = """\
Change TRIDENT's settings one at a time; check the paper's claim of 5 %.

Examples:
  trident bench table5 --episodes 2000 --seeds 5 --out runs/table5
  trident bench table5 --settings delta_TR alpha_k --episodes 400

Levels: a quarter, half, once, twice the default, and a tenth to either side.
"""


@dataclass(frozen=True)
class SensitivityOptions(StudyOptions):
    settings: Annotated[Names, tyro.conf.arg(metavar="NAME ...")] = tuple(knobs.KNOBS)
    """delta_TR, alpha_k, tau_0, omega_1:omega_2."""


def sensitivity(argv: list[str]) -> int:
    options = parse(SensitivityOptions, argv, "bench table5", SENSITIVITY)
    out = options.out or Path("runs/table5")
    _check_docs(options, "table5")
    episodes = options.episodes
    if options.steps is not None:
        episodes = math.ceil(options.steps / make_env(knobs.ENV).spec.horizon)
    of_level = knobs.plan(options.settings, out, episodes, options.seeds)
    jobs = list(dict.fromkeys(job for levels in of_level.values() for job in levels.values()))
    missing = _run(jobs, options, options.keep)
    done = _done(jobs, missing)
    runs = knobs.runs_of(of_level, missing)
    texts = []
    for style in _styles(options):
        parts = [knobs.level_table(runs, style), knobs.claim_table(runs, style)]
        texts.append("\n\n".join([*parts, *_notes(done, missing)]))
    _finish(options, out, "table5", texts)
    print(knobs.draw(runs, _figure(options, out, "sensitivity.png")))
    return 1 if missing else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run(jobs: Sequence[Job], options: StudyOptions, keep: bool) -> dict[Job, str]:
    with closing(make_launcher(options.launch)) as launcher:
        return run_table(jobs, launcher, Board(sys.stderr), keep)


def _styles(options: StudyOptions) -> tuple[str, str]:
    return ("markdown" if options.markdown else "plain", "markdown")


def _done(jobs: Sequence[Job], missing: dict[Job, str]) -> list[Job]:
    if len(missing) == len(jobs):
        raise TridentError(
            f"nothing finished: {'; '.join(f'{job.folder.name}: {why}' for job, why in missing.items())}"
        )
    return [job for job in jobs if job not in missing]


def _notes(done: Sequence[Job], missing: dict[Job, str]) -> list[str]:
    """Which commits made it, what is not of today's values, and what crashed."""
    other = {f"{job.name} ({job.folder})": differences(job) for job in done}
    lost = [
        f"Missing: {job.method} on {job.env} ({job.folder}): {' '.join(why.split())}" for job, why in missing.items()
    ]
    return [provenance([job.folder for job in done], other), *lost]


def _mark(options: StudyOptions, name: Name) -> str:
    return options.mark or name


def _check_docs(options: StudyOptions, name: Name) -> None:
    if options.docs:
        check_place(options.docs, _mark(options, name))


def _finish(options: StudyOptions, out: Path, name: Name, texts: list[str]) -> None:
    print(texts[0])
    (out / f"{name}.md").write_text(texts[1] + "\n", encoding="utf-8")
    if options.docs:
        insert(options.docs, _mark(options, name), texts[1])


def _figure(options: StudyOptions, out: Path, name: str) -> Path:
    folder = options.figures or out
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
