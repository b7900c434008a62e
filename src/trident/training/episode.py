"""One episode played from its start, kept whole, to be looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.simulation import host
from trident.simulation.rollout import Policy
from trident.types import Env, HostEnv, HybridAction, TimeStep


class Episode(NamedTuple):
    """T steps of one environment, as NumPy arrays; `states` has T + 1 entries."""

    states: Any  # the environment's private states
    action: HybridAction  # executed
    steps: TimeStep  # what each step returned
    changed: Any  # [T, N] bool: actions altered by the shield


def play(env: Env, policy: Policy, key: Any, steps: int | None = None, shielded: bool = False) -> Episode:
    """Up to `steps` steps (the horizon, unless told), fewer if the episode ends before."""
    steps = env.spec.horizon if steps is None else min(steps, env.spec.horizon)

    def advance(carry: Any, step_key: Any) -> Any:
        env_state, last = carry
        act_key, env_key = jax.random.split(step_key)
        action, _ = policy(act_key, env_state, last)
        changed = jnp.zeros(env.spec.num_agents, bool)
        if shielded and env.shield is not None:
            action, changed = env.shield(env_state, action)
        after_state, after = env.step(env_key, env_state, action)
        return (after_state, after), (after_state, action, after, changed)

    def run(key: Any) -> Any:
        reset_key, run_key = jax.random.split(key)
        first = env.reset(reset_key)
        _, (states, *rest) = jax.lax.scan(advance, first, jax.random.split(run_key, steps))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first[0], states), *rest

    states, action, out, changed = jax.device_get(jax.jit(run)(key))
    ended = np.flatnonzero(out.terminated | out.truncated)
    length = int(ended[0]) + 1 if ended.size else steps
    cut = lambda tree, count: jax.tree.map(lambda x: x[:count], tree)  # noqa: E731
    return Episode(cut(states, length + 1), cut(action, length), cut(out, length), changed[:length])


def play_host(
    env: HostEnv, policy: host.HostPolicy, key: Any, steps: int | None = None, shielded: bool = False
) -> Episode:
    """As `play`, in a simulator outside JAX, with the same keys."""
    steps = env.spec.horizon if steps is None else min(steps, env.spec.horizon)
    reset_key, run_key = jax.random.split(key)
    last = host.reset(env, int(host.seeds_of(reset_key[None])[0]))
    act_keys = jax.vmap(lambda k: jax.random.split(k)[0])(jax.random.split(run_key, steps))
    states, rest = [env.env_state], []
    for t in range(steps):
        action, _ = policy(act_keys[t : t + 1], [env], jax.tree.map(lambda x: x[None], last))
        changed = np.zeros((1, env.spec.num_agents), bool)
        if shielded:
            action, changed = host.shield([env], action)
        last = host.step(env, host.row(action, 0))
        states.append(env.env_state)
        rest.append((host.row(action, 0), last, changed[0]))
        if last.terminated or last.truncated:
            break
    return Episode(host.stack(states), *host.stack(rest))
