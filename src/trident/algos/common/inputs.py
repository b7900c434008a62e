"""What central critics see."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trident.types import ActionSpec, EnvSpec, Moments, Transition, encode_params


def value_input(roll: Transition | Moments) -> Float[Array, "*batch X"]:
    """A central value sees the global state and what every agent sees."""
    return jnp.concatenate([roll.state, roll.obs.reshape(*roll.obs.shape[:-2], -1)], axis=-1)


def encode_action(
    spec: ActionSpec, mode: Int[Array, "*batch N"], params: Float[Array, "*batch N P"]
) -> Float[Array, "*batch N M+P"]:
    """One-hot mode and parameters in [-1, 1], per agent."""
    return jnp.concatenate([jax.nn.one_hot(mode, spec.num_modes), encode_params(spec, mode, params)], axis=-1)


def q_input_size(spec: EnvSpec) -> int:
    per_agent = spec.obs_dim + spec.action.num_modes + spec.action.num_params
    return spec.state_dim + spec.num_agents * per_agent


def q_input(
    state: Float[Array, "*batch S"],
    obs: Float[Array, "*batch N O"],
    encoded: Float[Array, "*batch N A"],
) -> Float[Array, "*batch X"]:
    """Central critics see the global state, what every agent sees and what every agent does."""
    return jnp.concatenate([state, obs.reshape(*obs.shape[:-2], -1), encoded.reshape(*encoded.shape[:-2], -1)], axis=-1)
