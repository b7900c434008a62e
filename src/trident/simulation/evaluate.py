"""Evaluation on fresh, whole episodes: the same program for learned and scripted policies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.simulation.step import Policy, act_and_step, measure
from trident.types import Env, EnvSpec, Key


def evaluate(env: Env, policy: Policy, key: Key, episodes: int, shielded: bool = False) -> dict[str, Any]:
    """Play `episodes` episodes side by side, each to its end.

    Returns sums over each episode, [episodes]: `length`, `reward`, `cost` [episodes, K], `shielded`, steps with a
    violation (`violated`, and `caused` [episodes, N] by each agent), and every metric of the environment. Steps after
    an episode's end count for nothing.
    """
    reset_key, run_key = jax.random.split(key)
    env_state, first = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))

    def one(carry: Any, keys: Any) -> Any:
        env_state, last, running = carry
        env_state, did = act_and_step(env, policy, keys[0], keys[1], env_state, last, shielded)
        values = {name: jnp.where(running, value, 0.0) for name, value in measure(did).items()}
        return (env_state, did.after, running & ~(did.after.terminated | did.after.truncated)), values

    def advance(carry: Any, step_key: Any) -> Any:
        return jax.vmap(one)(carry, jax.random.split(step_key, (episodes, 2)))

    start = (env_state, first, jnp.ones(episodes, bool))
    _, steps = jax.lax.scan(advance, start, jax.random.split(run_key, env.spec.horizon))
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), steps)


def summarise(spec: EnvSpec, sums: dict[str, Any]) -> dict[str, float]:
    """Sums over episodes (any leading axes) -> one number each: reward and costs per step, metrics as declared."""
    total = {k: np.asarray(v, np.float64) for k, v in sums.items()}
    length = total["length"].sum()
    out = {"reward": total["reward"].sum() / length}
    for k, constraint in enumerate(spec.constraints):
        out[f"cost/{constraint.name}"] = total["cost"][..., k].sum() / length
    if "shielded" in total:
        out["shielded"] = total["shielded"].sum() / length
    if "violated" in total and spec.constraints:
        out |= _safety(spec, total)
    for metric in spec.metrics:
        weight = total[f"metric/{metric.per}"].sum() if metric.per else length
        out[f"metric/{metric.name}"] = total[f"metric/{metric.name}"].sum() / max(weight, 1e-12)
    return {k: float(v) for k, v in out.items()}


def _safety(spec: EnvSpec, total: dict[str, Any]) -> dict[str, float]:
    """Of single episodes: the share of episodes, and of agents, without any violation; the worst mean cost of one."""
    cost = total["cost"] / total["length"][..., None]
    worst = {f"worst/{c.name}": cost[..., k].max() for k, c in enumerate(spec.constraints)}
    return {"safe/episodes": (total["violated"] == 0).mean(), "safe/agents": (total["caused"] == 0).mean(), **worst}
