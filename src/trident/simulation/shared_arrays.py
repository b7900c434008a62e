"""Time steps and actions of E simulators as arrays that several processes see."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from trident.envs.checks.shapes import action_shape, timestep_shape
from trident.types import EnvSpec, HybridAction, TimeStep


class Shared(NamedTuple):
    steps: TimeStep  # [E, ...]
    action: HybridAction  # [E, ...]


def make_file(spec: EnvSpec, count: int) -> Path:
    """A file in memory that is large enough; who made it removes it."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    descriptor, name = tempfile.mkstemp(prefix="trident-", dir=place)
    with os.fdopen(descriptor, "wb") as file:
        file.truncate(max(sum(_bytes(shape, count) for shape in jax.tree.leaves(_shapes(spec))), 1))
    return Path(name)


def attach(path: Path, spec: EnvSpec, count: int) -> Shared:
    """The arrays in that file."""
    whole, at = np.memmap(path, np.uint8, "r+"), 0

    def view(shape: Any) -> np.ndarray:
        nonlocal at
        size = count * math.prod(shape.shape) * np.dtype(shape.dtype).itemsize
        part = np.asarray(whole[at : at + size]).view(shape.dtype).reshape(count, *shape.shape)
        at += _bytes(shape, count)
        return part

    return Shared(*jax.tree.map(view, _shapes(spec)))


def _shapes(spec: EnvSpec) -> tuple[TimeStep, HybridAction]:
    return timestep_shape(spec), action_shape(spec)


def _bytes(shape: Any, count: int) -> int:
    """Rounded up, so that every array starts where its numbers may."""
    size = count * math.prod(shape.shape) * np.dtype(shape.dtype).itemsize
    return -(-size // 64) * 64
