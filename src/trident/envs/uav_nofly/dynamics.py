"""The mechanics of the no-fly scenario that the environment, its physics, shield and scripted policies share.

Velocity commands go to an autopilot, which moves a reference (a double integrator with an acceleration limit); the UAV
keeps within a tube around it, pushed about by changes of the wind.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.maps import NEIGHBOURS, Maps
from trident.physics import flight, polygons, propulsion
from trident.physics.flight import length

HOLD = 0
"""The mode that brakes to a stop; mode 1 + k flies to the k-th neighbour."""
EDGES = np.concatenate([np.zeros((1, 2), np.int32), NEIGHBOURS.astype(np.int32)])
"""Offset of the chosen cell from the present one, by mode."""


class NoFlyState(NamedTuple):
    """Everything that evolves, the map's number, and what the last step did."""

    place: Float[Array, "2"]  # of the autopilot's reference
    velocity: Float[Array, "2"]
    offset: Float[Array, "2"]  # of the UAV from its reference
    wind: Float[Array, "2"]
    mean_wind: Float[Array, "2"]  # of the episode
    map: Int[Array, ""]
    goal: Float[Array, "2"]
    clock: Int[Array, ""]
    mode: Int[Array, ""]
    waypoint: Float[Array, "2"]  # centre of the cell chosen last
    clearance: Float[Array, ""]  # least signed distance to a zone during the last step, m
    power: Float[Array, ""]  # mean power of the last step, W
    arrived: Bool[Array, ""]

    @property
    def uav(self) -> Float[Array, "2"]:
        """Where the UAV really is."""
        return self.place + self.offset


# --- commands -------------------------------------------------------------------------------------


def cell_of(config: NoFlyConfig, place: Float[Array, "2"]) -> Int[Array, "2"]:
    """Column and row, the nearest ones for places outside."""
    return jnp.clip((place / config.cell).astype(jnp.int32), 0, config.grid - 1)


def waypoint_of(config: NoFlyConfig, place: Float[Array, "2"], mode: Int[Array, ""]) -> Float[Array, "2"]:
    """Centre of the chosen cell."""
    return config.cell * (cell_of(config, place) + jnp.asarray(EDGES)[mode] + 0.5)


def command(
    config: NoFlyConfig, place: Float[Array, "2"], mode: Int[Array, ""], params: Float[Array, "2"]
) -> Float[Array, "2"]:
    """Velocity asked for: `along` towards the waypoint and `across` to its left; none in hold."""
    way = waypoint_of(config, place, mode) - place
    east, north = way / length(way)
    wanted = params[0] * jnp.stack([east, north]) + params[1] * jnp.stack([-north, east])
    return jnp.where(mode == HOLD, 0.0, wanted)


def fly(
    config: NoFlyConfig, place: Float[Array, "2"], velocity: Float[Array, "2"], mode: Int[Array, ""], params: Array
) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """Reference and velocity after a step."""
    c = config
    wanted = flight.fenced(place, command(c, place, mode, params), c.area, c.accel)
    after = flight.accelerate(velocity, wanted, c.accel, c.step)
    return flight.travel(place, velocity, after, c.step), after


# --- the air --------------------------------------------------------------------------------------


def blow(
    config: NoFlyConfig, wind: Float[Array, "2"], mean: Float[Array, "2"], noise: Float[Array, "2"] | float
) -> Float[Array, "2"]:
    """Gauss-Markov gusts around the episode's mean wind."""
    c, m = config, config.wind_memory
    return flight.within(mean + m * (wind - mean) + c.gust * (1.0 - m * m) ** 0.5 * noise, c.max_wind)


def push(
    config: NoFlyConfig, offset: Float[Array, "2"], before: Float[Array, "2"], wind: Float[Array, "2"]
) -> Float[Array, "2"]:
    """Offset from the reference: the autopilot takes it back, changes of the wind add to it, the tube bounds it."""
    c = config
    return flight.within(c.offset_memory * offset + c.offset_lag * (wind - before), c.tube)


def power_of(config: NoFlyConfig, ground: Float[Array, "*n 2"], wind: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """Rotors work against the air, not the ground, W."""
    return propulsion.propulsion_power(length(ground - wind), propulsion.ROTORS[config.rotor])


# --- the map --------------------------------------------------------------------------------------


def clearance(zones: Float[Array, "Z V 2"], p: Float[Array, "2"], q: Float[Array, "2"]) -> Float[Array, ""]:
    """Least signed distance of the way p-q to a zone."""
    return polygons.stable_min(polygons.clearances(p, q, zones), 0)


def to_go(config: NoFlyConfig, maps: Maps, number: Int[Array, ""], place: Float[Array, "2"]) -> Float[Array, ""]:
    """Length of the shortest way to the goal, bilinear between the centres of cells, m."""
    c = config
    at = jnp.clip(place / c.cell - 0.5, 0.0, c.grid - 1.0)
    corner = jnp.minimum(at.astype(jnp.int32), c.grid - 2)
    east, north = at - corner
    table = jnp.asarray(maps.to_go)
    pick = lambda i, j: table[number, corner[0] + i, corner[1] + j]  # noqa: E731
    south_side = (1.0 - east) * pick(0, 0) + east * pick(1, 0)
    north_side = (1.0 - east) * pick(0, 1) + east * pick(1, 1)
    return (1.0 - north) * south_side + north * north_side


def mode_mask(config: NoFlyConfig, maps: Maps, number: Int[Array, ""], place: Float[Array, "2"]) -> Bool[Array, "9"]:
    column, row = cell_of(config, place)
    return jnp.asarray(maps.allowed)[number, column, row]


# --- a step ---------------------------------------------------------------------------------------


def transition(
    config: NoFlyConfig, maps: Maps, s: NoFlyState, noise: Float[Array, "2"], mode: Int[Array, ""], params: Array
) -> NoFlyState:
    """The deterministic part of a step: fly, be pushed about, arrive."""
    c = config
    place, velocity = fly(c, s.place, s.velocity, mode, params)
    wind = blow(c, s.wind, s.mean_wind, noise)
    offset = push(c, s.offset, s.wind, wind)
    uav = place + offset
    return s._replace(
        place=place,
        velocity=velocity,
        offset=offset,
        wind=wind,
        clock=s.clock + 1,
        mode=mode,
        waypoint=waypoint_of(c, s.place, mode),
        clearance=clearance(jnp.asarray(maps.zones)[s.map], s.uav, uav),
        power=power_of(c, 0.5 * (s.velocity + velocity), wind),
        arrived=length(uav - s.goal) <= c.goal_radius,
    )
