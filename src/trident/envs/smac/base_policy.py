"""What one soldier can tell from its own observation alone: whom it would kill the soonest, or which way the enemy is.

A target costs the time to get it into reach and the time to shoot it down (`observe` lists distance and condition of
everyone in sight, and which orders are open). Who fights hand to hand takes the nearest instead. Who outranges
everyone armed in sight by far backs off from the nearest while the weapon cools down: with the offset, or by a move if
the weapon will not be ready within the step. Healers heal the most wounded ally that they may choose.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.geometry import disc_to_square
from trident.envs.smac.actions import FIRST_TARGET, NO_OP, STEPS
from trident.envs.smac.config import TICKS, SmacConfig
from trident.types import BaseAction

CONFIDENCE = 3.0
"""Logit of the suggested mode; the others are at 0."""
LEAST_HIT = 0.5
"""Of an attack, whatever the armour."""
HAND_TO_HAND = 1.0
"""Who reaches less far attacks the nearest: bodies bar the way to anyone else."""
LEAD = 2.0
"""By how much one must outrange an enemy for backing off to pay: more than it walks while a weapon cools down."""
COMFORT = 2.5
"""Beyond an enemy's reach, how far (edge to edge) who outranges it wants to stay away."""


def base_policy(config: SmacConfig, num_modes: int, obs: Float[Array, "O"]) -> BaseAction:
    """The target that dies the soonest, else the open direction towards the nearest enemy in sight, else towards where
    the enemy came from. Offsets only to back off."""
    roster, a, n = config.roster, config.roster.allies, config.roster.size
    kinds = list(dict.fromkeys(roster.types))
    vital, named = 1 + bool(roster.shield.any()), len(kinds) if len(kinds) > 1 else 0
    sizes = [2, vital, 1, int(roster.heals.any()), named, 4, num_modes - FIRST_TARGET, n, n, n, n, n]
    here, vigour, wait, _, kind, moves, targets, seen, distance, dx, dy, health, rest = jnp.split(obs, np.cumsum(sizes))
    shield = rest[:n] if vital == 2 else jnp.zeros(n)
    kind = kind if named else jnp.ones(1)
    own = [roster.types.index(k) for k in kinds]  # of every kind the first unit: an ally, if we have such
    heals = kind @ roster.heals[own].astype(np.float32) > 0.5

    def mine(table: np.ndarray) -> Float[Array, "*n"]:
        return kind @ np.asarray(table, np.float32)

    hit = np.maximum(roster.damage - roster.attacks[:, None] * roster.armor[None, :], LEAST_HIT)
    gap = config.sight * distance - mine(roster.touch[own])  # edge to edge
    reach = mine(roster.reach[own])
    march = jnp.maximum(gap - reach, 0.0)
    pool = health * roster.health + shield * roster.shield
    kill = march / mine(roster.speed[own]) + pool / mine((hit / np.maximum(roster.period, 1.0)[:, None])[own])
    kill = jnp.where(reach < HAND_TO_HAND, gap, kill)
    slots = num_modes - FIRST_TARGET
    cost = jnp.pad(kill[a:], (0, slots - roster.enemies), constant_values=jnp.inf)
    if roster.heals[:a].any():
        cost = jnp.where(heals, jnp.pad(health[:a], (0, slots - a), constant_values=jnp.inf), cost)
    target = FIRST_TARGET + jnp.argmin(jnp.where(targets > 0.5, cost, jnp.inf))
    wanted = (seen > 0.5) & jnp.where(heals, np.arange(n) < a, np.arange(n) >= a)
    home = np.asarray(config.field.enemy_spawn, np.float32)

    def nearest(some: Array) -> tuple[Array, Array]:
        """Which of them it is, and the way there; the enemy's side of the map if there is nobody."""
        who = jax.nn.one_hot(jnp.argmin(jnp.where(some, distance, jnp.inf)), n)
        return who, jnp.where(some.any(), jnp.stack([who @ dx, who @ dy]), home - 16.0 * (here + 1.0))

    armed = wanted & (roster.dps > 0)
    foe, danger = nearest(armed)
    threat = jnp.max(jnp.where(armed, roster.reach, 0.0))
    pressed = armed.any() & ~heals & (reach > threat + LEAD) & (foe @ gap < threat + COMFORT)
    runs = pressed & (wait[0] * mine(roster.period[own]) >= TICKS)
    away = -danger / (jnp.sqrt(danger @ danger) + 1e-6)
    _, way = nearest(wanted)
    move = 2 + jnp.argmax(jnp.where(moves > 0.5, STEPS @ jnp.where(runs, away, way), -jnp.inf))
    mode = jnp.where((targets > 0.5).any() & ~runs, target, move)
    mode = jnp.where(vigour.sum() > 0, mode, NO_OP)
    offset = jnp.where(pressed, disc_to_square(0.999 * away), 0.0)
    return BaseAction(CONFIDENCE * jax.nn.one_hot(mode, num_modes), jnp.tile(offset, (num_modes, 1)))
