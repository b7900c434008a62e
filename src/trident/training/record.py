"""One round's metrics, fetched from the device -> one record (see report.records for the format)."""

from __future__ import annotations

from typing import Any

import numpy as np

from trident.report.records import Record
from trident.training.settings import mode_names
from trident.types import EnvSpec, PerCost, PerSignal

CAUSES = ("observation", "reward", "cost", "action", "r2_phys", "surrogate_gain", "parameters")
"""When several quantities are not finite, the earliest in the chain of cause and effect is named."""


def first_record() -> Record:
    """Before the first round: what the sums start from."""
    return {"round": 0, "env_steps": 0, "episodes": 0.0, "seconds": 0.0, "diverged": {}, "values": {}}


def prepare_values(spec: EnvSpec, metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a warm start measured, for the record of round 0."""
    parts = [_split(spec, f"warm_start/{k}", v) for k, v in metrics.items()]
    return {k: np.asarray(v, float) for part in parts for k, v in part.items()}


def make_record(
    spec: EnvSpec,
    seeds: tuple[int, ...],
    metrics: dict[str, np.ndarray],  # [seeds, ...]
    env_steps: int,
    seconds: float,
    last: Record,
) -> Record:
    """The record after `last`; a seed that has diverged has no values from that round on, its sums stand still."""
    round_ = last["round"] + 1
    diverged = last["diverged"] | _newly_diverged(seeds, metrics, round_, last["diverged"])
    frozen = np.array([str(s) in diverged for s in seeds])
    steps = env_steps - last["env_steps"]
    values = _round_values(spec, metrics)
    values = {k: np.where(frozen, np.nan, v) for k, v in values.items()}
    for constraint in spec.constraints:
        cost = np.asarray(values[f"cost/{constraint.name}"], float)
        excess = np.maximum(cost - constraint.limit, 0.0)
        for name, added in (("cumulative_violation", excess), ("cumulative_cost", cost * steps)):
            name = f"{name}/{constraint.name}"
            before = np.asarray(last["values"].get(name, np.zeros(len(seeds))), float)
            values[name] = before + np.where(frozen, 0.0, added)
    return {
        "round": round_,
        "env_steps": env_steps,
        "episodes": env_steps / spec.horizon,
        "seconds": round(seconds, 3),
        "diverged": diverged,
        "values": values,
    }


def _round_values(spec: EnvSpec, metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Names as they stand in the record: vectors of the environment by name, ratios of sums where declared."""
    values = {"reward": metrics["reward"]}
    values |= {f"cost/{c.name}": metrics["cost"][:, k] for k, c in enumerate(spec.constraints)}
    values |= _episode_values(spec, metrics)
    declared = {m.name: m for m in spec.metrics}
    for name, value in metrics.items():
        if name in ("reward", "cost") or name.startswith(("bad/", "episode_")):
            continue
        metric = declared.get(name.removeprefix("metric/"))
        if name == "modes":
            values |= {f"mode/{mode}": value[:, m] for m, mode in enumerate(mode_names(spec))}
        elif name.startswith("metric/") and metric is not None and metric.per:
            values[name] = _ratio(value, metrics[f"metric/{metric.per}"])
        else:
            values |= _split(spec, name, value)
    return {k: np.asarray(v, float) for k, v in values.items()}


def _episode_values(spec: EnvSpec, metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Per step of the whole episodes that ended in the round."""
    if "episode_steps" not in metrics:
        return {}
    steps, costs = metrics["episode_steps"], metrics["episode_cost"]
    values = {f"episode_cost/{c.name}": _ratio(costs[:, k], steps) for k, c in enumerate(spec.constraints)}
    return {"episode_reward": _ratio(metrics["episode_reward"], steps)} | values


def _ratio(value: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """NaN without a weight: no episode has ended yet."""
    return np.where(weight > 0, value / np.where(weight > 0, weight, 1.0), np.nan)


def _split(spec: EnvSpec, name: str, value: Any) -> dict[str, np.ndarray]:
    """A metric [seeds, ...] as numbers per seed, named as its producer says; other vectors by index."""
    costs = [c.name for c in spec.constraints]
    if isinstance(value, PerSignal | PerCost):
        parts = costs if isinstance(value, PerCost) else ["reward", *costs]
        return {f"{name}/{part}": np.asarray(value.values)[:, i] for i, part in enumerate(parts)}
    value = np.asarray(value)
    if value.ndim == 1:
        return {name: value}
    flat = value.reshape(len(value), -1)
    return {f"{name}/{i}": flat[:, i] for i in range(flat.shape[1])}


def _newly_diverged(
    seeds: tuple[int, ...], metrics: dict[str, np.ndarray], round_: int, known: dict[str, Any]
) -> dict[str, Any]:
    bad = {k.removeprefix("bad/"): v for k, v in metrics.items() if k.startswith("bad/")}
    order = [*(q for q in CAUSES if q in bad), *sorted(q for q in bad if q not in CAUSES)]
    new = {}
    for i, seed in enumerate(seeds):
        quantity = next((q for q in order if bad[q][i]), None)
        if quantity is not None and str(seed) not in known:
            new[str(seed)] = {"round": round_, "quantity": quantity}
    return new


def divergence(seed: str, what: dict[str, Any]) -> str:
    """One clause for the user: which seed, when and why."""
    verb = "are" if what["quantity"].endswith("s") else "is"
    return f"seed {seed} diverged at round {what['round']}: {what['quantity']} {verb} not finite"
