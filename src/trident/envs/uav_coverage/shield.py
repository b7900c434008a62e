"""The shield: the least change of a joint action after which the UAVs can still keep their separation.

UAVs brake, or fly slower or beside where they were asked to, until the fleet is safe (`envs.keep_apart`: the ways that
braking takes keep the separation from each other and clear of obstacles). Sensing is left as it is.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from trident.envs.keep_apart import first_safe
from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import (
    HOLD,
    MOVE,
    CoverageState,
    by_sector,
    command,
    detect,
    discs,
    sector_in_need,
    squares,
    together,
)
from trident.physics import flight
from trident.types import HybridAction

TURNS = np.array([[1.0, 0.0], [0.6, 0.0], [0.8, 0.6], [0.8, -0.6], [0.3, 0.0], [0.0, 1.0], [0.0, -1.0]], np.float32)
"""Of the asked velocity: slower and turned aside, the least change first."""


def shield(config: CoverageConfig, s: CoverageState, action: HybridAction) -> tuple[HybridAction, Bool[Array, "N"]]:
    """See the module's docstring."""
    c = config
    quality = by_sector(c, together(detect(c, squares(s.uav, jnp.asarray(c.places)), s.radius)))
    need = sector_in_need(c, s.uav, quality)
    asked = command(c, s, action.mode, action.params, need)
    options = flight.fenced(s.uav[:, None], turned(asked), c.area, c.accel)  # [N, C, 2]
    after = flight.accelerate(s.velocity[:, None], options, c.accel, c.slot)
    best = first_safe(s.uav, s.velocity, after, c.accel, c.slot, c.separation, discs(c, s.obstacle))
    kept = (best == 0) | ((best == len(TURNS)) & (action.mode == HOLD))
    brakes = best == len(TURNS)
    flown = jnp.take_along_axis(options, jnp.minimum(best, len(TURNS) - 1)[:, None, None], axis=1)[:, 0]
    mode = jnp.where(brakes, HOLD, MOVE).astype(action.mode.dtype)
    moved = jnp.where(brakes[:, None], 0.0, flown)
    params = jnp.concatenate([moved, action.params[:, 2:]], 1)
    out = HybridAction(jnp.where(kept, action.mode, mode), jnp.where(kept[:, None], action.params, params))
    return out, ~kept


def turned(velocity: Float[Array, "N 2"]) -> Float[Array, "N C 2"]:
    """The tries: shares along the velocity and to its left."""
    left = jnp.stack([-velocity[:, 1], velocity[:, 0]], 1)
    along, aside = jnp.split(jnp.asarray(TURNS), 2, axis=1)
    return along * velocity[:, None] + aside * left[:, None]
