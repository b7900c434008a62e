"""The cost specification of a run, in words and formula, with a hash: what is measured, in which unit, within which
limit, over which time; what the learner was trained to, and what it kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from trident.report.stats import bootstrap

PARTS = ("name", "limit", "unit", "help", "formula", "immediate")
"""Of a constraint, what its specification is. Records of earlier versions have no formula."""


def specification(run: dict[str, Any], limits: Sequence[float] | None = None) -> dict[str, Any]:
    """{"constraints": [...], "specification": hash} of a run (the content of its run.json)."""
    rows = [dict(c) | ({} if limits is None else {"limit": float(limits[k])}) for k, c in enumerate(run["constraints"])]
    trained = trained_to(run)
    for row in rows:
        row["over"] = "the mean over all steps of all episodes"
        row["trained to"] = None if trained is None else trained * row["limit"]
        row["words"] = words(row)
    return {"constraints": rows, "specification": specification_hash(rows, run)}


def specification_hash(constraints: Sequence[dict[str, Any]], run: dict[str, Any]) -> str:
    """Of what is measured and its limits; not of how well anybody kept them."""
    parts = [{name: c.get(name) for name in PARTS} for c in constraints]
    text = json.dumps([run["env"], run.get("env_version"), parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def words(c: dict[str, Any]) -> str:
    """One constraint as a sentence."""
    measured = f"{c['help']}; " if c.get("help") else ""
    formula = f"{c['formula']} per step, " if c.get("formula") else ""
    own = "" if c.get("trained to") is None else f"; trained to {c['trained to']:g}"
    over = c["over"].removeprefix("the mean over ")
    return f"{measured}{formula}averaged over {over}: <= {c['limit']:g} {c['unit']}{own}"


def trained_to(run: dict[str, Any]) -> float | None:
    """The share of its limits that the learner was held to; None if it was not told of any."""
    safety = run.get("config", {}).get("safety") if isinstance(run.get("config"), dict) else None
    if not isinstance(safety, dict) or safety.get("method") == "none":
        return None
    return safety.get("tighten")


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """How the specifications of two runs differ, one line each; a part that one of them did not record yet is none."""
    ours, theirs = ({c["name"]: c for c in run["constraints"]} for run in (a, b))
    lines = [f"{name}: only one of them has it" for name in ours.keys() ^ theirs.keys()]
    for name in [n for n in ours if n in theirs]:
        for part in PARTS[1:]:
            mine, other = ours[name].get(part), theirs[name].get(part)
            if part in ours[name] and part in theirs[name] and mine != other:
                lines.append(f"{name}: {part} {mine!r} against {other!r}")
    return sorted(lines)


def evaluation_of(run: dict[str, Any], result: dict[str, Any] | None) -> dict[str, Any] | None:
    """Reward, costs and metrics with intervals over seeds."""
    if result is None or not result["policies"].get(run["algo"]):
        return None
    rows = result["policies"][run["algo"]]
    values = {name: bootstrap([row[name] for row in rows])._asdict() for name in rows[0]}
    return {
        "episodes": result["episodes"],
        "flown": "most likely" if result["deterministic"] else "sampled",
        "seeds": result["seeds"],
        "values": values,
    }
