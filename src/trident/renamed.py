"""Names of earlier versions: records are read under the names of today, and old options say their new name."""

from __future__ import annotations

import warnings
from typing import Any

PRESETS = {
    "trident-no-reflex": "trident-scratch",
    "mappo-lag-reflex": "mappo-lag-residual",
    "macpo-reflex": "macpo-residual",
}
POLICIES = {"reflex": "base-policy"}
"""Scripted policies."""
ALGORITHMS = PRESETS | POLICIES
"""What may stand behind --algo."""
OPTIONS = {"--film": "--video", "--no-film": "--no-video", "--commits": "--any-commit"}
SETTINGS = {"film": "video"}
CONFIG = {"reflex": "base_policy", "attention": "violation_fraction", "slope": "gradient"}
METRICS = {
    "box_edge": "saturation",
    "share_granted": "granted_fraction",
    "signal": "grad_snr",
    "realised": "calibration",
    "trust": "critic_grad_weight",
}


def current(name: str, table: dict[str, str]) -> str:
    """The name of today, with a word to whoever used the old one."""
    if name not in table:
        return name
    warnings.warn(f"{name} is now called {table[name]}", FutureWarning, stacklevel=3)
    return table[name]


def _keys(values: dict[str, Any], *tables: dict[str, str]) -> dict[str, Any]:
    for table in tables:
        values = {table.get(k, k): v for k, v in values.items()}
    return values


def modern_run(run: dict[str, Any]) -> dict[str, Any]:
    """run.json under the names of today."""
    algo = run.get("algo")
    out = run | {"algo": PRESETS.get(algo, algo)} if algo else dict(run)
    for part, table in (("settings", SETTINGS), ("config", CONFIG)):
        if isinstance(run.get(part), dict):
            out[part] = _keys(run[part], table)
    if "scripted" in run:
        out["scripted"] = [POLICIES.get(name, name) for name in run["scripted"]]
    return out


def modern_result(result: dict[str, Any]) -> dict[str, Any]:
    """result.json under the names of today."""
    return result | {"policies": _keys(result["policies"], PRESETS, POLICIES)} if "policies" in result else result


def modern_record(record: dict[str, Any]) -> dict[str, Any]:
    """A round's record under the names of today; what stands behind a slash is an index or a constraint."""
    split = {name: name.partition("/") for name in record.get("values", {})}
    if not any(head in METRICS for head, _, _ in split.values()):
        return record
    names = {name: METRICS.get(head, head) + slash + rest for name, (head, slash, rest) in split.items()}
    return record | {"values": {names[name]: value for name, value in record["values"].items()}}
