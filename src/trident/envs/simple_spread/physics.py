"""The closed form of simple_spread: where everybody will be, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.maths.stable_min import stable_min
from trident.physics import particles
from trident.types import BasePolicy, HybridAction, Physics

BLUR = 0.02
"""How far from touching a collision is as likely as not; an indicator has no gradient."""


def build_physics(
    agents: int,
    reach: float,
    force_of: Callable[[HybridAction], Float[Array, "N 2"]],
    nominal: Callable[[Float[Array, "S"]], HybridAction],
    base_policy: BasePolicy,
) -> Physics:
    def signals(state: Float[Array, "S"], action: HybridAction) -> Float[Array, "2"]:
        """[reward, collision] after the step. The action shows only in the one after it."""
        pos, vel, landmarks = state.reshape(3, agents, 2)
        pos = pos + particles.STEP * vel
        covered = stable_min(particles.distances(landmarks, pos), axis=1)
        nearest = stable_min(particles.among(pos).reshape(-1), axis=0)
        return jnp.stack([-jnp.sum(covered), jax.nn.sigmoid((reach - nearest) / BLUR)])

    def predict(state: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
        pos, vel, landmarks = state.reshape(3, agents, 2)
        touch = particles.contact(pos, pos, particles.among(pos), reach)
        after = pos + particles.STEP * vel, particles.slowed(vel, force_of(action) + touch), landmarks
        return jnp.stack(after).reshape(-1)

    return Physics(signals, predict, nominal, base_policy)
