"""Timing on a shared machine: what is compared runs in turn, and the shortest time counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

Say = Callable[[str], None]


class Compiled(NamedTuple):
    call: Any  # the executable
    lower_seconds: float
    compile_seconds: float
    cpu_seconds: float
    """Of both together, over all threads: what is left of a wall time when others use the machine too."""


def interleave(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """name -> its shortest time in seconds. One warm-up each, then `repeats` turns through all of them.

    Other processes can only make a call slower, so the minimum is the best estimate of what the call itself takes;
    taking turns gives every call the same chance of a quiet moment.
    """
    for call in calls.values():
        jax.block_until_ready(call())
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            jax.block_until_ready(call())
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def compile_(
    function: Callable[..., Any], *shapes: Any, donate: tuple[int, ...] = (), cached: bool = False
) -> Compiled:
    """Compile ahead of time. Unless `cached`, without the persistent cache: it would hide what compiling takes."""
    enabled = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", cached)
    try:
        cpu, began = time.process_time(), time.perf_counter()
        lowered = jax.jit(function, donate_argnums=donate).lower(*shapes)
        between = time.perf_counter()
        call = lowered.compile()
        return Compiled(call, between - began, time.perf_counter() - between, time.process_time() - cpu)
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
