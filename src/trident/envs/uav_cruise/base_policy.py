"""What a UAV can tell from its own observation alone: the usual role of its kind, to its own point, and the way back
while the battery lasts. It keeps away from whom it sees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.uav_cruise.config import NAMES, CruiseConfig
from trident.envs.uav_cruise.dynamics import PATROL, RELAY, RETURN, SCOUT, give_way
from trident.envs.uav_cruise.physics import FULL, HOME, LOW, RELAY_SHARE, in_frame
from trident.physics.flight import length
from trident.types import ActionSpec, BaseAction

CONFIDENCE = 4.0
"""Logit of the suggested role; the others are at 0."""


def base_policy(config: CruiseConfig, spec: ActionSpec, obs: Float[Array, "O"]) -> BaseAction:
    c = config
    kind = obs[0:3]
    low, high = boxes(c, spec, kind)
    top = high[PATROL, 0]
    spare, battery, payload, back = obs[7], obs[8], obs[9], obs[10] > 0.5
    carrier = kind[2] > 0.5
    returns = (spare < LOW) | (carrier & (payload < 0.1)) | (back & (battery < FULL))
    role = jnp.where(returns, RETURN, jnp.argmax(kind @ jnp.eye(4)[jnp.array([RELAY, SCOUT, PATROL])]))
    others = obs[24 : 24 + 4 * min(3, c.num_uavs - 1)].reshape(-1, 4)

    def clear_of_others(wanted: Float[Array, "2"]) -> Float[Array, "2"]:
        return give_way(c, wanted, c.area * others[:, :2], others[:, 3])

    way, home = c.area * obs[13:15], c.area * obs[15:17]
    ahead, homeward = (w / jnp.maximum(length(w), 1.0) for w in (way, home))
    on_way = in_frame(c, clear_of_others(0.8 * top * homeward), homeward, top)
    params = jnp.stack([
        in_frame(c, clear_of_others(0.8 * top * ahead), ahead, top),
        clear_of_others(ahead * jnp.minimum(0.8 * top, 0.4 * length(way))),
        jnp.array([RELAY_SHARE, 0.0]),
        jnp.where(length(home) > HOME, on_way, jnp.stack([0.8 * top, jnp.zeros(())])),
    ])  # fmt: skip
    unit = 2.0 * (jnp.clip(params, low, high) - low) / jnp.where(high > low, high - low, 1.0) - 1.0
    return BaseAction(CONFIDENCE * jax.nn.one_hot(role, 4), unit)


def boxes(config: CruiseConfig, spec: ActionSpec, kind: Float[Array, "3"]) -> tuple[Array, Array]:
    """Low and high of the parameters of a UAV of a kind (one-hot)."""
    first = [int(np.argmax(config.kind == k)) for k in range(len(NAMES))]  # kinds that do not fly have any box
    return tuple(jnp.einsum("k,kmp->mp", kind, jnp.asarray(table[first])) for table in (spec.low, spec.high))  # pyright: ignore
