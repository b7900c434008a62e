"""Plain and markdown tables, and the table a run ends with."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trident.errors import TridentError
from trident.report.stats import Estimate, bootstrap

SAFETY = {"safe/episodes": "share of episodes without any violation", "safe/agents": "share of agents without one"}
"""What an evaluation says of single episodes."""


def terminal_width() -> int | None:
    """Columns of the terminal (or of the variable COLUMNS); None where the output goes elsewhere."""
    return shutil.get_terminal_size((0, 0)).columns or None


def plain(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned with spaces: the first to the left, the others to the right. What does not fit into the terminal
    goes on in a second table below, with the first column again."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str], columns: list[int]) -> str:
        return "  ".join([cells[0].ljust(widths[0]), *(cells[i].rjust(widths[i]) for i in columns)]).rstrip()

    rule = ["-" * w for w in widths]
    return "\n\n".join(
        "\n".join(line(cells, columns) for cells in [header, rule, *rows])
        for columns in _parts(widths, terminal_width())
    )


def _parts(widths: Sequence[int], room: int | None) -> list[list[int]]:
    """Which columns, but for the first, stand in which table."""
    parts: list[list[int]] = [[]]
    for i in range(1, len(widths)):
        used = widths[0] + sum(2 + widths[j] for j in [*parts[-1], i])
        if room is not None and used > room and parts[-1]:
            parts.append([])
        parts[-1].append(i)
    return parts


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def check_place(page: Path, name: str) -> str:
    """The page's text, if it has the two marks between which a generated text belongs."""
    try:
        old = page.read_text(encoding="utf-8")
    except OSError as error:
        raise TridentError(f"cannot read {page}: {error.strerror or error}") from error
    if not _marks(name).search(old):
        lines = f"'<!-- {name}: (any words) -->' and '<!-- end of {name} -->'"
        raise TridentError(f"{page} has no place for it: it needs the lines {lines}")
    return old


def insert(page: Path, name: str, text: str) -> None:
    """Put a generated text between the two marks that a page has for it."""
    old = check_place(page, name)
    page.write_text(_marks(name).sub(lambda m: f"{m[1]}\n{text}\n\n{m[2]}", old), encoding="utf-8")


def has_place(page: Path, name: str) -> bool:
    return _marks(name).search(page.read_text(encoding="utf-8")) is not None


def _marks(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {re.escape(name)}:[^\n]*-->\n).*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)


def number(value: float) -> str:
    """Four significant digits, without exponents in the usual range."""
    if value != value:
        return "-"
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        digits = 4 if abs(value) < 10 else 2 if abs(value) < 1000 else 0
        return f"{value:.{digits}f}"
    return f"{value:.2e}"


def interval(estimate: Estimate, samples: int = 2) -> str:
    """One sample has no interval: nothing is known of its spread."""
    if samples < 2:
        return number(estimate.value)
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def result_rows(run: dict[str, Any], result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """One row per quantity, one column per policy: mean over seeds with its 95 % bootstrap interval.

    A constraint shows its limit and, per policy, "ok" or "OVER" for the mean.
    """
    policies = result["policies"]
    one = max(map(len, policies.values())) < 2
    header = ["per step (one seed: no interval)" if one else "per step, mean [95 % interval]", *policies]
    rows = [["reward", *(_cell(seeds, "reward") for seeds in policies.values())]]
    for c in run["constraints"]:
        cells = []
        for seeds in policies.values():
            name = f"cost/{c['name']}"
            within = _estimate(seeds, name).value <= c["limit"]
            cells.append(f"{_cell(seeds, name)} {'ok' if within else 'OVER'}")
        rows.append([f"cost {c['name']} <= {c['limit']:g} {c['unit']}".rstrip(), *cells])
    said = {"reward", *(m["per"] for m in run["metrics"])}  # stands above, or is only a weight
    for m in (m for m in run["metrics"] if m["name"] not in said):
        arrow = {"higher": " (higher is better)", "lower": " (lower is better)"}.get(m["better"], "")
        unit = f" [{m['unit']}]" if m["unit"] else ""
        cells = [_cell(seeds, f"metric/{m['name']}") for seeds in policies.values()]
        rows.append([f"{m['name']}{unit}{arrow}", *cells])
    for name, text in SAFETY.items():
        if any(name in seed for seeds in policies.values() for seed in seeds):
            rows.append([text, *(_cell(seeds, name) for seeds in policies.values())])
    if result["shielded"]:
        cells = [_cell(seeds, "shielded") for seeds in policies.values()]
        rows.append(["share of actions changed by the shield", *cells])
    return header, rows


def result_table(run: dict[str, Any], result: dict[str, Any], style: str = "plain") -> str:
    header, rows = result_rows(run, result)
    text = (markdown if style == "markdown" else plain)(header, rows)
    kind = "most likely actions" if result["deterministic"] else "sampled actions"
    notes = [f"{result['episodes']} fresh episodes per seed, {kind}, seeds {result['seeds']}"]
    for seed, what in result["diverged"].items():
        notes.append(f"seed {seed} diverged at round {what['round']} ({what['quantity']}) and is left out")
    if result.get("pending"):
        notes.append(f"not evaluated yet: {', '.join(result['pending'])}")
    return "\n".join([text, "", *notes])


def _cell(seeds: list[dict[str, float]], name: str) -> str:
    return interval(_estimate(seeds, name), len(seeds))


def _estimate(seeds: list[dict[str, float]], name: str) -> Estimate:
    return bootstrap([s.get(name, float("nan")) for s in seeds])
