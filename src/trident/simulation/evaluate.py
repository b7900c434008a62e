"""Evaluation on fresh, whole episodes: the same program for learned and scripted policies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.simulation.rollout import Policy
from trident.types import Env, EnvSpec, Key


def evaluate(env: Env, policy: Policy, key: Key, episodes: int, shielded: bool = False) -> dict[str, Any]:
    """Play `episodes` episodes side by side, each to its end.

    Returns sums over each episode, [episodes]: `length`, `reward`, `cost` [episodes, K], `shielded`, and every
    metric of the environment. Steps after an episode's end count for nothing.
    """
    reset_key, run_key = jax.random.split(key)
    env_state, first = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))

    def advance(carry: Any, step_key: Any) -> Any:
        env_state, last, running = carry
        keys = jax.random.split(step_key, (episodes, 2))
        action, _ = jax.vmap(policy)(keys[:, 0], env_state, last)
        changed = jnp.zeros((episodes, env.spec.num_agents), bool)
        if shielded and env.shield is not None:
            action, changed = jax.vmap(env.shield)(env_state, action)
        env_state, after = jax.vmap(env.step)(keys[:, 1], env_state, action)
        step = {"length": jnp.ones(episodes), "reward": after.reward, "cost": after.cost}
        step |= {"shielded": jnp.mean(changed, axis=-1, dtype=jnp.float32)}
        step |= {f"metric/{k}": v for k, v in after.metrics.items()}
        step = {k: jnp.where(_like(running, v), v, 0.0) for k, v in step.items()}
        running = running & ~(after.terminated | after.truncated)
        return (env_state, after, running), step

    start = (env_state, first, jnp.ones(episodes, bool))
    _, steps = jax.lax.scan(advance, start, jax.random.split(run_key, env.spec.horizon))
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), steps)


def _like(flag: Any, value: Any) -> Any:
    return flag.reshape(flag.shape + (1,) * (value.ndim - 1))


def summarise(spec: EnvSpec, sums: dict[str, Any]) -> dict[str, float]:
    """Sums over episodes (any leading axes) -> one number each: reward and costs per step, metrics as declared."""
    total = {k: np.asarray(v, np.float64) for k, v in sums.items()}
    length = total["length"].sum()
    out = {"reward": total["reward"].sum() / length}
    for k, constraint in enumerate(spec.constraints):
        out[f"cost/{constraint.name}"] = total["cost"][..., k].sum() / length
    if "shielded" in total:
        out["shielded"] = total["shielded"].sum() / length
    for metric in spec.metrics:
        weight = total[f"metric/{metric.per}"].sum() if metric.per else length
        out[f"metric/{metric.name}"] = total[f"metric/{metric.name}"].sum() / max(weight, 1e-12)
    return {k: float(v) for k, v in out.items()}
