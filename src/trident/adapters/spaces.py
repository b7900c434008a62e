# pyright: reportMissingImports=false
"""Gymnasium's spaces: hybrid actions as what they ask for, observations as one array.

Whatever is discrete in an action (Discrete, MultiDiscrete, MultiBinary, wherever in a Tuple or Dict) makes the mode,
one for every combination; whatever is a Box makes the parameters. Every mode reads all parameters, but where as many
boxes as there are modes stand in a Tuple or Dict of their own: then each mode has its box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from trident.errors import TridentError
from trident.types import ActionSpec

MOST_MODES = 1024
UNBOUNDED = 1e6
"""Bounds as wide as this are none."""

Path = tuple[Any, ...]


@dataclass(frozen=True)
class Factor:
    """One number among `count` of the discrete part."""

    path: Path
    place: int | None
    """Its place in a MultiDiscrete or MultiBinary."""
    count: int
    start: int


@dataclass(frozen=True)
class ActionMap:
    """What one agent's action space asks for, and how a mode and its parameters are handed to it."""

    space: spaces.Space
    factors: tuple[Factor, ...]
    boxes: tuple[tuple[Path, spaces.Box], ...]
    per_mode: bool
    """Each mode has its own box."""

    @property
    def num_modes(self) -> int:
        return math.prod(f.count for f in self.factors)

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(box.shape)) for _, box in self.boxes]

    @property
    def num_params(self) -> int:
        return max(self.sizes, default=0) if self.per_mode else sum(self.sizes)

    def bounds(self, mode: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = [self.boxes[mode]] if self.per_mode else self.boxes
        flat = [np.concatenate([getattr(b, end).ravel() for _, b in chosen] or [[]]) for end in ("low", "high")]
        return flat[0], flat[1]

    def native(self, mode: int, params: np.ndarray) -> Any:
        """The action that the environment is given."""
        parts: dict[Path, Any] = {}
        numbers = np.unravel_index(mode, [f.count for f in self.factors]) if self.factors else ()
        for factor, number in zip(self.factors, numbers, strict=True):
            value = int(number) + factor.start
            if factor.place is None:
                parts[factor.path] = value
            else:
                parts.setdefault(factor.path, {})[factor.place] = value
        at = 0
        for i, (path, box) in enumerate(self.boxes):
            size, own = self.sizes[i], not self.per_mode or i == mode
            start = 0 if self.per_mode else at
            flat = params[start : start + size] if own else np.zeros(size)
            value = np.clip(np.asarray(flat, box.dtype), box.low.ravel(), box.high.ravel())
            parts[path] = value.reshape(box.shape).astype(box.dtype)
            at += size
        return _assemble(self.space, (), parts)

    def mode_mask(self, mask: Any) -> np.ndarray:
        """The modes that the environment's own mask (an array, or one for every number of it) leaves."""
        rows = [mask] if len(self.factors) == 1 and not _nested(mask) else list(mask)
        if [len(row) for row in rows] != [f.count for f in self.factors]:
            raise TridentError(
                f"an action mask has {[len(row) for row in rows]} entries; the action space has "
                f"{[f.count for f in self.factors]} choices"
            )
        allowed = np.array([all(pick) for pick in product(*(np.asarray(row, bool) for row in rows))])
        return allowed if allowed.any() else np.ones_like(allowed)

    @property
    def mode_names(self) -> list[str]:
        labels = [[_label(f.path, f.place, f.start + i) for i in range(f.count)] for f in self.factors]
        return [" ".join(pick) or "act" for pick in product(*labels)]


def action_map(space: spaces.Space, agent: str, bounds: tuple[float, float] | None = None) -> ActionMap:
    """How TRIDENT acts in this space; `bounds` take the place of those that a Box lacks."""
    factors, boxes = [], []
    for path, leaf in _leaves(space):
        if isinstance(leaf, spaces.Discrete):
            factors.append(Factor(path, None, int(leaf.n), int(leaf.start)))
        elif isinstance(leaf, spaces.MultiDiscrete | spaces.MultiBinary):
            counts = leaf.nvec if isinstance(leaf, spaces.MultiDiscrete) else np.full(leaf.shape, 2)
            starts = leaf.start if isinstance(leaf, spaces.MultiDiscrete) else np.zeros(leaf.shape, int)
            pairs = zip(np.ravel(counts), np.ravel(starts), strict=True)
            factors += [Factor(path, i, int(n), int(s)) for i, (n, s) in enumerate(pairs)]
        elif isinstance(leaf, spaces.Box) and leaf.dtype is not None and leaf.dtype.kind == "f":
            boxes.append((path, _bounded(leaf, agent, bounds)))
        else:
            raise TridentError(
                f"the action space of {agent} has a part that is neither discrete nor a Box of floats: {leaf}; "
                "put a wrapper around the environment that offers it as one of them"
            )
    own = _own_boxes(factors, boxes)
    found = ActionMap(space, tuple(factors), tuple(boxes), own)
    if found.num_modes > MOST_MODES:
        raise TridentError(
            f"the action space of {agent} has {found.num_modes:,} combinations of discrete choices, more than "
            f"{MOST_MODES:,} modes: offer some of them as a Box"
        )
    return found


def action_spec(maps: Sequence[ActionMap]) -> tuple[ActionSpec, np.ndarray]:
    """Boxes padded to the largest agent, and the modes [N, M] that an agent has at all."""
    shape = (len(maps), max(m.num_modes for m in maps), max(m.num_params for m in maps))
    low, high, used = np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.zeros(shape, bool)
    has = np.zeros(shape[:2], bool)
    for i, one in enumerate(maps):
        has[i, : one.num_modes] = True
        for mode in range(one.num_modes):
            bottom, top = one.bounds(mode)
            low[i, mode, : len(bottom)], high[i, mode, : len(top)] = bottom, top
            used[i, mode, : len(top)] = top > bottom
    names = next((m.mode_names for m in maps if m.num_modes == shape[1]), [])
    names = tuple(names) if len(set(names)) == len(names) else ()
    return ActionSpec(low, high, used, names), has


def observe(space: spaces.Space, value: Any) -> np.ndarray:
    return np.asarray(flatten(space, value), np.float32).ravel()


def observed_size(space: spaces.Space, agent: str) -> int:
    try:
        return int(flatdim(space))
    except (NotImplementedError, ValueError) as error:
        raise TridentError(
            f"the observation space of {agent} has no fixed size ({space}): put a wrapper around the environment that "
            "offers a Box"
        ) from error


# --- pieces ---------------------------------------------------------------------------------------


def _leaves(space: spaces.Space, path: Path = ()) -> Iterator[tuple[Path, spaces.Space]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _leaves(part, (*path, key))
    else:
        yield path, space


def _own_boxes(factors: list[Factor], boxes: list[tuple[Path, spaces.Box]]) -> bool:
    """As many boxes as modes, together in a Tuple or Dict that holds nothing else."""
    if len(factors) != 1 or len(boxes) != factors[0].count or len(boxes) < 2:
        return False
    homes = {path[:-1] for path, _ in boxes}
    return len(homes) == 1 and homes != {()} and factors[0].path[: len(next(iter(homes)))] not in homes


def _bounded(box: spaces.Box, agent: str, bounds: tuple[float, float] | None) -> spaces.Box:
    wide = (np.abs(box.low) >= UNBOUNDED) | (np.abs(box.high) >= UNBOUNDED)
    if not wide.any():
        return box
    if bounds is None:
        raise TridentError(
            f"the action space of {agent} is unbounded: say what is sensible, e.g. action_bounds=(-1.0, 1.0)"
        )
    low, high = (np.where(wide, end, own) for end, own in zip(bounds, (box.low, box.high), strict=True))
    return spaces.Box(low.astype(box.dtype), high.astype(box.dtype), box.shape, box.dtype)  # pyright: ignore[reportArgumentType]


def _assemble(space: spaces.Space, path: Path, parts: dict[Path, Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _assemble(part, (*path, key), parts) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_assemble(part, (*path, i), parts) for i, part in enumerate(space.spaces))
    value = parts[path]
    if isinstance(value, dict):
        return np.array([value[i] for i in range(len(value))], space.dtype).reshape(space.shape or (len(value),))
    return value


def _nested(mask: Any) -> bool:
    return isinstance(mask, list | tuple) and len(mask) > 0 and np.ndim(mask[0]) > 0


def _label(path: Path, place: int | None, value: int) -> str:
    return ".".join(map(str, [*path, *([] if place is None else [place]), value]))
