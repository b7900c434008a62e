"""The battle itself: both armies advance by ticks of 1/16 s, side by side and by the same rules.

A tick: attack-moving units look for targets; weapons that are ready and in reach fire, all at once; damage, healing
and regrowth are settled; everybody walks; bodies are pushed apart and out of walls. Nothing in a tick is random and
nothing depends on which side a unit is on except who obeys orders and who attack-moves on its own.

Pairs of units are worked through by loops over one of the two, in which every operation is a row of units: on a CPU
that was four times faster than arrays of pairs, which the compiler stores, or recomputes with all that led to them.
The dead stand far away, which spares a mask in every pair.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.smac.config import TICK, TICKS, SmacConfig
from trident.physics import combat

FAR = 1000.0
"""Where the dead stand, apart from each other."""
NOBODY = -1
LATER = 100.0
"""Grid units by which a target of the second rank counts as further away."""
READY = 1e-3
"""Ticks of cooldown that count as none: sums of periods are rounded."""
CLOSER = 0.01
"""How much further than necessary a unit walks into its reach, so that rounding cannot leave it outside."""
PUSH = 0.25
"""Most that crowding moves a unit along an axis in one tick, grid units."""
SAME = 1e-4
"""Places nearer than this are the same, and who has moved by less has stood."""


class Units(NamedTuple):
    """n units, allies first."""

    x: Float[Array, "n"]
    y: Float[Array, "n"]
    health: Float[Array, "n"]
    shield: Float[Array, "n"]
    cooldown: Float[Array, "n"]  # ticks until the weapon is ready; at or below 0 it is
    energy: Float[Array, "n"]
    calm: Float[Array, "n"]  # ticks since the last hit
    target: Int[Array, "n"]  # index of a unit, or NOBODY


class Orders(NamedTuple):
    """For one environment step. Who attack-moves reads only the goal."""

    target: Int[Array, "n"]
    goal_x: Float[Array, "n"]
    goal_y: Float[Array, "n"]
    go: Bool[Array, "n"]  # walk to the goal (a target comes first)
    drift_x: Float[Array, "n"]  # repositioning between shots, grid units per tick
    drift_y: Float[Array, "n"]


class Fire(NamedTuple):
    """What was shot in a step: how many attacks (or beam ticks) of each unit, and at whom."""

    shots: Float[Array, "n"]
    aim: Int[Array, "n"]


# --- targets --------------------------------------------------------------------------------------


def stand(units: Units) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """Places, with the dead far away."""
    alive = units.health > 0
    away = FAR + 50.0 * jnp.arange(units.x.shape[0], dtype=jnp.float32)
    return jnp.where(alive, units.x, away), jnp.where(alive, units.y, FAR)


def acquire(config: SmacConfig, units: Units, ours: bool) -> Int[Array, "side"]:
    """Targets of one side's attack-moving units.

    A unit keeps its target while that is in its reach. Otherwise it takes the nearest opponent it can hit within its
    scan range, the armed before the unarmed. Healers take the nearest wounded friend, else the nearest friend.
    """
    roster = config.roster
    mine = roster.side(ours)
    among = slice(0, roster.size) if roster.heals[mine].any() else roster.side(not ours)
    px, py = stand(units)
    heals, reach = roster.heals[mine], roster.reach[mine]
    scan = jnp.where(units.calm[mine] < config.alert / TICK, config.sight, np.maximum(config.scan, reach))
    scan = jnp.where(heals, 0.5 * FAR, scan)
    touch, allowed = jnp.asarray(roster.touch[:, mine]), jnp.asarray(roster.allowed[mine].T)
    unarmed, whole = jnp.asarray(roster.dps == 0), units.health >= jnp.asarray(roster.health)

    def consider(j: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        dx, dy = px[mine] - px[j], py[mine] - py[j]
        gap = jnp.sqrt(dx * dx + dy * dy) - touch[j]
        keeps = (units.target[mine] == j) & (gap <= reach) & ~heals
        score = jnp.where(keeps, -FAR, gap + jnp.where(jnp.where(heals, whole[j], unarmed[j]), LATER, 0.0))
        better = allowed[j] & (gap <= scan) & (score < best[0])
        return jnp.where(better, score, best[0]), jnp.where(better, j, best[1])

    count = px[mine].shape[0]
    nothing = (jnp.full(count, jnp.inf), jnp.full(count, NOBODY, jnp.int32))
    return jax.lax.fori_loop(among.start, among.stop, consider, nothing, unroll=4)[1]


def look_at(
    config: SmacConfig, units: Units, target: Int[Array, "n"]
) -> tuple[Float[Array, "n"], Float[Array, "n"], Float[Array, "n"], Bool[Array, "n"]]:
    """Way to the target (x, y), distance from edge to edge, and whether there is a living one
    that may be attacked or healed."""
    px, py = stand(units)
    at = jnp.clip(target, 0, px.shape[0] - 1)
    reachable = jnp.asarray(np.where(config.roster.allowed, config.roster.touch, 0.0))
    touch = jnp.where(target == at, reachable[np.arange(px.shape[0]), at], 0.0)
    tx, ty = px[at] - px, py[at] - py
    distance = jnp.sqrt(tx * tx + ty * ty)
    valid = (touch > 0) & (units.health > 0) & (distance < 0.5 * FAR)
    return tx, ty, distance - touch, valid


# --- damage, healing, regrowth --------------------------------------------------------------------


def strike(config: SmacConfig, units: Units, target: Int[Array, "n"], fires: Bool[Array, "n"]) -> Units:
    """All shots of a tick fall together; weapons that fired start to cool down."""
    roster = config.fielded
    aim = jnp.where(fires, target, roster.size)  # beyond the last unit: dropped
    one = jnp.asarray(roster.damage)[np.arange(roster.size), jnp.maximum(target, 0)]
    blows = jnp.stack([one, jnp.asarray(roster.attacks)], -1)
    fallen = jnp.zeros((roster.size, 2)).at[aim].add(blows, mode="drop")
    damage, hits = fallen[:, 0], fallen[:, 1]
    health, shield = combat.absorb(units.health, units.shield, jnp.asarray(roster.armor), damage, hits)
    # What a tick overshoots the end of a cooldown counts for the next one: the mean rate is exact. A weapon that had
    # to wait for its target has nothing to count.
    waiting = jnp.where(units.cooldown > READY, units.cooldown - 1.0, 0.0)
    cooldown = jnp.where(fires, units.cooldown + roster.period - 1.0, waiting)
    calm = jnp.where(hits > 0, 0.0, units.calm + 1.0)
    return units._replace(
        health=health, shield=jnp.where(health > 0, shield, 0.0), cooldown=cooldown, calm=calm, target=target
    )


def recover(config: SmacConfig, units: Units) -> Units:
    """Shields after their delay, health of those who regrow it, energy of healers."""
    roster = config.roster
    alive = units.health > 0
    calm = units.calm > combat.SHIELD_DELAY / TICK
    shield = jnp.minimum(units.shield + jnp.where(alive & calm, combat.SHIELD_REGROWTH * TICK, 0.0), roster.shield)
    health = jnp.minimum(units.health + jnp.where(alive, roster.regrowth, 0.0), roster.health)
    energy = jnp.minimum(units.energy + combat.ENERGY_REGROWTH * TICK, np.where(roster.heals, combat.ENERGY_MAX, 0.0))
    return units._replace(shield=shield, health=health, energy=energy.astype(jnp.float32))


def heal(config: SmacConfig, units: Units, target: Int[Array, "n"], beams: Bool[Array, "n"]) -> Units:
    """Beams restore HEAL_RATE per s at HEAL_PER_ENERGY, as long as energy lasts."""
    roster = config.roster
    missing = jnp.where(units.health > 0, jnp.asarray(roster.health) - units.health, 0.0)
    at = jnp.maximum(target, 0)
    most = jnp.minimum(combat.HEAL_RATE * TICK, combat.HEAL_PER_ENERGY * units.energy)
    given = jnp.where(beams, jnp.minimum(most, missing[at]), 0.0)
    health = jnp.minimum(units.health.at[at].add(given), roster.health)
    return units._replace(health=health, energy=units.energy - given / combat.HEAL_PER_ENERGY)


# --- movement -------------------------------------------------------------------------------------


def separate(config: SmacConfig, units: Units, moved: Bool[Array, "n"]) -> Units:
    """Bodies on the same level push each other apart until they touch. Who has walked gives way to who stands; two that
    both did, or both stood, by half of the overlap each. Two in the very same place part northwards and southwards."""
    px, py = stand(units)
    body, order = jnp.asarray(config.roster.body), jnp.arange(px.shape[0])
    yields = moved.astype(jnp.float32)

    def add(j: Array, push: tuple[Array, Array]) -> tuple[Array, Array]:
        dx, dy = px - px[j], py - py[j]
        dy = jnp.where(jnp.abs(dx) + jnp.abs(dy) < SAME, SAME * jnp.sign(order - j), dy)
        overlap = jnp.maximum(body[j] * jax.lax.rsqrt(jnp.maximum(dx * dx + dy * dy, SAME**2)) - 1.0, 0.0)
        overlap *= 0.5 + 0.5 * (yields - yields[j])
        return push[0] + overlap * dx, push[1] + overlap * dy

    still = jnp.zeros_like(px)
    move_x, move_y = jax.lax.fori_loop(0, px.shape[0], add, (still, still), unroll=4)
    return units._replace(x=units.x + jnp.clip(move_x, -PUSH, PUSH), y=units.y + jnp.clip(move_y, -PUSH, PUSH))


def confine(config: SmacConfig, units: Units) -> Units:
    """Out of walls and back into the arena; flyers pass over walls."""
    field, roster = config.field, config.roster
    x, y, width = units.x, units.y, roster.width
    grounded = ~roster.flying
    if field.diagonal is not None:
        low, high = field.diagonal
        beyond = jnp.maximum(low + 2**0.5 * width - (x - y), 0.0) - jnp.maximum(x - y - high + 2**0.5 * width, 0.0)
        x, y = x + 0.5 * beyond * grounded, y - 0.5 * beyond * grounded
    for corner_x, corner_y, to_x, to_y in field.walls:
        depth_x, depth_y = to_x * (x - corner_x) + width, to_y * (y - corner_y) + width
        inside = (depth_x > 0) & (depth_y > 0) & grounded
        x = x - to_x * jnp.where(inside & (depth_x <= depth_y), depth_x, 0.0)
        y = y - to_y * jnp.where(inside & (depth_x > depth_y), depth_y, 0.0)
    west, south, east, north = field.arena
    return units._replace(x=jnp.clip(x, west + width, east - width), y=jnp.clip(y, south + width, north - width))


def walk(
    config: SmacConfig, orders: Orders, units: Units, seen: tuple[Array, Array, Array, Array], cooling: Bool[Array, "n"]
) -> Units:
    """Approach the target, else the goal; while its weapon cools down also drift. Who is in reach stands."""
    roster = config.fielded
    tx, ty, gap, valid = seen
    gx, gy = orders.goal_x - units.x, orders.goal_y - units.y
    gx, gy = jnp.where(valid, tx, gx), jnp.where(valid, ty, gy)
    length = jnp.sqrt(gx * gx + gy * gy)
    far = jnp.where(valid, jnp.where(gap > roster.reach, gap - roster.reach + CLOSER, 0.0), length * orders.go)
    pace = jnp.minimum(far, roster.speed) / jnp.maximum(length, 1e-6)
    # A target chosen by order but dead leaves its unit without anything to do.
    idle = (orders.target >= 0) & ~valid
    pace = jnp.where((units.health > 0) & ~idle, pace, 0.0)
    cooling = cooling & valid & (units.health > 0)
    vx = pace * gx + jnp.where(cooling, orders.drift_x, 0.0)
    vy = pace * gy + jnp.where(cooling, orders.drift_y, 0.0)
    excess = jnp.maximum(jnp.sqrt(vx * vx + vy * vy) / roster.speed, 1.0)
    return units._replace(x=units.x + vx / excess, y=units.y + vy / excess)


# --- time -----------------------------------------------------------------------------------------


def tick(config: SmacConfig, auto: tuple[bool, bool], orders: Orders, units: Units) -> tuple[Units, Bool[Array, "n"]]:
    """One tick; also says who shot or healed. `auto`: whether allies, whether enemies attack-move on their own."""
    roster = config.roster
    parts = [
        acquire(config, units, ours) if auto[not ours] else orders.target[roster.side(ours)] for ours in (True, False)
    ]
    target = jnp.concatenate(parts)
    seen = look_at(config, units, target)
    _, _, gap, valid = seen
    in_reach = valid & (gap <= roster.reach)
    fires = in_reach & (units.cooldown <= READY) & (roster.dps > 0)
    cooldown = units.cooldown
    units = strike(config, units, target, fires)
    active = fires
    if roster.heals.any():
        beams = in_reach & roster.heals
        energy = units.energy
        units = heal(config, units, target, beams)
        active = fires | (units.energy < energy)
    units = recover(config, units)
    here = units
    units = walk(config, orders, units, seen, cooling=(cooldown > READY) | roster.heals)
    moved = jnp.abs(units.x - here.x) + jnp.abs(units.y - here.y) > SAME
    return confine(config, separate(config, units, moved)), active


def battle(config: SmacConfig, auto: tuple[bool, bool], orders: Orders, units: Units) -> tuple[Units, Fire]:
    """One environment step: TICKS ticks under the same orders."""

    def advance(units: Units, _: None) -> tuple[Units, tuple[Array, Array]]:
        units, active = tick(config, auto, orders, units)
        return units, (active, jnp.where(active, units.target, NOBODY))

    units, (active, aim) = jax.lax.scan(advance, units, None, length=TICKS)
    return units, Fire(active.sum(0, dtype=jnp.float32), aim.max(0))
