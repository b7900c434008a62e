"""Scripted fleets for cooperative coverage.

- `lloyd`: Lloyd's algorithm on the Voronoi cells of the whole importance map, with the largest sensing radius: the
  classic, which knows everything and does not think of energy.
- `planner`: Lloyd's step at a thrifty speed and, one UAV after another, the sensing radius that is worth most.
- `greedy`: everyone to the most important place in sight that nobody else detects.
- `random`: modes and parameters uniform.
- `hold`: stays where it is.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.random_policy import random_action
from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.dynamics import CoverageState, detect, gaps, importance, power_of, squares, together
from trident.envs.uav_coverage.physics import (
    THRIFTY_SPEED,
    keep_off,
    lloyd_targets,
    towards,
    usual_radius,
)
from trident.types import ActionSpec, HybridAction, Key, ScriptedPolicy


def lloyd(config: CoverageConfig, key: Key, s: CoverageState) -> HybridAction:
    way = keep_off(config, s, lloyd_targets(config, s) - s.uav)
    return towards(config, s, way, 0.7 * config.max_speed, config.radius[1])


def planner(config: CoverageConfig, key: Key, s: CoverageState) -> HybridAction:
    c = config
    way = keep_off(c, s, lloyd_targets(c, s) - s.uav)
    action = towards(c, s, way, THRIFTY_SPEED, usual_radius(c))
    tries = jnp.asarray(np.linspace(*c.radius, 6), jnp.float32)
    weight, square = importance(c, s.hot, s.obstacle), squares(s.uav, jnp.asarray(c.places))
    enough = 1.25 * c.sector_min  # a sector below this is worth more than the energy
    even = weight + 0.5 / c.points**2

    def choose(radius: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        def worth(mine: jax.Array) -> jax.Array:
            all_of_them = radius.at[i].set(mine)
            found = together(detect(c, square, all_of_them))
            low = jnp.minimum(found, enough)
            power = power_of(c, s.velocity, s.velocity, all_of_them).mean()
            return (found * weight).sum() + 0.5 * (low * even).sum() - c.energy_weight * power

        return radius.at[i].set(tries[jnp.argmax(jax.vmap(worth)(tries))]), None

    radius, _ = jax.lax.scan(choose, action.params[:, 2], jnp.arange(c.num_uavs))
    return action._replace(params=action.params.at[:, 2].set(radius))


def greedy(config: CoverageConfig, key: Key, s: CoverageState) -> HybridAction:
    c = config
    places = jnp.asarray(c.places)
    each = detect(c, squares(s.uav, places), jnp.full(c.num_uavs, c.radius[1]))
    missed = jnp.prod(1.0 - jnp.where(jnp.eye(c.num_uavs, dtype=bool)[..., None], 0.0, each[None]), axis=1)
    value = importance(c, s.hot, s.obstacle) * missed * (gaps(s.uav, places) <= c.sight)
    way = places[jnp.argmax(value, axis=1)] - s.uav
    return towards(c, s, keep_off(c, s, way), 0.7 * c.max_speed, c.radius[1])


def hold(config: CoverageConfig, key: Key, s: CoverageState) -> HybridAction:
    still = jnp.zeros((config.num_uavs, 3)).at[:, 2].set(usual_radius(config))
    return HybridAction(jnp.zeros(config.num_uavs, jnp.int32), still)


def random_policy(config: CoverageConfig, spec: ActionSpec, key: Key, s: CoverageState) -> HybridAction:
    return random_action(key, spec, jnp.ones((config.num_uavs, spec.num_modes), bool))


def policies(config: CoverageConfig, spec: ActionSpec) -> dict[str, ScriptedPolicy]:
    return {
        "lloyd": partial(lloyd, config),
        "planner": partial(planner, config),
        "greedy": partial(greedy, config),
        "hold": partial(hold, config),
        "random": partial(random_policy, config, spec),
    }
