"""Evaluation in a simulator outside JAX: the same sums as `evaluate`, one episode after another."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import numpy as np

from trident.simulation.host import TELL_EVERY, HostPolicy, Say, as_numpy, reset, row, seeds_of, shield, stack, step
from trident.types import HostEnv, Key


def evaluate(
    env: HostEnv, policy: HostPolicy, key: Key, episodes: int, shielded: bool = False, say: Say | None = None
) -> dict[str, Any]:
    """Sums over each episode, as `trident.simulation.evaluate` gives them, with the same keys."""
    seeds, act_keys = _keys(key, episodes, env.spec.horizon)
    seeds = np.asarray(seeds)
    told, sums = time.monotonic(), []
    for e in range(episodes):
        if say is not None and time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            say(f"{env.spec.name}: {e} of {episodes} episodes")
        sums.append(_episode(env, policy, act_keys[:, e], int(seeds[e]), shielded))
    return stack(sums)


def _episode(env: HostEnv, policy: HostPolicy, keys: Key, seed: int, shielded: bool) -> dict[str, Any]:
    last, rows = reset(env, seed), []
    for t in range(env.spec.horizon):
        action, _ = policy(keys[t : t + 1], [env], jax.tree.map(lambda x: x[None], last))
        changed = np.zeros((1, env.spec.num_agents), bool)
        if shielded:
            action, changed = shield([env], action)
        last = step(env, row(action, 0))
        values = {"length": 1.0, "reward": last.reward, "cost": last.cost, "shielded": changed.mean()}
        rows.append(as_numpy(values | {f"metric/{k}": v for k, v in last.metrics.items()}))
        if last.terminated or last.truncated:
            break
    return jax.tree.map(lambda x: x.sum(axis=0, dtype=np.float32), stack(rows))


@partial(jax.jit, static_argnums=(1, 2))
def _keys(key: Key, episodes: int, horizon: int) -> tuple[Any, Key]:
    """Seeds of the resets [episodes] and keys of the policy [T, episodes]."""
    reset_key, run_key = jax.random.split(key)
    seeds = seeds_of(jax.random.split(reset_key, episodes))
    steps = jax.random.split(run_key, horizon)
    return seeds, jax.vmap(lambda k: jax.random.split(k, (episodes, 2))[:, 0])(steps)
