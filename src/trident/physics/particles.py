"""Discs in the plane that are pushed by forces, slowed by drag and pushed apart by soft contacts.

The laws of two simulators of the field: MPE moves with the old velocity and then changes it, VMAS does it the other way
round. Positions and velocities are [N, 2], masses 1.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.nn import softplus
from jaxtyping import Array, Float

STEP = 0.1
"""s"""
DRAG = 0.25
"""Share of its velocity that a disc loses in a step."""
STIFFNESS, SOFTNESS = 100.0, 1e-3
"""Of contacts: force per depth, and the depth over which it sets in."""


def distances(a: Float[Array, "A 2"], b: Float[Array, "B 2"]) -> Float[Array, "A B"]:
    """Between centres; with a finite gradient where they coincide."""
    return jnp.sqrt(jnp.sum((a[:, None] - b[None]) ** 2, axis=-1) + 1e-12)


def among(pos: Float[Array, "N 2"]) -> Float[Array, "N N"]:
    """Distances among discs; one is far from itself."""
    return distances(pos, pos) + 1e3 * np.eye(len(pos), dtype=np.float32)


def contact(
    pos: Float[Array, "A 2"], others: Float[Array, "B 2"], distance: Float[Array, "A B"], reach: float
) -> Float[Array, "A 2"]:
    """What the others' contacts do to each disc; `reach` is the sum of the radii."""
    force = STIFFNESS * SOFTNESS * softplus((reach - distance) / SOFTNESS)
    return jnp.sum((force / distance)[..., None] * (pos[:, None] - others[None]), axis=1)


def slowed(vel: Float[Array, "N 2"], force: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
    """Velocities after a step under these forces."""
    return (1.0 - DRAG) * vel + STEP * force
