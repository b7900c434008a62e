"""Who serves whom, and what a computing task costs in time and energy when it is split between two processors.

Units: task size in Mbit, work in cycles per bit, processor speed in GHz, rates in Mbit/s, time in s, energy in J.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def associate(distance: Float[Array, "N U"], radius: float, capacity: int, rounds: int = 2) -> Bool[Array, "N U"]:
    """Capacity-limited nearest-first association of U users to N servers.

    In each round every user without a server asks the nearest server within `radius` that has a free place, and
    a server takes those who ask in order of distance until it is full. Ranks come from pairwise comparisons:
    O(U^2) work in a handful of vector operations, where a sort would dominate the whole simulation step.
    Distances are compared by their bits: as integers, positive floats keep their order, and one less than a number is
    below it and above all that are smaller, so that a tie is decided along with the comparison.
    """
    n, u = distance.shape
    servers = jnp.arange(n, dtype=jnp.float32)[:, None]
    users = jnp.arange(u)
    first = (users[:, None] > users[None, :]).astype(int)  # equal distances: the lower index goes first
    link = jnp.zeros((n, u), bool)
    free = jnp.full((n, 1), float(capacity), jnp.float32)
    reachable = distance <= radius
    for _ in range(rounds):
        asking = reachable & (free > 0) & ~link.any(0)
        wanted = jnp.where(asking, distance, jnp.inf)
        nearest = wanted.min(0)
        # two servers at one place (a corner of the area) tie exactly: the lower index gets the user
        target = jnp.where(wanted == nearest, servers, float(n)).min(0)
        order = jax.lax.bitcast_convert_type(nearest, f"int{8 * nearest.dtype.itemsize}")
        ahead = (order[None, :] - first < order[:, None]) & (target[None, :] == target[:, None])
        rank = ahead.sum(1, dtype=jnp.int32).astype(jnp.float32)
        taken = asking & (target == servers) & (rank < free)
        link = link | taken
        free = free - taken.sum(1, keepdims=True, dtype=jnp.float32)
    return link


def compute_time(
    size: Float[Array, "*shape"], work: Float[Array, "*shape"], speed: Float[Array, "*shape"] | float
) -> Float[Array, "*shape"]:
    """size (Mbit) x work (cycles/bit) / speed (GHz), in s."""
    return size * work * 1e-3 / speed


def shared_speed(speed: float, machines: int, tasks: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Speed (GHz) each of `tasks` gets on a pool of `machines`: full until there are more tasks than machines."""
    return speed * jnp.minimum(1.0, machines / jnp.maximum(tasks, 1.0))


def sequential_latency(
    uplink: Float[Array, "*shape"],
    here: Float[Array, "*shape"],
    there: Float[Array, "*shape"],
    ratio: Float[Array, "*shape"],
    overhead: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """uplink + (1 - ratio) here + overhead + ratio there: one part after the other.

    `here` and `there` are the times of the whole task on either side (`there` includes its relay).
    """
    return uplink + (1.0 - ratio) * here + overhead + ratio * there


def parallel_latency(
    uplink: Float[Array, "*shape"],
    here: Float[Array, "*shape"],
    there: Float[Array, "*shape"],
    ratio: Float[Array, "*shape"],
    overhead: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """uplink + max((1 - ratio) here, overhead + ratio there): both parts at once."""
    return uplink + jnp.maximum((1.0 - ratio) * here, overhead + ratio * there)


def compute_energy(gigacycles: Float[Array, "*shape"], speed: float, capacitance: float) -> Float[Array, "*shape"]:
    """kappa f^2 x cycles: dynamic CMOS energy in J; `capacitance` is kappa in SI units, `speed` f in GHz."""
    return capacitance * (speed * 1e9) ** 2 * 1e9 * gigacycles
