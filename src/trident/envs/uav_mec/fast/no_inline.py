"""Functions that the compiler keeps to themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import jax
from jax.experimental.xla_metadata import set_xla_metadata

F = TypeVar("F", bound=Callable[..., Any])


def no_inline(f: F, static_argnums: int | tuple[int, ...] = ()) -> F:
    """f as a function of its own in the compiled program, whose results are stored.

    XLA on CPU puts what is cheap to say into every loop that uses it, and computes it there again: a chain of
    reductions and selections can take ten times as long as its operations, and a sum of exponentials is computed one
    number at a time. What is `no_inline` is computed once, by vectorised loops over its own results. Nothing else
    differs."""

    @wraps(f)
    def inside(*args: Any) -> Any:
        with set_xla_metadata(inlineable="true"):  # of the calls within
            return f(*args)

    compiled = jax.jit(inside, static_argnums=static_argnums)

    @wraps(f)
    def call(*args: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return compiled(*args)

    return cast(F, call)
