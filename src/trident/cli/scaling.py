"""`trident bench devices`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from trident.allowed import Length, Name, Names, Range
from trident.bench import device_scaling
from trident.bench.device_scaling import Plan
from trident.cli.options import parse
from trident.report.tables import check_place, insert

TEXT = """\
Throughput of one training on 1, 2, 4 devices, and what they say to each other.

Examples:
  trident bench devices --quick                       minutes; small networks
  trident bench devices --algos mappo trident --out benchmarks/speed/devices.json
  trident bench devices --algos trident --seeds 1 --rounds 0    only count bytes

Without GPUs the devices are virtual: they share this machine's cores.
"""
Counts = Annotated[tuple[Annotated[int, Range(1, 2**16)], ...], Length(1, 64)]


@dataclass(frozen=True)
class DevicesOptions:
    env: Name = Plan.env
    """Environment."""
    algos: Names = Plan.algos
    """Algorithms."""
    seeds: Counts = Plan.seeds
    """Numbers of seeds."""
    devices: Counts = Plan.devices
    """Numbers of devices."""
    rounds: Annotated[int, Range(0, 10**4)] = Plan.rounds
    """Rounds that are timed; 0 counts the communication alone."""
    quick: bool = False
    """Tiny networks and batches."""
    out: Path | None = None
    """Where to write the record."""
    docs: Path | None = None
    """A page to put the table into, between the lines `<!-- devices: (any words) -->` and `<!-- end of devices -->`."""


def bench_devices(argv: list[str]) -> int:
    options = parse(DevicesOptions, argv, "bench devices", TEXT)
    if options.docs is not None:
        check_place(options.docs, "devices")
    plan = Plan(options.env, options.algos, options.seeds, options.devices, options.rounds, options.quick)
    device_scaling.make_devices(max(plan.devices))
    record = device_scaling.measure(plan, lambda text: print(text, file=sys.stderr, flush=True))
    if options.out is not None:
        device_scaling.write(options.out, record)
    page = device_scaling.table(record)
    print(page)
    if options.docs is not None:
        insert(options.docs, "devices", page)
    return 0
