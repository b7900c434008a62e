"""The hard maps and their units, number by number: as parsed from the game's map files and unit data."""

from __future__ import annotations

import numpy as np
import pytest

from trident.envs.smac.config import MAPS, TICK, TICKS, SmacConfig
from trident.envs.smac.env import most_reward
from trident.physics import combat
from trident.physics.combat import UNITS

WEST, EAST = (9.0, 16.0), (23.0, 16.0)
HARD = {  # steps, the most there is to earn, spawn points, where the enemy attack-moves to, armies
    "3s5z_vs_3s6z": (170, 1670, WEST, EAST, WEST, {"stalker": 3, "zealot": 5}, {"stalker": 3, "zealot": 6}),
    "corridor": (400, 1280, (19.04, 19.12), (27.91, 28.24), (4.47, 4.33), {"zealot": 6}, {"zergling": 24}),
    "6h_vs_8z": (150, 1480, (14.60, 9.49), (14.41, 16.76), (14.60, 9.49), {"hydralisk": 6}, {"zealot": 8}),
    "MMM2": (
        180,
        1205,
        WEST,
        EAST,
        WEST,
        {"medivac": 1, "marauder": 2, "marine": 7},
        {"medivac": 1, "marauder": 3, "marine": 8},
    ),
    "27m_vs_30m": (180, 1850, WEST, EAST, WEST, {"marine": 27}, {"marine": 30}),
}
STATS = {  # health, shield, armour, damage, attacks, bonus, period, reach, speed, radius, damage per s
    "marine": (45, 0, 0, 6, 1, 0, 0.861, 5, 2.25, 0.375, 6.97),
    "marauder": (125, 0, 1, 10, 1, 10, 1.5, 6, 2.25, 0.5625, 6.67),
    "medivac": (150, 0, 1, 0, 1, 0, 1.0, 4, 2.75, 0.75, 0.0),
    "stalker": (80, 80, 1, 13, 1, 5, 1.87, 6, 2.953, 0.625, 6.95),
    "zealot": (100, 50, 1, 8, 2, 0, 1.2, 0.1, 2.25, 0.5, 13.33),
    "hydralisk": (80, 0, 0, 12, 1, 0, 0.825, 5, 2.25, 0.625, 14.55),
    "zergling": (35, 0, 0, 5, 1, 0, 0.696, 0.1, 2.953, 0.375, 7.18),
}


@pytest.mark.parametrize("name", list(HARD))
def test_a_hard_map(name):
    limit, most, ours, theirs, goal, allies, enemies = HARD[name]
    field = MAPS[name]
    assert (field.limit, field.ally_spawn, field.enemy_spawn) == (limit, ours, theirs)
    assert (field.attack_point or field.ally_spawn) == goal
    assert (dict(field.allies), dict(field.enemies)) == (allies, enemies)
    assert most_reward(SmacConfig(map=name)) == most


@pytest.mark.parametrize("name", list(STATS))
def test_a_unit(name):
    u = UNITS[name]
    fields = (u.health, u.shield, u.armor, u.damage, u.attacks, u.bonus, u.period, u.reach, u.speed, u.radius)
    assert fields == STATS[name][:-1]
    assert u.dps == pytest.approx(STATS[name][-1], abs=0.006)


def test_what_units_are_and_what_they_can_hit():
    def kinds(said):
        return {name for name, unit in UNITS.items() if said(unit)}

    assert set(UNITS) == set(STATS)
    assert kinds(lambda u: u.armored) == {"marauder", "medivac", "stalker"}
    assert kinds(lambda u: not u.biological) == {"medivac", "stalker"}
    assert kinds(lambda u: u.flying) == kinds(lambda u: u.heals) == {"medivac"}
    assert kinds(lambda u: not u.hits_air) == {"marauder", "zealot", "zergling"}
    assert {name: u.regrowth for name, u in UNITS.items() if u.regrowth} == {"hydralisk": 0.273, "zergling": 0.273}
    assert {name: u.body for name, u in UNITS.items() if u.body is not None} == {"zealot": 0.375}


def test_the_rest_of_the_rules():
    config = SmacConfig()
    assert (TICKS, 1 / TICK) == (8, 16)
    assert (config.move, config.sight, config.shoot) == (2.0, 9.0, 6.0)
    assert (config.kill_reward, config.win_reward, config.reward_scale) == (10.0, 200.0, 20.0)
    assert (combat.SHIELD_REGROWTH, combat.SHIELD_DELAY, combat.LEAST_DAMAGE) == (2.0, 10.0, 0.5)
    assert (combat.HEAL_RATE, combat.HEAL_PER_ENERGY) == (9.0, 3.0)
    assert (combat.ENERGY_START, combat.ENERGY_MAX, combat.ENERGY_REGROWTH) == (50.0, 200.0, 0.5625)


def test_hand_to_hand_the_zealots_of_corridor_are_the_stronger():
    """Linear law, n x dps x health: where only the front ranks fight, and not everybody at once."""
    roster, a = SmacConfig(map="corridor").roster, 6
    ours, theirs = (float(np.sum(roster.dps[s] * roster.pool[s])) for s in (slice(0, a), slice(a, None)))
    assert ours / theirs == pytest.approx(1.99, abs=0.006)
