"""What the command line says of where jobs run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from trident.allowed import Name, Range, checked
from trident.errors import TridentError
from trident.launch.job import Launcher
from trident.launch.local import Local

CORES = 2
"""Of a run on a cluster, unless told otherwise: it keeps about two busy."""


def parse_pairs(words: list[str]) -> dict[str, str]:
    """["partition=gpu", "time=600"] -> {"partition": "gpu", "time": "600"}"""
    parts = [word.partition("=") for word in words]
    pairs = {name: value for name, _, value in parts}
    if not all(name and value for name, value in pairs.items()):
        raise TridentError(f"--slurm wants NAME=VALUE, e.g. --slurm partition=gpu time=600, not {' '.join(words)!r}")
    return pairs


_PAIRS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="NAME=VALUE",
    instance_from_str=parse_pairs,
    is_instance=lambda x: isinstance(x, dict),
    str_from_instance=lambda pairs: [f"{k}={v}" for k, v in pairs.items()],
)


Few = Annotated[int, Range(1, 4096)]


@dataclass(frozen=True)
class LaunchOptions:
    """Where runs go. docs/launchers.md says more of each."""

    launcher: Literal["local", "ray", "slurm"] = "local"
    """This machine, a Ray cluster, Slurm."""
    jobs: Annotated[Few | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Runs at once (one for two cores; a cluster: all)."""
    cores: Annotated[Few | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Cores of a run, its own (shared; on a cluster 2)."""
    gpus: Annotated[float, Range(0.0, 64.0), tyro.conf.arg(metavar="N", help_behavior_hint="")] = 0.0
    """GPUs of a run on a cluster (0; on Ray 0.5 of one)."""
    address: Annotated[Name | None, tyro.conf.arg(metavar="HOST:PORT", help_behavior_hint="")] = None
    """Of the Ray cluster, if not here."""
    slurm: Annotated[dict[Name, Name], _PAIRS, tyro.conf.arg(help_behavior_hint="")] = field(default_factory=dict)
    """For sbatch: partition=gpu time=600."""

    def faults(self):
        if self.address is not None and self.launcher != "ray":
            yield "--address needs --launcher ray"
        if self.slurm and self.launcher != "slurm":
            yield "--slurm needs --launcher slurm"
        if self.gpus and self.launcher == "local":
            yield "--gpus needs --launcher ray or slurm: on one machine all runs see all of its GPUs"


def make_launcher(options: LaunchOptions) -> Launcher:
    """What cannot be reached is a TridentError."""
    options = checked(options)
    if options.launcher == "ray":
        from trident.launch.on_ray import OnRay

        return OnRay(options.address, options.jobs, options.cores or CORES, options.gpus)
    if options.launcher == "slurm":
        from trident.launch.on_slurm import OnSlurm

        return OnSlurm(options.slurm, options.jobs, options.cores or CORES, options.gpus)
    return Local(options.jobs, options.cores)
