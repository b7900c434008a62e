"""What an ally may do and what its choice means: modes, masks, offsets, crowding.

Modes: 0 no-op (the dead only), 1 stop, 2-5 move north, south, east, west, 6 + j attack enemy j, or for healers: heal
ally j. Functions take places and who is alive, so that the environment, physics and scripted policies share them.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.geometry import square_to_disc
from trident.envs.smac.config import SmacConfig
from trident.envs.smac.engine import NOBODY
from trident.types import HybridAction

NO_OP, STOP, FIRST_TARGET = 0, 1, 6
DIRECTIONS = ("north", "south", "east", "west")
STEPS = np.array([(0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0)], np.float32)


def passable(config: SmacConfig, x: Float[Array, "*n"], y: Float[Array, "*n"]) -> Bool[Array, "*n"]:
    """Whether a point on the ground is inside the arena and outside walls."""
    west, south, east, north = config.field.arena
    free = (x > west) & (x < east) & (y > south) & (y < north)
    for corner_x, corner_y, to_x, to_y in config.field.walls:
        free &= ~((to_x * (x - corner_x) > 0) & (to_y * (y - corner_y) > 0))
    if config.field.diagonal is not None:
        low, high = config.field.diagonal
        free &= (x - y > low) & (x - y < high)
    return free


def reachable(config: SmacConfig, x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "A n"]:
    """Centre distances from every ally to every unit."""
    a = config.roster.allies
    dx, dy = x[None, :] - x[:a, None], y[None, :] - y[:a, None]
    return jnp.sqrt(dx * dx + dy * dy)


def allowed_modes(
    config: SmacConfig, num_modes: int, x: Float[Array, "n"], y: Float[Array, "n"], alive: Bool[Array, "n"]
) -> Bool[Array, "A M"]:
    """The dead: no-op. The living: stop, moves whose half-way point is passable, targets alive and within `shoot`."""
    roster, a = config.roster, config.roster.allies
    half = 0.5 * config.move * STEPS
    px, py = x[:a, None] + half[:, 0], y[:a, None] + half[:, 1]
    west, south, east, north = config.field.arena
    above = (px > west) & (px < east) & (py > south) & (py < north)
    moves = jnp.where(roster.flying[:a, None], above, passable(config, px, py))
    near = (reachable(config, x, y) <= config.shoot) & alive[None, :] & roster.allowed[:a]
    wide = jnp.pad(near[:, a:], ((0, 0), (0, num_modes - FIRST_TARGET - roster.enemies)))
    if roster.heals[:a].any():
        friends = jnp.pad(near[:, :a], ((0, 0), (0, num_modes - FIRST_TARGET - a)))
        wide = jnp.where(roster.heals[:a, None], friends, wide)
    lives = alive[:a, None]
    return jnp.concatenate([~lives, lives, moves & lives, wide & lives], -1)


def ally_orders(
    config: SmacConfig, x: Float[Array, "n"], y: Float[Array, "n"], action: HybridAction
) -> tuple[Int[Array, "A"], Float[Array, "A 2"], Bool[Array, "A"], Float[Array, "A 2"]]:
    """(target or NOBODY, goal, whether to go there, offset in grid units) of every ally.

    A move's destination is 2 grid units away plus the offset; the offset of an attack is a drift.
    """
    roster, a, mode = config.roster, config.roster.allies, action.mode
    offset = config.offset * square_to_disc(jnp.clip(action.params, -1.0, 1.0))
    offset = jnp.where((mode >= 2)[:, None], offset, 0.0)
    moves = (mode >= 2) & (mode < FIRST_TARGET)
    step = (mode[:, None, None] == jnp.arange(2, FIRST_TARGET)[None, :, None]) * STEPS[None]
    here = jnp.stack([x[:a], y[:a]], -1)
    goal = here + config.move * step.sum(1) + offset
    first = np.where(roster.heals[:a], 0, roster.allies).astype(np.int32)
    target = jnp.where(mode >= FIRST_TARGET, mode - FIRST_TARGET + first, NOBODY).astype(jnp.int32)
    return target, goal, moves, offset


def gaps(config: SmacConfig, x: Float[Array, "A"], y: Float[Array, "A"], alive: Bool[Array, "A"]) -> Float[Array, "A"]:
    """Edge-to-edge distance of every ally to the nearest other on its level; twice the spacing if there is none."""
    roster, a = config.roster, config.roster.allies
    dx, dy = x[:, None] - x[None, :], y[:, None] - y[None, :]
    pairs = (roster.body[:a, :a] > 0) & alive[:, None] & alive[None, :]
    gap = jnp.sqrt(dx * dx + dy * dy + 1e-12) - roster.body[:a, :a]
    return jnp.where(pairs, gap, 2.0 * config.spacing).min(0)


def crowded(
    config: SmacConfig, x: Float[Array, "A"], y: Float[Array, "A"], alive: Bool[Array, "A"]
) -> Float[Array, ""]:
    """Share of the living allies that are nearer to another than the spacing asked for."""
    near = gaps(config, x, y, alive) < config.spacing
    return (near & alive).sum() / jnp.maximum(alive.sum(), 1)
