"""The policy's program as an ONNX graph, for computers that have ONNX Runtime: one decision at a time.

Networks are exact in it. What ONNX has no operation for (random draws, look-ups by index) is refused by name, and the
export compares the graph with JAX as it does the program. It is made of the program and not of JAX's functions: the
converters that there are fail on some policies without saying so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.runtime.operations import OPERATIONS, thin_shape
from trident.runtime.program import sized

FILE = "policy.onnx"
OPSET = 18

SAME = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "neg": "Neg", "abs": "Abs",
    "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "tanh": "Tanh",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "pow": "Pow", "erf": "Erf", "logistic": "Sigmoid", "eq": "Equal", "lt": "Less", "le": "LessOrEqual",
    "gt": "Greater", "ge": "GreaterOrEqual", "not": "Not", "and": "And", "or": "Or", "xor": "Xor", "copy": "Identity",
    "stop_gradient": "Identity",
}  # fmt: skip
LOGICAL = ("not", "and", "or", "xor")
REDUCED = {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd"}
FIRST = {"argmax": "ArgMax", "argmin": "ArgMin"}


def graph(program: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[bytes, list[str]]:
    """(the model, the inputs it takes: what decides nothing is left out)"""
    try:
        import onnx  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise TridentError("--onnx needs the package onnx: pip install 'trident-marl[onnx]'") from error
    return _Graph(onnx, program, arrays).model()


class _Graph:
    def __init__(self, onnx: Any, program: Mapping[str, Any], arrays: Mapping[str, np.ndarray]):
        self.onnx, self.program = onnx, program
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.count = 0
        self.values: dict[int, np.ndarray] = {}  # of one decision: shapes, and all that does not depend on inputs
        self.known: set[int] = set()
        self.names: dict[int, str] = {}
        for slot, (name, shape, kind) in enumerate(program["inputs"]):
            self.values[slot], self.names[slot] = np.ones(sized(shape, 1), kind), name
        for slot, name in program["constants"]:
            self.values[slot] = arrays[name]
        for slot, value, kind in program["literals"]:
            self.values[slot] = np.asarray(value, kind)
        self.known = self.values.keys() - self.names.keys()

    def model(self) -> tuple[bytes, list[str]]:
        helper = self.onnx.helper
        with np.errstate(all="ignore"):
            for op, reads, writes, params in self.program["steps"]:
                self.step(op, reads, writes, sized(params, 1))
        outputs = []
        for name, slot in self.program["outputs"]:
            self.node("Identity", [self.name(slot)], name)
            outputs.append(self.described(name, self.values[slot]))
        used = {read for node in self.nodes for read in node.input}
        inputs = [(name, slot) for slot, (name, _, _) in enumerate(self.program["inputs"]) if name in used]
        described = [self.described(name, self.values[slot]) for name, slot in inputs]
        made = helper.make_graph(self.nodes, "policy", described, outputs, self.constants)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        self.onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString(), [name for name, _ in inputs]

    def described(self, name: str, value: np.ndarray) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
        return self.onnx.helper.make_tensor_value_info(name, kind, list(np.shape(value)))

    def step(self, op: str, reads: list[int], writes: list[int], params: Any) -> None:
        found = OPERATIONS[op](params)(*[self.values[slot] for slot in reads])
        results = list(found) if len(writes) > 1 else [found]
        self.values |= {slot: np.asarray(value) for slot, value in zip(writes, results, strict=True)}
        if self.known.issuperset(reads):
            self.known.update(writes)
            return
        given, shape = [self.name(slot) for slot in reads], self.values[writes[0]].shape
        kinds = [self.values[slot].dtype for slot in reads]
        if op in SAME and (op not in LOGICAL or all(kind.kind == "b" for kind in kinds)):
            name = self.node(SAME[op], given)
        elif op in SPECIAL:
            name = SPECIAL[op](self, given, params, shape, [self.values[slot].shape for slot in reads])
        else:
            raise TridentError(f"--onnx is for policies that are networks: there is no {op!r} in ONNX; leave it out")
        self.names[writes[0]] = name

    def name(self, slot: int) -> str:
        if slot not in self.names:
            self.names[slot] = self.constant(self.values[slot])
        return self.names[slot]

    def new(self) -> str:
        self.count += 1
        return f"x{self.count}"

    def constant(self, value: Any) -> str:
        name = self.new()
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def whole(self, numbers: Any) -> str:
        return self.constant(np.asarray(numbers, np.int64))

    def node(self, kind: str, given: list[str], name: str | None = None, **attributes: Any) -> str:
        name = name or self.new()
        self.nodes.append(self.onnx.helper.make_node(kind, given, [name], **attributes))
        return name

    def cast(self, name: str, kind: Any) -> str:
        return self.node("Cast", [name], to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def shaped(self, name: str, shape: Any) -> str:
        return self.node("Reshape", [name, self.whole(shape)])


# --- operations that ONNX spells otherwise: (graph, inputs, params, shape of the result, shapes of the inputs) -----

Special = Callable[[_Graph, list[str], Any, tuple[int, ...], list[tuple[int, ...]]], str]


def _reshape(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
    return g.shaped(given[0], shape)


def _broadcast(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
    thin = g.shaped(given[0], thin_shape(p, shapes[0]))
    return g.node("Expand", [thin, g.whole(shape)])


def _select(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
    return g.node("Where", [given[0], given[2], given[1]])


def _clamp(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
    return g.node("Min", [g.node("Max", [given[1], given[0]]), given[2]])


def _power(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
    return g.node("Pow", [given[0], g.constant(np.float32(p["y"]))])


def _slice(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
    axes = range(len(p["start_indices"]))
    steps = p["strides"] or [1] * len(axes)
    return g.node("Slice", [given[0], *map(g.whole, (p["start_indices"], p["limit_indices"], list(axes), steps))])


def _dot(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
    (sum_l, sum_r), (batch_l, batch_r) = p["dimension_numbers"]
    a, b = shapes
    free_l = [d for d in range(len(a)) if d not in sum_l and d not in batch_l]
    free_r = [d for d in range(len(b)) if d not in sum_r and d not in batch_r]
    batch, summed = [a[d] for d in batch_l], math.prod(a[d] for d in sum_l)
    left = g.node("Transpose", [given[0]], perm=[*batch_l, *free_l, *sum_l])
    right = g.node("Transpose", [given[1]], perm=[*batch_r, *sum_r, *free_r])
    left = g.shaped(left, [*batch, math.prod(a[d] for d in free_l), summed])
    right = g.shaped(right, [*batch, summed, math.prod(b[d] for d in free_r)])
    return g.shaped(g.node("MatMul", [left, right]), shape)


def _reduced(kind: str) -> Special:
    return lambda g, given, p, shape, shapes: g.node(kind, [given[0], g.whole(p["axes"])], keepdims=0)


def _of_flags(kind: str) -> Special:
    def reduced(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
        return g.cast(g.node(kind, [g.cast(given[0], np.int32), g.whole(p["axes"])], keepdims=0), np.bool_)

    return reduced


def _first(kind: str) -> Special:
    def first(g: _Graph, given: list[str], p: Any, shape: Any, shapes: Any) -> str:
        return g.cast(g.node(kind, [given[0]], axis=p["axes"][0], keepdims=0), p["index_dtype"])

    return first


SPECIAL: dict[str, Special] = {
    "reshape": _reshape, "squeeze": _reshape, "expand_dims": _reshape, "broadcast_in_dim": _broadcast,
    "select_n": _select, "clamp": _clamp, "integer_pow": _power, "slice": _slice, "dot_general": _dot,
    "transpose": lambda g, given, p, shape, shapes: g.node("Transpose", given, perm=p["permutation"]),
    "concatenate": lambda g, given, p, shape, shapes: g.node("Concat", given, axis=p["dimension"]),
    "convert_element_type": lambda g, given, p, shape, shapes: g.cast(given[0], p["new_dtype"]),
    "ne": lambda g, given, p, shape, shapes: g.node("Not", [g.node("Equal", given)]),
    "rsqrt": lambda g, given, p, shape, shapes: g.node("Reciprocal", [g.node("Sqrt", given)]),
    "square": lambda g, given, p, shape, shapes: g.node("Mul", [given[0], given[0]]),
}  # fmt: skip
SPECIAL |= {name: _reduced(kind) for name, kind in REDUCED.items()}
SPECIAL |= {"reduce_or": _of_flags("ReduceMax"), "reduce_and": _of_flags("ReduceMin")}
SPECIAL |= {name: _first(kind) for name, kind in FIRST.items()}
