"""Actions drawn at random: the policy that every environment has."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from trident.types import ActionSpec, HybridAction, Key, decode_params


def random_action(key: Key, spec: ActionSpec, mode_mask: Bool[Array, "N M"]) -> HybridAction:
    """An allowed mode per agent and parameters in its box, all equally likely."""
    mode_key, param_key = jax.random.split(key)
    agents, modes, params = spec.low.shape
    lots = jax.random.uniform(mode_key, (agents, modes))
    return choose(spec, mode_mask, lots, jax.random.uniform(param_key, (agents, params), minval=-1.0, maxval=1.0))


def choose(spec: ActionSpec, mode_mask: Any, lots: Any, unit: Any) -> HybridAction:
    """The allowed mode with the highest lot [N, M], at `unit` [N, P] in [-1, 1] of its box."""
    mode = jnp.argmax(jnp.where(mode_mask, lots, -1.0), axis=-1).astype(jnp.int32)
    return HybridAction(mode, decode_params(spec, mode, unit))
