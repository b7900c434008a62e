"""What the command line says of where jobs run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from trident.allowed import Range, checked
from trident.launch.job import Launcher
from trident.launch.local import Local


@dataclass(frozen=True)
class LaunchOptions:
    """Where runs go."""

    launcher: Literal["local"] = "local"
    """Processes of this machine."""
    jobs: Annotated[int, Range(1, 4096)] | None = None
    """Runs at once. By default one for every two cores, or as many as find --cores of their own; more share them, and
    each takes more minutes."""
    cores: Annotated[int, Range(1, 4096)] | None = None
    """Cores of each run, which no other run gets; left out, all runs share all of them. A run repeats bit for bit only
    on as many."""


def make_launcher(options: LaunchOptions) -> Launcher:
    options = checked(options)
    return Local(options.jobs, options.cores)
