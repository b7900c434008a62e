"""One episode played from its start, kept whole, to be looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.simulation.step import Policy, act_and_step
from trident.types import Env, HybridAction, Key, TimeStep


class Episode(NamedTuple):
    """T steps of one environment, as NumPy arrays; `states` has T + 1 entries."""

    states: Any  # the environment's private states
    first: TimeStep  # what the reset returned
    intended: HybridAction  # by the policy
    action: HybridAction  # executed
    steps: TimeStep  # what each step returned
    changed: Any  # [T, N] bool: actions altered by the shield


def play(env: Env, policy: Policy, key: Key, steps: int | None = None, shielded: bool = False) -> Episode:
    """Up to `steps` steps (the horizon, unless told), fewer if the episode ends before."""
    return play_many(env, policy, key[None], steps, shielded)[0]


def play_many(env: Env, policy: Policy, keys: Key, steps: int | None = None, shielded: bool = False) -> list[Episode]:
    """An episode for each key."""
    steps = env.spec.horizon if steps is None else min(steps, env.spec.horizon)

    def advance(carry: Any, step_key: Key) -> Any:
        env_state, last = carry
        act_key, env_key = jax.random.split(step_key)
        env_state, did = act_and_step(env, policy, act_key, env_key, env_state, last, shielded)
        return (env_state, did.after), (env_state, did.action, did.executed, did.after, did.changed)

    def run(key: Key) -> Any:
        reset_key, run_key = jax.random.split(key)
        first = env.reset(reset_key)
        _, (states, *rest) = jax.lax.scan(advance, first, jax.random.split(run_key, steps))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first[0], states), first[1], *rest

    if len(keys) == 1:
        return [_until_its_end(*jax.device_get(jax.jit(run)(keys[0])))]
    played = jax.device_get(jax.jit(jax.vmap(run))(keys))
    return [_until_its_end(*jax.tree.map(lambda x, i=i: x[i], played)) for i in range(len(keys))]


def _until_its_end(
    states: Any, first: TimeStep, intended: HybridAction, action: HybridAction, out: TimeStep, changed: Any
) -> Episode:
    ended = np.flatnonzero(np.asarray(out.terminated) | np.asarray(out.truncated))
    length = int(ended[0]) + 1 if ended.size else len(changed)
    cut = lambda tree, count: jax.tree.map(lambda x: x[:count], tree)  # noqa: E731
    return Episode(cut(states, length + 1), first, *cut((intended, action, out, changed), length))
