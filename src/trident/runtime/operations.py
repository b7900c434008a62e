"""The operations of a policy program, in NumPy. Names and meaning are those of JAX's primitives.

`OPERATIONS[name](params)` gives a function of arrays; the shapes in `params` are numbers by then. What is not in the
table cannot be exported as a program (`trident.export.tracing` refuses it by name).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.runtime import threefry

Operation = Callable[..., Any]
F32 = np.float32


def erf_inv(x: np.ndarray) -> np.ndarray:
    """Inverse error function in single precision (Giles 2012), the polynomial that XLA uses."""
    x = np.asarray(x, F32)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = -np.log1p(-x * x)
        small = w < 5
        p = _polynomial(CENTRE, w - F32(2.5))
        if not small.all():
            p = np.where(small, p, _polynomial(TAIL, np.sqrt(w) - F32(3)))
        return np.where(np.abs(x) == 1, x * F32(np.inf), p * x)


def _polynomial(factors: tuple[np.float32, ...], x: np.ndarray) -> np.ndarray:
    p = factors[0]
    for factor in factors[1:]:
        p = factor + p * x
    return np.asarray(p)


CENTRE = tuple(np.float32(c) for c in (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
))  # fmt: skip
TAIL = tuple(np.float32(c) for c in (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
))  # fmt: skip


def _power(p: Any) -> Operation:
    """x^y of a whole y, by repeated squares as XLA does."""

    def power(x: np.ndarray) -> np.ndarray:
        n, out, square = abs(p["y"]), None, x
        while n:
            out = (square if out is None else out * square) if n & 1 else out
            square, n = (square * square, n >> 1) if n > 1 else (square, 0)
        out = np.ones_like(x) if out is None else out
        return out if p["y"] >= 0 else np.asarray(1, x.dtype) / out

    return power


def _broadcast(p: Any) -> Operation:
    shape, where = tuple(p["shape"]), p["broadcast_dimensions"]

    def broadcast(x: np.ndarray) -> np.ndarray:
        x = np.asarray(x)
        x = x if x.flags.c_contiguous else x.copy()
        strides = [0] * len(shape)
        for axis, size, step in zip(where, x.shape, x.strides, strict=True):
            strides[axis] = 0 if size == 1 else step
        return np.ndarray(shape, x.dtype, x, 0, strides)  # as np.broadcast_to, which takes ten times as long

    return broadcast


def thin_shape(p: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of an array that is to be broadcast: as many axes as the result, those it does not have of size 1."""
    thin = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], shape, strict=True):
        thin[axis] = size
    return tuple(thin)


def _dot(p: Any) -> Operation:
    """A batch of matrix products: every operand is brought into the form [batch, free, summed]."""
    (sum_l, sum_r), (batch_l, batch_r) = p["dimension_numbers"]
    plans: dict[tuple[Any, Any], Any] = {}

    def plan(a: tuple[int, ...], b: tuple[int, ...]) -> Any:
        free_l = [d for d in range(len(a)) if d not in sum_l and d not in batch_l]
        free_r = [d for d in range(len(b)) if d not in sum_r and d not in batch_r]
        batch = [a[d] for d in batch_l]
        summed = math.prod(a[d] for d in sum_l)
        left = [*batch, math.prod(a[d] for d in free_l), summed]
        right = [*batch, summed, math.prod(b[d] for d in free_r)]
        whole = batch + [a[d] for d in free_l] + [b[d] for d in free_r]
        return [*batch_l, *free_l, *sum_l], left, [*batch_r, *sum_r, *free_r], right, whole

    def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        shapes = a.shape, b.shape
        if shapes not in plans:
            plans[shapes] = plan(*shapes)
        turn_l, left, turn_r, right, whole = plans[shapes]
        return _product(a.transpose(turn_l).reshape(left), b.transpose(turn_r).reshape(right)).reshape(whole)

    return dot


ONE_THREAD = 2**18
"""Multiplications up to which OpenBLAS keeps to one thread. Its other threads wait by spinning: on a machine that has
something else to do, 32 rows through two layers took 30 ms of a processor with them and 1 ms without."""


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Matrix products of few rows at a time."""
    rows = max(1, ONE_THREAD // max(1, right.shape[-2] * right.shape[-1]))
    if left.shape[-2] <= rows:
        return np.matmul(left, right)
    parts = [np.matmul(left[..., i : i + rows, :], right) for i in range(0, left.shape[-2], rows)]
    return np.concatenate(parts, axis=-2)


def _gather(p: Any) -> Operation:
    """XLA's gather: windows of `slice_sizes` out of an array, one for every row of start indices."""
    d, sizes, mode = p["dimension_numbers"], p["slice_sizes"], p["mode"]

    def gather(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
        batch = starts.shape[:-1]
        rank = len(batch) + len(d["offset_dims"])
        batch_axes = [a for a in range(rank) if a not in d["offset_dims"]]
        dropped = (*d["collapsed_slice_dims"], *d["operand_batching_dims"])
        kept = [a for a in range(x.ndim) if a not in dropped]

        def along(values: np.ndarray, axes: list[int]) -> np.ndarray:
            thin = [1] * rank
            for axis, size in zip(axes, values.shape, strict=True):
                thin[axis] = size
            return values.reshape(thin)

        inside, index = np.ones((1,) * rank, bool), []
        for axis in range(x.ndim):
            if axis in d["start_index_map"]:
                begin = starts[..., d["start_index_map"].index(axis)].astype(np.int64)
                most = x.shape[axis] - sizes[axis]
                inside = inside & along((begin >= 0) & (begin <= most), batch_axes)
                here = along(np.clip(begin, 0, most), batch_axes)
            elif axis in d["operand_batching_dims"]:
                of = d["start_indices_batching_dims"][d["operand_batching_dims"].index(axis)]
                here = along(np.arange(x.shape[axis]), [batch_axes[of]])
            else:
                here = np.zeros((1,) * rank, np.int64)
            if axis in kept:
                here = here + along(np.arange(sizes[axis]), [d["offset_dims"][kept.index(axis)]])
            index.append(here)
        out = x[tuple(index)]
        if mode != "fill":
            return out
        fill = p["fill_value"]
        if fill is None:
            fill = np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).min if x.dtype.kind == "i" else 0
        return np.where(inside, out, np.asarray(fill, x.dtype))

    return gather


def _pad(p: Any) -> Operation:
    if any(low < 0 or high < 0 or inner for low, high, inner in p["padding_config"]):
        raise TridentError("the program pads inside or below zero, which is not supported")
    width = [(low, high) for low, high, _ in p["padding_config"]]
    return lambda x, value: np.pad(x, width, constant_values=value)


def _split(p: Any) -> Operation:
    ends = list(itertools.accumulate(p["sizes"]))
    parts = [(slice(None),) * p["axis"] + (slice(a, b),) for a, b in zip([0, *ends], ends, strict=False)]
    return lambda x: tuple(x[part] for part in parts)


def _slice(p: Any) -> Operation:
    steps = p["strides"] or [1] * len(p["start_indices"])
    where = tuple(slice(*edges) for edges in zip(p["start_indices"], p["limit_indices"], steps, strict=True))
    return lambda x: x[where]


def _cast(p: Any) -> Operation:
    kind = np.dtype(p["new_dtype"])
    return lambda x: np.asarray(x).astype(kind, copy=False)


def _iota(p: Any) -> Operation:
    shape, axis = p["shape"], p["dimension"]
    thin = [1] * len(shape)
    thin[axis] = shape[axis]
    row = np.arange(shape[axis], dtype=p["dtype"]).reshape(thin)
    return lambda: np.broadcast_to(row, shape)


def _select(p: Any) -> Operation:
    def select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
        if which.dtype == bool:
            return np.where(which, cases[1], cases[0])
        return np.select([which == i for i in range(len(cases))], list(cases), cases[0])

    return select


def _round(p: Any) -> Operation:
    if p["rounding_method"] == 1:
        return np.rint  # to even
    return lambda x: np.sign(x) * np.floor(np.abs(x) + np.asarray(0.5, x.dtype))


def _squeeze(p: Any) -> Operation:
    axes = tuple(p["dimensions"])
    return lambda x: x.squeeze(axes)


def _reduce(function: np.ufunc) -> Callable[[Any], Operation]:
    def build(p: Any) -> Operation:
        axes = tuple(p["axes"])
        return lambda x: function.reduce(x, axis=axes, dtype=x.dtype)

    return build


def _plain(function: Operation) -> Callable[[Any], Operation]:
    return lambda p: function


def _first(function: Operation) -> Callable[[Any], Operation]:
    return lambda p: lambda x: function(x, axis=p["axes"][0]).astype(p["index_dtype"])


def _cumulative(function: Any) -> Callable[[Any], Operation]:
    def build(p: Any) -> Operation:
        def run(x: np.ndarray) -> np.ndarray:
            flip = lambda y: np.flip(y, p["axis"]) if p["reverse"] else y  # noqa: E731
            return flip(function(flip(x), axis=p["axis"], dtype=x.dtype))

        return run

    return build


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.asarray(a).dtype.kind == "f":
        return np.divide(a, b)
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.asarray(a).dtype)  # towards zero, as in C


def _elementwise(function: Callable[[float], float]) -> Operation:
    return lambda x: np.vectorize(function, otypes=[np.float64])(x).astype(np.asarray(x).dtype)


def _itself(first: Any, *rest: Any) -> Any:
    return (first, *rest) if rest else first


def _logistic(x: np.ndarray) -> np.ndarray:
    return F32(0.5) * (np.tanh(F32(0.5) * x) + F32(1))


PLAIN: dict[str, Operation] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "rem": np.fmod, "neg": np.negative,
    "max": np.maximum, "min": np.minimum, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "sqrt": np.sqrt, "rsqrt": lambda x: np.asarray(1, x.dtype) / np.sqrt(x), "square": np.square, "pow": np.power,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "sinh": np.sinh, "cosh": np.cosh, "cbrt": np.cbrt,
    "logistic": _logistic, "erf_inv": erf_inv, "erf": _elementwise(math.erf), "erfc": _elementwise(math.erfc),
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "is_finite": np.isfinite,
    "shift_left": np.left_shift, "shift_right_logical": np.right_shift,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda x: x, "stop_gradient": lambda x: x, "optimization_barrier": _itself,
    "random_wrap": lambda x: x, "random_unwrap": lambda x: x, "random_fold_in": threefry.fold_in,
}  # fmt: skip

OPERATIONS: dict[str, Callable[[Any], Operation]] = {name: _plain(f) for name, f in PLAIN.items()} | {
    "integer_pow": _power,
    "broadcast_in_dim": _broadcast,
    "reshape": lambda p: lambda x: x.reshape(p["new_sizes"]),
    "squeeze": _squeeze,
    "expand_dims": lambda p: lambda x: np.expand_dims(x, tuple(p["dimensions"])),
    "transpose": lambda p: lambda x: x.transpose(p["permutation"]),
    "rev": lambda p: lambda x: np.flip(x, tuple(p["dimensions"])),
    "concatenate": lambda p: lambda *x: np.concatenate(x, axis=p["dimension"]),
    "stack": lambda p: lambda *x: np.stack(x, axis=p["axis"]),
    "tile": lambda p: lambda x: np.tile(x, p["reps"]),
    "slice": _slice,
    "split": _split,
    "pad": _pad,
    "iota": _iota,
    "convert_element_type": _cast,
    "bitcast_convert_type": lambda p: lambda x: np.ascontiguousarray(x).view(p["new_dtype"]),
    "select_n": _select,
    "round": _round,
    "reduce_sum": _reduce(np.add),
    "reduce_max": _reduce(np.maximum),
    "reduce_min": _reduce(np.minimum),
    "reduce_prod": _reduce(np.multiply),
    "reduce_and": _reduce(np.logical_and),
    "reduce_or": _reduce(np.logical_or),
    "argmax": _first(np.argmax),
    "argmin": _first(np.argmin),
    "cumsum": _cumulative(np.cumsum),
    "cumprod": _cumulative(np.cumprod),
    "dot_general": _dot,
    "gather": _gather,
    "random_bits": lambda p: lambda key: threefry.random_bits(key, tuple(p["shape"])),
    "random_split": lambda p: lambda key: threefry.split(key, tuple(p["shape"])),
}

ELEMENTWISE = {
    "add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "eq", "ne", "lt", "le", "gt", "ge", "and", "or",
    "xor", "shift_left", "shift_right_logical", "clamp", "select_n",
}  # fmt: skip
"""Of several operands, element by element: NumPy spreads out axes of size 1 by itself."""
