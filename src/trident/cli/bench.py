"""`trident bench`: measurements of speed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from trident.bench import page, speed
from trident.cli.options import parse
from trident.errors import TridentError

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


def bench(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: trident bench speed [OPTIONS]\n\nspeed  steps per second, compile times, operations, overheads")
        return 0
    if argv[0] != "speed":
        raise TridentError(f"unknown measurement {argv[0]!r}: there is `trident bench speed`")
    options = parse(SpeedOptions, argv[1:], "bench speed", EXAMPLES)
    console = Console(width=None if sys.stdout.isatty() else 140)
    record = speed.read_record(options.show) if options.show else _measure(options, console)
    page.show(record, console)
    if options.docs:
        options.docs.write_text(page.page(record), encoding="utf-8")
    return 0


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
