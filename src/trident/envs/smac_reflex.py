"""What one soldier can tell from its own observation alone: whom it would kill the soonest, or which way the enemy is.

A target costs the time to get it into reach and the time to shoot it down (`observe` lists distance and condition of
everyone in sight, and which orders are open). Healers heal the most wounded ally that they may choose.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.smac_config import SmacConfig
from trident.envs.smac_rules import FIRST_TARGET, NO_OP, STEPS
from trident.types import Reflex

CONFIDENCE = 3.0
"""Logit of the suggested mode; the others are at 0."""
LEAST_HIT = 0.5
"""Of an attack, whatever the armour."""


def reflex(config: SmacConfig, num_modes: int, obs: Float[Array, "O"]) -> Reflex:
    """The target that dies the soonest, else the open direction towards the nearest enemy in sight, else towards where
    the enemy came from. No offset."""
    roster, a, n = config.roster, config.roster.allies, config.roster.size
    kinds = list(dict.fromkeys(roster.types))
    vital, named = 1 + bool(roster.shield.any()), len(kinds) if len(kinds) > 1 else 0
    sizes = [2, vital, 1 + bool(roster.heals.any()), named, 4, num_modes - FIRST_TARGET, n, n, n, n, n]
    here, vigour, _, kind, moves, targets, seen, distance, dx, dy, health, rest = jnp.split(obs, np.cumsum(sizes))
    shield = rest[:n] if vital == 2 else jnp.zeros(n)
    kind = kind if named else jnp.ones(1)
    own = [roster.types.index(k) for k in kinds]  # of every kind the first unit: an ally, if we have such
    heals = kind @ roster.heals[own].astype(np.float32) > 0.5

    def mine(table: np.ndarray) -> Float[Array, "*n"]:
        return kind @ np.asarray(table, np.float32)

    hit = np.maximum(roster.damage - roster.attacks[:, None] * roster.armor[None, :], LEAST_HIT)
    march = jnp.maximum(config.sight * distance - mine((roster.touch + roster.reach[:, None])[own]), 0.0)
    pool = health * roster.health + shield * roster.shield
    kill = march / mine(roster.speed[own]) + pool / mine((hit / np.maximum(roster.period, 1.0)[:, None])[own])
    slots = num_modes - FIRST_TARGET
    cost = jnp.pad(kill[a:], (0, slots - roster.enemies), constant_values=jnp.inf)
    if roster.heals[:a].any():
        cost = jnp.where(heals, jnp.pad(health[:a], (0, slots - a), constant_values=jnp.inf), cost)
    target = FIRST_TARGET + jnp.argmin(jnp.where(targets > 0.5, cost, jnp.inf))
    wanted = (seen > 0.5) & jnp.where(heals, np.arange(n) < a, np.arange(n) >= a)
    nearest = jax.nn.one_hot(jnp.argmin(jnp.where(wanted, distance, jnp.inf)), n)
    home = np.asarray(config.field.enemy_spawn, np.float32)
    way = jnp.where(wanted.any(), jnp.stack([nearest @ dx, nearest @ dy]), home - 16.0 * (here + 1.0))
    move = 2 + jnp.argmax(jnp.where(moves > 0.5, STEPS @ way, -jnp.inf))
    mode = jnp.where((targets > 0.5).any(), target, move)
    mode = jnp.where(vigour.sum() > 0, mode, NO_OP)
    return Reflex(CONFIDENCE * jax.nn.one_hot(mode, num_modes), jnp.zeros((num_modes, 2)))
