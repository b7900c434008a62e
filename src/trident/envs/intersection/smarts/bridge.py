"""Between the intersection and SMARTS: our controls as pedals and steering wheel, its vehicles as our traffic.

SMARTS drives a 2.4 t body on four wheels (Bullet). On a flat road it behaves as

    a = DRIVE throttle - BRAKE brake - DRAG,   delta = -STEER steering

where DRAG, the joints' friction, does not depend on the speed. The constants are measured
(`benchmarks/smarts/crosscheck.py`) and agree with its data sheet: DRIVE = 4 x 1600 Nm / (0.31265 m x 2461 kg),
BRAKE = 4 x 1400 Nm / (...). Its wheels turn by 12.56 / 17.4 rad at most, its path bends by 2 % less than that of a
bicycle with that angle: STEER is the angle of the bicycle. Every acceleration within our limits (-6 to 3 m/s^2) is
within its reach.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from trident.envs.intersection.config import ARMS, IntersectionConfig
from trident.envs.intersection.dynamics import Traffic, arms, boxes, choose_lane, clearances, driven, pedals, steer
from trident.envs.intersection.roads import locate, turned
from trident.envs.intersection.smarts.road_map import middle
from trident.types import HybridAction

DRIVE = 8.322
"""m/s^2 of full throttle."""
BRAKE = 7.277
"""m/s^2 of full brake."""
DRAG = 1.248
"""m/s^2 that a rolling vehicle loses by itself."""
SLIP = 0.98
"""Curvature of the path against that of a bicycle with the wheels' angle."""
STEER = SLIP * 12.56 / 17.4
"""rad of full steering."""
REST = 0.05
"""Below this speed (m/s) a vehicle that should not start is left to its friction, which holds it."""


class Readings(NamedTuple):
    """What SMARTS tells of the vehicles on the road; the rows of others are not read."""

    x: Float[np.ndarray, "N"]  # middle of the body, on the map
    y: Float[np.ndarray, "N"]
    heading: Float[np.ndarray, "N"]  # 0 is north, positive to the left
    speed: Float[np.ndarray, "N"]
    steering: Float[np.ndarray, "N"]  # rad, positive to the right
    touching: Bool[np.ndarray, "N N"]


def controls(config: IntersectionConfig, t: Traffic, action: HybridAction) -> tuple[Traffic, Float[Array, "N 3"]]:
    """The traffic with its chosen lanes, and (throttle, brake, steering) for SMARTS' Continuous action space."""
    c = config
    chosen = choose_lane(c, t, action.mode)
    angle = steer(c, chosen, chosen.path, action.params[:, 2])
    return chosen, wheel_and_pedals(c, t.speed, pedals(c, action.params), angle)


def wheel_and_pedals(
    config: IntersectionConfig, speed: Float[Array, "N"], accel: Float[Array, "N"], angle: Float[Array, "N"]
) -> Float[Array, "N 3"]:
    """An acceleration and a steering angle as (throttle, brake, steering); never beyond top speed or backwards."""
    c = config
    accel = jnp.clip(accel, -speed / c.step, (c.top_speed - speed) / c.step)
    force = jnp.where((speed < REST) & (accel <= 0.0), 0.0, accel + DRAG)
    throttle = jnp.clip(force / DRIVE, 0.0, 1.0)
    brake = jnp.clip(-force / BRAKE, 0.0, 1.0)
    return jnp.stack([throttle, brake, jnp.clip(-angle / STEER, -1.0, 1.0)], 1)


def read(config: IntersectionConfig, t: Traffic, seen: Readings) -> tuple[Traffic, Float[Array, "N N"]]:
    """The traffic where SMARTS has it, and the clearances of all pairs: negative exactly for those that touch there."""
    c, arm, at = config, arms(config), middle(config)
    heading = jnp.asarray(seen.heading) + 0.5 * np.pi - 0.5 * np.pi * arm
    heading = heading - 2.0 * np.pi * jnp.round((heading - 0.5 * np.pi) / (2.0 * np.pi))
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    x, y = turned(jnp.asarray(seen.x) - at, jnp.asarray(seen.y) - at, (ARMS - arm) % ARMS)
    x, y = x - 0.5 * c.wheelbase * cos, y - 0.5 * c.wheelbase * sin
    s, e, error = locate(c, x, y, heading, t.path)
    speed, angle = jnp.asarray(seen.speed), -SLIP * jnp.asarray(seen.steering)
    moved = {"x": x, "y": y, "heading": heading, "cos": cos, "sin": sin, "speed": speed, "steer": angle}
    moved |= {"s": s, "e": e, "error": error}
    t = driven(t, moved)
    gap = clearances(c, t)
    touching = jnp.asarray(seen.touching) & t.driving[:, None] & t.driving[None, :]
    return t, jnp.where(touching, jnp.minimum(gap, -1e-3), jnp.maximum(gap, 0.0))


class Entry(NamedTuple):
    """Where and how fast vehicles are put on the map."""

    x: Float[Array, "N"]
    y: Float[Array, "N"]
    heading: Float[Array, "N"]
    speed: Float[Array, "N"]


def entries(config: IntersectionConfig, t: Traffic) -> Entry:
    """The present poses in SMARTS' terms."""
    box, at = boxes(config, t), middle(config)
    return Entry(box.x + at, box.y + at, jnp.arctan2(box.sin, box.cos) - 0.5 * np.pi, t.speed)
