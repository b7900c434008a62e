"""Running the experiments, and the record, table and page that come of them."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from trident.errors import TridentError
from trident.report.records import plain
from trident.report.stats import Estimate
from trident.report.tables import has_place, insert, markdown
from trident.run_directory import write_text
from trident.verify.claim import Check, Claim, Evidence, Experiment, Say, verdict
from trident.verify.registry import EXPERIMENTS

Record = dict[str, Any]
HEADER = ["claim", "where", "the paper says", "measured [interval]", "verdict"]


def choose(names: Iterable[str]) -> list[Experiment]:
    """The experiments behind these names of experiments or claims; all of them for no name."""
    names = list(names)
    if not names:
        return list(EXPERIMENTS)
    by_name = {e.name: e for e in EXPERIMENTS} | {c.name: e for e in EXPERIMENTS for c in e.claims}
    for name in names:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise TridentError(f"unknown claim {name!r}: {hint}`trident verify --list` shows all of them")
    wanted = {by_name[name].name for name in names}
    return [e for e in EXPERIMENTS if e.name in wanted]


def run(
    experiments: list[Experiment],
    seed: int,
    say: Say,
    keep: Callable[[Record], None],
    earlier: Record,
    figures: Path | None,
) -> Record:
    """Measure, judge and draw one experiment after another; `keep` gets the record after each of them."""
    if not 0 <= seed < 2**31:
        raise TridentError("--seed must be in [0, 2^31)")
    record = {"experiments": {}, "claims": {}} | earlier
    for number, experiment in enumerate(experiments, start=1):
        began = time.monotonic()
        where = f"[{number}/{len(experiments)}] {experiment.name}"
        say(f"{where}: {experiment.about}")
        data = short(plain(experiment.measure(seed, lambda text, where=where: say(f"{where}: {text}"))))
        record["experiments"][experiment.name] = {"seed": seed, "seconds": time.monotonic() - began, "data": data}
        for claim in experiment.claims:
            record["claims"][claim.name] = judge(claim, data)
        if figures is not None and experiment.draw is not None:
            experiment.draw(data, figures / f"{experiment.name}.png")
        keep(record)
    return record


def draw(record: Record, figures: Path) -> None:
    """The figures of a record, again."""
    for experiment in EXPERIMENTS:
        if experiment.draw is not None and experiment.name in record["experiments"]:
            experiment.draw(record["experiments"][experiment.name]["data"], figures / f"{experiment.name}.png")


def short(value: Any) -> Any:
    """Six significant digits: what is judged is what the record holds, and rounding noise stays out of it."""
    if isinstance(value, dict):
        return {k: short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [short(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def judge(claim: Claim, data: dict[str, Any]) -> Record:
    evidence = claim.judge(data)
    return {
        "where": claim.where,
        "says": claim.says,
        "correction": claim.correction,
        "verdict": verdict(evidence),
        "missing": evidence.missing,
        "printed": [_check(c) for c in evidence.printed],
        "corrected": [_check(c) for c in evidence.corrected],
    }


def _check(check: Check) -> Record:
    ends = {"low": check.low, "high": check.high}
    accepted = {k: float(v) for k, v in ends.items() if abs(v) != float("inf")}
    measured = {k: float(v) for k, v in check.measured._asdict().items()}
    return plain({"what": check.what, "measured": measured, "accepted": accepted, "answer": check.answer})


def evidence_of(row: Record) -> Evidence:
    """What a record says of a claim, as checks again: its verdict can be derived anew."""
    inf = float("inf")

    def read(c):
        return Check(
            c["what"],
            Estimate(*(float("nan") if v is None else v for v in c["measured"].values())),
            c["accepted"].get("low", -inf),
            c["accepted"].get("high", inf),
        )

    return Evidence(tuple(map(read, row["printed"])), tuple(map(read, row["corrected"])), row["missing"])


# --- showing --------------------------------------------------------------------------------------


def rows(record: Record) -> list[list[str]]:
    """In the order of the list of claims, whatever was measured first."""
    order = [c.name for e in EXPERIMENTS for c in e.claims]
    found = [(name, record["claims"][name]) for name in order if name in record["claims"]]
    return [[name, row["where"], _says(row), _measured(row), row["verdict"]] for name, row in found]


def _says(row: Record) -> str:
    return row["says"] + (f"; corrected: {row['correction']}" if row["correction"] else "")


def _measured(row: Record) -> str:
    if row["missing"]:
        return row["missing"]
    evidence = evidence_of(row)
    text = "; ".join(map(show, evidence.printed))
    if evidence.corrected and row["verdict"] != "holds":
        text += "; corrected: " + "; ".join(map(show, evidence.corrected))
    return text


def show(check: Check) -> str:
    value, low, high = check.measured
    interval = "" if low == high else f" [{number(low)}, {number(high)}]"
    return f"{check.what} {number(value)}{interval} ({check.answer})"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def insert_table(page: Path, record: Record) -> None:
    """Put the table of verdicts between the two marks of a page, and every experiment's own where it has a place."""
    table = markdown(HEADER, [[cell.replace("|", "\\|") for cell in row] for row in rows(record)])
    insert(page, "verdicts", table.replace("---:", "---"))
    for e in EXPERIMENTS:
        if e.table is not None and e.name in record["experiments"] and has_place(page, e.name):
            insert(page, e.name, e.table(record["experiments"][e.name]["data"]))


def read_record(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {"experiments": dict(record["experiments"]), "claims": dict(record["claims"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TridentError(f"{path} is not a record of `trident verify`: {error}") from error


def write_record(path: Path, record: Record) -> None:
    with suppress(OSError):  # writing says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _lines(record))


def _lines(record: Record) -> str:
    """JSON with one line per experiment and per claim: a new measurement is a line of a diff, not a thousand."""
    parts = []
    for part, entries in record.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(entry, allow_nan=False)}" for name, entry in entries.items()]
        parts.append(f" {json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"
