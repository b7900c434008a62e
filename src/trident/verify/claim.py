"""What a claim is, and how numbers become a verdict.

A claim carries one or more *checks* of what is printed and, where the print is wrong, checks of a corrected form. A
check is a number with an interval and the range it must lie in:

    yes       the whole interval lies in the range
    no        the whole interval lies outside
    unclear   the interval straddles an end of the range, or is not finite

No verdict is written anywhere; `verdict` derives all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trident.report.stats import Estimate

HOLDS, CORRECTED, FAILS = "holds", "holds in corrected form", "does not hold"
UNDECIDED, MISSING = "undecided", "no record yet"
VERDICTS = (HOLDS, CORRECTED, FAILS, UNDECIDED, MISSING)

Data = dict[str, Any]
Say = Callable[[str], None]


class Check(NamedTuple):
    what: str
    measured: Estimate
    low: float = -math.inf
    high: float = math.inf

    @property
    def answer(self) -> str:
        _, low, high = self.measured
        if not all(map(math.isfinite, self.measured)):  # nothing was measured, which refutes nothing
            return "unclear"
        if self.low <= low and high <= self.high:
            return "yes"
        return "no" if high < self.low or low > self.high else "unclear"


class Evidence(NamedTuple):
    printed: tuple[Check, ...]
    corrected: tuple[Check, ...] = ()
    missing: str = ""
    """Why there is nothing to judge; the verdict is then `no record yet`."""


@dataclass(frozen=True)
class Claim:
    name: str
    where: str
    """In the paper."""
    says: str
    """What the paper predicts, in a few words."""
    judge: Callable[[Data], Evidence]
    """The experiment's numbers -> the checks they pass or fail."""
    correction: str = ""
    """What is true instead, in a few words."""


@dataclass(frozen=True)
class Experiment:
    """One measurement that several claims may rest on."""

    name: str
    about: str
    measure: Callable[[int, Say], Data]
    """(seed, say) -> numbers, as JSON can hold them."""
    claims: tuple[Claim, ...]
    draw: Callable[[Data, Path], None] | None = None
    table: Callable[[Data], str] | None = None
    """In markdown, for pages that have a place for it."""


def verdict(evidence: Evidence) -> str:
    if evidence.missing:
        return MISSING
    printed = {check.answer for check in evidence.printed}
    if printed == {"yes"}:
        return HOLDS
    if "no" not in printed:
        return UNDECIDED
    repaired = {check.answer for check in evidence.corrected}
    return CORRECTED if repaired == {"yes"} else FAILS


def exact(value: float) -> Estimate:
    """A number without an error worth stating."""
    return Estimate(float(value), float(value), float(value))
