"""`trident zoo`: policies that come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trident import api
from trident.allowed import Name, Range, Seed
from trident.cli.options import parse, wants_help
from trident.errors import TridentError
from trident.report.tables import plain
from trident.training import zoo

HELP = """\
usage: trident zoo [ENV/NAME | add RUN ...]

Policies that come with the package: all of them, or one's card.

Examples:
  trident zoo
  trident zoo uav-mec/trident
  trident eval zoo:uav-mec/trident
  trident zoo add runs/my-run --name uav-mec/mine     (its checkpoint is needed)

In Python: trident.load("zoo:uav-mec/trident")"""


@dataclass(frozen=True)
class AddOptions:
    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Run directory, with a checkpoint (`trident bench ... --keep`)."""
    name: Name | None = None
    """ENV/NAME; by itself the run's environment and algorithm."""
    seed: Seed | None = None
    """Whose policy; by itself the first that has not diverged."""
    episodes: Annotated[int, Range(2, 10**6)] = zoo.EPISODES
    """Fresh episodes for the card."""
    into: Path = zoo.POLICIES
    """Folder of the zoo."""


def show_or_add(argv: list[str]) -> int:
    if argv[:1] == ["add"]:
        return _add(argv[1:])
    if wants_help(argv):
        print(HELP)
    elif len(argv) == 1:
        print(zoo.shown(argv[0]))
    elif argv:
        raise TridentError(f"`trident zoo` takes one name at most, not {' '.join(argv)!r}")
    else:
        rows = zoo.overview()
        header = ["policy", "environment", "reward", "costs", "size", "commit"]
        print(plain(header, rows) if rows else "the zoo is empty")
    return 0


def _add(argv: list[str]) -> int:
    text = """\
Make an entry of the zoo of one seed of a run: its policy and a card.

Example:
  trident zoo add runs/my-run --name uav-mec/mine
"""
    options = parse(AddOptions, argv, "zoo add", text)
    run = api.load(options.run)
    name = options.name or f"{run.setup.spec.name}/{run.setup.algorithm.name}"
    row = run.row(options.seed)
    out = zoo.add(options.run, run.setup, run.state.algo, row, options.into, name, options.episodes)
    card = zoo.card_of(out)
    print(f"{out}: {card['parameters']['bytes'] / 1000:.0f} kB, evaluation {card['evaluation']}")
    return 0
