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
ENVS = {"uav-mec-course": "uav-mec"}
BY_VELOCITY = (
    "uav-mec", "uav-mec-easy", "uav-mec-hard", "uav-mec-cover60", "uav-mec-n8", "uav-mec-n16", "uav-mec-n32",
    "uav-mec-parallel", "uav-mec-separation", "uav-mec-suburban", "uav-mec-dense-urban", "uav-mec-3gpp",
)  # fmt: skip
"""What version 1 flew by (vx, vy); version 2 flies by speed and direction, as `uav-mec-course` did."""
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


def modern_env(name: str, version: Any) -> tuple[str, Any]:
    """Name and version of today of the same environment."""
    if version == 1 and name in BY_VELOCITY:
        return f"{name}-velocity", 1
    if version == 1 and name in ("uav-mec-course", "uav-mec-polar"):
        return ENVS.get(name, name), 2
    return ENVS.get(name, name), version


def former_env(run: dict[str, Any]) -> str | None:
    """What to tell of a run whose environment had another name when it was started."""
    began = run.get("identity", {})
    if began.get("env", run["env"]) == run["env"]:
        return None
    was, now = (f"{x.get('env')} version {v}" for x, v in ((began, began.get("version", 1)), (run, run["env_version"])))
    changed = " (version 2 flies by speed and direction, version 1 by vx and vy)" if run["env_version"] == 1 else ""
    return f"a run of {was}, now called {now}{changed}"


def modern_identity(identity: dict[str, Any]) -> dict[str, Any]:
    """Of a checkpoint, under the names of today."""
    if "env" not in identity or "version" not in identity:
        return identity
    env, version = modern_env(identity["env"], identity["version"])
    return identity | {"env": env, "version": version}


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
    if "env" in run and "env_version" in run:
        out["env"], out["env_version"] = modern_env(run["env"], run["env_version"])
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
