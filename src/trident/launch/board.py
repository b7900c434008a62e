"""What is seen of a campaign: a table that lives on a terminal, a line for each event elsewhere.

Rewards and the time left are read from the runs' own records: the machines that run them are not asked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from trident.errors import TridentError
from trident.report.progress import clock
from trident.report.records import last_line, per_episode
from trident.run_directory import RECORDS, is_run, read_run

EVERY, LOOK = 60.0, 2.0
"""Seconds between two lines that tell how far everything is, and between two looks at the records."""
MOST_ROWS = 30


@dataclass
class Row:
    """What is known of one job."""

    name: str
    folder: Path
    state: str = "waiting"
    where: str = ""
    why: str = ""
    began: float = 0.0
    done: int = 0
    rounds: int = 0
    reward: float | None = None
    seconds: float | None = None
    """Left, by its own pace."""
    looked: float = field(default=-LOOK)

    def look(self, now: float) -> None:
        """Read how far the run is, from the last line of its records."""
        if now - self.looked < LOOK:
            return
        self.looked = now
        try:
            if not is_run(self.folder) or not (last := last_line(self.folder / RECORDS)):
                return
            self.rounds = self.rounds or read_run(self.folder)["rounds"]
        except TridentError:  # the run itself will say so
            return
        self.done = last["round"]
        rewards = [r for r in last["values"].get(per_episode([last], "reward"), ()) if r is not None]
        self.reward = float(np.mean(rewards)) if rewards else self.reward
        self.seconds = last["seconds"] / self.done * (self.rounds - self.done) if self.done else None

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        if self.state != "running":
            return self.name, self.state, "", "", "", self.why
        round_ = f"{self.done}/{self.rounds}" if self.rounds else "compiling"
        reward = "" if self.reward is None else f"{self.reward:.4g}"
        return self.name, self.state, round_, reward, "" if self.seconds is None else clock(self.seconds), self.where


STYLES = {"running": "bold", "done": "green", "crashed": "red", "waiting": "dim"}


class Board:
    def __init__(self, stream: TextIO, every: float = EVERY) -> None:
        self._console = Console(file=stream)
        self._stream, self._every, self._told = stream, every, 0.0
        self._live = Live(console=self._console, auto_refresh=False) if stream.isatty() else None
        self._rows: list[Row] = []

    def begin(self, rows: Sequence[Row]) -> None:
        self._rows, self._told = list(rows), time.monotonic()
        if self._live is not None:
            self._live.start()

    def now(self, row: Row, state: str, where: str = "") -> None:
        if state == "running" and row.state != "running":
            row.began = time.monotonic()
            self.say(f"{row.name}: started{f' on {where}' if where else ''}")
        row.state, row.where = state, where

    def lost(self, row: Row, why: str) -> None:
        row.state, row.why = "waiting", f"lost ({why})"
        self.say(f"{row.name}: lost, {why}; it will be resumed")

    def end(self, row: Row, why: str) -> None:
        row.state, row.why = ("crashed", why) if why else ("done", "")
        done, total = self._count("done", "crashed"), len(self._rows)
        minutes = (time.monotonic() - row.began) / 60
        self.say(
            f"{row.name}: CRASHED, {why}" if why else f"{row.name}: done in {minutes:.1f} minutes ({done}/{total})"
        )

    def _count(self, *states: str) -> int:
        return sum(row.state in states for row in self._rows)

    def draw(self) -> None:
        """What is known now; away from a terminal a line every minute."""
        now = time.monotonic()
        if self._live is None and now - self._told < self._every:
            return
        for row in self._rows:
            if row.state == "running":
                row.look(now)
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
        else:
            self._told = now
            self.say(self.summary())

    def summary(self) -> str:
        counts = ", ".join(f"{self._count(s)} {s}" for s in ("done", "crashed", "running", "waiting") if self._count(s))
        times = [row.seconds for row in self._rows if row.state == "running" and row.seconds is not None]
        return counts + (f"; {clock(max(times))} left of those that run" if times else "")

    def table(self) -> Table:
        """Those that run first, then what crashed, what waits and what is done."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name, justify in (("job", "left"), ("", "left"), ("round", "right"), ("reward", "right"), ("left", "right"), ("", "left")):  # fmt: skip # noqa: E501
            table.add_column(name, justify=justify, no_wrap=name == "job")  # pyright: ignore[reportArgumentType]
        order = ["running", "crashed", "waiting", "done"]
        rows = sorted(self._rows, key=lambda row: order.index(row.state))
        for row in rows[:MOST_ROWS]:
            table.add_row(*row.cells, style=STYLES[row.state])
        more = f"and {len(rows) - MOST_ROWS} more; " if len(rows) > MOST_ROWS else ""
        table.caption, table.caption_justify = more + self.summary(), "left"
        return table

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
