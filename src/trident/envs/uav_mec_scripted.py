"""Scripted policies for UAV-MEC."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.uav_mec_config import UavMecConfig
from trident.envs.uav_mec_model import MecState, flight_params
from trident.types import HybridAction, Key, ScriptedPolicy, Shield


def random_policy(config: UavMecConfig, key: Key, state: MecState) -> HybridAction:
    """Mode, speed, heading and ratio uniform."""
    k_mode, k_fly = jax.random.split(key)
    n = config.num_uavs
    mode = jax.random.randint(k_mode, (n,), 0, config.num_fogs + 1)
    speed, heading, ratio = jax.random.uniform(k_fly, (3, n))
    heading = (2.0 * heading - 1.0) * np.pi
    velocity = config.max_speed * speed[:, None] * jnp.stack([jnp.cos(heading), jnp.sin(heading)], -1)
    ratio = jnp.where(mode > 0, ratio, 0.0)
    return HybridAction(mode, jnp.concatenate([flight_params(config, velocity), ratio[:, None]], -1))


def policies(config: UavMecConfig) -> dict[str, ScriptedPolicy]:
    return {"random": partial(random_policy, config)}


def build_shield(config: UavMecConfig) -> Shield | None:
    return None
