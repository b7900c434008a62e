"""A JAX function as a list of operations that `trident.runtime.program` runs with NumPy alone.

JAX traces the function with a symbolic batch; calls are laid open, dead steps and copies dropped. What is left is
arithmetic: the same steps in the same order as XLA is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export
from jax.extend import core

from trident.errors import TridentError
from trident.runtime.operations import OPERATIONS
from trident.runtime.program import FORMAT

CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")
SAME = ("stop_gradient", "copy", "copy_p", "random_wrap", "random_unwrap", "reduce_precision")
"""Operations that change nothing here."""


def batched(shapes: Mapping[str, tuple[tuple[int, ...], Any]]) -> dict[str, jax.ShapeDtypeStruct]:
    """{name: (shape, dtype)} of one environment -> the same with a symbolic batch in front."""
    (batch,) = jax_export.symbolic_shape("b")
    return {name: jax.ShapeDtypeStruct((batch, *shape), kind) for name, (shape, kind) in shapes.items()}


def trace(
    function: Callable[..., dict[str, Any]], weights: Any, inputs: Mapping[str, tuple[tuple[int, ...], Any]]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(program, its constants by name) of `function(weights, **inputs of one environment)`, for batches of them."""
    names = list(inputs)
    wanted = list(batched(inputs).values())

    def flat(weights: Any, *rows: Any) -> Any:
        one = lambda *row: function(weights, **dict(zip(names, row, strict=True)))  # noqa: E731
        return jax.vmap(one)(*rows)

    closed, shapes = jax.make_jaxpr(flat, return_shape=True)(weights, *wanted)
    leaves = jax.tree_util.tree_flatten_with_path(weights)[0]
    labels = [_label(path) for path, _ in leaves]
    writer = _Writer(len(names))
    jaxpr = closed.jaxpr
    for slot, var in enumerate(jaxpr.invars[len(leaves) :]):
        writer.slots[var] = slot
    for var, label, (_, leaf) in zip(jaxpr.invars, labels, leaves, strict=False):
        writer.constant(var, label, leaf)
    for i, (var, value) in enumerate(zip(jaxpr.constvars, closed.consts, strict=True)):
        writer.constant(var, f"table/{i}", value)
    writer.read(jaxpr)
    outputs = [[name, writer.slot(var)] for name, var in zip(shapes, jaxpr.outvars, strict=True)]
    return writer.finish(inputs, outputs)


def _label(path: Any) -> str:
    return "weights/" + re.sub(r"[^\w]+", ".", jax.tree_util.keystr(path)).strip(".")


class _Writer:
    """Slots, constants and steps of the program that is being written."""

    def __init__(self, inputs: int):
        self.slots: dict[Any, int] = {}
        self.count = inputs
        self.constants: dict[int, tuple[str, np.ndarray]] = {}
        self.literals: list[Any] = []
        self.steps: list[list[Any]] = []

    def new(self, var: Any) -> int:
        self.slots[var] = self.count
        self.count += 1
        return self.slots[var]

    def constant(self, var: Any, name: str, value: Any) -> None:
        if jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        self.constants[self.new(var)] = name, np.asarray(value)

    def slot(self, var: Any) -> int:
        if isinstance(var, core.Literal):
            slot, self.count = self.count, self.count + 1
            self.literals.append([slot, np.asarray(var.val).tolist(), str(var.aval.dtype)])  # pyright: ignore[reportAttributeAccessIssue]
            return slot
        return self.slots[var]

    def read(self, jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
            if name in CALLS and inner is not None:
                self.call(equation, inner)
            elif name in SAME:
                self.slots[equation.outvars[0]] = self.slot(equation.invars[0])
            elif name in OPERATIONS:
                reads = [self.slot(var) for var in equation.invars]
                writes = [self.new(var) for var in equation.outvars]
                self.steps.append([name, reads, writes, _plain(name, equation.params)])
            else:
                raise TridentError(f"{name!r} has no counterpart in NumPy (trident/runtime/operations.py)")

    def call(self, equation: Any, inner: Any) -> None:
        """What is called is laid open. The same function may be called twice: its variables are bound anew."""
        closed = inner if hasattr(inner, "consts") else core.ClosedJaxpr(inner, ())
        for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            self.constant(var, f"table/{self.count}", value)
        for var, given in zip(closed.jaxpr.invars, equation.invars, strict=True):
            self.slots[var] = self.slot(given)
        self.read(closed.jaxpr)
        for var, given in zip(equation.outvars, closed.jaxpr.outvars, strict=True):
            self.slots[var] = self.slot(given)

    def finish(self, inputs: Any, outputs: list[Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Without the steps and constants that nothing depends on."""
        needed, steps = {slot for _, slot in outputs}, []
        for step in reversed(self.steps):
            if needed.intersection(step[2]):
                needed.update(step[1])
                steps.append(step)
        kept = {slot: item for slot, item in self.constants.items() if slot in needed}
        program = {
            "format": FORMAT,
            "inputs": [[name, ["1b", *shape], np.dtype(kind).name] for name, (shape, kind) in inputs.items()],
            "outputs": outputs,
            "slots": self.count,
            "constants": [[slot, name] for slot, (name, _) in kept.items()],
            "literals": [literal for literal in self.literals if literal[0] in needed],
            "steps": steps[::-1],
        }
        return program, dict(kept.values())


# --- parameters of operations as JSON -------------------------------------------------------------

READ = {
    "integer_pow": ("y",), "broadcast_in_dim": ("shape", "broadcast_dimensions"), "reshape": ("new_sizes",),
    "squeeze": ("dimensions",), "expand_dims": ("dimensions",), "transpose": ("permutation",), "rev": ("dimensions",),
    "concatenate": ("dimension",), "stack": ("axis",), "tile": ("reps",), "split": ("sizes", "axis"),
    "slice": ("start_indices", "limit_indices", "strides"), "pad": ("padding_config",),
    "iota": ("dtype", "shape", "dimension"), "convert_element_type": ("new_dtype",),
    "bitcast_convert_type": ("new_dtype",), "round": ("rounding_method",),
    "argmax": ("axes", "index_dtype"), "argmin": ("axes", "index_dtype"),
    "cumsum": ("axis", "reverse"), "cumprod": ("axis", "reverse"), "dot_general": ("dimension_numbers",),
    "gather": ("dimension_numbers", "slice_sizes", "mode", "fill_value"),
    "random_bits": ("shape",), "random_split": ("shape",),
} | {f"reduce_{name}": ("axes",) for name in ("sum", "max", "min", "prod", "and", "or")}  # fmt: skip
"""Parameters that the NumPy operations look at."""


def _plain(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _json(params[key]) for key in READ.get(name, ())}


def _json(value: Any) -> Any:
    if type(value).__name__ == "RoundingMethod":
        return int(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if hasattr(value, "_fields"):  # gather's dimension numbers
        return {field: _json(getattr(value, field)) for field in value._fields}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if type(value).__name__ == "GatherScatterMode":
        return "fill" if value.name == "FILL_OR_DROP" else "clip"
    if jax_export.is_symbolic_dim(value):
        return _dimension(str(value))
    return np.dtype(value).name


def _dimension(text: str) -> str:
    """A multiple of the batch: b, 3*b."""
    match = re.fullmatch(r"(?:(\d+)\*)?b(?:\*(\d+))?", text.replace(" ", ""))
    if match is None:
        raise TridentError(f"the size {text!r} is no multiple of the batch")
    return f"{int(match[1] or 1) * int(match[2] or 1)}b"
