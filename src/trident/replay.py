"""A circular buffer of transitions, as one pytree.

Blocks of equal size are written at a position derived from the round number, which is the same for all seeds:
under `vmap` over seeds the write stays a contiguous slice instead of becoming a scatter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trident.types import Transition


class Replay(NamedTuple):
    data: Any  # a Transition without metrics, and with only the extras its learner asked for; [capacity, ...]
    size: Int[Array, ""]


def block_of(rollout: Transition, remember: tuple[str, ...] = ()) -> Transition:
    """[T, E, ...] -> [T * E, ...], without what only the logger or the on-policy learner reads."""
    kept = rollout._replace(metrics={}, extras={name: rollout.extras[name] for name in remember})
    rows = rollout.reward.size
    return jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), kept)


def create(example: Transition, capacity: int) -> Replay:
    """`example` is one round's block (shapes suffice); capacity is rounded down to whole blocks, at least one."""
    block = jax.tree.leaves(example)[0].shape[0]
    capacity = max(capacity // block, 1) * block
    data = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), example)
    return Replay(data, jnp.int32(0))


def insert(replay: Replay, block: Transition, round_index: Int[Array, ""]) -> Replay:
    capacity, size = _rows(replay.data), _rows(block)
    at = (round_index * size) % capacity
    data = jax.tree.map(lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, at, axis=0), replay.data, block)
    return Replay(data, jnp.minimum(replay.size + size, capacity))


def sample(replay: Replay, key: Any, count: int) -> Transition:
    rows = jax.random.randint(key, (count,), 0, jnp.maximum(replay.size, 1))
    return jax.tree.map(lambda x: x[rows], replay.data)


def sample_by_weight(
    replay: Replay, key: Any, count: int, weight: Float[Array, "capacity"]
) -> tuple[Transition, Float[Array, "count"]]:
    """Rows drawn with probabilities proportional to `weight`, in random order, and their importance: what a uniform
    draw would have given them, summing to one. Stratified: row i is drawn floor or ceil of its expected number."""
    point_key, order_key = jax.random.split(key)
    written = jnp.arange(weight.size) < jnp.maximum(replay.size, 1)
    ladder = jnp.cumsum(jnp.where(written, weight, 0.0))
    at = (jax.random.permutation(order_key, count) + jax.random.uniform(point_key)) / count
    rows = jnp.minimum(jnp.searchsorted(ladder, at * ladder[-1], side="right"), replay.size - 1)
    importance = 1.0 / weight[rows]
    return jax.tree.map(lambda x: x[rows], replay.data), importance / jnp.sum(importance)


def _rows(tree: Any) -> int:
    return jax.tree.leaves(tree)[0].shape[0]
