"""Returns and targets along a recorded trajectory, for any stack of signals (reward and costs alike).

Arrays are [T, ...] with time first. The flags `terminated` and `ended` may lack trailing axes of the signals,
so flags [T, E] go with signals [T, E, 1+K].
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.types import Transition

Discount = float | Float[Array, "..."]


def gae(
    signals: Float[Array, "T *batch"],
    values: Float[Array, "T *batch"],
    next_values: Float[Array, "T *batch"],
    terminated: Bool[Array, "T ..."],
    ended: Bool[Array, "T ..."],
    discount: Discount,
    lam: Discount,
) -> Float[Array, "T *batch"]:
    """Generalised advantage estimates; advantage + value is the lambda-return.

        delta_t = r_t + discount (1 - terminated_t) V(s'_t) - V(s_t)
        A_t     = delta_t + discount lam (1 - ended_t) A_{t+1},     A_T = 0

    `next_values` is the value of what step t really led to: at an episode's end the FINAL observation, not the
    first one of the next episode. `ended` = terminated | truncated: a time limit cuts the trace but still
    bootstraps, because the world would have gone on; a termination does neither.
    """
    delta = td_target(signals, next_values, terminated, discount) - values
    decay = jnp.where(_like(ended, signals), 0.0, discount * lam).astype(signals.dtype)
    decay = jnp.broadcast_to(decay, signals.shape)

    def backwards(following: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = step[0] + step[1] * following
        return advantage, advantage

    _, advantages = jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)
    return advantages


def td_target(
    signals: Float[Array, "*batch"],
    next_values: Float[Array, "*batch"],
    terminated: Bool[Array, "..."],
    discount: Discount,
) -> Float[Array, "*batch"]:
    """r + discount (1 - terminated) V(s'): a truncated step bootstraps like any other."""
    return signals + jnp.where(_like(terminated, signals), 0.0, discount * next_values).astype(signals.dtype)


def explained_variance(
    prediction: Float[Array, "*batch"], target: Float[Array, "*batch"], axis: int | tuple[int, ...] | None = None
) -> Float[Array, "..."]:
    """1 - Var[target - prediction] / Var[target]: 1 is perfect, 0 no better than a constant; 0 if the target is
    constant. Blind to a constant offset, unlike R^2."""
    total = jnp.var(target, axis=axis)
    left = jnp.var(target - prediction, axis=axis)
    return jnp.where(total > 0, 1.0 - left / jnp.where(total > 0, total, 1.0), 0.0)


def _like(flags: Array, signals: Array) -> Array:
    return flags.reshape(*flags.shape, *(1,) * (signals.ndim - flags.ndim))


def discounted_tail(
    signals: Float[Array, "T E J"], ended: Bool[Array, "T E"], discount: Discount
) -> tuple[Float[Array, "T E J"], Float[Array, "T E J"]]:
    """Discounted sums to the end of the rollout or episode, and the discounted number of *future* steps in them."""

    def back(carry: Any, row: Any) -> Any:
        total, weight = carry
        signal, over = row
        live = jnp.where(over[:, None], 0.0, discount)
        total = signal + live * total
        weight = live * (1.0 + weight)
        return (total, weight), (total, weight)

    ended = ended.at[-1].set(True)  # the rollout's last step has no future in it
    start = (jnp.zeros_like(signals[0]), jnp.zeros_like(signals[0]))
    _, (total, weight) = jax.lax.scan(back, start, (signals, ended), reverse=True)
    return total, weight


def return_scale(roll: Transition, discount: float) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and spread of the rewards' returns, over the rollout's first half, where they are hardly cut short."""
    total, _ = discounted_tail(roll.reward[..., None], roll.terminated | roll.truncated, jnp.array([discount]))
    total = total[: max(total.shape[0] // 2, 1)]
    return jnp.mean(total), jnp.maximum(jnp.std(total), 0.1)
