"""Scripted pilots of the no-fly scenario.

- `planner`: knows the map. Follows the shortest way several cells ahead, cutting corners where the tube is free.
- `straight`: flies straight to the goal and knows nothing of zones.
- `random`: waypoint cell and velocity uniform among what is allowed.
- `hold`: stays where it is.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.envs.random_policy import random_action
from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.dynamics import EDGES, NoFlyState, clearance, mode_mask, waypoint_of
from trident.envs.uav_nofly.maps import Maps
from trident.envs.uav_nofly.physics import best_neighbour, cruise_speed, velocity_params
from trident.physics.flight import length
from trident.types import ActionSpec, HybridAction, Key, ScriptedPolicy

AHEAD = 5
"""Cells that `planner` looks ahead."""


def planner(config: NoFlyConfig, maps: Maps, key: Key, s: NoFlyState) -> HybridAction:
    c, zones = config, jnp.asarray(maps.zones)[s.map]

    def follow(at: NoFlyState, _: None) -> tuple[NoFlyState, Array]:
        at = at._replace(place=waypoint_of(c, at.place, best_neighbour(c, maps, at)))
        return at, at.place

    first = best_neighbour(c, maps, s)
    _, ahead = jax.lax.scan(follow, s, length=AHEAD)
    seen = jax.vmap(lambda target: clearance(zones, s.place, target) >= 1.5 * c.tube)(ahead)
    # the furthest of those ahead that can be flown to directly
    furthest = ahead[jnp.where(seen, jnp.arange(AHEAD), 0).max()]
    way = furthest - s.place
    way = way / length(way)
    speed = cruise_speed(c, zones, s, way)
    return HybridAction(first[None], velocity_params(c, s.place, first, speed * way)[None])


def straight(config: NoFlyConfig, key: Key, s: NoFlyState) -> HybridAction:
    c = config
    way = s.goal - s.place
    way = way / length(way)
    mode = 1 + jnp.argmax(_directions(c, s.place) @ way)
    velocity = 0.7 * c.max_speed * way
    return HybridAction(mode.astype(jnp.int32)[None], velocity_params(c, s.place, mode, velocity)[None])


def _directions(config: NoFlyConfig, place: Float[Array, "2"]) -> Float[Array, "8 2"]:
    ways = jax.vmap(lambda mode: waypoint_of(config, place, mode))(jnp.arange(1, len(EDGES))) - place
    return ways / length(ways)[:, None]


def hold(key: Key, s: NoFlyState) -> HybridAction:
    return HybridAction(jnp.zeros(1, jnp.int32), jnp.zeros((1, 2)))


def random_policy(config: NoFlyConfig, maps: Maps, spec: ActionSpec, key: Key, s: NoFlyState) -> HybridAction:
    return random_action(key, spec, mode_mask(config, maps, s.map, s.place)[None])


def policies(config: NoFlyConfig, maps: Maps, spec: ActionSpec) -> dict[str, ScriptedPolicy]:
    return {
        "planner": partial(planner, config, maps),
        "straight": partial(straight, config),
        "hold": hold,
        "random": partial(random_policy, config, maps, spec),
    }
