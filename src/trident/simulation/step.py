"""One step of one environment: the policy acts, the shield may change it, the environment moves on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from trident.types import Env, EnvState, HybridAction, Key, TimeStep, Transition

Policy = Callable[[Key, EnvState, TimeStep], tuple[HybridAction, dict[str, Any]]]


class Step(NamedTuple):
    """What was done and what came of it."""

    action: HybridAction  # the policy's
    executed: HybridAction  # what the shield made of it
    changed: Any  # [N] bool: by the shield
    extras: dict[str, Any]
    after: TimeStep


def scripted(env: Env, name: str) -> Policy:
    """A scripted policy sees its environment's private state."""
    return lambda key, env_state, _: (env.scripted[name](key, env_state), {})


def act_and_step(
    env: Env, policy: Policy, act_key: Key, env_key: Key, env_state: EnvState, last: TimeStep, shielded: bool
) -> tuple[EnvState, Step]:
    """`host.act_and_step` is the same for simulators outside JAX."""
    action, extras = policy(act_key, env_state, last)
    executed, changed = action, jnp.zeros(env.spec.num_agents, bool)
    if shielded and env.shield is not None:
        executed, changed = env.shield(env_state, action)
    env_state, after = env.step(env_key, env_state, executed)
    return env_state, Step(action, executed, changed, extras, after)


def transition(before: TimeStep, did: Step, truncated: Any, shielded: bool) -> Transition:
    """A step as learners are given it."""
    extras, after = did.extras | ({"shielded": did.changed} if shielded else {}), did.after
    return Transition(
        before.obs,
        before.state,
        before.mode_mask,
        before.alive,
        did.action,
        did.executed,
        after.reward,
        after.cost,
        after.margin,
        after.terminated,
        truncated,
        after.obs,
        after.state,
        after.mode_mask,
        after.alive,
        after.metrics,
        extras,
        after.cost_attribution,
    )


def measure(did: Step) -> dict[str, Any]:
    """A step as evaluations add it up. Violations are those of the margins; where nobody is named, all caused them."""
    after, changed = did.after, did.changed.mean(axis=-1, dtype=np.float32)
    violated = after.margin < 0.0
    named = True if after.cost_attribution is None else after.cost_attribution
    caused = (named & violated & np.ones((*did.changed.shape, 1), bool)).any(axis=-1).astype(np.float32)
    values = {"length": np.float32(1.0), "reward": after.reward, "cost": after.cost, "shielded": changed}
    values |= {"violated": violated.any(axis=-1).astype(np.float32), "caused": caused}
    return values | {f"metric/{name}": value for name, value in after.metrics.items()}
