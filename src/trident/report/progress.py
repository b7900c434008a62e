"""What a run says while it goes: a live display on a terminal, plain lines elsewhere, nothing when asked.

All of them speak from run.json and the records alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol, TextIO

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from trident.report.records import Record, series


class Progress(Protocol):
    def begin(self, run: dict[str, Any]) -> None:
        """Before compiling; `run` is the content of run.json."""
        ...

    def resume_at(self, last: Record) -> None:
        """Compiled; the first round is about to start (or the one after `last`)."""
        ...

    def update(self, record: Record) -> None: ...

    def doing(self, text: str) -> None:
        """Something long begins; it lasts until the next of them, or the end."""
        ...

    def say(self, text: str) -> None: ...
    def end(self) -> None: ...


class Silent:
    def begin(self, run: dict[str, Any]) -> None: ...
    def resume_at(self, last: Record) -> None: ...
    def update(self, record: Record) -> None: ...
    def doing(self, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def end(self) -> None: ...


def progress_for(stream: TextIO | None = None) -> Progress:
    to = sys.stdout if stream is None else stream
    return LiveProgress(to) if to.isatty() else PlainProgress(to)


def plan_line(run: dict[str, Any]) -> str:
    """What is about to happen, in one line."""
    seeds, steps = len(run["settings"]["seeds"]), run["rounds"] * run["steps_per_round"]
    spread, device, cores = run.get("identity", {}).get("devices", "1"), run["host"]["device"], run["host"]["cores"]
    where = f"{device} ({cores} cores)" if spread == "1" else f"{device} devices: {spread}"
    limits = ", ".join(f"{c['name']} <= {c['limit']:g} {c['unit']}" for c in run["constraints"]) or "none"
    return (
        f"{run['algo']} on {run['env']} (version {run['env_version']}, {run['agents']} agents): "
        f"{seeds} seed{'s' * (seeds > 1)} x {run['rounds']} rounds x {run['steps_per_round']:,} env steps = "
        f"{seeds * steps:,} env steps on {where}; limits: {limits}"
    )


def shown(run: dict[str, Any], record: Record, known: dict[str, float]) -> Iterator[tuple[str, float, float | None]]:
    """(name, mean over seeds, limit or None) of what a watcher wants to see. Reward and costs are of whole episodes,
    where records have them; `known` keeps them for the rounds in which none ends. NaN before the first."""
    limits = {f"cost/{c['name']}": c["limit"] for c in run["constraints"]}
    for name in record["values"]:
        if name in ("reward", "kl", "recovery") or name in limits:
            whole = f"episode_{name}"
            value = _mean(record, whole if whole in record["values"] else name)
            known[name] = value if np.isfinite(value) else known.get(name, value)
            yield name.removeprefix("cost/"), known[name], limits.get(name)


def _mean(record: Record, name: str) -> float:
    _, values = series([record], name)
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else np.nan


COMPILING = "compiling (a minute or two the first time, cached afterwards)"


class PlainProgress:
    """One line at the first and last round and every few seconds between."""

    def __init__(self, stream: TextIO, every: float = 5.0) -> None:
        self._stream, self._every = stream, every
        self._run: dict[str, Any] = {}
        self._printed = self._started = 0.0
        self._deaf = False
        self._first_round = 0
        self._known: dict[str, float] = {}

    def begin(self, run: dict[str, Any]) -> None:
        self._run = run
        self.say(plan_line(run))
        self.doing(COMPILING)

    def resume_at(self, last: Record) -> None:
        self._started, self._first_round = time.monotonic(), last["round"]
        if last["round"]:
            self.say(f"going on after round {last['round']} of {self._run['rounds']}")

    def update(self, record: Record) -> None:
        now, done, total = time.monotonic(), record["round"], self._run["rounds"]
        values = list(shown(self._run, record, self._known))
        if now - self._printed < self._every and done not in (self._first_round + 1, total):
            return
        self._printed = now
        left = (now - self._started) / (done - self._first_round) * (total - done)
        parts = [f"round {done}/{total}", f"{record['env_steps']:,} steps", f"{clock(left)} left"]
        for name, value, limit in values:
            verdict = "" if value != value else " ok" if limit is None or value <= limit else " OVER"
            mark = "" if limit is None else f"{verdict} (limit {limit:g})"
            parts.append(f"{name} {_number(value)}{mark}")
        self.say("  ".join(parts))

    def doing(self, text: str) -> None:
        self.say(f"{text} ...")

    def say(self, text: str) -> None:
        """Once nobody reads or the disk behind the output is full, nothing more is said; the work goes on."""
        if not self._deaf:
            try:
                print(text, file=self._stream, flush=True)
            except (OSError, ValueError):
                self._deaf = True

    def end(self) -> None: ...


class Ticking:
    """What is being done, and for how many seconds: drawn anew, it shows that it lives."""

    def __init__(self, text: str) -> None:
        self._text, self._began = text, time.monotonic()

    def __rich__(self) -> Text:
        return Text(f"{self._text} ... {time.monotonic() - self._began:.0f} s", style="dim")


class LiveProgress:
    """A bar with the time left, the reward, each constraint against its limit, recovery share and KL."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._bar = Bar(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            expand=True,
        )
        self._live: Live | None = None
        self._shown: Any = None
        self._run: dict[str, Any] = {}
        self._known: dict[str, float] = {}
        self._task: Any = None

    def begin(self, run: dict[str, Any]) -> None:
        self._run = run
        self._console.print(plan_line(run), highlight=False, markup=False)
        self.doing(COMPILING)

    def resume_at(self, last: Record) -> None:
        self._task = self._bar.add_task("", total=self._run["rounds"], completed=last["round"])
        self._show(self._bar)

    def update(self, record: Record) -> None:
        self._bar.update(self._task, completed=record["round"])
        self._show(Group(self._bar, self._values(record)))

    def doing(self, text: str) -> None:
        self._show(Ticking(text))

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)  # [s] is a unit

    def end(self) -> None:
        """The bar stays on the screen; what was being done is done, and goes."""
        if self._live is not None:
            self._live.transient = isinstance(self._shown, Ticking)
            self._live.stop()
            self._live = None

    def _show(self, what: Any) -> None:
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=4)
            self._live.start()
        self._shown = what
        self._live.update(what)

    def _values(self, record: Record) -> Text:
        line = Text()
        for name, value, limit in shown(self._run, record, self._known):
            style = "bold" if limit is None or value != value else "green" if value <= limit else "red"
            against = "" if limit is None else f"\u00a0/\u00a0{limit:g}"  # a value stays on one line with its name
            line.append_text(Text.assemble((f"{name}\u00a0", "dim"), (_number(value), style), (against, "dim"), "  "))
        return line


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.4g}"


def clock(seconds: float) -> str:
    """1:05 or 2:03:04."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
