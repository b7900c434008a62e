"""Scripted fleets for heterogeneous cruise.

- `planner`: sees everything. Points go to scouts and carriers one after another, the most pressing pair first; relays
  stand where they connect most; nobody flies on a battery that does not last.
- `greedy`: everyone patrols to its own point, as fast as it can, and never returns.
- `random`: roles and parameters uniform.
- `hold`: everyone stays on its pad.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.random_policy import random_action
from trident.envs.uav_cruise.config import CruiseConfig
from trident.envs.uav_cruise.dynamics import (
    PATROL,
    RELAY,
    RETURN,
    CruiseState,
    energy_home,
    gaps,
    link_room,
    reached,
    relay_spot,
    return_speed,
    worth,
)
from trident.envs.uav_cruise.physics import must_return, roles_by_kind
from trident.types import ActionSpec, HybridAction, Key, ScriptedPolicy


def planner(config: CruiseConfig, key: Key, s: CruiseState) -> HybridAction:
    c = config
    spare = (s.battery - energy_home(c, s.uav)) / jnp.asarray(c.of_kind("battery"))
    back = must_return(c, s, spare)
    action = roles_by_kind(c, s, assign(c, s, back), back)
    return place_relays(c, s, action)


def assign(config: CruiseConfig, s: CruiseState, back: Array) -> Float[Array, "N 2"]:
    """Goals: the pair of UAV and point that is worth most for its distance, then the next among the rest."""
    c = config
    relay = np.array([name == "relay" for name in c.fleet])
    busy = back | relay
    score = worth(c, s) / (gaps(s.uav, s.point) + 80.0)

    def pick(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        goal, left = carry
        best = jnp.argmax(left)
        i, p = best // c.num_points, best % c.num_points
        goal = goal.at[i].set(jnp.where(left[i, p] > 0.0, s.point[p], goal[i]))
        return (goal, left.at[i].set(0.0).at[:, p].set(0.2 * left[:, p])), None

    start = (s.uav, jnp.where(busy[:, None], 0.0, score))
    return jax.lax.scan(pick, start, length=c.num_uavs)[0][0]


def place_relays(config: CruiseConfig, s: CruiseState, action: HybridAction) -> HybridAction:
    """One relay after another takes the share of its line at which most UAVs are connected."""
    c = config
    shares = jnp.asarray(np.linspace(0.3, 1.0, 8), jnp.float32)
    params = action.params
    for i in (i for i, name in enumerate(c.fleet) if name == "relay"):

        def connected(share: Array, i: int = i, params: Array = params) -> Array:
            asked = params.at[i, 0].set(share)
            spot = relay_spot(c, s.uav, asked[:, 0], asked[:, 1])[i]
            there = s.uav.at[i].set(spot)
            return reached(jax.nn.sigmoid(link_room(c, there, action.mode) / 20.0)).sum()

        best = shares[jnp.argmax(jax.vmap(connected)(shares))]
        params = params.at[i, 0].set(jnp.where(action.mode[i] == RELAY, best, params[i, 0]))
    return action._replace(params=params)


def greedy(config: CruiseConfig, key: Key, s: CruiseState) -> HybridAction:
    top = jnp.asarray(config.of_kind("max_speed"))
    patrol = jnp.full(config.num_uavs, PATROL, jnp.int32)
    return HybridAction(patrol, jnp.stack([top, jnp.zeros_like(top)], 1))


def hold(config: CruiseConfig, key: Key, s: CruiseState) -> HybridAction:
    speed = jnp.asarray(return_speed(config))
    return HybridAction(jnp.full(config.num_uavs, RETURN, jnp.int32), jnp.stack([speed, jnp.zeros_like(speed)], 1))


def random_policy(config: CruiseConfig, spec: ActionSpec, key: Key, s: CruiseState) -> HybridAction:
    return random_action(key, spec, jnp.ones((config.num_uavs, spec.num_modes), bool))


def policies(config: CruiseConfig, spec: ActionSpec) -> dict[str, ScriptedPolicy]:
    return {
        "planner": partial(planner, config),
        "greedy": partial(greedy, config),
        "hold": partial(hold, config),
        "random": partial(random_policy, config, spec),
    }
