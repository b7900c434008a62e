"""`trident verify`: the claims of the paper against numbers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trident.allowed import Names, Seed
from trident.cli.options import parse
from trident.errors import TridentError
from trident.training.session import enable_compilation_cache
from trident.verify import runner
from trident.verify.claim import CORRECTED, FAILS, HOLDS
from trident.verify.registry import EXPERIMENTS

EXAMPLES = """\
Check every claim of the paper against numbers, and give a verdict.

Examples:
  trident verify --list                 one line for each claim
  trident verify                        all of them; minutes
  trident verify stgc-order annealing   some, by claim or experiment
  trident verify --show benchmarks/theory/record.json    an earlier record
"""
STYLES = {HOLDS: "green", CORRECTED: "yellow", FAILS: "red"}


@dataclass(frozen=True)
class VerifyOptions:
    names: Annotated[Names, tyro.conf.Positional] = ()
    """Claims or experiments; all if none is named."""
    list: bool = False
    """Only list the claims."""
    seed: Seed = 0
    """Of everything that is drawn at random."""
    out: Path = Path("theory.json")
    """Where to write the record; claims of an earlier one that are not measured again are kept."""
    figures: Path | None = None
    """Folder for the figures; by default beside the record."""
    docs: Path | None = None
    """Put the table of verdicts into this page, between its marks."""
    show: Path | None = None
    """Print this record instead of measuring; with --figures draw its figures again."""


def verify(argv: list[str]) -> int:
    options = parse(VerifyOptions, argv, "verify", EXAMPLES)
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.list:
        list_claims(console)
        return 0
    record = runner.read_record(options.show) if options.show else _measure(options, console)
    show(record, console)
    if options.show and options.figures:
        runner.draw(record, options.figures)
    if options.docs:
        runner.insert_table(options.docs, record)
    return 0


def _measure(options: VerifyOptions, console: Console) -> runner.Record:
    experiments = runner.choose(options.names)
    earlier = runner.read_record(options.out) if options.out.exists() else {}
    figures = options.figures or options.out.parent / "theory-figures"
    enable_compilation_cache()
    keep = lambda record: runner.write_record(options.out, record)  # noqa: E731
    try:
        if console.is_terminal:
            with console.status("starting") as status:
                record = runner.run(experiments, options.seed, status.update, keep, earlier, figures)
        else:
            say = lambda text: console.print(text, highlight=False, markup=False)  # noqa: E731
            record = runner.run(experiments, options.seed, say, keep, earlier, figures)
    except KeyboardInterrupt:
        if options.out.exists():
            console.print(f"interrupted; what was finished stands in {options.out}")
        raise
    except OSError as error:
        raise TridentError(f"cannot write the figures to {figures}: {error.strerror or error}") from error
    console.print(f"record: {options.out}, figures: {figures}")
    return record


def list_claims(console: Console) -> None:
    table = Table(show_edge=False, box=None, padding=(0, 2, 0, 0))
    for name in ("experiment", "claim", "where", "the paper says"):
        table.add_column(name, no_wrap=name in ("experiment", "claim"))
    for experiment in EXPERIMENTS:
        for i, claim in enumerate(experiment.claims):
            table.add_row(experiment.name if i == 0 else "", claim.name, claim.where, claim.says)
    console.print(table)


def show(record: runner.Record, console: Console) -> None:
    table = Table(show_lines=True)
    for name in runner.HEADER:
        table.add_column(escape(name), no_wrap=name == "claim")
    for *cells, verdict in runner.rows(record):
        table.add_row(*map(escape, cells), f"[{STYLES.get(verdict, 'dim')}]{verdict}[/]")
    console.print(table)
