"""Returns and targets along a recorded trajectory, for any stack of signals (reward and costs alike).

Arrays are [T, ...] with time first. The flags `terminated` and `ended` may lack trailing axes of the signals,
so flags [T, E] go with signals [T, E, 1+K].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

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
