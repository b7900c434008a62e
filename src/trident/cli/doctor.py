"""`trident doctor`: what is damaged in a run, and what can be saved of it."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from trident.cli.options import parse
from trident.cli.runs import RunDirectory
from trident.training.doctor import examine, repair


@dataclass(frozen=True)
class DoctorOptions:
    run: RunDirectory
    """Run directory."""
    repair: tyro.conf.FlagCreatePairsOff[bool] = False
    """Cut the run back to its last state that can be proved. What is taken out is moved to RUN/damaged, not deleted."""


def doctor(argv: list[str]) -> int:
    text = """\
Check every file of a run by its digests; say what is damaged and what is left.

Examples:
  trident doctor runs/my-run
  trident doctor runs/my-run --repair
"""
    options = parse(DoctorOptions, argv, "doctor", text)
    diagnosis = examine(options.run)
    print("\n".join(diagnosis.lines()))
    if options.repair and diagnosis.damaged:
        print("\n".join(repair(options.run, diagnosis)))
        diagnosis = examine(options.run)
        print(diagnosis.verdict)
    return 1 if diagnosis.damaged else 0
