"""The policy as StableHLO by `jax.export`: any batch, CPU and GPU; read back by JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export as jax_export

from trident.export.functions import Function
from trident.export.tracing import batched

PLATFORMS = ("cpu", "cuda")
FILE = "policy.stablehlo"


def serialise(function: Function) -> bytes:
    """(obs, mask, alive, key) -> (mode, params), each with a leading batch."""

    def run(*rows: Any) -> Any:
        one = lambda *row: function.call(function.weights, **dict(zip(function.inputs, row, strict=True)))  # noqa: E731
        out = jax.vmap(one)(*rows)
        return out["mode"], out["params"]

    exported = jax_export.export(jax.jit(run), platforms=PLATFORMS)(*batched(function.inputs).values())
    return bytes(exported.serialize())


def policy(folder: Path) -> Any:
    """The bundle's policy in JAX, to be called like the NumPy program (`Guard(policy=...)`)."""
    exported = jax_export.deserialize(bytearray((folder / FILE).read_bytes()))
    call = jax.jit(exported.call)

    def run(*, obs: Any, mask: Any, alive: Any, key: Any) -> dict[str, np.ndarray]:
        mode, params = call(np.asarray(obs, np.float32), np.asarray(mask), np.asarray(alive), np.asarray(key))
        return {"mode": np.asarray(mode), "params": np.asarray(params)}

    return run
