"""The shield: the least change of an action after which the UAV can still stop before every zone.

A state is safe if the segment from the reference to where full braking would stop it keeps the autopilot's tube clear
of all zones. An action passes if the step's way and the state it leads to are safe. If not, slower and differently
slanted velocities towards the same waypoint are tried, the nearest to the asked one first; the last resort is to brake.
From a safe state braking leads along the rest of its own safe segment (`physics.flight`), so safety is an invariant,
whatever wind and policy do: the UAV is within the tube, and the tube is clear.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.dynamics import HOLD, NoFlyState, clearance, fly
from trident.envs.uav_nofly.maps import Maps
from trident.physics import flight
from trident.types import HybridAction

SPARE = 0.02
"""Clearance beyond the tube, m: what rounding may take away."""
SLOWER = np.array([1.0, 0.75, 0.5, 0.25, 0.0], np.float32)
"""Shares of the asked speed that are tried."""
SLANTED = np.array([0.0, -0.5, 0.5, -1.0, 1.0], np.float32)
"""Changes of the speed across that are tried, in shares of the largest."""


def is_safe(
    config: NoFlyConfig, zones: Float[Array, "Z V 2"], place: Float[Array, "2"], velocity: Float[Array, "2"]
) -> Bool[Array, ""]:
    """Whether the tube around the way that full braking takes is clear."""
    stop = flight.stop_place(place, velocity, config.accel, config.step)
    return clearance(zones, place, stop) >= config.tube + SPARE


def keeps_safe(
    config: NoFlyConfig, zones: Float[Array, "Z V 2"], s: NoFlyState, mode: Int[Array, ""], params: Float[Array, "2"]
) -> Bool[Array, ""]:
    """Whether the way of a step and the state after it are safe."""
    place, velocity = fly(config, s.place, s.velocity, mode, params)
    on_way = clearance(zones, s.place, place) >= config.tube + SPARE
    return on_way & is_safe(config, zones, place, velocity)


def shield(
    config: NoFlyConfig, maps: Maps, s: NoFlyState, action: HybridAction
) -> tuple[HybridAction, Bool[Array, "1"]]:
    """See the module's docstring."""
    c, zones = config, jnp.asarray(maps.zones)[s.map]
    mode, asked = action.mode[0], action.params[0]
    along = asked[0] * SLOWER[:, None] + 0.0 * SLANTED
    across = jnp.clip(asked[1] + c.max_across * SLANTED + 0.0 * SLOWER[:, None], -c.max_across, c.max_across)
    tries = jnp.stack([along, across], -1).reshape(-1, 2)
    fine = jax.vmap(lambda params: keeps_safe(c, zones, s, mode, params))(tries)
    change = jnp.where(fine, ((tries - asked) ** 2).sum(-1), jnp.inf)
    best = jnp.argmin(change)
    brakes = ~fine.any()
    as_asked = fine[0] | (mode == HOLD)
    chosen = jnp.where(brakes, HOLD, mode).astype(mode.dtype)
    params = jnp.where(brakes, 0.0, tries[best])
    out = HybridAction(jnp.where(as_asked, mode, chosen)[None], jnp.where(as_asked, asked, params)[None])
    return out, ~as_asked[None]
