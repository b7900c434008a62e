"""Propulsion power of a rotary-wing UAV in level flight.

Zeng, Xu, Zhang, "Energy minimization for wireless communication with rotary-wing UAV", arXiv 1804.02238:

    P(V) = P0 (1 + 3 V^2 / U_tip^2) + Pi (sqrt(1 + V^4 / (4 v0^4)) - V^2 / (2 v0^2))^(1/2) + 1/2 d0 rho s A V^3

blade profile + induced + parasite power. It falls from hover to a minimum and then rises with the cube of V.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Rotor(NamedTuple):
    """Constants of P(V) in SI units."""

    blade: float
    """P0: blade profile power in hover, W."""
    induced: float
    """Pi: induced power in hover, W."""
    tip_speed: float
    """U_tip, m/s."""
    induced_velocity: float
    """v0: mean rotor induced velocity in hover, m/s."""
    drag_ratio: float
    """d0."""
    air_density: float
    """rho, kg/m^3."""
    solidity: float
    """s."""
    disc_area: float
    """A, m^2."""


def rotor_from_design(
    weight: float = 20.0,
    air_density: float = 1.225,
    radius: float = 0.4,
    disc_area: float = 0.503,
    rotation: float = 300.0,
    solidity: float = 0.05,
    drag_ratio: float = 0.6,
    induced_correction: float = 0.1,
    profile_drag: float = 0.012,
) -> Rotor:
    """P0 = delta/8 rho s A Omega^3 R^3,  Pi = (1 + k) W^1.5 / sqrt(2 rho A),  v0 = sqrt(W / (2 rho A))."""
    lifted_air = 2.0 * air_density * disc_area
    return Rotor(
        blade=profile_drag / 8.0 * air_density * solidity * disc_area * (rotation * radius) ** 3,
        induced=(1.0 + induced_correction) * weight**1.5 / lifted_air**0.5,
        tip_speed=rotation * radius,
        induced_velocity=(weight / lifted_air) ** 0.5,
        drag_ratio=drag_ratio,
        air_density=air_density,
        solidity=solidity,
        disc_area=disc_area,
    )


ROTORS = {
    "light": Rotor(59.03, 79.07, 120.0, 3.6, 0.6, 1.225, 0.05, 0.503),
    "zeng": rotor_from_design(),
}


def laden(rotor: Rotor, mass: Float[Array, ""]) -> Rotor:
    """The same rotor under so many times the weight W: Pi ~ W^1.5, v0 ~ W^0.5."""
    induced, velocity = rotor.induced * mass**1.5, rotor.induced_velocity * mass**0.5
    return rotor._replace(induced=induced, induced_velocity=velocity)  # pyright: ignore[reportArgumentType]


def propulsion_power(speed: Float[Array, "*shape"], rotor: Rotor) -> Float[Array, "*shape"]:
    """Power in W at `speed` in m/s."""
    v2 = speed * speed
    ratio = v2 / (2.0 * rotor.induced_velocity**2)
    blade = rotor.blade * (1.0 + 3.0 / rotor.tip_speed**2 * v2)
    # sqrt(1 + r^2) - r loses all digits at high speed; its reciprocal sqrt(1 + r^2) + r does not.
    induced = rotor.induced / jnp.sqrt(jnp.sqrt(1.0 + ratio * ratio) + ratio)
    drag = 0.5 * rotor.drag_ratio * rotor.air_density * rotor.solidity * rotor.disc_area
    return blade + induced + drag * v2 * speed
