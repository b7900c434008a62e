"""Many environments x one policy -> Transition [T, E, ...], with automatic resets that keep the final observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from trident.types import Env, EnvState, HybridAction, Key, TimeStep, Transition

Policy = Callable[[Key, EnvState, TimeStep], tuple[HybridAction, dict[str, Any]]]
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
    before = actors.last
    action, extras = policy(act_key, actors.env_state, before)
    executed = action
    if shielded and env.shield is not None:
        executed, changed = env.shield(actors.env_state, action)
        extras = extras | {"shielded": changed}
    env_state, after = env.step(env_key, actors.env_state, executed)
    cut = actors.cut - 1
    truncated = (after.truncated | (cut <= 0)) & ~after.terminated
    record = Transition(
        before.obs, before.state, before.mode_mask, before.alive, action, executed,
        after.reward, after.cost, after.margin, after.terminated, truncated,
        after.obs, after.state, after.mode_mask, after.alive, after.metrics, extras,
        after.cost_attribution,
    )  # fmt: skip
    ended = after.terminated | truncated
    fresh_state, fresh = env.reset(reset_key)
    env_state, last = jax.tree.map(
        lambda new, old: jnp.where(ended, new, old), (fresh_state, fresh), (env_state, after)
    )
    return Actors(env_state, last, jnp.where(ended, NEVER, cut)), record
