"""Multirotors in the plane: velocity commands within an acceleration limit, and where braking ends.

Places in m, velocities in m/s, accelerations in m/s^2, times in s; shapes broadcast. In a step the acceleration is
constant, so that a vehicle covers the mean of its two velocities. Braking never turns, so its way is the straight
segment from a place to `stop_place`; after one step of braking the way that is left is the rest of that segment,
exactly. This makes "the segment is free" an invariant that braking keeps.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

TINY = 1e-12


def length(vector: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """Euclidean norm with a finite gradient at zero."""
    return jnp.sqrt((vector * vector).sum(-1) + TINY)


def within(vector: Float[Array, "... 2"], most: Float[Array, "..."] | float) -> Float[Array, "... 2"]:
    """The vector, shortened to `most` if it is longer."""
    return vector * jnp.minimum(1.0, most / length(vector))[..., None]


def accelerate(
    velocity: Float[Array, "... 2"], command: Float[Array, "... 2"], accel: Float[Array, "..."] | float, dt: float
) -> Float[Array, "... 2"]:
    """The velocity after a step: as near to the command as the acceleration limit allows."""
    return velocity + within(command - velocity, accel * dt)


def travel(
    place: Float[Array, "... 2"], before: Float[Array, "... 2"], after: Float[Array, "... 2"], dt: float
) -> Float[Array, "... 2"]:
    """Where a step leads in which the velocity changes evenly."""
    return place + 0.5 * dt * (before + after)


def stopping_distance(speed: Float[Array, "..."], accel: Float[Array, "..."] | float, dt: float) -> Float[Array, "..."]:
    """Way of braking in whole steps: v^2 / (2 a) as long as a step takes a dt off the speed, and r dt / 2 in the step
    that takes off the rest r."""
    full = accel * dt
    rest = speed - full * jnp.floor(speed / full)
    return (speed * speed - rest * rest) / (2.0 * accel) + 0.5 * rest * dt


def stop_place(
    place: Float[Array, "... 2"], velocity: Float[Array, "... 2"], accel: Float[Array, "..."] | float, dt: float
) -> Float[Array, "... 2"]:
    """Where full braking ends."""
    speed = length(velocity)
    return place + velocity * (stopping_distance(speed, accel, dt) / speed)[..., None]


def fenced(
    place: Float[Array, "... 2"], command: Float[Array, "... 2"], side: float, accel: Float[Array, "..."] | float
) -> Float[Array, "... 2"]:
    """A geofence around the square [0, side]^2: the command without what would soon lead out of it, |v| <= sqrt(a room)
    towards each side, with half of the acceleration kept for turning."""
    reach = jnp.asarray(accel)[..., None]
    low, high = jnp.maximum(place, 0.0), jnp.maximum(side - place, 0.0)
    return jnp.clip(command, -jnp.sqrt(reach * low + 1e-6), jnp.sqrt(reach * high + 1e-6))
