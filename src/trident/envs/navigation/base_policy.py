"""What one agent can work out from what it sees: straight to the goal, held back by what is in the way, and round it on
the right."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.physics.particles import DRAG, STEP
from trident.types import BaseAction

TOP_SPEED = STEP / DRAG
GAIN = 5.0
"""1/s: wanted speed per distance from the goal."""
CLOSING = 2.5
"""1/s: speed towards a thing per room that is left before it."""
SPARE = 0.03
"""Room that is kept, m."""
ASIDE = 0.6
"""How much of the speed that a thing in the way takes is turned to the right."""
CONFIDENCE = 4.0
"""Logit of driving."""


def base_policy(seen: tuple[int, int], reach: float, modes: int, obs: Float[Array, "O"]) -> BaseAction:
    vel, goal = TOP_SPEED * obs[:2], obs[4:6]
    agents, obstacles = obs[6 : 6 + 4 * seen[0]].reshape(-1, 4), obs[6 + 4 * seen[0] :].reshape(-1, 2)
    wanted = GAIN * goal
    wanted = wanted * jnp.minimum(1.0, TOP_SPEED / jnp.sqrt(jnp.sum(wanted**2) + 1e-12))
    for again in range(2):
        aside = 0.0 if again else ASIDE
        for other in agents:
            theirs = vel + TOP_SPEED * other[2:]
            wanted = _held_back(wanted, other[:2], 0.5 * CLOSING, theirs, reach, aside)
        for thing in obstacles:
            wanted = _held_back(wanted, thing, CLOSING, jnp.zeros(2), reach, aside)
    force = jnp.clip((wanted - (1.0 - DRAG) * vel) / STEP, -1.0, 1.0)
    return BaseAction(CONFIDENCE * (jnp.arange(modes) == 0), jnp.stack([force] + [jnp.zeros(2)] * (modes - 1)))


def _held_back(
    wanted: Float[Array, "2"], thing: Float[Array, "2"], closing: float, theirs: Float[Array, "2"], reach: float,
    aside: float,
) -> Float[Array, "2"]:  # fmt: skip
    """No faster towards a thing than its distance, and its own retreat, allow."""
    distance = jnp.sqrt(jnp.sum(thing**2) + 1e-12)
    towards = thing / distance
    most = closing * (distance - reach - SPARE) + jnp.minimum(theirs @ towards, 0.0) * 0.5
    lost = jnp.maximum(wanted @ towards - most, 0.0)
    return wanted - lost * towards + aside * lost * jnp.stack([towards[1], -towards[0]])
