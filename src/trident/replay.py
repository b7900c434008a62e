"""A circular buffer of transitions, as one pytree.

Blocks of equal size are written at a position derived from the round number, which is the same for all seeds:
under `vmap` over seeds the write stays a contiguous slice instead of becoming a scatter.

Where several devices share a seed's environments, rows stay by block, step and environment (`SpreadReplay`): each
device keeps what its own environments did, and only what is drawn travels. The order of rows is the same, and so is
what is drawn.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trident.maths.spread import over_devices
from trident.types import Transition


class Replay(NamedTuple):
    data: Any  # a Transition without metrics, and with only the extras its learner asked for; [capacity, ...]
    size: Int[Array, ""]


class SpreadReplay(NamedTuple):
    data: Any  # [blocks, T, E, ...]
    size: Int[Array, ""]


def block_of(rollout: Transition, remember: tuple[str, ...] = ()) -> Transition:
    """[T, E, ...] -> [T * E, ...], without what only the logger or the on-policy learner reads."""
    kept, rows = _kept(rollout, remember), rollout.reward.size
    return jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), kept)


def _kept(rollout: Transition, remember: tuple[str, ...]) -> Transition:
    return rollout._replace(metrics={}, extras={name: rollout.extras[name] for name in remember})


def create(example: Transition, capacity: int) -> Replay:
    """`example` is one round's block (shapes suffice); capacity is rounded down to whole blocks, at least one."""
    block = jax.tree.leaves(example)[0].shape[0]
    capacity = max(capacity // block, 1) * block
    data = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), example)
    return Replay(data, jnp.int32(0))


def spread(replay: Replay, steps: int, envs: int) -> SpreadReplay:
    shape = _rows(replay.data) // (steps * envs), steps, envs
    return SpreadReplay(jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), replay.data), replay.size)


def gathered(replay: SpreadReplay) -> Replay:
    return Replay(jax.tree.map(lambda x: in_order(replay, x), replay.data), replay.size)


def in_order(replay: Replay | SpreadReplay, x: Any) -> Any:
    """What is known of each row, [capacity, ...]."""
    return x.reshape(math.prod(x.shape[:3]), *x.shape[3:]) if isinstance(replay, SpreadReplay) else x


def add(replay: Any, rollout: Transition, remember: tuple[str, ...], round_index: Int[Array, ""]) -> Any:
    """The replay with a round's rollout [T, E, ...] in the place of the oldest."""
    if not isinstance(replay, SpreadReplay):
        return insert(replay, block_of(rollout, remember), round_index)
    blocks, *block = replay.data.reward.shape
    at, kept = round_index % blocks, _kept(rollout, remember)
    data = jax.tree.map(
        lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new[None], at, axis=0), replay.data, kept
    )
    rows = block[0] * block[1]
    return SpreadReplay(data, jnp.minimum(replay.size + rows, blocks * rows))


def insert(replay: Replay, block: Transition, round_index: Int[Array, ""]) -> Replay:
    capacity, size = _rows(replay.data), _rows(block)
    at = (round_index * size) % capacity
    data = jax.tree.map(lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, at, axis=0), replay.data, block)
    return Replay(data, jnp.minimum(replay.size + size, capacity))


def sample(replay: Replay | SpreadReplay, key: Any, count: int) -> Transition:
    return _take(replay, jax.random.randint(key, (count,), 0, jnp.maximum(replay.size, 1)))


def sample_by_weight(
    replay: Replay | SpreadReplay, key: Any, count: int, weight: Float[Array, "capacity"]
) -> tuple[Transition, Float[Array, "count"]]:
    """Rows drawn with probabilities proportional to `weight`, in random order, and their importance: what a uniform
    draw would have given them, summing to one. Stratified: row i is drawn floor or ceil of its expected number."""
    point_key, order_key = jax.random.split(key)
    written = jnp.arange(weight.size) < jnp.maximum(replay.size, 1)
    ladder = jnp.cumsum(jnp.where(written, weight, 0.0))
    at = (jax.random.permutation(order_key, count) + jax.random.uniform(point_key)) / count
    rows = jnp.minimum(jnp.searchsorted(ladder, at * ladder[-1], side="right"), replay.size - 1)
    importance = 1.0 / weight[rows]
    return _take(replay, rows), importance / jnp.sum(importance)


def _take(replay: Replay | SpreadReplay, rows: Int[Array, "count"]) -> Transition:
    at: Any = rows
    if isinstance(replay, SpreadReplay):
        at = jnp.unravel_index(rows, replay.data.reward.shape)
    return over_devices(jax.tree.map(lambda x: x[at], replay.data))


def _rows(tree: Any) -> int:
    return jax.tree.leaves(tree)[0].shape[0]
