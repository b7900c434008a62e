"""The policy as an IREE module: machine code of half a megabyte that needs neither Python nor JAX where it runs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import export as jax_export

from trident.errors import TridentError
from trident.export.functions import Function

FILE = "policy.vmfb"


def compiled(function: Function) -> tuple[bytes, list[str]]:
    """(the module for one decision at a time on this kind of machine, the inputs that it takes)"""
    try:
        from iree.compiler import tools  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise TridentError("--iree needs IREE's compiler: pip install 'trident-marl[iree]'") from error

    def run(*rows: Any) -> Any:
        one = lambda *row: function.call(function.weights, **dict(zip(function.inputs, row, strict=True)))  # noqa: E731
        out = jax.vmap(one)(*rows)
        return out["mode"], out["params"]

    shapes = [jax.ShapeDtypeStruct((1, *shape), np.dtype(kind)) for shape, kind in function.inputs.values()]
    exported = jax_export.export(jax.jit(run), platforms=("cpu",))(*shapes)
    module = tools.compile_str(
        exported.mlir_module(), input_type="stablehlo", target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=generic"],
    )  # fmt: skip
    names = list(function.inputs)
    return bytes(module), [names[i] for i in exported.module_kept_var_idx]  # what decides nothing is left out
