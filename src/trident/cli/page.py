"""Pages that show runs: `trident report --html`, and what `trident train` leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trident import api
from trident.errors import TridentError
from trident.report.page.content import assemble
from trident.report.page.document import write_page
from trident.report.page.reading import Reading, find_runs, read_all
from trident.report.page.words import best_scripted
from trident.run_directory import CHECKPOINTS
from trident.training.command import command_of
from trident.training.evaluation import REFERENCES
from trident.training.showing import MOST_BYTES

PLAYED = 4
"""Runs of a page up to which each has its episodes."""


def write_report(
    path: Path,
    places: Sequence[Path],
    replay: bool = True,
    say: Callable[[str], Any] | None = None,
    loaded: api.Run | None = None,
    trust: bool = False,
) -> Path:
    """One page of these runs, and of those in these folders; `loaded`: the only one of them, if it is at hand;
    `trust`: import environments from the modules that runs name."""
    readings = read_all(runs_in(places))
    commands = {r.folder: text for r in readings if (text := _command(r)) is not None}
    playable = [r for r in readings if r.readable and (r.folder / CHECKPOINTS).is_dir()] if replay else []
    replays = {}
    for reading in playable if len(playable) <= PLAYED else ():
        (say or _tell)(f"playing episodes of {reading.name}")
        found = play(reading, MOST_BYTES // len(playable), loaded, trust)
        if found is not None:
            replays[reading.folder] = found
    return write_page(path, assemble(readings, commands, replays))


def runs_in(places: Sequence[Path]) -> list[Path]:
    """Run directories, and those inside folders of them."""
    found = [run for place in places for run in find_runs(place)]
    if not found:
        raise TridentError(f"there is no run in {', '.join(map(str, places))}")
    return list(dict.fromkeys(found))


def play(
    reading: Reading, most: int = MOST_BYTES, run: api.Run | None = None, trust: bool = False
) -> dict[str, Any] | None:
    """Episodes of a run, if it can still be loaded; what hinders stands among its problems."""
    try:
        run = api.load(reading.folder, trust=trust) if run is None else run
        return run.replay(_beside(reading, run), most=most)
    except TridentError as error:
        reading.problems.append(f"no episode could be played: {error}")
        return None


def _beside(reading: Reading, run: api.Run) -> str | None:
    """The best scripted policy of its evaluation, or one that every report knows."""
    best, scripted = best_scripted(reading), run.setup.env.scripted
    if best is not None and best["name"] in scripted:
        return best["name"]
    known = [name for name in reversed(REFERENCES) if name in scripted and name != run.setup.algorithm.name]
    return known[0] if known else None


def _command(reading: Reading) -> str | None:
    """What repeats a run; of damaged ones the page says what is wrong."""
    try:
        return command_of(reading.run) if reading.readable else None
    except (TridentError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _tell(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)
