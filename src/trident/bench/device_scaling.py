"""`trident bench devices`: throughput of one training over more and more devices, and what these say to each other.

Bytes and numbers of collectives are read from the compiled round (`communication`); times are of this machine, whose
virtual devices share its cores.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from trident.bench.communication import collectives, kernels, total
from trident.bench.fingerprint import tiny
from trident.errors import TridentError
from trident.training.backend import build_jax
from trident.training.layout import layout_of
from trident.training.registry import default_config, make_env
from trident.training.session import seed_keys
from trident.training.settings import Settings, Setup, cores, make_setup

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    env: str = "uav-mec"
    algos: tuple[str, ...] = ("mappo",)
    seeds: tuple[int, ...] = (4, 1)
    devices: tuple[int, ...] = (1, 2, 4)
    rounds: int = 5
    """That are timed, after one that is not; 0 counts the communication alone."""
    quick: bool = False
    """Tiny networks and batches."""


def make_devices(count: int) -> None:
    """Virtual ones of the CPU, before JAX has looked for devices; none where there are others."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", count)
    if jax.device_count() < count:
        raise TridentError(f"there are {jax.device_count()} devices, not {count}: --devices takes fewer")


def measure(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """The record: one row per algorithm, number of seeds and of devices."""
    before = os.getloadavg()
    rows = list(_rows(plan, say))
    return {
        "env": plan.env,
        "rows": rows,
        "platform": jax.default_backend(),
        "cores": cores(),
        "load": {"before": before, "after": os.getloadavg()},
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def _rows(plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    for algo, seeds in itertools.product(plan.algos, plan.seeds):
        config = default_config(algo, make_env(plan.env))
        config = tiny(config) if plan.quick else config
        for devices in plan.devices:
            setup = make_setup(plan.env, algo, Settings(seeds=seeds, devices=devices), config)
            say(f"{algo}, {seeds} seeds on {devices} devices")
            yield {"algo": algo, "seeds": seeds, "devices": devices} | _row(setup, plan.rounds, say)


def _row(setup: Setup, rounds: int, say: Callable[[str], None]) -> Row:
    layout, began = layout_of(setup), time.monotonic()
    machine = build_jax(setup, say)
    compiled = time.monotonic() - began
    text = machine.program.as_text()
    found = collectives(text)
    count, size = total(found)
    row: Row = {
        "layout": "1" if layout is None else f"{layout.seed_parts} x {layout.env_parts}",
        "compile": compiled,
        "collectives": count,
        "bytes": size,
        "kernels": kernels(text),
        "open_ended": sum(c.open_ended for c in found),
    }
    if not rounds:
        return row
    state, _ = machine.init(seed_keys(setup))
    seconds = []
    for index in range(1 + rounds):
        began = time.monotonic()
        state, _ = machine.round(state, index)
        jax.block_until_ready(state)
        seconds.append(time.monotonic() - began)
    best = min(seconds[1:])
    return row | {"seconds": best, "steps_per_second": setup.settings.num_seeds * setup.steps_per_round / best}


def table(record: dict[str, Any]) -> str:
    """As markdown."""
    lines = [
        "| method | seeds | devices | seeds x envs | env steps/s | to 1 | compile, s | kernels | collectives | MB |",
        "| --- |" + " ---: |" * 9,
    ]
    for row in record["rows"]:
        one = next((r for r in record["rows"] if (r["algo"], r["seeds"]) == (row["algo"], row["seeds"])), row)
        speed, base = row.get("steps_per_second"), one.get("steps_per_second")
        told = ["-", "-"] if not speed or not base else [f"{speed:,.0f}", f"{speed / base:.2f}"]
        numbers = [f"{row['compile']:.0f}", *(f"{row[name]:,}" for name in ("kernels", "collectives"))]
        numbers.append(f"{row['bytes'] / 1e6:,.2f}")
        cells = [row["algo"], str(row["seeds"]), str(row["devices"]), row["layout"], *told, *numbers]
        lines.append(f"| {' | '.join(cells)} |")
    load = record["load"]
    about = (
        f"`{record['env']}`, {record['platform']}, {record['cores']} cores for all devices, load "
        f"{load['before'][0]:.0f} to {load['after'][0]:.0f}, {record['when']}. The best of some rounds. Kernels, "
        "collectives and the MB of these on one device are counted in the compiled round, loops of unknown length once."
    )
    return "\n".join([*lines, "", about])


def write(path: Path, record: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise TridentError(f"cannot write to {path}: {error.strerror or error}") from error
