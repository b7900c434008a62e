"""A base policy by one-step search: what an agent would do who tries its modes and parameters on a closed form of what
it sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.errors import TridentError
from trident.types import ActionSpec, BaseAction, BasePolicy

OwnSignals = Callable[[Float[Array, "O"], Array, Float[Array, "P"]], Float[Array, "1+K"]]
"""(own observation, mode, parameters in physical units) -> reward and costs as far as one agent can tell them."""
MOST_TRIALS = 4096


def search_base_policy(
    spec: ActionSpec,
    signals: OwnSignals,
    limits: Sequence[float],
    price: float = 10.0,
    points: int = 5,
    refinements: int = 5,
    sureness: float = 4.0,
) -> BasePolicy:
    """The reward less `price` for every unit of a cost above its limit, at best. Parameters are tried at `points`
    places of each box side, then `refinements` times around the best with half the distance; the best mode is preferred
    to the others by up to `sureness`, as far as its worth is above theirs in units of what modes differ by."""
    low, high, used = (np.asarray(table[0]) for table in (spec.low, spec.high, spec.used))
    if any((table != table[:1]).any() for table in (spec.low, spec.high, spec.used)):
        raise TridentError("search_base_policy is for agents with equal boxes: write a base policy for the others")
    trials = np.array(list(product(np.linspace(-1.0, 1.0, points), repeat=low.shape[1])), np.float32)
    if len(trials) > MOST_TRIALS:
        raise TridentError(f"{points} points for {low.shape[1]} parameters are {len(trials):,} trials: lower points")
    step = 2.0 / max(points - 1, 1)

    def worth(obs: Array, mode: Array, unit: Array) -> Array:
        params = jnp.asarray(low)[mode] + 0.5 * (unit + 1.0) * jnp.asarray(high - low)[mode]
        said = signals(obs, mode, jnp.where(jnp.asarray(used)[mode], params, 0.0))
        return said[0] - price * jnp.sum(jnp.maximum(said[1:] - jnp.asarray(limits, jnp.float32), 0.0))

    def best(obs: Array, mode: Array) -> tuple[Array, Array]:
        """Worth of a mode and its best parameters, in [-1, 1]."""
        centre, reach = jnp.zeros(low.shape[1]), 1.0
        for turn in range(1 + refinements):
            units = jnp.clip(centre + reach * trials, -1.0, 1.0)
            found = jax.vmap(lambda unit: worth(obs, mode, unit))(units)
            centre, reach = units[jnp.argmax(found)], step * 0.5**turn
        return worth(obs, mode, centre), centre

    def base_policy(obs: Float[Array, "O"]) -> BaseAction:
        worths, units = jax.vmap(lambda mode: best(obs, mode))(jnp.arange(low.shape[0]))
        apart = jnp.maximum(jnp.max(worths) - jnp.min(worths), 1e-6)
        preference = sureness * (worths - jnp.max(worths)) / apart + sureness
        return BaseAction(jax.lax.stop_gradient(preference), jax.lax.stop_gradient(units))

    return base_policy
