"""The command that repeats a run, as far as names can say it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any

from trident.errors import TridentError
from trident.fields import flatten
from trident.renamed import CONFIG
from trident.training.registry import default_config, has_algorithm, has_env, make_env
from trident.training.settings import Settings

UNSAID = ("seed", "seeds", "limit", "episodes", "trackers", "project")
"""Settings with a spelling of their own, and whom it was told to."""


def command_of(run: dict[str, Any]) -> str | None:
    """`trident train ...` with every setting that is not the default of today; None for what has no name here."""
    env, algo = run["env"], run["algo"]
    if ":" in env:  # to look at it would be to import code that a record names
        return None
    if not has_env(env) or not (has_algorithm(algo) or algo in run.get("scripted", ())):
        return None
    try:
        usual = flatten(default_config(algo, make_env(env), run["settings"].get("warm_start") is not None))
    except TridentError:
        return None
    config = {path: v for path, v in _of_today(run["config"], usual).items() if _tupled(v) != usual[path]}
    return shlex.join(["trident", *words_of(env, algo, run["settings"], config)])


def words_of(env: str, algo: str, settings: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """What `trident` is told to train so: with every setting that is not the default of today, and this config."""
    words = ["train", env, "--algo", algo, "--episodes", str(settings["episodes"]), *_seeds(settings)]
    if limits := settings.get("limit"):
        words += ["--limit", *(f"{name}={value}" for name, value in limits.items())]
    words += [word for name, value in _changed(settings) for word in _option(name, value)]
    return words + [word for path, value in config.items() for word in _option(f"algo.{path}", value)]


def _seeds(settings: Mapping[str, Any]) -> list[str]:
    seeds = settings["seeds"]
    counted = (
        str(len(seeds)) if seeds == list(range(len(seeds))) else ",".join(map(str, seeds)) + "," * (len(seeds) == 1)
    )
    base = ["--seed", str(settings["seed"])] if settings.get("seed") else []
    return ["--seeds", counted, *base]


def _changed(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    usual = Settings()
    fields = [f.name for f in dataclasses.fields(Settings) if f.name not in UNSAID]
    return [(n, settings[n]) for n in fields if n in settings and settings[n] != getattr(usual, n)]


def _option(name: str, value: Any) -> list[str]:
    head, _, last = name.replace("_", "-").rpartition(".")
    prefix = f"--{head}." if head else "--"
    if isinstance(value, bool):
        return [prefix + last if value else f"{prefix}no-{last}"]
    if isinstance(value, Mapping):
        return [prefix + last, *(f"{k}={json.dumps(v)}" for k, v in value.items())]
    values = value if isinstance(value, list | tuple) else [value]
    return [prefix + last, *("None" if v is None else str(v) for v in values)]


def _of_today(config: Any, usual: dict[str, Any]) -> dict[str, Any]:
    """A record's settings under the paths of today; what no longer exists is left out."""
    found: dict[str, Any] = {}

    def walk(part: dict[str, Any], prefix: str) -> None:
        for name, value in part.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{name}.")
                continue
            name = CONFIG.get(name, name)
            same = [p for p in usual if p == prefix + name] or [p for p in usual if p.rpartition(".")[2] == name]
            if len(same) == 1:
                found[same[0]] = value

    walk(config if isinstance(config, dict) else {}, "")
    return found


def _tupled(value: Any) -> Any:
    return tuple(_tupled(v) for v in value) if isinstance(value, list) else value
