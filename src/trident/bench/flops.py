"""Floating-point operations of a program, by XLA's own cost analysis, loops multiplied out; and how they grow.

XLA counts the body of a loop once, however often it runs. So each body is analysed as a program of its own:

    total(f) = xla(f) + sum over the loops directly in f of  [ trips * total(body) - xla(body) ]

The trips of a `scan` (and of a `fori_loop` with constant bounds) are known; a `while` runs as often as the data
demand, and the caller says how often to count it. The analysis reads the program before optimisation, so a count
depends on the source alone and is the same on every machine. Transcendental functions count as one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core
from jax.interpreters import partial_eval


class Growth(NamedTuple):
    """y = constant * x ** exponent, by least squares on the logarithms."""

    exponent: float
    r2: float
    last: float
    """The same from the two largest x alone: where a sum of powers is heading."""


def fit_growth(x: Sequence[float], y: Sequence[float]) -> Growth:
    if len(x) < 2 or min(*x, *y) <= 0:
        raise ValueError(f"a growth needs two or more positive points, not {list(x)} -> {list(y)}")
    u, v = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    slope, at_zero = np.polyfit(u, v, 1)
    left, spread = np.sum((v - slope * u - at_zero) ** 2), np.sum((v - v.mean()) ** 2)
    r2 = 1.0 if spread < 1e-20 else 1.0 - left / spread  # a constant is fitted exactly
    return Growth(float(slope), float(r2), float((v[-1] - v[-2]) / (u[-1] - u[-2])))


def count_flops(function: Callable[..., Any], *shapes: Any, while_trips: int = 1) -> float:
    """Operations of `function` on arguments of these shapes; nothing runs and nothing is compiled.

    What the returned values do not need is not counted: return a part of a result to count that part.
    """
    closed = jax.make_jaxpr(function)(*shapes)
    alive, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    return _total(core.ClosedJaxpr(alive, closed.consts), while_trips)


def _total(program: core.ClosedJaxpr, while_trips: int) -> float:
    total = _xla(program)
    for body, trips in _loops(program.jaxpr, while_trips):
        total += trips * _total(body, while_trips) - _xla(body)
    return total


def _loops(jaxpr: Any, while_trips: int) -> Iterator[tuple[core.ClosedJaxpr, int]]:
    """The outermost loops: (body, trips)."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["jaxpr"], equation.params["length"]
        elif equation.primitive.name == "while":
            yield equation.params["body_jaxpr"], while_trips
        else:
            for value in equation.params.values():
                for inner in value if isinstance(value, tuple | list) else (value,):
                    if isinstance(inner, core.ClosedJaxpr | core.Jaxpr):
                        yield from _loops(getattr(inner, "jaxpr", inner), while_trips)


def _xla(program: core.ClosedJaxpr) -> float:
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals]
    cost = jax.jit(core.jaxpr_as_fun(program)).lower(*shapes).cost_analysis() or {}
    return float(cost.get("flops", 0.0) + cost.get("transcendentals", 0.0))
