"""What one agent can work out from what it sees: which landmark is its own, and how to get there past the others.

Everybody sees everybody, so all come to the same sharing-out, the one with the least sum of squared distances. Then the
velocity that would be there in the next move but one, held back where another agent is in the way.
"""

from __future__ import annotations

from itertools import permutations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.physics.particles import DRAG, STEP
from trident.types import BaseAction

CONFIDENCE = 4.0
"""Logit of the suggested push."""
TOP_SPEED = 2.0
SPARE = 0.04
"""Room that is left between agents."""


def base_policy(agents: int, reach: float, params: int, force: float, obs: Float[Array, "O"]) -> BaseAction:
    vel, rest = obs[:2], obs[4:].reshape(-1, 2)
    landmarks, others = rest[:agents], rest[agents:]
    to_go = landmarks[_own(landmarks, others)] - STEP * vel
    wanted = to_go / STEP
    wanted = wanted * jnp.minimum(1.0, TOP_SPEED / jnp.sqrt(jnp.sum(wanted**2) + 1e-12))
    for _ in range(2):
        for other in others:
            wanted = _held_back(wanted, other - STEP * vel, reach)
    push = (wanted - (1.0 - DRAG) * vel) / (STEP * force)
    return _as_action(push, params)


def _own(landmarks: Float[Array, "N 2"], others: Float[Array, "N-1 2"]) -> Array:
    """Index of the landmark that falls to this agent, who is at the origin."""
    places = jnp.concatenate([jnp.zeros((1, 2)), others])
    ways = np.array(list(permutations(range(len(landmarks)))))
    squared = jnp.sum((places[:, None] - landmarks[None]) ** 2, axis=-1)
    total = squared[np.arange(len(landmarks)), ways].sum(axis=1)
    return jnp.asarray(ways)[jnp.argmin(total), 0]


def _held_back(wanted: Float[Array, "2"], other: Float[Array, "2"], reach: float) -> Float[Array, "2"]:
    """No faster towards another than half of the room between, in one step; the other half is the other's."""
    distance = jnp.sqrt(jnp.sum(other**2) + 1e-12)
    towards = other / distance
    most = 0.5 * (distance - reach - SPARE) / STEP
    return wanted - jnp.maximum(wanted @ towards - most, 0.0) * towards


def _as_action(push: Float[Array, "2"], params: int) -> BaseAction:
    """A force in [-1, 1]^2; or of the pushes coast, left, right, down, up the one along its larger part, and how
    strong."""
    if params == 2:
        return BaseAction(jnp.zeros(1), jnp.clip(push, -1.0, 1.0)[None])
    along = jnp.stack([-push[0], push[0], -push[1], push[1]])
    strength = jnp.clip(jnp.concatenate([jnp.zeros(1), along]), 0.0, 1.0)
    least = 0.5 if params == 0 else 0.05  # below it coasting comes nearer than a push
    score = jnp.append(least, along)
    best = jnp.arange(5) == jnp.argmax(score)
    unit = 2.0 * strength - 1.0
    return BaseAction(CONFIDENCE * best.astype(jnp.float32), unit[:, None][:, :params])
