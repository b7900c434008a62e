"""The UAV-MEC global state array, and closed-form physics on it."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.envs.uav_mec_config import UavMecConfig
from trident.envs.uav_mec_model import MecState
from trident.types import Physics

SPEED_SCALE = 10.0  # m/s, of users and hotspots


def pack(config: UavMecConfig, s: MecState) -> Float[Array, "S"]:
    """State -> the global state array."""
    c = config
    fog_load = (s.link.sum(1)[:, None] * (s.mode[:, None] == jnp.arange(1, c.num_fogs + 1))).sum(0)
    parts = [
        2.0 * s.uav / c.area - 1.0,
        s.uav_vel / c.max_speed,
        2.0 * s.user / c.area - 1.0,
        s.user_vel / SPEED_SCALE,
        2.0 * s.hot / c.area - 1.0,
        s.hot_vel / SPEED_SCALE,
        s.reach / c.service_radius,
        s.link.sum(1) / c.capacity,
        jnp.clip(1.0 - s.energy / c.energy_max, -1.0, 1.0),
        fog_load / c.fog_machines,
        jnp.maximum(c.grace - s.slot, 0)[None] / max(c.grace, 1),
    ]
    return jnp.concatenate([p.ravel() for p in parts])


def build_physics(config: UavMecConfig) -> Physics | None:
    return None
