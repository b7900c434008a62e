"""Whether a run kept its limits, and what its method measured of itself, for people who have not read the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trident.report.broken_limits import LAST, broken_limits
from trident.report.page.reading import Reading
from trident.report.page.settings import flat
from trident.report.records import per_episode, series, spent
from trident.report.stats import Estimate, bootstrap
from trident.report.tables import number

Plain = dict[str, Any]
WITHIN, UNSURE, OVER, UNKNOWN = "within", "unsure", "over", "unknown"
WORST_LAST = (UNKNOWN, WITHIN, UNSURE, OVER)


# --- kept or not ----------------------------------------------------------------------------------


def judge(estimate: Estimate, limit: float, samples: int) -> str:
    """One sample has no interval: its value alone decides."""
    if samples == 0 or not np.isfinite(estimate.value):
        return UNKNOWN
    if samples == 1:
        return WITHIN if estimate.value <= limit else OVER
    return WITHIN if estimate.high <= limit else OVER if estimate.low > limit else UNSURE


def own_seeds(reading: Reading) -> list[dict[str, float]]:
    return [] if reading.result is None else reading.result["policies"].get(reading.run["algo"], [])


def quantity(reading: Reading, name: str) -> tuple[list[float], str]:
    """A number of each seed, of its last evaluation or, before there is one, of the end of its training so far."""
    seeds = own_seeds(reading)
    if seeds:
        return [s.get(name, np.nan) for s in seeds], "evaluation"
    if reading.result is not None:  # every seed has diverged
        return [], "evaluation"
    count = max(int(LAST * len(reading.records)), 1)
    steps, values = series(reading.records[-count:], per_episode(reading.records, name))
    if not len(steps):
        return [], "training"
    there = np.isfinite(values)
    means = np.where(there, values, 0.0).sum(0) / np.where(there.any(0), there.sum(0), np.nan)
    return [float(v) for v in means if np.isfinite(v)], "training"


def estimate_of(values: list[float]) -> Plain:
    found = bootstrap(values)
    many = sum(np.isfinite(values)) > 1
    return {"value": found.value, "low": found.low if many else None, "high": found.high if many else None}


def verdict(reading: Reading) -> Plain:
    """Every limit with what was measured of it, the reward, and one sentence."""
    costs = []
    for c in reading.run["constraints"]:
        values, source = quantity(reading, f"cost/{c['name']}")
        state = judge(bootstrap(values), c["limit"], len(values))
        about = {"name": c["name"], "limit": c["limit"], "unit": c["unit"], "help": c["help"]}
        costs.append(about | estimate_of(values) | {"state": state, "source": source, "samples": len(values)})
    values, source = quantity(reading, "reward")
    reward = estimate_of(values) | {"samples": len(values), "source": source, "best": best_scripted(reading)}
    state = max((c["state"] for c in costs), key=WORST_LAST.index, default=UNKNOWN)
    if any(c["state"] == UNKNOWN for c in costs):
        state = UNKNOWN if state != OVER else OVER
    return {"state": state, "source": source, "headline": _headline(state, costs, source),
            "basis": _basis(reading, source), "costs": costs, "reward": reward}  # fmt: skip


def best_scripted(reading: Reading) -> Plain | None:
    """The scripted policy that earns the most of those that keep every limit (of all, if none does)."""
    if reading.result is None:
        return None
    found = []
    for name, seeds in reading.result["policies"].items():
        if name == reading.run["algo"] or not seeds:
            continue
        mean = lambda key, seeds=seeds: float(np.mean([s.get(key, np.nan) for s in seeds]))  # noqa: E731
        kept = all(mean(f"cost/{c['name']}") <= c["limit"] for c in reading.run["constraints"])
        if np.isfinite(mean("reward")):
            found.append((kept, mean("reward"), name))
    if not found:
        return None
    kept, reward, name = max(found)
    return {"name": name, "reward": reward, "kept": kept}


def _headline(state: str, costs: list[Plain], source: str) -> str:
    if not costs:
        return "No limits were set"
    if state == UNKNOWN:
        return "Not measured yet"
    late = " so far" if source == "training" else ""
    if state == WITHIN:
        return f"Within {'its limit' if len(costs) == 1 else 'both limits' if len(costs) == 2 else 'all limits'}{late}"
    names = ", ".join(c["name"] for c in costs if c["state"] == state)
    return f"Over its limit: {names}" if state == OVER else f"Too close to call: {names}"


def _basis(reading: Reading, source: str) -> str:
    """What the verdict stands on."""
    if source == "training":
        count = max(int(LAST * len(reading.records)), 1)
        if not reading.records:
            return "no round has been recorded yet"
        return f"measured in the last {count} round{'s' * (count > 1)} of training; not evaluated yet"
    result = reading.result or {}
    seeds = len(own_seeds(reading))
    if not seeds:
        return "every seed diverged: nobody was left to be evaluated"
    how = "its most likely actions" if result["deterministic"] else "actions drawn from its policy"
    shield = ", behind the shield" if result["shielded"] else ""
    sure = "95 % intervals over seeds" if seeds > 1 else "one seed, so no interval"
    who = f"each of {seeds} seeds" if seeds > 1 else "one seed"
    return f"{result['episodes']} fresh episodes of {who}, {how}{shield}; {sure}"


def training_safety(reading: Reading) -> list[Plain]:
    """What training itself has cost: how much of what the limits allow over all its steps, and in how many rounds a
    limit was broken."""
    out = []
    for c in reading.run["constraints"]:
        total = _spent(reading, c)
        if total is None:
            continue
        _, values = series(reading.records, f"cost/{c['name']}")
        finite = values[np.isfinite(values)]
        out.append({
            "name": c["name"], "spent": total[0], "allowed": total[1],
            "share": total[0] / total[1] if total[1] > 0 else None,
            "rounds_over": float((finite > c["limit"]).mean()) if finite.size else None,
        })  # fmt: skip
    return out


def _spent(reading: Reading, constraint: Plain) -> tuple[float, float] | None:
    """(cost so far, what the limit allows so far), mean over seeds. The record's own sum knows all rounds, even those
    that were not read."""
    name, limit = constraint["name"], constraint["limit"]
    steps, sums = series(reading.records, f"cumulative_cost/{name}")
    if not len(steps):
        steps, sums, _ = spent(reading.records, name, limit)
    last = sums[-1][np.isfinite(sums[-1])] if len(steps) else np.empty(0)
    return (float(last.mean()), limit * float(steps[-1])) if last.size else None


# --- the method, in words -------------------------------------------------------------------------


def diagnoses(reading: Reading) -> list[Plain]:
    """A sentence for every measurement of the method that has one, with a state: fine, look or plain."""
    records = reading.records
    if not records:
        return []
    late = records[-max(int(LAST * len(records)), 1) :]

    def mean(name: str) -> float:
        values = series(late, name)[1]
        return float(np.nanmean(values)) if values.size and np.isfinite(values).any() else np.nan

    out = [{"state": "look", "title": "A limit is still broken", "text": f"{line}."}
           for line in broken_limits(reading.run, records) if not own_seeds(reading)]  # fmt: skip
    for part in (_steps, _trust, _physics, _promises, _critics, _waiting, _multipliers, _shield):
        out += part(reading.run, mean)
    for seed, what in records[-1]["diverged"].items():
        if isinstance(what, dict):
            when, why = what.get("round"), what.get("quantity")
            text = f"Seed {seed} diverged at round {when}: {why} not finite. It is frozen at its last good state."
            out.append({"state": "look", "title": "A seed diverged", "text": text})
    return out


Mean = Any
"""name -> mean over seeds and the last rounds; NaN if it was not recorded"""


def _say(state: str, title: str, text: str) -> Iterator[Plain]:
    yield {"state": state, "title": title, "text": text}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share == 0 or abs(share) >= 0.1 else f"{100 * share:.2g} %"


def _steps(run: Plain, mean: Mean) -> Iterator[Plain]:
    recovery, rejected = mean("recovery"), mean("rejected")
    if recovery != recovery:
        return
    rejected = 0.0 if rejected != rejected else rejected
    feasible = max(1.0 - recovery - rejected, 0.0)
    text = (
        f"{_percent(feasible)} of the updates were feasible: they raised the reward within every budget. "
        f"{_percent(recovery)} only lowered a broken cost (recovery). {_percent(rejected)} were rejected: no length of "
        "the step held what it predicted."
    )
    yield from _say("look" if rejected > 0.5 or recovery > 0.5 else "fine", "How updates end", text)


def _trust(run: Plain, mean: Mean) -> Iterator[Plain]:
    if (kl := mean("kl")) != kl:
        return
    bounds = [v for k, v in flat(run["config"]).items() if k.rpartition(".")[2] in ("trust_region", "target_kl")]
    bound = next((float(v) for v in bounds if isinstance(v, int | float)), None)
    against = "" if bound is None else f"; its trust region is set to {bound:g}"
    yield from _say("plain", "How far an update moves the policy", f"A KL divergence of {number(kl)} a round{against}.")


def _physics(run: Plain, mean: Mean) -> Iterator[Plain]:
    found = [(name, mean(f"r2_phys/{name}")) for name in ("reward", *(c["name"] for c in run["constraints"]))]
    found = [(name, value) for name, value in found if value == value]
    if not found:
        return
    parts = [f"{_percent(max(value, 0.0))} of what varies in {name}" for name, value in found]
    more = "The rest is left to the learned critics."
    state = "fine" if found[0][1] > 0.1 else "look"
    yield from _say(
        state, "What physics explains (R2_phys)", f"The closed form alone explains {', '.join(parts)}. {more}"
    )


def _promises(run: Plain, mean: Mean) -> Iterator[Plain]:
    for c in run["constraints"]:
        name = c["name"]
        predicted, calibration = mean(f"budget_spent/{name}"), mean(f"calibration/{name}")
        asked = mean(f"budget_asked/{name}")
        if predicted != predicted:
            continue
        allowed = "" if asked != asked else f" (it may add {asked:+.2g})"
        text = f"An update predicts to change {name} by {predicted:+.2g} per step{allowed}."
        if calibration == calibration:
            text += f" Measured afterwards, {_percent(calibration)} of such changes came true."
        yield from _say("plain", f"Predicted and realised: {name}", text)


def _critics(run: Plain, mean: Mean) -> Iterator[Plain]:
    names = ["reward", *(c["name"] for c in run["constraints"])]
    found = [(name, mean(f"explained_variance/{name}")) for name in names]
    found = [(name, value) for name, value in found if value == value]
    if found:
        parts = [f"{name} {_percent(max(value, 0.0))}" for name, value in found]
        text = f"Share of the returns that the critics explain: {', '.join(parts)}."
        weak = [name for name, value in found if value < 0.1]
        kept = " A cost that is nearly always zero leaves nothing to explain." if weak and weak != ["reward"] else ""
        yield from _say("look" if "reward" in weak else "fine", "How well the critics know", text + kept)


def _waiting(run: Plain, mean: Mean) -> Iterator[Plain]:
    if (share := mean("waiting")) > 0:
        text = f"In {_percent(share)} of the last rounds the reward waited until a broken limit was mended."
        yield from _say("look", "The reward waits", text)


def _multipliers(run: Plain, mean: Mean) -> Iterator[Plain]:
    found = [(c["name"], mean(f"multiplier/{c['name']}")) for c in run["constraints"]]
    found = [(name, value) for name, value in found if value == value]
    if found:
        prices = ", ".join(f"{name} {number(value)}" for name, value in found)
        text = f"Lagrange multipliers, what a unit of cost is charged against reward: {prices}."
        yield from _say("plain", "What breaking a limit costs", text)


def _shield(run: Plain, mean: Mean) -> Iterator[Plain]:
    if (share := mean("shielded")) == share:
        text = f"The shield changed {_percent(share)} of the actions."
        yield from _say("fine" if share < 0.05 else "look", "How often the shield acts", text)
