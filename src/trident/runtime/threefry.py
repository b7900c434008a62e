"""Random bits of JAX's default generator (Threefry-2x32, Salmon et al. 2011), in NumPy: the same key, the same draws.

A key is two 32-bit words in the last axis. Bits are counted as JAX counts them (`jax_threefry_partitionable`, its
default): number i of a key is a hash of the key and of i, whatever the shape that is asked for.
"""

from __future__ import annotations

import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def threefry(key: np.ndarray, count: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Twenty rounds over the two words of a counter; `key` [..., 2] broadcasts against the counters [...]."""
    first, second = key[..., 0], key[..., 1]
    schedule = (first, second, first ^ second ^ PARITY)
    with np.errstate(over="ignore"):  # sums are modulo 2^32
        x, y = count[0] + schedule[0], count[1] + schedule[1]
        for block in range(5):
            for turn in ROTATIONS[block % 2]:
                x = x + y
                y = x ^ ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn)))
            x = x + schedule[(block + 1) % 3]
            y = y + schedule[(block + 2) % 3] + np.uint32(block + 1)
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
