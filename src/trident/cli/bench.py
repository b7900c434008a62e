"""`trident bench`: measurements of speed, and the tables of the paper."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from trident.bench import page, speed
from trident.bench.campaign import CAMPAIGNS, check_methods, run_all
from trident.cli.options import parse
from trident.errors import TridentError
from trident.report.compare import label, load_runs
from trident.report.figures import draw_comparison, draw_front
from trident.report.versus import versus_table

EXAMPLES = """\
Measure environment, training and update speed on this machine, as ratios taken in one run.

Examples:
  trident bench speed --quick                          minutes; small networks
  trident bench speed                                  everything, tens of minutes
  trident bench speed --only env update                two parts of it
  trident bench speed --algos trident --sizes default
  trident bench speed --show benchmarks/speed/record.json     print an earlier record

PyTorch is compared if it can be imported; TRIDENT_TORCH_PYTHON may name another Python that has it.
"""


@dataclass(frozen=True)
class SpeedOptions:
    quick: bool = False
    """Small sizes and few repetitions."""
    only: tuple[str, ...] = speed.PARTS
    """Parts: env, update, growth, training, overheads."""
    algos: tuple[str, ...] = speed.Plan.algos
    """Algorithms: happo, mappo, trident, trident-large."""
    sizes: tuple[str, ...] | None = None
    """Network sizes: tiny, default (with --quick tiny alone)."""
    repeats: int | None = None
    """Turns of everything that is timed."""
    out: Path = Path("speed.json")
    """Where to write the record; parts of an earlier one that are not measured again are kept."""
    docs: Path | None = None
    """Where to write the page made from it."""
    show: Path | None = None
    """Print this record instead of measuring."""


TABLE_TEXT = """\
Run every method of a table of the paper with the same budget, then print ours beside the printed numbers (in brackets).

Examples:
  trident bench table1 --episodes 1500 --seeds 3 --out benchmarks/uav-mec
  trident bench ablations --methods trident trident-no-physics --episodes 200 --seeds 1 --out runs/quick
  trident bench table1 --jobs 2                     two runs at once

Finished runs are not run again and interrupted ones are resumed: the same command goes on after a kill.
"""


@dataclass(frozen=True)
class TableOptions:
    methods: tuple[str, ...] | None = None
    """Rows; all of the table's own if left out."""
    episodes: int = 1500
    """Training episodes per seed."""
    seeds: int = 3
    """Seeds per method, trained side by side."""
    jobs: int = 1
    """Runs at once, each in a process of its own."""
    out: Path = Path("runs/tables")
    """One folder per method."""
    figures: Path | None = None
    """Folder for curves.png and front.png; the runs' own if left out."""
    markdown: bool = False
    """Print the table as markdown."""


def bench(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(
            "usage: trident bench WHAT [OPTIONS]\n\nspeed      steps per second, compile times, operations, overheads"
        )
        print("\n".join(f"{name:10s} every method of this table on {c.env}" for name, c in CAMPAIGNS.items()))
        return 0
    if argv[0] in CAMPAIGNS:
        return _table(argv[0], parse(TableOptions, argv[1:], f"bench {argv[0]}", TABLE_TEXT))
    if argv[0] != "speed":
        raise TridentError(f"unknown measurement {argv[0]!r}: there are speed, {', '.join(CAMPAIGNS)}")
    options = parse(SpeedOptions, argv[1:], "bench speed", EXAMPLES)
    console = Console(width=None if sys.stdout.isatty() else 140)
    record = speed.read_record(options.show) if options.show else _measure(options, console)
    page.show(record, console)
    if options.docs:
        options.docs.write_text(page.page(record), encoding="utf-8")
    return 0


def _table(name: str, options: TableOptions) -> int:
    campaign = CAMPAIGNS[name]
    methods = options.methods or campaign.methods
    check_methods(campaign, methods)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    missing = run_all(campaign, methods, options.out, options.episodes, options.seeds, options.jobs, say)
    folders = [options.out / m for m in methods if m not in missing]
    if not folders:
        raise TridentError(f"no method finished: {'; '.join(f'{m}: {why}' for m, why in missing.items())}")
    style = "markdown" if options.markdown else "plain"
    print(versus_table(folders, campaign.columns, campaign.paper, missing, style))
    figures = options.figures or options.out
    figures.mkdir(parents=True, exist_ok=True)
    loaded = [(label(run, folder), run, result, records) for folder, (run, result, records) in
              zip(folders, load_runs(folders), strict=True)]  # fmt: skip
    print(draw_comparison([(text, run, records) for text, run, _, records in loaded], figures / "curves.png"))
    print(draw_front([(text, run, result) for text, run, result, _ in loaded], figures / "front.png"))
    return 1 if missing else 0


def _measure(options: SpeedOptions, console: Console) -> dict:
    base = speed.QUICK if options.quick else speed.Plan()
    plan = replace(
        base, parts=options.only, algos=options.algos, sizes=options.sizes or base.sizes,
        repeats=options.repeats or base.repeats,
    )  # fmt: skip
    earlier = speed.read_record(options.out) if options.out.exists() else {}
    save = lambda record: speed.write_record(options.out, record)  # noqa: E731
    if console.is_terminal:
        with console.status("starting") as status:
            record = speed.measure(plan, status.update, save, earlier)
    else:
        record = speed.measure(plan, lambda text: console.print(text, highlight=False), save, earlier)
    console.print(f"record: {options.out}")
    return record
