"""Fighting units: what a hit does, how long a kill takes, who is stronger. No word of agents or rewards.

Times in seconds of the game's "normal" speed, distances in grid units, damage in hit points. A weapon fires at time 0,
P, 2P, ... while its target is within reach; what a hit does depends on shields first (which know no armour), then on
health behind armour.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

LEAST_DAMAGE = 0.5
"""What armour lets through of every hit that reaches it."""
SHIELD_DELAY = 10.0
"""s without damage before shields grow again."""
SHIELD_REGROWTH = 2.0
"""Shield points per s."""
HEAL_RATE = 9.0
"""Hit points per s of a healing beam."""
HEAL_PER_ENERGY = 3.0
ENERGY_START, ENERGY_MAX, ENERGY_REGROWTH = 50.0, 200.0, 0.5625
"""Of a healer; the last per s."""


@dataclass(frozen=True)
class UnitType:
    name: str
    health: float
    shield: float
    armor: float
    damage: float
    """Of one hit; 0: carries no weapon."""
    period: float
    """s between attacks."""
    reach: float
    """Of the weapon or the healing beam, from edge to edge."""
    speed: float
    """Grid units per s."""
    radius: float
    attacks: int = 1
    """Hits per attack."""
    bonus: float = 0.0
    """Added to every hit on an armoured unit."""
    armored: bool = False
    biological: bool = True
    flying: bool = False
    hits_air: bool = True
    heals: bool = False
    regrowth: float = 0.0
    """Hit points per s, always."""
    body: float | None = None
    """Radius that others cannot enter, if it differs from `radius` (from which reach is measured)."""

    @property
    def pool(self) -> float:
        return self.health + self.shield

    @property
    def dps(self) -> float:
        return self.damage * self.attacks / self.period


UNITS: dict[str, UnitType] = {
    unit.name: unit
    for unit in (
        UnitType("marine", 45.0, 0.0, 0.0, damage=6.0, period=0.861, reach=5.0, speed=2.25, radius=0.375),
        UnitType(
            "marauder",
            125.0,
            0.0,
            1.0,
            damage=10.0,
            period=1.5,
            reach=6.0,
            speed=2.25,
            radius=0.5625,
            bonus=10.0,
            armored=True,
            hits_air=False,
        ),
        UnitType(
            "medivac",
            150.0,
            0.0,
            1.0,
            damage=0.0,
            period=1.0,
            reach=4.0,
            speed=2.75,
            radius=0.75,
            armored=True,
            biological=False,
            flying=True,
            heals=True,
        ),
        UnitType(
            "stalker",
            80.0,
            80.0,
            1.0,
            damage=13.0,
            period=1.87,
            reach=6.0,
            speed=2.953,
            radius=0.625,
            bonus=5.0,
            armored=True,
            biological=False,
        ),
        UnitType(
            "zealot",
            100.0,
            50.0,
            1.0,
            damage=8.0,
            attacks=2,
            period=1.2,
            reach=0.1,
            speed=2.25,
            radius=0.5,
            body=0.375,
            hits_air=False,
        ),
        UnitType(
            "hydralisk", 80.0, 0.0, 0.0, damage=12.0, period=0.825, reach=5.0, speed=2.25, radius=0.625, regrowth=0.273
        ),
        UnitType(
            "zergling",
            35.0,
            0.0,
            0.0,
            damage=5.0,
            period=0.696,
            reach=0.1,
            speed=2.953,
            radius=0.375,
            hits_air=False,
            regrowth=0.273,
        ),
    )
}


def can_attack(attacker: UnitType, target: UnitType) -> bool:
    return attacker.damage > 0 and (attacker.hits_air or not target.flying)


def can_heal(healer: UnitType, target: UnitType) -> bool:
    return healer.heals and target.biological


def hit_damage(attacker: UnitType, target: UnitType) -> float:
    """Of one hit, before armour; 0 if the weapon cannot hit the target at all."""
    if not can_attack(attacker, target):
        return 0.0
    return attacker.damage + (attacker.bonus if target.armored else 0.0)


def absorb(
    health: Float[Array, "*n"],
    shield: Float[Array, "*n"],
    armor: Float[Array, "*n"],
    damage: Float[Array, "*n"],
    hits: Float[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """(health, shield) after `hits` hits that fall together, `damage` in all before armour.

    One after another, hits of equal size d = damage / hits: the first floor(shield / d) end in the shield, the next
    one is split, the rest meet armour whole. Each that reaches the health takes max(its rest - armour, 1/2).
    Exact for hits of one size; hits of different sizes are averaged.
    """
    each = damage / jnp.maximum(hits, 1.0)
    stopped = jnp.minimum(jnp.floor(shield / jnp.maximum(each, 1e-6)), hits)
    first = (stopped + 1.0) * each - shield
    whole = jnp.maximum(hits - stopped - 1.0, 0.0)
    wound = jnp.maximum(first - armor, LEAST_DAMAGE) + whole * jnp.maximum(each - armor, LEAST_DAMAGE)
    wound = jnp.where(hits > stopped, wound, 0.0)
    return jnp.maximum(health - wound, 0.0), jnp.maximum(shield - damage, 0.0)


def expected_loss(
    health: Float[Array, "*n"],
    shield: Float[Array, "*n"],
    armor: Float[Array, "*n"],
    damage: Float[Array, "*n"],
    hits: Float[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """(health, shield) lost to an expected number of hits, smooth: armour takes its share of what passes the shield."""
    through = jnp.maximum(damage - shield, 0.0)
    share = through / jnp.maximum(damage, 1e-6)
    wound = jnp.maximum(through - share * hits * armor, 0.0)
    return jnp.minimum(wound, health), jnp.minimum(damage, shield)


def shots_to_kill(attacker: UnitType, target: UnitType) -> int:
    """Attacks that kill a fresh target which does not recover meanwhile."""
    each, health, shield, shots = hit_damage(attacker, target), target.health, target.shield, 0
    if each <= 0:
        raise ValueError(f"a {attacker.name} cannot hurt a {target.name}")
    while health > 0:
        shots += 1
        for _ in range(attacker.attacks):
            rest = each - shield
            shield = max(shield - each, 0.0)
            if rest > 0:
                health -= max(rest - target.armor, LEAST_DAMAGE)
    return shots


def time_to_kill(attacker: UnitType, target: UnitType) -> float:
    """s from the first shot, which falls at 0, to the last."""
    return (shots_to_kill(attacker, target) - 1) * attacker.period


def time_to_range(
    distance: Float[Array, "*#n"], reach: Float[Array, "*#n"], speed: Float[Array, "*#n"]
) -> Float[Array, "*n"]:
    """Time until a target at an edge-to-edge `distance` is within `reach`: max(distance - reach, 0) / speed."""
    return jnp.maximum(distance - reach, 0.0) / speed


def strength(dps: Float[Array, "*n"], pool: Float[Array, "*n"]) -> Float[Array, ""]:
    """Lanchester's square law for a mixed army: (sum_i sqrt(dps_i pool_i))^2. The larger one wins."""
    return jnp.square(jnp.sum(jnp.sqrt(jnp.maximum(dps * pool, 0.0) + 1e-12)))
