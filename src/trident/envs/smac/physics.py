"""The global state array of hybrid SMAC, and closed-form physics on it.

What physics knows of the next step: who is in reach of whom and when, which weapons will be ready, what their hits do
to shields and armour, where everybody will stand. Enemies are expected to turn on the nearest allies. Beyond the step
it knows Lanchester's square law: from both armies' strengths the odds of winning, from the allies' firepower the time
it takes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.envs.smac.actions import allowed_modes, ally_orders
from trident.envs.smac.config import TICK, TICKS, SmacConfig
from trident.envs.smac.engine import Units
from trident.envs.smac.scripted import focus
from trident.maths.stable_min import stable_min
from trident.physics import combat
from trident.types import HybridAction, Physics

MAP = 32.0
"""Scale of places in the array: a power of two, so that masks computed from it are exactly the environment's."""
CALM = combat.SHIELD_DELAY / TICK
READY_EDGE = 0.5
"""Softness of "ready within this step", ticks."""
CHOICE_EDGE = 0.3
"""How much nearer (grid units) an ally must be to be e times likelier the target of an enemy."""
SCAN_EDGE = 0.3
KILL_EDGE = 2.0
"""Softness of a kill, hit points."""
GAP_EDGE = 0.1
"""Softness of the spacing, grid units."""
ODDS = 3.0
"""Of winning: (strength ratio)^ODDS."""
FINISH = 6.0
"""Steps over which the win's reward is spread: the time of the end is uncertain by about that."""


class Scene(NamedTuple):
    """What physics reads back from the array, [n] each."""

    x: Float[Array, "n"]
    y: Float[Array, "n"]
    health: Float[Array, "n"]
    shield: Float[Array, "n"]
    cooldown: Float[Array, "n"]
    energy: Float[Array, "n"]
    calm: Float[Array, "n"]
    time: Float[Array, ""]

    @property
    def pool(self) -> Float[Array, "n"]:
        return self.health + self.shield


# --- the array ------------------------------------------------------------------------------------


def scales(config: SmacConfig) -> tuple[np.ndarray | float, ...]:
    """Of the seven blocks x, y, health, shield, cooldown, energy, calm."""
    r = config.roster
    return MAP, MAP, r.health, np.maximum(r.shield, 1.0), r.period, combat.ENERGY_MAX, CALM


def assemble(config: SmacConfig, scene: Scene) -> Float[Array, "S"]:
    """Blocks over all units, allies first; then the share of the episode that is over."""
    blocks = [block / scale for block, scale in zip(scene[:-1], scales(config), strict=True)]
    return jnp.concatenate([*blocks, scene.time[None]])


def pack(config: SmacConfig, units: Units, t: Int[Array, ""]) -> Float[Array, "S"]:
    u = units
    calm = jnp.minimum(u.calm, CALM)
    time = (t / config.field.limit).astype(jnp.float32)
    return assemble(config, Scene(u.x, u.y, u.health, u.shield, u.cooldown, u.energy, calm, time))


def unpack(config: SmacConfig, array: Float[Array, "S"]) -> Scene:
    n = config.roster.size
    blocks = [array[i * n : (i + 1) * n] * scale for i, scale in enumerate(scales(config))]
    return Scene(*blocks, time=array[-1])  # pyright: ignore[reportCallIssue]


# --- one step ahead -------------------------------------------------------------------------------


class Ahead(NamedTuple):
    """The expected next step."""

    x: Float[Array, "n"]
    y: Float[Array, "n"]
    shots: Float[Array, "n"]  # expected number of attacks
    lost_health: Float[Array, "n"]
    lost_shield: Float[Array, "n"]
    healed: Float[Array, "n"]
    spent: Float[Array, "n"]  # energy


def length(x: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
    return jnp.sqrt(x * x + y * y + 1e-8)


def advance_allies(
    config: SmacConfig, s: Scene, action: HybridAction
) -> tuple[Float[Array, "A"], Float[Array, "A"], Float[Array, "A n"], Float[Array, "A"]]:
    """Places after the step, whom each ally acts on (a one-hot row, or zeros), and the ticks until it is in reach."""
    roster, a = config.roster, config.roster.allies
    target, goal, go, offset = ally_orders(config, s.x, s.y, action)
    chosen = (
        (target[:, None] == np.arange(roster.size)[None, :]) & (s.health > 0)[None, :] & (s.health[:a] > 0)[:, None]
    )
    chosen = jnp.where(roster.allowed[:a], chosen, False).astype(jnp.float32)
    aims = chosen.sum(1)
    tx, ty = (jnp.where(aims > 0, (chosen * v[None, :]).sum(1) - v[:a], 0.0) for v in (s.x, s.y))
    distance = length(tx, ty)
    gap = distance - (chosen * roster.touch[:a]).sum(1)
    wait = combat.time_to_range(gap, jnp.asarray(roster.reach[:a]), jnp.asarray(roster.speed[:a]))
    near = jnp.minimum(wait, TICKS) * roster.speed[:a] / distance
    gx, gy = goal[:, 0] - s.x[:a], goal[:, 1] - s.y[:a]
    pace = jnp.where(go, jnp.minimum(TICKS * roster.speed[:a] / length(gx, gy), 1.0), 0.0)
    cooling = jnp.where(roster.heals[:a], 1.0, jnp.clip(s.cooldown[:a] / TICKS, 0.0, 1.0)) * aims
    lives = s.health[:a] > 0
    dx = jnp.where(aims > 0, near * tx, pace * gx) + cooling * offset[:, 0]
    dy = jnp.where(aims > 0, near * ty, pace * gy) + cooling * offset[:, 1]
    return s.x[:a] + jnp.where(lives, dx, 0.0), s.y[:a] + jnp.where(lives, dy, 0.0), chosen, wait


def expect_enemies(
    config: SmacConfig, s: Scene, ax: Float[Array, "A"], ay: Float[Array, "A"]
) -> tuple[Float[Array, "B"], Float[Array, "B"], Float[Array, "B A"], Float[Array, "B"]]:
    """Places after the step, chances of whom each enemy turns on, and the mean ticks until that ally is in reach.

    The allies are met half-way: where they stand in the middle of the step.
    """
    roster, a, field = config.roster, config.roster.allies, config.field
    mx, my = 0.5 * (s.x[:a] + ax), 0.5 * (s.y[:a] + ay)
    ex, ey = s.x[a:], s.y[a:]
    dx, dy = mx[None, :] - ex[:, None], my[None, :] - ey[:, None]
    distance = length(dx, dy)
    gap = distance - roster.touch[a:, :a]
    possible = (s.health[:a] > 0)[None, :] & (s.health[a:] > 0)[:, None] & roster.allowed[a:, :a]
    score = jnp.where(possible, -gap / CHOICE_EDGE, -1e6)
    scan = jnp.where(s.calm[a:] < config.alert / TICK, config.sight, np.maximum(config.scan, roster.reach[a:]))
    weight = jax.nn.softmax(score, axis=1)
    found = possible.any(1) * jax.nn.sigmoid((scan - stable_min(jnp.where(possible, gap, 1e3), 1)) / SCAN_EDGE)
    wait = combat.time_to_range(gap, jnp.asarray(roster.reach[a:, None]), jnp.asarray(roster.speed[a:, None]))
    point = field.ally_spawn if field.attack_point is None else field.attack_point
    px, py = point[0] - ex, point[1] - ey
    pace = jnp.minimum(TICKS * roster.speed[a:] / length(px, py), 1.0) * (1.0 - found)
    chase = weight * found[:, None] * jnp.minimum(wait, TICKS) * roster.speed[a:, None] / distance
    lives = (s.health[a:] > 0) & (roster.dps[a:] > 0)
    x = ex + jnp.where(lives, (chase * dx).sum(1) + pace * px, 0.0)
    y = ey + jnp.where(lives, (chase * dy).sum(1) + pace * py, 0.0)
    return x, y, weight * found[:, None], (weight * wait).sum(1)


def look_ahead(config: SmacConfig, s: Scene, action: HybridAction) -> Ahead:
    """A weapon fires in the step if it is ready, and its target in reach, before the last tick."""
    roster, a = config.roster, config.roster.allies
    ax, ay, chosen, ally_wait = advance_allies(config, s, action)
    ex, ey, weight, enemy_wait = expect_enemies(config, s, ax, ay)
    wait = jnp.maximum(jnp.concatenate([ally_wait, enemy_wait]), s.cooldown)
    ready = jax.nn.sigmoid((TICKS - 0.5 - wait) / READY_EDGE) * (s.health > 0)
    armed = roster.dps > 0
    aims = jnp.concatenate([chosen * armed[:a, None], jnp.pad(weight, ((0, 0), (0, roster.enemies)))])
    shots = ready[:, None] * aims
    damage, hits = (shots * roster.damage).sum(0), (shots * roster.attacks[:, None]).sum(0)
    health, shield = combat.expected_loss(s.health, s.shield, jnp.asarray(roster.armor), damage, hits)
    healed, spent = mend(config, s, chosen, ready)
    return Ahead(jnp.concatenate([ax, ex]), jnp.concatenate([ay, ey]), shots.sum(1), health, shield, healed, spent)


def mend(
    config: SmacConfig, s: Scene, chosen: Float[Array, "A n"], ready: Float[Array, "n"]
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """Health that the allies' healers restore in the step, and the energy that each unit spends on it."""
    roster, a = config.roster, config.roster.allies
    if not roster.heals[:a].any():
        return jnp.zeros(roster.size), jnp.zeros(roster.size)
    beam = jnp.minimum(combat.HEAL_RATE * TICK * TICKS, combat.HEAL_PER_ENERGY * s.energy[:a])
    beams = (beam * ready[:a] * roster.heals[:a])[:, None] * chosen
    wanted, missing = beams.sum(0), jnp.asarray(roster.health) - s.health
    given = jnp.minimum(wanted, missing)
    share = given / jnp.maximum(wanted, 1e-6)
    return given, jnp.pad((beams * share).sum(1) / combat.HEAL_PER_ENERGY, (0, roster.enemies))


# --- the three functions --------------------------------------------------------------------------


def march(config: SmacConfig, s: Scene, x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """Steps until the allies stand in reach of the nearest enemy that they can hit, in the mean over armed allies, if
    everybody stood at (x, y)."""
    roster, a = config.roster, config.roster.allies
    gap = length(x[:a, None] - x[None, a:], y[:a, None] - y[None, a:]) - roster.touch[:a, a:]
    targets = (s.health[a:] > 0)[None, :] & roster.allowed[:a, a:]
    nearest = stable_min(jnp.where(targets, gap, 1e3), 1)
    wait = combat.time_to_range(nearest, jnp.asarray(roster.reach[:a]), jnp.asarray(roster.speed[:a])) / TICKS
    able = (s.health[:a] > 0) & targets.any(1)
    return (wait * able).sum() / jnp.maximum(able.sum(), 1)


def win_rate(config: SmacConfig, s: Scene, ahead: Ahead) -> Float[Array, ""]:
    """Expected share of the win's reward in this step: odds x what of the end falls into it.

    Square law: the odds are the ratio of strengths to the power ODDS; the end comes when the allies have marched into
    reach and their firepower has worn down what is left of the enemies, and is smeared over FINISH steps.
    """
    roster, a = config.roster, config.roster.allies
    health = jnp.maximum(s.health - ahead.lost_health, 0.0)
    pool = jnp.where(health > 0, health + s.shield - ahead.lost_shield, 0.0)
    dps = jnp.asarray(roster.dps)
    ours, theirs = combat.strength(dps[:a], pool[:a]), combat.strength(dps[a:], pool[a:])
    odds = jax.nn.sigmoid(ODDS * (jnp.log(ours + 1e-3) - jnp.log(theirs + 1e-3)))
    firepower = (roster.dps[:a] * (health[:a] > 0)).sum() * TICK * TICKS
    fighters = (roster.dps[a:] > 0) * pool[a:]
    left = march(config, s, ahead.x, ahead.y) + fighters.sum() / (firepower + 1e-3)
    return odds * (1.0 - jnp.exp(-1.0 / FINISH)) * jnp.exp(-left / FINISH)


def signals(config: SmacConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "signals"]:
    """Expected reward and smooth costs of the next step."""
    c, roster, a = config, config.roster, config.roster.allies
    s = unpack(c, array)
    ahead = look_ahead(c, s, action)
    lost = ahead.lost_health + ahead.lost_shield
    alive = s.health > 0
    killed = jnp.where(alive, jax.nn.sigmoid((lost - s.pool + KILL_EDGE) / (0.5 * KILL_EDGE)), 0.0)
    most = float(roster.pool[a:].sum()) + c.kill_reward * roster.enemies + c.win_reward
    win = win_rate(c, s, ahead)
    reward = c.reward_scale / most * (lost[a:].sum() + c.kill_reward * killed[a:].sum() + c.win_reward * win)
    if not c.safe:
        return reward[None]
    x, y = ahead.x[:a], ahead.y[:a]
    pairs = (roster.body[:a, :a] > 0) & alive[:a, None] & alive[None, :a]
    gap = jnp.where(pairs, length(x[:, None] - x[None, :], y[:, None] - y[None, :]) - roster.body[:a, :a], 1e3)
    near = jax.nn.sigmoid((c.spacing - stable_min(gap, 0)) / GAP_EDGE) * alive[:a]
    crowding = near.sum() / jnp.maximum(alive[:a].sum(), 1)
    return jnp.stack([reward, lost[:a].sum() / float(roster.pool[:a].sum()), killed[:a].mean(), crowding])


def predict(config: SmacConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
    """Mean successor: expected places and losses; expected shots set the weapons back."""
    c, roster = config, config.roster
    s = unpack(c, array)
    ahead = look_ahead(c, s, action)
    lives = s.health > 0
    hurt = (ahead.lost_health + ahead.lost_shield) > 0.5
    calm = jnp.where(hurt, 0.0, jnp.minimum(s.calm + TICKS, CALM))
    regrown = jnp.where(lives & (s.calm >= CALM) & ~hurt, combat.SHIELD_REGROWTH * TICK * TICKS, 0.0)
    cooldown = jnp.maximum(s.cooldown - TICKS, 0.0) * (1.0 - ahead.shots)
    cooldown = cooldown + ahead.shots * jnp.maximum(roster.period - 0.5 * TICKS, 0.0)
    regained = np.where(roster.heals, combat.ENERGY_REGROWTH * TICK * TICKS, 0.0)
    west, south, east, north = c.field.arena
    after = Scene(
        x=jnp.clip(ahead.x, west, east),
        y=jnp.clip(ahead.y, south, north),
        health=jnp.maximum(s.health - ahead.lost_health, 0.0) + ahead.healed,
        shield=jnp.clip(s.shield - ahead.lost_shield + regrown, 0.0, roster.shield),
        cooldown=cooldown,
        energy=jnp.clip(s.energy - ahead.spent + regained, 0.0, combat.ENERGY_MAX),
        calm=calm,
        time=jnp.minimum(s.time + 1.0 / c.field.limit, 1.0),
    )
    return assemble(c, after)


def nominal(config: SmacConfig, num_modes: int, array: Float[Array, "S"]) -> HybridAction:
    """Nominal controller: focus on the nearest enemy, no offset."""
    s = unpack(config, array)
    mask = allowed_modes(config, num_modes, s.x, s.y, s.health > 0)
    mode = focus(config, s.x, s.y, s.pool, mask, weakest=False)
    return HybridAction(mode, jnp.zeros((config.roster.allies, 2)))


def build_physics(config: SmacConfig, num_modes: int) -> Physics:
    return Physics(
        signals=partial(signals, config), predict=partial(predict, config), nominal=partial(nominal, config, num_modes)
    )
