"""Scripted policies for hybrid SMAC.

- `random`: an allowed mode and an offset of the disc, all equally likely.
- `focus-nearest`: attack the nearest enemy that can be chosen, else walk to the nearest one. Plain SMAC: no offset.
- `focus-weakest`: attack the one with the least health and shield left, so that the team's fire falls together.
- `kite`: as focus-nearest, but who outranges the nearest enemy backs off while the weapon cools down: with the offset,
  or by a move if the weapon will not be ready within the step.

Healers heal the most wounded ally that can be chosen, else follow the nearest. All see the whole map.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trident.envs.geometry import disc_to_square
from trident.envs.random_policy import random_action
from trident.envs.smac.actions import FIRST_TARGET, NO_OP, STEPS, STOP, allowed_modes, reachable
from trident.envs.smac.config import TICKS, SmacConfig
from trident.types import ActionSpec, HybridAction, Key, ScriptedPolicy

COMFORT = 1.5
"""Beyond an enemy's reach, how far (edge to edge) a kiting unit wants to stay away from it."""


def first_lowest(score: Float[Array, "A T"], allowed: Bool[Array, "A T"]) -> tuple[Int[Array, "A"], Bool[Array, "A"]]:
    """Index of the lowest score among the allowed, and whether there is one."""
    return jnp.where(allowed, score, jnp.inf).argmin(-1).astype(jnp.int32), allowed.any(-1)


def towards(way: Float[Array, "A 2"], moves: Bool[Array, "A 4"]) -> tuple[Int[Array, "A"], Bool[Array, "A"]]:
    """The open direction that leads most nearly along `way`, and whether any direction is open."""
    best, any_open = first_lowest(-(way @ jnp.asarray(STEPS).T), moves)
    return 2 + best, any_open


def focus(
    config: SmacConfig,
    x: Float[Array, "n"],
    y: Float[Array, "n"],
    pool: Float[Array, "n"],
    mask: Bool[Array, "A M"],
    weakest: bool,
) -> Int[Array, "A"]:
    """Modes of the focus policies; also what physics calls carrying on sensibly."""
    roster, a = config.roster, config.roster.allies
    alive = pool > 0
    distance = reachable(config, x, y)
    possible = roster.allowed[:a] & alive[None, :]
    distance = jnp.where(possible, distance, 1e3)
    vigour = pool / roster.pool
    kind = jnp.where(roster.heals[:a, None], vigour[None, :], pool[None, :] if weakest else distance)
    score = kind + 1e-3 * distance  # equally weak: the nearer one, which also spreads ties
    slots = mask.shape[1] - FIRST_TARGET
    mine, theirs = score[:, :a], score[:, a:]
    wide = jnp.pad(theirs, ((0, 0), (0, slots - roster.enemies)), constant_values=jnp.inf)
    if roster.heals[:a].any():
        friends = jnp.pad(mine, ((0, 0), (0, slots - a)), constant_values=jnp.inf)
        wide = jnp.where(roster.heals[:a, None], friends, wide)
    target, has_target = first_lowest(wide, mask[:, FIRST_TARGET:])
    nearest = distance == distance.min(1, keepdims=True)
    count = jnp.maximum(nearest.sum(1), 1)
    way = jnp.stack([(nearest * v[None, :]).sum(1) / count - v[:a] for v in (x, y)], -1)
    move, can_move = towards(way, mask[:, 2:FIRST_TARGET])
    mode = jnp.where(has_target, FIRST_TARGET + target, jnp.where(can_move, move, STOP))
    return jnp.where(alive[:a], mode, NO_OP).astype(jnp.int32)


def _mask(config: SmacConfig, spec: ActionSpec, state) -> Bool[Array, "A M"]:
    units = state.units
    return allowed_modes(config, spec.num_modes, units.x, units.y, units.health > 0)


def random_policy(config: SmacConfig, spec: ActionSpec, key: Key, state) -> HybridAction:
    return random_action(key, spec, _mask(config, spec, state))


def focus_policy(config: SmacConfig, spec: ActionSpec, weakest: bool, key: Key, state) -> HybridAction:
    units = state.units
    mode = focus(config, units.x, units.y, units.health + units.shield, _mask(config, spec, state), weakest)
    return HybridAction(mode, jnp.zeros((config.roster.allies, 2)))


def kite_policy(config: SmacConfig, spec: ActionSpec, key: Key, state) -> HybridAction:
    """See the module's docstring."""
    units, roster, a = state.units, config.roster, config.roster.allies
    mask = _mask(config, spec, state)
    mode = focus(config, units.x, units.y, units.health + units.shield, mask, weakest=False)
    foe = (units.health[a:] > 0)[None, :] & roster.allowed[:a, a:]
    gap = jnp.where(foe, reachable(config, units.x, units.y)[:, a:] - roster.touch[:a, a:], 1e3)
    nearest = (gap == gap.min(1, keepdims=True)) & foe
    count = jnp.maximum(nearest.sum(1), 1)
    away = jnp.stack([v[:a] - (nearest * v[None, a:]).sum(1) / count for v in (units.x, units.y)], -1)
    away = away / (jnp.sqrt((away**2).sum(-1, keepdims=True)) + 1e-6)
    threat = jnp.where(nearest, roster.reach[None, a:], 0.0).max(1)
    pressed = (roster.reach[:a] > threat + 0.5) & (gap.min(1) < threat + COMFORT) & nearest.any(1) & ~roster.heals[:a]
    retreat, can_move = towards(away, mask[:, 2:FIRST_TARGET])
    runs = pressed & can_move & (units.cooldown[:a] >= TICKS)
    mode = jnp.where((units.health[:a] > 0) & runs, retreat, mode)
    shifts = pressed & (mode >= 2)
    params = jnp.where(shifts[:, None], jnp.clip(disc_to_square(0.999 * away), -1.0, 1.0), 0.0)
    return HybridAction(mode.astype(jnp.int32), params)


def policies(config: SmacConfig, spec: ActionSpec) -> dict[str, ScriptedPolicy]:
    return {
        "random": partial(random_policy, config, spec),
        "focus-nearest": partial(focus_policy, config, spec, False),
        "focus-weakest": partial(focus_policy, config, spec, True),
        "kite": partial(kite_policy, config, spec),
    }
