"""A bundle small enough to know by heart: three agents, four numbers seen, two modes, one parameter in [-1, 1].

Policy: mode 1 if the first number is positive, parameter tanh of the second; it does anything at all if the last is
greater than 4 (it then asks for a parameter of 9). Base policy: mode 0, parameter half of the third. Shield: no
parameter above the state's `cap`. Foreseen costs: |state|, then |parameter|. Fail-safe: mode 0, parameter -0.5.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from trident.export.bundle import seal
from trident.export.tracing import trace
from trident.run_directory import write_text
from trident.runtime import tensors
from trident.runtime.bundle import FORMAT, WEIGHTS, Bundle, open_bundle

N, O, M, P = 3, 4, 2, 1


def policy(weights: Any, obs: Any, mask: Any, alive: Any, key: Any) -> dict[str, Any]:
    wished = jnp.where(obs[:, 0] > 0, 1, 0)
    allowed = jnp.take_along_axis(mask, wished[:, None], axis=1)[:, 0]
    wild = obs[:, 3] > 4.0
    params = jnp.where(wild, 9.0, jnp.tanh(weights["gain"] * obs[:, 1]))
    return {"mode": jnp.where(allowed, wished, 1 - wished).astype(jnp.int32), "params": params[:, None]}


def base_policy(weights: Any, obs: Any, mask: Any) -> dict[str, Any]:
    mode = jnp.where(mask[:, 0], 0, 1).astype(jnp.int32)
    return {"mode": mode, "params": jnp.clip(0.5 * obs[:, 2:3], -1.0, 1.0)}


def shield(weights: Any, mode: Any, params: Any, **state: Any) -> dict[str, Any]:
    safe = jnp.minimum(params, state["state.cap"])
    return {"mode": mode, "params": safe, "changed": (safe != params)[:, 0]}


def foresee(weights: Any, state: Any, mode: Any, params: Any) -> dict[str, Any]:
    return {"cost": jnp.stack([jnp.abs(state), jnp.abs(params[:2, 0])])}


ACTION = {"mode": ((N,), np.int32), "params": ((N, P), np.float32)}
OBSERVED = {"obs": ((N, O), np.float32), "mask": ((N, M), np.bool_)}
INPUTS: dict[str, Any] = {
    "policy": OBSERVED | {"alive": ((N,), np.bool_), "key": ((2,), np.uint32)},
    "base_policy": OBSERVED,
    "shield": ACTION | {"state.cap": ((), np.float32)},
    "foresee": ACTION | {"state": ((2,), np.float32)},
}
FUNCTIONS = {"policy": policy, "base_policy": base_policy, "shield": shield, "foresee": foresee}
MONITOR: dict[str, Any] = {
    "deadline": 30.0, "stale": 0.5, "hold": 1.0, "future": 0.1, "reach": 10.0, "patience": 3, "novelty": 0.5,
    "window": 10, "release": 0.5, "back": 2, "limits": [0.1, 0.2], "margin": [0.0, 0.0], "foreseen": [1.0, 2.0],
}  # fmt: skip


def make(folder: Path, shielded: bool = False, without: tuple[str, ...] = (), **changes: Any) -> Bundle:
    folder.mkdir(parents=True)
    arrays = {
        "space/low": np.full((N, M, P), -1, np.float32), "space/high": np.full((N, M, P), 1, np.float32),
        "space/used": np.ones((N, M, P), bool),
        "space/obs_low": np.full(O, -1, np.float32), "space/obs_high": np.full(O, 1, np.float32),
    }  # fmt: skip
    for name in FUNCTIONS:
        if name in without or (name == "shield" and not shielded):
            continue
        program, constants = trace(FUNCTIONS[name], {"gain": np.float32(2.0)}, INPUTS[name])
        write_text(folder / f"{name}.json", json.dumps(program))
        arrays |= {f"{name}/{key}": value for key, value in constants.items()}
    (folder / WEIGHTS).write_bytes(tensors.dump(arrays))
    write_text(folder / "card.md", "# toy\n")
    constraints = [{"name": name, "limit": limit} for name, limit in zip(("heat", "noise"), (0.1, 0.2), strict=True)]
    manifest = {
        "format": FORMAT, "env": {"name": "toy"}, "run": {"algo": "toy"}, "shielded": shielded,
        "spaces": {"observations": list("abcd"), "modes": ["stay", "go"], "parameters": [{"name": "push", "unit": ""}]},
        "constraints": constraints, "monitor": MONITOR | changes,
        "fail_safe": {"name": "stay", "help": "", "modes": [0, 1], "params": [[-0.5], [-0.5]], "keep_mode": False},
    }  # fmt: skip
    seal(folder, manifest)
    return open_bundle(folder)
