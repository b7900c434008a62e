"""Random bits of JAX's default generator (Threefry-2x32, Salmon et al. 2011), in NumPy: the same key, the same draws.

A key is two 32-bit words in the last axis. Bits are counted as JAX counts them (`jax_threefry_partitionable`, its
default): number i of a key is a hash of the key and of i, whatever the shape that is asked for.
"""

from __future__ import annotations

import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
TURNS = [[(np.array(r, np.uint32), np.array(32 - r, np.uint32)) for r in four] for four in ROTATIONS]
"""By how much to the left, and what is left over to the right."""
PARITY = 0x1BD11BDA

FEW = 8
"""Counters up to which whole numbers of Python are faster than arrays."""
WORD = 0xFFFFFFFF


def threefry(key: np.ndarray, count: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Twenty rounds over the two words of a counter; `key` [..., 2] broadcasts against the counters [...]."""
    first, second = key[..., 0], key[..., 1]
    if max(first.size, count[0].size) > FEW:
        return _many(first, second, *count)
    words = np.broadcast_arrays(first, second, *count)
    pairs = [_one(*row) for row in zip(*(w.ravel().tolist() for w in words), strict=True)]
    found = np.array(pairs, np.uint32).reshape(*words[0].shape, 2)
    return found[..., 0], found[..., 1]


def _one(first: int, second: int, x: int, y: int) -> tuple[int, int]:
    schedule = (first, second, first ^ second ^ PARITY)
    x, y = x + first & WORD, y + second & WORD
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            x = x + y & WORD
            y = ((y << turn | y >> 32 - turn) & WORD) ^ x
        x = x + schedule[(block + 1) % 3] & WORD
        y = y + schedule[(block + 2) % 3] + block + 1 & WORD
    return x, y


def _many(first: np.ndarray, second: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same in place, modulo 2^32 as arrays count."""
    schedule = (first, second, first ^ second ^ np.uint32(PARITY))
    x, y = x + first, y + second
    turned = np.empty_like(x)
    for block in range(5):
        for left, right in TURNS[block % 2]:
            np.add(x, y, out=x)
            np.left_shift(y, left, out=turned)
            np.right_shift(y, right, out=y)
            np.bitwise_or(y, turned, out=y)
            np.bitwise_xor(y, x, out=y)
        np.add(x, schedule[(block + 1) % 3], out=x)
        np.add(y, schedule[(block + 2) % 3], out=y)
        np.add(y, np.uint32(block + 1), out=y)
    return x, y


def _counters(key: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Keys [batch, 1..., 2] and the two words of the counters 0, 1, ... in `shape`."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    words = (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32)
    return key.reshape(*key.shape[:-1], *(1,) * len(shape), 2), words


def random_bits(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """32 random bits for each element of `shape`, for every key of the batch."""
    x, y = threefry(*_counters(key, shape))
    return x ^ y


def split(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """New keys [batch, *shape, 2]."""
    return np.stack(threefry(*_counters(key, shape)), axis=-1)


def fold_in(key: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The key that a key and a number make."""
    words = np.zeros_like(number, np.uint32), np.asarray(number).astype(np.uint32)
    return np.stack(threefry(key, words), axis=-1)


def key_of(seed: int) -> np.ndarray:
    """As `jax.random.key(seed)`."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
