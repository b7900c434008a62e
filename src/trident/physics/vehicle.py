"""A road vehicle: the kinematic bicycle with its actuator limits, and whether two oriented boxes touch.

The moving point is the middle of the rear axle, where the direction of motion is the heading itself:

    x' = v cos psi,   y' = v sin psi,   psi' = v kappa,   kappa = tan(delta) / L

With speed and steering held over a step the path is a circular arc, and the step is exact however long it is.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


def travel(
    speed: Float[Array, "*n"], accel: Float[Array, "*n"], dt: float, top: float
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Speed after a step and the distance covered in it. A vehicle that stops within the step covers v^2 / (2 b),
    so that v^2 / (2 b) is *exactly* what full braking takes, whatever the step."""
    free = speed + dt * accel
    after = jnp.clip(free, 0.0, top)
    stops = free < 0.0
    distance = jnp.where(stops, -0.5 * speed * speed / jnp.where(stops, accel, -1.0), 0.5 * dt * (speed + after))
    return after, distance


def small_turn(angle: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """(cos, sin) of an angle below 1 rad by their series, to 3e-7. Compilers repeat cheap arithmetic inside every
    reader of a value; with a library's sin and cos that repetition was a quarter of a simulation step."""
    a2 = angle * angle
    cos = 1.0 - a2 / 2.0 * (1.0 - a2 / 12.0 * (1.0 - a2 / 30.0 * (1.0 - a2 / 56.0)))
    return cos, angle * (1.0 - a2 / 6.0 * (1.0 - a2 / 20.0 * (1.0 - a2 / 42.0 * (1.0 - a2 / 72.0))))


def curvature_of(steer: Float[Array, "*n"], wheelbase: float) -> Float[Array, "*n"]:
    """kappa = tan(delta) / L, 1/m; positive turns left; |delta| < 1."""
    cos, sin = small_turn(steer)
    return sin / (wheelbase * cos)


def steer_of(curvature: Float[Array, "*n"], wheelbase: float) -> Float[Array, "*n"]:
    """Inverse of `curvature_of`."""
    return jnp.arctan(wheelbase * curvature)


def within_grip(curvature: Float[Array, "*n"], speed: Float[Array, "*n"], grip: float) -> Float[Array, "*n"]:
    """The curvature the tyres hold: |kappa| v^2 <= grip (m/s^2). Faster than that, the vehicle runs wide."""
    most = grip / jnp.maximum(speed * speed, 1e-3)
    return jnp.clip(curvature, -most, most)


class Pose(NamedTuple):
    """Place and heading; the heading's cosine and sine go with it."""

    x: Float[Array, "*n"]
    y: Float[Array, "*n"]
    heading: Float[Array, "*n"]
    cos: Float[Array, "*n"]
    sin: Float[Array, "*n"]


def advance(pose: Pose, curvature: Float[Array, "*n"], distance: Float[Array, "*n"]) -> Pose:
    """Move along an arc: the heading turns by t = kappa d, the chord d sin(t/2) / (t/2) points halfway between.

    The turn of one step is below 2 rad.
    """
    half = 0.5 * curvature * distance
    cos, sin = small_turn(half)
    middle_cos, middle_sin = pose.cos * cos - pose.sin * sin, pose.sin * cos + pose.cos * sin
    h2 = half * half
    chord = distance * (1.0 - h2 / 6.0 * (1.0 - h2 / 20.0 * (1.0 - h2 / 42.0)))
    end_cos, end_sin = middle_cos * cos - middle_sin * sin, middle_sin * cos + middle_cos * sin
    norm = 1.5 - 0.5 * (end_cos * end_cos + end_sin * end_sin)  # one Newton step: rounding does not pile up
    return Pose(
        x=pose.x + chord * middle_cos,
        y=pose.y + chord * middle_sin,
        heading=pose.heading + 2.0 * half,
        cos=norm * end_cos,
        sin=norm * end_sin,
    )


# --- boxes ----------------------------------------------------------------------------------------


def axis_clearance(
    dx: Float[Array, "*n"],
    dy: Float[Array, "*n"],
    cos_a: Float[Array, "*n"],
    sin_a: Float[Array, "*n"],
    cos_b: Float[Array, "*n"],
    sin_b: Float[Array, "*n"],
    half_length: float,
    half_width: float,
) -> Float[Array, "*n"]:
    """Clearance of two equal boxes along the better of box a's own two axes; (dx, dy) is from a to b.

    Boxes are apart if and only if some axis of either separates them, so the clearance of a pair is the larger one of
    both views. With all pairs in a matrix, that is the matrix and its transpose: each view is computed once.
    """
    along = jnp.abs(dx * cos_a + dy * sin_a)
    across = jnp.abs(dy * cos_a - dx * sin_a)
    turn_cos, turn_sin = jnp.abs(cos_a * cos_b + sin_a * sin_b), jnp.abs(sin_a * cos_b - cos_a * sin_b)
    ahead = along - half_length - (half_length * turn_cos + half_width * turn_sin)
    beside = across - half_width - (half_length * turn_sin + half_width * turn_cos)
    return jnp.maximum(ahead, beside)


def pair_clearance(
    x: Float[Array, "N"],
    y: Float[Array, "N"],
    cos: Float[Array, "N"],
    sin: Float[Array, "N"],
    half_length: float,
    half_width: float,
) -> Float[Array, "N N"]:
    """Clearance in m of every pair of boxes centred at (x, y): negative exactly if they overlap (separating axis);
    otherwise a lower bound of their distance."""
    n = x.shape[0]
    wide = (n, n)
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    cos_a, sin_a = (jnp.broadcast_to(q[:, None], wide) for q in (cos, sin))
    cos_b, sin_b = (jnp.broadcast_to(q[None, :], wide) for q in (cos, sin))
    one = axis_clearance(dx, dy, cos_a, sin_a, cos_b, sin_b, half_length, half_width)
    return jnp.maximum(one, one.T)
