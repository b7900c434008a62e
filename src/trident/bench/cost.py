"""What a campaign costs, before it begins: steps x what a step takes, by earlier records and this machine's own pace.

pace.json has, for the runs on record, microseconds per environment step and seed on two cores (`benchmarks/pace.py`).
How fast this machine is beside that one is measured by a few rounds of one of them. What is on no record is taken to be
like its nearest kin: an estimate that tells hours from months.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from trident.bench.timing import usable_cores
from trident.launch.job import Job
from trident.report.tables import plain
from trident.run_directory import write_text
from trident.training.registry import make_env
from trident.training.session import build, seed_keys
from trident.training.settings import Settings, make_setup

PACE: dict[str, dict[str, float]] = json.loads((resources.files("trident.bench") / "pace.json").read_text("utf-8"))
PACE_CORES = 2
PROBE = ("uav-mec", "mappo", 3)
"""Environment, method and seeds by which machines are compared."""
ROUNDS = 4
GROWTH = {"trident": 1.3}
"""Power of the number of UAVs with which a round's operations grow (docs/speed.md); 1 for the others."""


def microseconds(env: str, method: str) -> float:
    """Per environment step and seed on the machine of the records."""
    algo = method.partition("+")[0]
    base, _, agents = env.partition("-n")
    family = base if base in PACE else next((name for name in PACE if env.startswith(name)), PROBE[0])
    known = PACE[env] if env in PACE else PACE[family]
    power = GROWTH["trident"] if algo.startswith("trident") else 1.0
    size = (int(agents) / 4) ** power if base == PROBE[0] and agents.isdigit() else 1.0
    tridents = ("trident-scratch", "trident") if algo.startswith("trident") else ()
    kin = (algo, algo.removesuffix("-residual"), *tridents)
    if found := next((known[name] for name in kin if name in known), None):
        return found * size
    usual = PACE[PROBE[0]]
    return known["mappo"] * usual.get(algo, usual["mappo"]) / usual["mappo"] * size


def machine_factor(folder: Path, say: Callable[[str], None]) -> float:
    """Core seconds here for one core second there; measured once, and kept in this folder."""
    path = folder / "pace.json"
    key = {"cores": usable_cores(), "jax": jax.__version__, "device": jax.devices()[0].platform}
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
        if all(known.get(name) == value for name, value in key.items()):
            return known["factor"]
    env, algo, seeds = PROBE
    say(f"measuring this machine's pace by {ROUNDS} rounds of {algo} on {env} (about a minute) ...")
    setup = make_setup(env, algo, Settings(seeds=seeds))
    machine = build(setup)
    state, _ = machine.init(seed_keys(setup))
    best = float("inf")
    for index in range(ROUNDS + 1):  # CPU time of all threads, and the shortest: others use the machine, too
        began = time.process_time()
        state, metrics = machine.round(state, jnp.int32(index))
        jax.block_until_ready(metrics)
        best = min(best, time.process_time() - began)
    machine.close()
    here = 1e6 * best / (setup.steps_per_round * seeds)
    factor = here / (microseconds(env, algo) * PACE_CORES)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(key | {"core microseconds per step and seed": here, "factor": factor}, indent=1) + "\n")
    return factor


class Cost(NamedTuple):
    runs: int
    steps: int
    core_hours: float


def costs(tables: dict[str, Sequence[Job]], factor: float) -> dict[str, Cost]:
    """Environment steps of all seeds, and what they take here."""
    horizons = {env: make_env(env).spec.horizon for env in {job.env for jobs in tables.values() for job in jobs}}
    found = {}
    for name, jobs in tables.items():
        steps = [job.episodes * horizons[job.env] * job.num_seeds for job in jobs]
        spent = [1e-6 * microseconds(job.env, job.method) * n for job, n in zip(jobs, steps, strict=True)]
        found[name] = Cost(len(jobs), sum(steps), sum(spent) * PACE_CORES * factor / 3600.0)
    return found


def cost_table(found: dict[str, Cost]) -> str:
    rows = [[name, *_cells(cost)] for name, cost in found.items()]
    whole = Cost(*(sum(values) for values in zip(*found.values(), strict=True)))
    return plain(["table", "runs", "env steps", "core hours"], [*rows, ["all", *_cells(whole)]])


def _cells(cost: Cost) -> tuple[str, str, str]:
    hours = f"{cost.core_hours:,.0f}" if cost.core_hours >= 10 else f"{cost.core_hours:.2g}"
    return f"{cost.runs:,}", f"{cost.steps:,}", hours
