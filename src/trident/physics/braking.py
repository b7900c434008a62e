"""Braking, arriving and meeting: closed forms for vehicles on crossing paths.

Distances in m along a vehicle's own path, speeds in m/s, times in s. A conflict point is a stretch of a path in
which a vehicle can touch one on another path; it is *occupied* from the moment the vehicle enters the stretch until
it has left it.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def braking_distance(speed: Float[Array, "*n"], brake: float, reaction: float = 0.0) -> Float[Array, "*n"]:
    """v t_r + v^2 / (2 b)."""
    return speed * (reaction + speed / (2.0 * brake))


def fastest_stoppable(
    distance: Float[Array, "*n"], speed: Float[Array, "*n"], brake: float, dt: float
) -> Float[Array, "*n"]:
    """The highest speed after one step from which full braking still stops within `distance` of where the step began.

    The step covers (v + v') dt / 2 and braking v'^2 / (2 b), so v'^2 / (2 b) + v' dt / 2 = distance - v dt / 2.
    Zero if nothing but braking is left; from a stoppable state full braking always stays stoppable.
    """
    left = jnp.maximum(distance - 0.5 * dt * speed, 0.0)
    half = 0.5 * brake * dt
    return jnp.sqrt(half * half + 2.0 * brake * left) - half


def earliest_arrival(
    distance: Float[Array, "*n"], speed: Float[Array, "*n"], accel: float, top: float
) -> Float[Array, "*n"]:
    """Least time to cover `distance` (0 if it is negative) with acceleration `accel` up to speed `top`.

    (sqrt(v^2 + 2 a d) - v) / a while the top speed is not reached, then (top - v) / a + (d - d_top) / top.
    """
    d = jnp.maximum(distance, 0.0)
    to_top = jnp.maximum(top * top - speed * speed, 0.0) / (2.0 * accel)
    # the safe argument keeps the gradient finite where a standing vehicle has no distance to go
    rising = (jnp.sqrt(jnp.maximum(speed * speed + 2.0 * accel * jnp.minimum(d, to_top), 1e-12)) - speed) / accel
    return jnp.maximum(rising, 0.0) + jnp.maximum(d - to_top, 0.0) / top


def time_gap(
    enter_a: Float[Array, "*n"], leave_a: Float[Array, "*n"], enter_b: Float[Array, "*n"], leave_b: Float[Array, "*n"]
) -> Float[Array, "*n"]:
    """Time between two occupancies of one conflict point: max(enter_b - leave_a, enter_a - leave_b).

    Positive: the post-encroachment time, from one leaving to the other entering. Negative: they overlap by so much.
    """
    return jnp.maximum(enter_b - leave_a, enter_a - leave_b)


def following_room(
    gap: Float[Array, "*n"], speed: Float[Array, "*n"], lead_speed: Float[Array, "*n"], brake: float
) -> Float[Array, "*n"]:
    """What is left of the gap when leader and follower both brake to a stop: gap - v^2 / (2 b) + v_lead^2 / (2 b)."""
    return gap - braking_distance(speed, brake) + braking_distance(lead_speed, brake)
