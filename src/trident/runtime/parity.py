"""Whether this machine computes what the exporting one did: a bundle against recorded inputs and JAX's answers.

`python -m trident.runtime.parity BUNDLE FILE` compares and prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.runtime import tensors
from trident.runtime.backends import policy_of, there
from trident.runtime.bundle import Bundle, open_bundle

TOLERANCE = 1e-5
"""Of parameters, in widths of their box (or in their unit, if the box is narrower than 1)."""
ROUNDINGS = 4.0
"""Where one rounding of an observation changes JAX's own answer by more, so many times that is allowed."""
BATCH = 256
SELF_TEST = "selftest.safetensors"


def compare(bundle: Bundle, recorded: dict[str, np.ndarray]) -> dict[str, Any]:
    """Of every program: rows compared, modes that differ, the largest error of anything else, and how much of it is
    more than single precision excuses."""
    found: dict[str, Any] = {}
    for name, program in bundle.programs.items():
        mine = {k.removeprefix(f"{name}/"): a for k, a in recorded.items() if k.startswith(f"{name}/")}
        if not mine:
            continue
        rows, modes, worst, excess = len(next(iter(mine.values()))), 0, 0.0, 0.0
        for begin in range(0, rows, BATCH):
            part = {k: a[begin : begin + BATCH] for k, a in mine.items()}
            out = program(**{k: part[k] for k in program.inputs})
            if "mode" in out:
                modes += int((out["mode"] != part["out.mode"]).sum())
            for key, values in out.items():
                if key != "mode":
                    off = _error(key, values, part[f"out.{key}"], bundle)
                    off = np.where(_same_mode(out, part, off), off, 0.0)
                    free = ROUNDINGS * part["rounding"][..., None] if key == "params" and "rounding" in part else 0.0
                    worst = max(worst, float(off.max(initial=0.0)))
                    excess = max(excess, float((off - free).max(initial=0.0)))
        found[name] = {"rows": rows, "modes different": modes, "largest error": worst, "beyond rounding": excess}
    return found


def _error(key: str, ours: np.ndarray, theirs: np.ndarray, bundle: Bundle) -> np.ndarray:
    off = np.abs(np.asarray(ours, float) - np.asarray(theirs, float))
    off = np.where(np.asarray(ours) == np.asarray(theirs), 0.0, off)  # two infinities
    if key == "params":
        width = (bundle.space.high - bundle.space.low).max(axis=1)  # [N, P]
        off = off / np.maximum(width, 1.0)
    return np.where(np.isnan(off), np.inf, off)


def _same_mode(out: dict[str, np.ndarray], part: dict[str, np.ndarray], off: np.ndarray) -> Any:
    """Parameters of different modes are counted as different modes."""
    if "mode" not in out or off.ndim < 2 or off.shape[:2] != out["mode"].shape:
        return np.True_
    same = out["mode"] == part["out.mode"]
    return same.reshape(*same.shape, *(1,) * (off.ndim - 2))


def verdict(found: dict[str, Any], tolerance: float = TOLERANCE) -> str:
    """What fails, "" if nothing."""
    for name, row in found.items():
        if row["modes different"]:
            return f"{name}: {row['modes different']} modes of {row['rows']} rows differ from JAX's"
        if not row["beyond rounding"] <= tolerance:
            return f"{name}: off by {row['beyond rounding']:.1e} more than rounding explains (allowed: {tolerance:.0e})"
    return ""


def compare_backend(bundle: Bundle, recorded: dict[str, np.ndarray], backend: str) -> dict[str, Any]:
    """The same of another backend's policy, decision by decision."""
    one = policy_of(bundle, backend)

    def policy(**rows: Any) -> dict[str, np.ndarray]:
        each = [one(**{k: v[i : i + 1] for k, v in rows.items()}) for i in range(len(rows["key"]))]
        return {name: np.concatenate([out[name] for out in each]) for name in each[0]}

    policy.inputs = bundle.programs["policy"].inputs  # pyright: ignore[reportFunctionMemberAccess]
    return compare(bundle._replace(programs={"policy": policy}), recorded)  # pyright: ignore[reportArgumentType]


def self_test(bundle: Bundle, backend: str = "numpy") -> dict[str, Any]:
    """The bundle's own sample of recorded inputs, on this machine; with the time of one decision."""
    if SELF_TEST not in bundle.manifest["files"]:
        raise TridentError(f"{bundle.folder} has no {SELF_TEST}: it was not made by `trident export`")
    recorded = tensors.parse((bundle.folder / SELF_TEST).read_bytes(), SELF_TEST)
    found = compare(bundle, recorded) if backend == "numpy" else compare_backend(bundle, recorded, backend)
    if fault := verdict(found):
        raise TridentError(f"{bundle.folder} computes something else here than where it was exported: {fault}")
    return {"programs": found, "latency": latency(bundle, recorded, backend=backend)}


def latency(
    bundle: Bundle, recorded: dict[str, np.ndarray], repeats: int = 300, backend: str = "numpy"
) -> dict[str, float]:
    """Milliseconds of one call of the policy: to load it, the first, then median and 99th percentile of the others."""
    rows = {name: recorded[f"policy/{name}"][:1] for name in bundle.programs["policy"].inputs}
    begun = time.perf_counter()
    program = policy_of(bundle if backend != "numpy" else open_bundle(bundle.folder), backend)
    loaded, times = 1e3 * (time.perf_counter() - begun), []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        program(**rows)
        times.append(1e3 * (time.perf_counter() - begun))
    found = {"load": loaded, "first": times[0], "p50": np.quantile(times[1:], 0.5), "p99": np.quantile(times[1:], 0.99)}
    return {f"{name} ms": round(float(value), 3) for name, value in found.items()}


def main(argv: list[str]) -> int:
    bundle = open_bundle(argv[0])
    recorded = tensors.parse(Path(argv[1]).read_bytes(), argv[1])
    found = compare(bundle, recorded)
    fault, others = verdict(found), {}
    for name in [name for name in there(bundle) if name not in ("numpy", "jax")]:
        others[name] = compare_backend(bundle, recorded, name)["policy"] | latency(bundle, recorded, backend=name)
        fault = fault or verdict({name: others[name]})
    print(json.dumps({
        "programs": found, "fault": fault, "latency": latency(bundle, recorded), "backends": others,
        "modules": sorted({name.partition(".")[0] for name in sys.modules} & {"jax", "jaxlib", "optax", "matplotlib"}),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
