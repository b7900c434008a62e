"""`trident bench speed`: the parts of the measurement, one after another, and the record they make."""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

import trident
from trident.bench.env_speed import SOURCE, measure_env
from trident.bench.overheads import ALONE, LARGE_PHYSICS, PRINTED_PHYSICS, measure_overheads
from trident.bench.round_speed import LEARNERS, SIZES, measure_training, peak_rss_mib
from trident.bench.scaling import measure_growth
from trident.bench.timing import Say, usable_cores
from trident.bench.update_speed import UpdateSize, measure_update
from trident.envs.uav_mec.env import UavMec
from trident.errors import TridentError

PARTS = ("env", "update", "growth", "training", "overheads")


@dataclass(frozen=True)
class Plan:
    """What to measure, and how thoroughly."""

    parts: tuple[str, ...] = PARTS
    algos: tuple[str, ...] = ("happo", "trident")
    sizes: tuple[str, ...] = SIZES
    envs: int = 256
    env_steps: int = 50
    alone_steps: int = 256
    repeats: int = 7
    agents: tuple[int, ...] = (4, 8, 16, 32)
    constraints: tuple[int, ...] = (0, 1, 2, 3)
    modes: tuple[int, ...] = (2, 3, 5, 9)
    update: UpdateSize = field(default_factory=UpdateSize)
    quick: bool = False

    def __post_init__(self) -> None:
        for what, given, known in (
            ("part", self.parts, PARTS),
            ("algorithm", self.algos, LEARNERS),
            ("size", self.sizes, SIZES),
        ):
            for name in given:
                if name not in known:
                    raise TridentError(f"unknown {what} {name!r}: there are {', '.join(known)}")


QUICK = Plan(
    sizes=("tiny",),
    env_steps=10,
    alone_steps=32,
    repeats=3,
    agents=(4, 8),
    constraints=(0, 2),
    modes=(2, 3),
    update=UpdateSize(hidden=(64, 64), batch=512),
    quick=True,
)


def measure(plan: Plan, say: Say, save: Callable[[dict[str, Any]], None], earlier: dict[str, Any]) -> dict[str, Any]:
    """Measure the plan's parts and put them into the `earlier` record, in place of what it had of them.

    `say` hears what is being done; `save` gets the record after every part, so that a run that is cut short keeps what
    it has. Nothing is compared across parts; each carries its own circumstances.
    """
    record = {"about": {}, "goals": []} | earlier
    began, load = time.time(), os.getloadavg()
    for part, result in _parts(plan, say):
        around = about(plan) | {
            "load_average": {"before": list(load), "after": list(os.getloadavg())},
            "seconds": time.time() - began,
            "peak_rss_mib": peak_rss_mib(),
        }
        name = part
        if part == "training":  # one learner at a time: each takes minutes
            name, result = f"{part}: {next(iter(result))}", record.get(part, {}) | result
        record = record | {part: result, "about": record["about"] | {name: around}}
        record["goals"] = goals(record)
        save(record)
        began, load = time.time(), os.getloadavg()
    return record


def _parts(plan: Plan, say: Say) -> Iterator[tuple[str, Any]]:
    env, size = UavMec(), plan.sizes[-1]
    axes = {"N": plan.agents, "K": plan.constraints, "M": plan.modes}
    measured: dict[str, Callable[[], Any]] = {
        "env": lambda: measure_env(plan.envs, plan.env_steps, plan.alone_steps, plan.repeats),
        "update": lambda: measure_update(plan.update, plan.repeats),
        "growth": lambda: measure_growth(axes, plan.algos, size, say),
        "overheads": lambda: measure_overheads(env, size, plan.repeats, say),
    }
    for number, part in enumerate(PARTS, start=1):
        if part not in plan.parts:
            continue
        say(f"{part} ({number} of {len(PARTS)})")
        if part != "training":
            yield part, measured[part]()
            continue
        for algo, of_size in itertools.product(plan.algos, plan.sizes):
            say(f"compiling and timing rounds of {algo}, {of_size}")
            learner = LEARNERS[algo]
            result = measure_training(env, learner.build(env, of_size), learner.critics, plan.repeats)
            yield part, {f"{algo} {of_size}": result}


def about(plan: Plan) -> dict[str, Any]:
    return {
        "quick": plan.quick,
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "trident": trident.__version__,
        "commit": _commit(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].platform,
        "cores": usable_cores(),
        "processor": _processor(),
    }


def _commit() -> str | None:
    asked = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(asked, cwd=SOURCE, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def goals(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What the project promises of its speed, and whether this run kept it. What was not measured is left out."""
    rows: list[tuple[str, Any, str, float]] = []
    env, update = record.get("env", {}).get("jax_over", {}), record.get("update", {}).get("jax_faster_by", {})
    overhead = record.get("overheads", {}).get("overhead", {})
    rows += [
        ("env: JAX over NumPy, one at a time", env.get("numpy one at a time"), ">=", 100.0),
        ("env: JAX over NumPy, batched", env.get("numpy batched"), ">=", 4.0),
        ("constrained update: JAX over PyTorch", update.get("public", {}).get("jax few"), ">=", 10.0),
        ("the same, Fisher matrix of every state", update.get("public", {}).get("jax preconditioned"), ">=", 10.0),
        ("STGC over Gumbel-Softmax, share of a round", overhead.get("stgc over gs", {}).get("of_round"), "<=", 0.10),
        ("physics, share of a round", overhead.get("physics", {}).get("of_round"), "<=", 0.02),
        ("the same, the paper's networks", overhead.get(LARGE_PHYSICS, {}).get("of_round"), "<=", 0.02),
        ("the same, the paper's physics too", overhead.get(PRINTED_PHYSICS, {}).get("of_round"), "<=", 0.02),
        *((name, overhead.get(name, {}).get("of_round"), "<=", 0.02) for name in ALONE),
    ]
    compile_seconds = record.get("training", {}).get("trident default", {}).get("compile", {}).get("round", {})
    rows.append(("compile a TRIDENT round, s", compile_seconds.get("wall"), "<=", 60.0))
    return [
        {
            "name": name,
            "value": value,
            "goal": f"{sense} {bound:g}",
            "met": value >= bound if sense == ">=" else value <= bound,
        }
        for name, value, sense, bound in rows
        if value is not None
    ]


def write_record(path: Path, record: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise TridentError(f"cannot write to {path}: {error.strerror or error}") from error


def read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record.get("update", {}).get("cg_steps", {}), dict):
            del record["update"]  # measured before JAX's ways took steps of their own: to be measured again
        return record
    except (OSError, ValueError, AttributeError) as error:
        raise TridentError(f"{path} is not a record of `trident bench speed`: {error}") from error
