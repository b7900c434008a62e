"""Sweeps: settings x environments x seeds from a TOML file; every run is resumable, and tables are made from records.

envs = ["uav-mec", "intersection"]
algos = ["mappo", "trident-scratch"]      # METHOD+POLICY is warm-started on that scripted policy
episodes = 500                            # or steps, of each seed
seeds = 3                                 # side by side in one run; [0, 4] names them

[settings]                                # of every run, as `trident train` has them
eval_episodes = 50

[grid]                                    # every combination; algo.NAME is a setting of the algorithm
algo.lr = [1e-3, 5e-4]
limit.energy = [0.01, 0.02]

[[runs]]                                  # and, one by one, these
algo.lr = 1e-4
seed = 7
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from trident.allowed import Length, Names, Range, Seed, check_value
from trident.bench.table_runner import check_job
from trident.errors import TridentError
from trident.fields import check_name
from trident.launch.job import Job
from trident.training.registry import default_config, make_env
from trident.training.settings import Settings

KEYS = ("envs", "algos", "episodes", "steps", "seeds", "settings", "grid", "runs")
OWN = ("episodes", "seeds", "warm_start", "video")
"""Settings that a sweep says elsewhere, or not at all."""
MOST = 10_000
LONGEST = 39
"""Characters of a folder's name that tables show."""
SEEDS = Annotated[int, Range(1, 2**16)] | Annotated[tuple[Seed, ...], Length(1, 2**16)]


def read_sweep(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TridentError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TridentError(f"{path} is not TOML: {' '.join(str(error).split())}") from None
    for name in content:
        check_name("key", name, KEYS, str(path))
    for name, kind in (("settings", dict), ("grid", dict), ("runs", list)):
        if not isinstance(content.get(name, kind()), kind):
            raise TridentError(f"{path}: {name} must be {'[[runs]] tables' if kind is list else 'a table'}")
    for name in ("envs", "algos"):
        names = check_value(f"{path}: {name}", Names, content.get(name))
        if not names or len(set(names)) < len(names):
            raise TridentError(f"{path}: {name} must name at least one, and each of them once")
    return content


def combinations(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings in which runs differ, each {"algo.lr": 0.001, "limit.energy": 0.01}; one empty if in none."""
    grid = dict(paths(content.get("grid", {})))
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise TridentError(f"grid: {name} must be a list of values")
    if math.prod(map(len, grid.values())) > MOST:
        raise TridentError(f"grid: {math.prod(map(len, grid.values())):,} combinations; a sweep has at most {MOST:,}")
    product = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] if grid else []
    return product + [dict(paths(run)) for run in content.get("runs", ())] or [{}]


def paths(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """{"algo": {"lr": 1}} -> ("algo.lr", 1)"""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from paths(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def plan_sweep(path: Path, out: Path) -> list[Job]:
    """Every run; mistakes are found before anything is compiled."""
    content = read_sweep(path)
    shared, different = dict(paths(content.get("settings", {}))), combinations(content)
    jobs: list[Job] = []
    for name in content["envs"]:
        env = make_env(name)
        episodes = _episodes(content, env.spec.horizon, path)
        for method in content["algos"]:
            for number, changes in enumerate(different, start=1):
                settings, config = _split(shared | changes)
                text = ",".join(f"{key.rpartition('.')[2]}={_plain(value)}" for key, value in changes.items())
                folder = ",".join(filter(None, (method, text)))
                folder = folder if len(folder) <= LONGEST and "/" not in folder else f"{method}-{number}"
                seeds = check_value("seeds", SEEDS, content.get("seeds", 3))
                job = Job(name, method, out / name.replace(":", ".") / folder, episodes, seeds, settings, config, text)
                default_config(job.algo, env)  # says what is not known
                check_job(job, env if ":" not in name else None)
                jobs.append(job)
    if len({job.folder for job in jobs}) < len(jobs):
        raise TridentError(f"{path}: two runs have the same settings")
    return jobs


def _episodes(content: Mapping[str, Any], horizon: int, path: Path) -> int:
    if ("episodes" in content) == ("steps" in content):
        raise TridentError(f"{path}: say either episodes or steps")
    if "steps" in content:
        return math.ceil(check_value(f"{path}: steps", Annotated[int, Range(1, 10**15)], content["steps"]) / horizon)
    return check_value(f"{path}: episodes", Annotated[int, Range(1, 10**12)], content["episodes"])


def _split(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings of the run, those of its algorithm)"""
    known = [f.name for f in dataclasses.fields(Settings) if f.name not in OWN]
    settings: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for path, value in values.items():
        head, dot, rest = path.partition(".")
        if head == "algo" and dot:
            config[rest] = value
            continue
        check_name("setting", head, known, "a sweep")
        if dot:
            settings.setdefault(head, {})[rest] = value
        else:
            settings[head] = value
    return settings, config


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def summary(jobs: list[Job]) -> str:
    """How many runs, of what."""
    kinds = {"environment": "env", "algorithm": "method", "setting": "label"}
    parts = [_count(len({getattr(job, field) for job in jobs}), kind) for kind, field in kinds.items()]
    return f"{_count(len(jobs), 'run')}: {' x '.join(parts)}, {_count(jobs[0].num_seeds, 'seed')} each"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
