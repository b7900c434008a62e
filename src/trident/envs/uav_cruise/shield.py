"""The shield: who must return does so in time, and nobody comes too near another.

- battery: a role that could leave less than the way back takes is replaced by return;
- separation: UAVs brake or turn aside until the fleet is safe (`envs.keep_apart`), which is an invariant.

Separation goes first where the two disagree: a UAV whose way back is blocked for long by others may run empty.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from trident.envs.keep_apart import first_safe
from trident.envs.uav_cruise.config import CruiseConfig
from trident.envs.uav_cruise.dynamics import (
    RETURN,
    SCOUT,
    CruiseState,
    command,
    energy_home,
    fly,
    on_pad,
    return_speed,
    supply,
)
from trident.physics import flight
from trident.types import HybridAction

TURNS = np.array(
    [[1.0, 0.0], [0.6, 0.0], [0.8, 0.6], [0.8, -0.6], [0.3, 0.0], [0.0, 1.0], [0.0, -1.0], [-0.5, 0.8], [-0.5, -0.8]],
    np.float32,
)
"""Of the asked velocity: slower and turned aside, the least change first."""
SPARE = 0.05
"""Of the battery, beyond what the way back takes: turning round takes some, too."""


def shield(config: CruiseConfig, s: CruiseState, action: HybridAction) -> tuple[HybridAction, Bool[Array, "N"]]:
    """See the module's docstring."""
    c = config
    sent = send_back(c, s, action)
    asked = command(c, s, sent.mode, sent.params)
    left = jnp.stack([-asked[:, 1], asked[:, 0]], 1)
    along, aside = jnp.split(jnp.asarray(TURNS), 2, axis=1)
    options = flight.fenced(s.uav[:, None], along * asked[:, None] + aside * left[:, None], c.area, c.accel)
    after = flight.accelerate(s.velocity[:, None], options, c.accel, c.slot)
    best = first_safe(s.uav, s.velocity, after, c.accel, c.slot, c.separation, jnp.zeros((0, 3)))
    flown = jnp.take_along_axis(options, jnp.minimum(best, len(TURNS) - 1)[:, None, None], axis=1)[:, 0]
    flown = jnp.where((best == len(TURNS))[:, None], 0.0, flown)
    kept = (best == 0) | landing(c, s, sent)
    mode = jnp.where(kept, sent.mode, SCOUT).astype(action.mode.dtype)  # the role that flies any velocity
    params = jnp.where(kept[:, None], sent.params, flown)
    changed = (mode != action.mode) | (params != action.params).any(1)
    return HybridAction(mode, params), changed


def send_back(config: CruiseConfig, s: CruiseState, action: HybridAction) -> HybridAction:
    """Return in place of a role after which the battery would not last for the way back."""
    c = config
    uav, velocity = fly(c, s, command(c, s, action.mode, action.params))
    _, battery, _ = supply(c, s, uav, velocity, action.mode)
    stop = flight.stop_place(uav, velocity, c.accel, c.slot)
    lasts = battery >= energy_home(c, stop) + SPARE * jnp.asarray(c.of_kind("battery"))
    on_way = action.mode == RETURN
    speed = jnp.asarray(return_speed(c))
    back = jnp.stack([speed, jnp.zeros_like(speed)], 1)
    fine = lasts | (on_way & (action.params[:, 0] >= speed))
    mode = jnp.where(fine, action.mode, RETURN).astype(action.mode.dtype)
    return HybridAction(mode, jnp.where(fine[:, None], action.params, back))


def landing(config: CruiseConfig, s: CruiseState, action: HybridAction) -> Bool[Array, "N"]:
    """Who stands on its pad and stays there: pads are far enough from each other."""
    still = (jnp.abs(s.velocity).max(1) < 1e-3) & (jnp.abs(s.uav - jnp.asarray(config.pads)).max(1) < 1e-2)
    return on_pad(config, s.uav, action.mode) & still
