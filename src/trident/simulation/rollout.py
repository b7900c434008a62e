"""Many environments x one policy -> Transition [T, E, ...], with automatic resets that keep the final observation."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from trident.simulation.step import Policy, act_and_step, transition
from trident.types import Env, EnvState, Key, TimeStep, Transition

NEVER = 2**30


class Actors(NamedTuple):
    """E environments in mid-episode."""

    env_state: EnvState
    last: TimeStep
    cut: Int[Array, "E"]  # steps until the first episode is cut short, so that resets are staggered


def start(env: Env, key: Key, num_envs: int, stagger: bool = True) -> Actors:
    """Fresh episodes. Staggered: the first episode of environment e is truncated after (e + 1)/E of the horizon;
    otherwise every environment would stand at the same time of its episode in every round."""
    env_state, last = jax.vmap(env.reset)(jax.random.split(key, num_envs))
    cut = jnp.ceil((jnp.arange(num_envs) + 1) * env.spec.horizon / num_envs).astype(jnp.int32)
    return Actors(env_state, last, cut if stagger else jnp.full(num_envs, NEVER, jnp.int32))


def rollout(
    env: Env, policy: Policy, key: Key, actors: Actors, steps: int, shielded: bool = False
) -> tuple[Actors, Transition]:
    """Advance all environments by `steps`; episodes that end are reset, and their last observation is recorded."""
    num_envs = actors.cut.shape[0]
    keys = jax.random.split(key, (steps, num_envs))

    def advance(carry: Actors, step_keys: Any) -> tuple[Actors, Transition]:
        return jax.vmap(lambda a, k: _step(env, policy, shielded, a, k))(carry, step_keys)

    return jax.lax.scan(advance, actors, keys)


def _step(env: Env, policy: Policy, shielded: bool, actors: Actors, key: Key) -> tuple[Actors, Transition]:
    """One environment, one step."""
    act_key, env_key, reset_key = jax.random.split(key, 3)
    env_state, did = act_and_step(env, policy, act_key, env_key, actors.env_state, actors.last, shielded)
    after, cut = did.after, actors.cut - 1
    truncated = (after.truncated | (cut <= 0)) & ~after.terminated
    ended = after.terminated | truncated
    fresh_state, fresh = env.reset(reset_key)
    env_state, last = jax.tree.map(
        lambda new, old: jnp.where(ended, new, old), (fresh_state, fresh), (env_state, after)
    )
    record = transition(actors.last, did, truncated, shielded)
    return Actors(env_state, last, jnp.where(ended, NEVER, cut)), record
