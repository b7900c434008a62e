"""Limits that a run has not kept, in words: how far off, what the records say of the reason, and what to try."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trident.report.records import Record, series

LAST = 0.1
"""Part of the run, its last, over which costs are judged."""


def broken_limits(run: dict[str, Any], records: list[Record]) -> Iterator[str]:
    """A line for every limit that a constrained learner broke at the end of its training."""
    rows = [r for r in records if r["round"] > 0]
    rows = rows[-max(int(LAST * len(rows)), 1) :]

    def mean(name: str) -> float:
        values = series(rows, name)[1]
        return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan

    known = rows[-1]["values"] if rows else {}
    for constraint in run["constraints"]:
        name, limit = constraint["name"], constraint["limit"]
        constrained = f"budget_asked/{name}" in known or f"multiplier/{name}" in known
        if constrained and (cost := mean(f"cost/{name}")) > limit:
            where = f"{name} stands at {cost:.4g} in the last {len(rows)} rounds, above its limit of {limit:g}"
            yield f"{where}: {_reason(mean, name)}"


def _reason(mean: Any, name: str) -> str:
    """The likeliest, by what was logged; a metric that was not is NaN, and no reason."""
    if mean("rejected") > 0.5:
        return "most steps were rejected; try larger batches (--algo.step.policy-batch) or shorter steps"
    if mean(f"explained_variance/{name}") < 0.1 or mean(f"realised_advantage/{name}") < 0.1:
        return "its critic explains nothing of it; try more data a round (--algo.data.envs, --algo.data.steps)"
    if mean("granted_fraction") < 0.5:
        return (
            "steps cannot give what is asked of them: does any policy keep the limit (--limit)? if so, try a larger "
            "--algo.step.trust-region"
        )
    return "it was still being learned; try more --episodes, a base policy or --warm-start"
