"""Maps of hybrid SMAC: armies, spawn points, arenas and walls, and every number that can be set.

Positions in grid units; y points north. Armies are written as in the maps' names, allies first.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from trident.envs.randomised import off
from trident.errors import TridentError
from trident.physics.combat import UNITS, UnitType, can_attack, can_heal, hit_damage

Army = tuple[tuple[str, int], ...]
Point = tuple[float, float]
Box = tuple[float, float, float, float]

TICKS = 8
"""Of the game loop in one environment step."""
TICK = 1.0 / 16.0
"""s"""
WEST, EAST = (9.0, 16.0), (23.0, 16.0)
ARENA: Box = (0.0, 8.0, 32.0, 24.0)


@dataclass(frozen=True)
class Map:
    allies: Army
    enemies: Army
    limit: int
    """Steps of an episode."""
    ally_spawn: Point = WEST
    enemy_spawn: Point = EAST
    attack_point: Point | None = None
    """Where the enemy's attack-move leads; the allies' spawn point unless told."""
    arena: Box = ARENA
    """West, south, east, north."""
    walls: tuple[Box, ...] = ()
    """Quadrants nobody on the ground can enter, (x, y, to x, to y): from the corner (x, y) towards the signs given."""
    diagonal: tuple[float, float] | None = None
    """Bounds of x - y: the arena's two diagonal sides."""
    places: tuple[Point, ...] | None = None
    """Starting places of all units, allies first; a block about each spawn point unless told."""


MAPS: dict[str, Map] = {
    "3m": Map((("marine", 3),), (("marine", 3),), 60),
    "8m": Map((("marine", 8),), (("marine", 8),), 120),
    "2s3z": Map((("stalker", 2), ("zealot", 3)), (("stalker", 2), ("zealot", 3)), 120),
    "3s5z_vs_3s6z": Map((("stalker", 3), ("zealot", 5)), (("stalker", 3), ("zealot", 6)), 170),
    # Two basins joined by a gap four units wide; the zerglings' way to the attack point leads through it.
    "corridor": Map(
        (("zealot", 6),),
        (("zergling", 24),),
        400,
        (19.04, 19.12),
        (27.91, 28.24),
        (4.47, 4.33),
        arena=(1.0, 1.0, 31.0, 31.0),
        walls=((11.0, 13.0, -1.0, 1.0), (15.0, 13.0, 1.0, -1.0)),
        diagonal=(-10.0, 13.0),
    ),
    "6h_vs_8z": Map(
        (("hydralisk", 6),), (("zealot", 8),), 150, (14.60, 9.49), (14.41, 16.76), arena=(0.0, 0.0, 32.0, 32.0)
    ),
    "MMM2": Map(
        (("medivac", 1), ("marauder", 2), ("marine", 7)), (("medivac", 1), ("marauder", 3), ("marine", 8)), 180
    ),
    "27m_vs_30m": Map((("marine", 27),), (("marine", 30),), 180),
}


@dataclass(frozen=True)
class SmacConfig:
    map: str | Map = "3m"
    """One of MAPS, or a map of your own."""
    safe: bool = False
    """Constraints on allied losses, deaths and crowding."""
    sight: float = 9.0
    """How far a unit sees, centre to centre."""
    shoot: float = 6.0
    """How near, centre to centre, a unit must be to be chosen as a target; weapons have their own reach."""
    move: float = 2.0
    """Distance of a move order's destination."""
    offset: float = 1.0
    """Largest repositioning offset."""
    scan: float = 5.0
    """Edge-to-edge distance at which an attack-moving unit turns on an opponent (its weapon's reach, if longer)."""
    alert: float = 2.0
    """s after a hit during which an attack-moving unit scans as far as it sees."""
    jitter: float = 0.25
    """Of every starting place, each way."""
    kill_reward: float = 10.0
    win_reward: float = 200.0
    reward_scale: float = 20.0
    """What the largest possible reward of an episode is scaled to (healing and regrowth can add to it)."""
    spacing: float = 0.5
    """Edge-to-edge distance below which two allies crowd each other."""
    loss_limit: float = 0.01
    """Allied health and shields lost per step, as a share of all there were at the start."""
    death_limit: float = 0.01
    """Allies that die per step, as a share of the army."""
    crowding_limit: float = 0.5
    """Living allies that crowd another, as a share."""

    errors: ClassVar[dict[str, Any]] = {}
    """What a simulator that is wrong has otherwise (`trident.envs.randomised`)."""

    def __post_init__(self) -> None:
        if isinstance(self.map, str) and self.map not in MAPS:
            near = difflib.get_close_matches(self.map, MAPS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise TridentError(f"unknown SMAC map {self.map!r}: {hint}known maps are {', '.join(MAPS)}")
        for name in ("sight", "shoot", "move", "scan", "spacing", "reward_scale"):
            if getattr(self, name) <= 0:
                raise TridentError(f"SmacConfig {name}={getattr(self, name)} must be positive")
        for name in ("offset", "alert", "jitter", "loss_limit", "death_limit", "crowding_limit"):
            if getattr(self, name) < 0:
                raise TridentError(f"SmacConfig {name}={getattr(self, name)} must not be negative")
        places = self.field.places
        if places is not None and len(places) != self.roster.size:
            raise TridentError(f"the map has {len(places)} starting places for {self.roster.size} units")
        if self.shoot > self.sight:
            raise TridentError(
                f"SmacConfig shoot={self.shoot} exceeds sight={self.sight}: nobody shoots what is unseen"
            )

    @cached_property
    def field(self) -> Map:
        return MAPS[self.map] if isinstance(self.map, str) else self.map

    @property
    def name(self) -> str:
        return f"smac-{self.map if isinstance(self.map, str) else 'custom'}" + ("-safe" if self.safe else "")

    @cached_property
    def roster(self) -> Roster:
        return make_roster(self.field.allies, self.field.enemies)

    @property
    def fielded(self) -> Roster:
        """The roster as it really fights."""
        roster = self.roster
        if not self.errors:
            return roster
        ours = jnp.arange(roster.size) < roster.allies
        damage = jnp.where(ours[:, None], roster.damage, off(self.errors, "enemy-damage", roster.damage))
        speed = jnp.where(ours, off(self.errors, "speed", roster.speed), roster.speed)
        return dataclasses.replace(roster, damage=damage, speed=speed)


@dataclass(frozen=True, eq=False)
class Roster:
    """Both armies as arrays, allies first: n units, the first `allies` of them ours. Rates are per tick."""

    types: tuple[UnitType, ...]
    allies: int
    health: np.ndarray  # [n], of a fresh unit
    shield: np.ndarray
    armor: np.ndarray
    attacks: np.ndarray
    period: np.ndarray  # ticks
    reach: np.ndarray
    speed: Any  # grid units per tick
    radius: np.ndarray
    width: np.ndarray  # radius that others and walls cannot enter
    regrowth: np.ndarray
    flying: np.ndarray  # bool
    heals: np.ndarray  # bool
    dps: np.ndarray  # per s
    touch: np.ndarray  # [n, n] sum of the radii from which reach is measured
    body: np.ndarray  # [n, n] least distance of the centres; far below zero for pairs that pass over each other
    damage: Any  # [n attacker, n target] of one attack, before armour
    allowed: np.ndarray  # [n actor, n target] bool: may attack (the other side) or heal (its own)

    @property
    def size(self) -> int:
        return len(self.types)

    @property
    def enemies(self) -> int:
        return self.size - self.allies

    @property
    def pool(self) -> np.ndarray:
        return self.health + self.shield

    def side(self, ours: bool) -> slice:
        return slice(0, self.allies) if ours else slice(self.allies, self.size)


def make_roster(allies: Army, enemies: Army) -> Roster:
    types = tuple(UNITS[name] for army in (allies, enemies) for name, count in army for _ in range(count))
    ours = sum(count for _, count in allies)
    n = len(types)

    def column(read: Callable[[UnitType], float], dtype: type = np.float32) -> np.ndarray:
        return np.array([read(u) for u in types], dtype)

    def table(read: Callable[[int, int], float], dtype: type = np.float32) -> np.ndarray:
        return np.array([[read(i, j) for j in range(n)] for i in range(n)], dtype)

    radius = column(lambda u: u.radius)
    width = column(lambda u: u.radius if u.body is None else u.body)
    flying = column(lambda u: u.flying, bool)
    same = (np.arange(n) < ours)[:, None] == (np.arange(n) < ours)[None, :]
    meets = (flying[:, None] == flying[None, :]) & ~np.eye(n, dtype=bool)
    heal = table(lambda i, j: can_heal(types[i], types[j]) and i != j, bool)
    attack = table(lambda i, j: can_attack(types[i], types[j]), bool)
    return Roster(
        types=types,
        allies=ours,
        health=column(lambda u: u.health),
        shield=column(lambda u: u.shield),
        armor=column(lambda u: u.armor),
        attacks=column(lambda u: u.attacks),
        period=column(lambda u: u.period / TICK),
        reach=column(lambda u: u.reach),
        speed=column(lambda u: u.speed * TICK),
        radius=radius,
        width=width,
        regrowth=column(lambda u: u.regrowth * TICK),
        flying=flying,
        heals=column(lambda u: u.heals, bool),
        dps=column(lambda u: u.dps),
        touch=(radius[:, None] + radius[None, :]).astype(np.float32),
        body=np.where(meets, width[:, None] + width[None, :], -1.0).astype(np.float32),
        damage=table(lambda i, j: types[i].attacks * hit_damage(types[i], types[j])),
        allowed=np.where(same, heal, attack),
    )
