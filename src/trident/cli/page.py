"""Pages that show runs: `trident report --html`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trident.errors import TridentError
from trident.report.page.content import page_content
from trident.report.page.document import write_page
from trident.report.page.reading import find_runs
from trident.run_directory import is_run, read_run
from trident.training.command import command_of


def write_report(path: Path, places: Sequence[Path]) -> Path:
    """One page of these runs, and of those in these folders."""
    runs = runs_in(places)
    return write_page(path, page_content(runs, {run: c for run in runs if (c := command(run)) is not None}))


def runs_in(places: Sequence[Path]) -> list[Path]:
    """Run directories, and those inside folders of them. Asked for by name, a place must be one or the other."""
    found = [run for place in places for run in find_runs(place)]
    if not found:
        raise TridentError(f"there is no run in {', '.join(map(str, places))}")
    return list(dict.fromkeys(found))


def command(run: Path) -> str | None:
    """What repeats a run; of damaged ones the page says what is wrong."""
    try:
        return command_of(read_run(run)) if is_run(run) else None
    except (TridentError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return None
