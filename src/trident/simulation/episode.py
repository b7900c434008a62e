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
    action: HybridAction  # executed
    steps: TimeStep  # what each step returned
    changed: Any  # [T, N] bool: actions altered by the shield


def play(env: Env, policy: Policy, key: Key, steps: int | None = None, shielded: bool = False) -> Episode:
    """Up to `steps` steps (the horizon, unless told), fewer if the episode ends before."""
    steps = env.spec.horizon if steps is None else min(steps, env.spec.horizon)

    def advance(carry: Any, step_key: Key) -> Any:
        env_state, last = carry
        act_key, env_key = jax.random.split(step_key)
        env_state, did = act_and_step(env, policy, act_key, env_key, env_state, last, shielded)
        return (env_state, did.after), (env_state, did.executed, did.after, did.changed)

    def run(key: Key) -> Any:
        reset_key, run_key = jax.random.split(key)
        first = env.reset(reset_key)
        _, (states, *rest) = jax.lax.scan(advance, first, jax.random.split(run_key, steps))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first[0], states), *rest

    states, action, out, changed = jax.device_get(jax.jit(run)(key))
    ended = np.flatnonzero(out.terminated | out.truncated)
    length = int(ended[0]) + 1 if ended.size else steps

    def cut(tree, count):
        return jax.tree.map(lambda x: x[:count], tree)

    return Episode(cut(states, length + 1), cut(action, length), cut(out, length), changed[:length])
