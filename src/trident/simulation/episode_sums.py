"""Sums over whole episodes, carried from round to round.

At the start of a run all environments are in the same part of their episodes, so that a round's mean reward shows the
episode's own course, whatever the policy does. A mean over whole episodes does not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.types import Metrics, Transition


class EpisodeSums(NamedTuple):
    """The episodes under way in E environments."""

    steps: Float[Array, "E"]
    signals: Float[Array, "E 1+K"]  # reward and costs so far
    whole: Bool[Array, "E"]  # an environment's first episode is not: staggering cuts it short


def start_sums(num_envs: int, num_constraints: int) -> EpisodeSums:
    return EpisodeSums(jnp.zeros(num_envs), jnp.zeros((num_envs, 1 + num_constraints)), jnp.zeros(num_envs, bool))


def add_rollout(sums: EpisodeSums, data: Transition) -> tuple[EpisodeSums, Metrics]:
    """The sums after a rollout [T, E]; and `episode_reward` and `episode_cost` of the whole episodes that ended in it,
    summed, with `episode_steps` to divide by (none, if none ended)."""
    per_step = data.signals, data.terminated | data.truncated
    sums, (steps, signals) = jax.lax.scan(_step, sums, per_step)
    total = jnp.sum(signals, axis=(0, 1))
    return sums, {"episode_steps": jnp.sum(steps), "episode_reward": total[0], "episode_cost": total[1:]}


def _step(sums: EpisodeSums, per_step: Any) -> tuple[EpisodeSums, Any]:
    signals, ended = per_step
    steps, signals = sums.steps + 1.0, sums.signals + signals
    count = ended & sums.whole
    of_ended = jnp.where(count, steps, 0.0), jnp.where(count[:, None], signals, 0.0)
    steps, signals = jnp.where(ended, 0.0, steps), jnp.where(ended[:, None], 0.0, signals)
    return EpisodeSums(steps, signals, sums.whole | ended), of_ended
