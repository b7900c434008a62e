"""Lagrange multipliers that follow measured violations: integral control, or PID (Stooke et al. 2020).

    e = clip((J - d) / |d|, -1, 1)                       relative excess over the limit
    I = max(I + k_i e, 0)
    lambda = max(k_p e + I + k_d max(e - e_last, 0), 0) x (unit of reward / unit of cost)

The excess is relative and clipped, and the multiplier is in units of the advantage-scale ratio of reward and cost, so
that the gains mean the same for every constraint: k_i = 0.1 moves a multiplier by at most a tenth of that ratio per
round.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_LIMIT = 1e-5


class Multipliers(NamedTuple):
    integral: Float[Array, "K"]
    excess: Float[Array, "K"]  # of the last round
    value: Float[Array, "K"]  # in units of the advantage-scale ratio


def multipliers_init(count: int, start: float) -> Multipliers:
    return Multipliers(jnp.full(count, start), jnp.zeros(count), jnp.full(count, start))


def multipliers_step(
    old: Multipliers, cost: Float[Array, "K"], limit: Float[Array, "K"], gains: tuple[float, float, float]
) -> Multipliers:
    """`gains` are (k_p, k_i, k_d)."""
    proportional, integral, derivative = gains
    excess = jnp.clip((cost - limit) / jnp.maximum(jnp.abs(limit), SMALLEST_LIMIT), -1.0, 1.0)
    total = jnp.maximum(old.integral + integral * excess, 0.0)
    rise = jnp.maximum(excess - old.excess, 0.0)
    return Multipliers(total, excess, jnp.maximum(proportional * excess + total + derivative * rise, 0.0))
