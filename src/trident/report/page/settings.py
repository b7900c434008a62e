"""What a run was told, as rows to be read: settings and the algorithm's own, spelled as on the command line."""

from __future__ import annotations

from typing import Any


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """{"group.field": value} of a config as it stands in run.json."""
    if not isinstance(config, dict):
        return {}
    out: dict[str, Any] = {}
    for name, value in config.items():
        out |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return out


def shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(shown, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_rows(run: dict[str, Any]) -> list[list[str]]:
    return [[name.replace("_", " "), shown(value)] for name, value in flat(run["settings"]).items()]


def config_rows(run: dict[str, Any]) -> list[list[str]]:
    return [[name.replace("_", "-"), shown(value)] for name, value in flat(run["config"]).items()]
