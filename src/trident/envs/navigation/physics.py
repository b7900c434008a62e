"""How the discs of `navigation` move, and the closed form made of it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.maths.stable_min import stable_min
from trident.physics import particles
from trident.types import BasePolicy, HybridAction, Physics

PER_METRE, WHILE_THERE, AT_GOAL = 10.0, 0.1, 0.1
BRAKE = 1
"""The mode; there is one mode alone where actions are continuous."""
BLUR = 0.01
"""How far from a threshold an indicator is three quarters sure, m."""


def force_of(vel: Float[Array, "N 2"], action: HybridAction) -> Float[Array, "N 2"]:
    """Driving: the parameters. Braking: what would stop an agent in a step, as far as a force of 1 goes."""
    stop = -(1.0 - particles.DRAG) * vel / particles.STEP
    return jnp.where((action.mode == BRAKE)[:, None], jnp.clip(stop, -1.0, 1.0), action.params)


def move(
    pos: Float[Array, "N 2"], vel: Float[Array, "N 2"], obstacles: Float[Array, "X 2"], force: Float[Array, "N 2"],
    reach: float,
) -> tuple[Float[Array, "N 2"], Float[Array, "N 2"]]:  # fmt: skip
    """Places and velocities after a step."""
    force = force + particles.contact(pos, pos, particles.among(pos), reach)
    force = force + particles.contact(pos, obstacles, particles.distances(pos, obstacles), reach)
    vel = particles.slowed(vel, force)
    return pos + particles.STEP * vel, vel


def build_physics(
    agents: int, reach: float, nominal: Callable[[Float[Array, "S"]], HybridAction], base_policy: BasePolicy
) -> Physics:
    def split(state: Float[Array, "S"]) -> tuple[Array, Array, Array, Array]:
        pos, vel, goals = state[: 6 * agents].reshape(3, agents, 2)
        return pos, vel, goals, state[6 * agents :].reshape(-1, 2)

    def away(pos: Array, goals: Array) -> Array:
        return jnp.sqrt(jnp.sum((goals - pos) ** 2, axis=-1) + 1e-12)

    def signals(state: Float[Array, "S"], action: HybridAction) -> Float[Array, "2"]:
        """[reward, collision]"""
        pos, vel, goals, obstacles = split(state)
        after, _ = move(pos, vel, obstacles, force_of(vel, action), reach)
        progress, there = away(pos, goals) - away(after, goals), jax.nn.sigmoid((AT_GOAL - away(after, goals)) / BLUR)
        gaps = jnp.concatenate([particles.among(after), particles.distances(after, obstacles)], axis=1)
        touch = jax.nn.sigmoid((reach - stable_min(gaps, axis=1)) / BLUR)
        return jnp.stack([jnp.mean(PER_METRE * progress + WHILE_THERE * there), jnp.mean(touch)])

    def predict(state: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
        pos, vel, goals, obstacles = split(state)
        pos, vel = move(pos, vel, obstacles, force_of(vel, action), reach)
        return jnp.concatenate([x.reshape(-1) for x in (pos, vel, goals, obstacles)])

    return Physics(signals, predict, nominal, base_policy)
