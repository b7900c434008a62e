"""A shield from a margin and a prediction: an action is changed as little as it takes for the predicted state to keep
its distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.types import ActionSpec, HybridAction, Shield, decode_params, encode_params

MOVED = 1e-4
"""Of a box side: less is no change."""


def least_change_shield(
    spec: ActionSpec,
    margin: Callable[[Float[Array, "S"], HybridAction], Float[Array, "K"]],
    fallback: Callable[[Float[Array, "S"]], HybridAction],
    read: Callable[[Any], Float[Array, "S"]] = lambda env_state: env_state,
    spare: float = 0.0,
    steps: int = 12,
) -> Shield:
    """`margin(state, action)`: the distance to each constraint where the action leads, say `distance(predict(s, a))`;
    positive is safe. An action whose margins are at least `spare` is left alone. Of the others the parameters move
    along the gradient of the worst margin, to first order the least change that mends it, again and again; where no
    parameters of these modes do, agents take `fallback` instead, if its worst margin is larger. `read` makes the state
    array of the environment's own state."""
    used = np.asarray(spec.used)

    def worst(state: Array, mode: Array, unit: Array) -> Array:
        return jnp.min(margin(state, HybridAction(mode, decode_params(spec, mode, unit))))

    def shield(env_state: Any, action: HybridAction) -> tuple[HybridAction, Array]:
        state = read(env_state)
        unit = encode_params(spec, action.mode, action.params)
        free = jnp.take_along_axis(jnp.asarray(used), action.mode[:, None, None], axis=1)[:, 0]

        def mend(_: int, unit: Array) -> Array:
            lack, gradient = jax.value_and_grad(lambda u: worst(state, action.mode, u))(unit)
            lack, gradient = (
                jnp.maximum(spare + 1e-3 - lack, 0.0),
                jnp.where(free & jnp.isfinite(gradient), gradient, 0.0),
            )
            # What stands at the end of its box and would go on outwards cannot help.
            gradient = jnp.where((unit * jnp.sign(gradient)) < 1.0, gradient, 0.0)
            return jnp.clip(unit + lack * gradient / jnp.maximum(jnp.sum(gradient**2), 1e-9), -1.0, 1.0)

        safe = worst(state, action.mode, unit) >= spare
        mended = jnp.where(safe, unit, jax.lax.fori_loop(0, steps, mend, unit))
        reached, last = worst(state, action.mode, mended), fallback(state)
        last_unit = encode_params(spec, last.mode, last.params)
        give_up = ~safe & (reached < spare) & (worst(state, last.mode, last_unit) > reached)
        moved = jnp.any(jnp.abs(mended - unit) > MOVED, axis=-1)
        other = (last.mode != action.mode) | jnp.any(jnp.abs(last_unit - unit) > MOVED, axis=-1)
        mode = jnp.where(give_up, last.mode, action.mode)
        params = jnp.where(give_up, last.params, decode_params(spec, action.mode, mended))
        changed = jnp.where(give_up, other, moved)
        return HybridAction(mode, jnp.where(changed[:, None], params, action.params)), changed

    return shield
