"""Where a training runs: options that count before JAX looks at the hardware, so before anything else is parsed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trident.allowed import Name, check_value
from trident.cli.options import wants_help
from trident.training import hosts, platforms
from trident.training.platforms import Platform


@dataclass(frozen=True)
class Place:
    platform: Platform | None = None
    """Kind of device; the fastest that is there if left out."""
    hosts: Name | None = None
    """One training over several hosts, started on each of them: ADDRESS:PORT,COUNT,INDEX with the address of host 0,
    or auto, which asks the cluster (Slurm, Open MPI, Kubernetes, TPU pods). Under srun with several tasks auto is the
    default, and none trains apart."""


@contextmanager
def placed(argv: list[str]) -> Iterator[None]:
    """What the command line says of the place holds inside."""
    if wants_help(argv):
        yield
        return
    platform = check_value("--platform", Platform | None, value_of(argv, "--platform"))
    platforms.ask_for(platform)
    with hosts.joined(value_of(argv, "--hosts")):
        platforms.check(platform)
        yield


def value_of(argv: list[str], option: str) -> str | None:
    """The last value of an option."""
    found = None
    for word, following in zip(argv, [*argv[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            found = value if equals else following
    return found
