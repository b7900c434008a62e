"""The battle engine: against its NumPy twin, hand-worked sequences, mirror images and known chances."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import smac_numpy as twin

from trident.envs.smac.config import Map, SmacConfig
from trident.envs.smac.engine import NOBODY, Orders, Units, tick
from trident.physics.combat import ENERGY_START, UNITS, time_to_kill

KINDS = {"medivac": 1, "marauder": 1, "marine": 2, "stalker": 2, "zealot": 2, "hydralisk": 1, "zergling": 2}
BOTH = tuple(KINDS.items())
SQUARE = (0.0, 0.0, 32.0, 32.0)
MIXED = SmacConfig(
    map=Map(
        BOTH, BOTH, 50, arena=SQUARE, walls=((11.0, 13.0, -1.0, 1.0), (15.0, 13.0, 1.0, -1.0)), diagonal=(-10.0, 13.0)
    )
)


def units_of(config, x, y, **changes):
    r, n = config.roster, config.roster.size
    base = {
        "x": x,
        "y": y,
        "health": r.health,
        "shield": r.shield,
        "cooldown": np.zeros(n),
        "energy": np.where(r.heals, ENERGY_START, 0.0),
        "calm": np.full(n, 1e4),
        "target": np.full(n, NOBODY),
    } | changes
    return Units(**{k: jnp.asarray(v, jnp.int32 if k == "target" else jnp.float32) for k, v in base.items()})


def orders_of(config, **changes):
    n = config.roster.size
    zero = np.zeros(n)
    base = {"target": np.full(n, NOBODY), "goal_x": zero, "goal_y": zero, "go": zero, "drift_x": zero, "drift_y": zero}
    kinds = {"target": jnp.int32, "go": bool}
    return Orders(**{k: jnp.asarray(v, kinds.get(k, jnp.float32)) for k, v in (base | changes).items()})


def march(config, auto, ticks):
    """(orders, units) -> units and acts of every tick, for a batch of battles."""

    def run(orders, units):
        def step(units, _):
            units, acts = tick(config, auto, orders, units)
            return units, (units, acts)

        return jax.lax.scan(step, units, None, length=ticks)[1]

    return jax.jit(jax.vmap(run))


# --- against the twin -----------------------------------------------------------------------------


def random_scene(rng):
    config, n = MIXED, MIXED.roster.size
    r = config.roster
    units = units_of(
        config,
        rng.uniform(12, 20, n),
        rng.uniform(12, 22, n),
        health=r.health * np.clip(rng.uniform(-0.2, 1.3, n), 0, 1),
        shield=r.shield * rng.uniform(0, 1, n),
        cooldown=np.maximum(rng.uniform(-10, 20, n), 0),
        energy=np.where(r.heals, rng.uniform(0, 1, n), 0.0),
        calm=rng.uniform(0, 300, n),
        target=rng.integers(-1, n, n),
    )
    units = units._replace(shield=jnp.where(units.health > 0, units.shield, 0.0))
    orders = orders_of(
        config,
        target=rng.integers(-1, n, n),
        goal_x=rng.uniform(0, 32, n),
        goal_y=rng.uniform(0, 32, n),
        go=rng.random(n) < 0.7,
        drift_x=rng.uniform(-0.1, 0.1, n),
        drift_y=rng.uniform(-0.1, 0.1, n),
    )
    return orders, units


def test_agrees_with_numpy_tick_by_tick():
    """Eight ticks of sixteen crowded scenes with every kind of unit, walls, dead units and impossible orders."""
    rng, auto = np.random.default_rng(0), (False, True)
    scenes = [random_scene(rng) for _ in range(16)]
    orders, units = jax.tree.map(lambda *x: jnp.stack(x), *scenes)
    after, acts = march(MIXED, auto, 8)(orders, units)
    fired = 0
    for k, (order, now) in enumerate(scenes):
        order, now = ({f: np.asarray(v) for f, v in t._asdict().items()} for t in (order, now))
        for t in range(8):
            now, acted = twin.tick(MIXED, auto, order, now)
            for field, value in now.items():
                if field == "target":
                    continue
                np.testing.assert_allclose(
                    getattr(after, field)[k, t], value, rtol=1e-4, atol=2e-3, err_msg=f"{field}, scene {k}, tick {t}"
                )
            np.testing.assert_array_equal(acts[k, t], acted)
            fired += acted.sum()
    assert fired > 200


# --- duels ----------------------------------------------------------------------------------------

DUELS = [
    ("marine", "marine"),
    ("marauder", "marauder"),
    ("stalker", "stalker"),
    ("stalker", "zealot"),
    ("zealot", "stalker"),
    ("zealot", "zealot"),
    ("zealot", "zergling"),
    ("zergling", "zealot"),
    ("hydralisk", "zealot"),
    ("zealot", "hydralisk"),
]


def test_time_to_kill_of_every_duel():
    """A weapon's k-th shot falls in tick ceil(k P): the mean rate is exact, so kills come within a tick of the closed
    form. Only the hydralisk recovers enough (0.273/s) to need a sixth attack: 6 s, 12 steps."""
    allies, enemies = (tuple((pair[side], 1) for pair in DUELS) for side in (0, 1))
    config = SmacConfig(map=Map(allies, enemies, 60, arena=(0.0, 0.0, 400.0, 40.0)))
    n = len(DUELS)
    touch = np.diag(config.roster.touch[:n, n:])
    x = 20.0 + 30.0 * np.arange(n)
    units = units_of(config, np.concatenate([x, x + touch + 0.05]), np.full(2 * n, 20.0))
    orders = orders_of(config, target=np.concatenate([np.arange(n, 2 * n), np.full(n, NOBODY)]))
    after, _ = march(config, (False, False), 400)(*jax.tree.map(lambda a: a[None], (orders, units)))
    dead = np.asarray(after.health[0, :, n:] <= 0)
    assert dead[-1].all()
    for k, pair in enumerate(DUELS):
        seconds = 6.0 if pair == ("zealot", "hydralisk") else time_to_kill(*(UNITS[name] for name in pair))
        assert dead[:, k].argmax() == np.ceil(16 * seconds - 1e-3), pair


# --- shields, beams, walls ------------------------------------------------------------------------


def test_shields_wait_ten_seconds_and_beams_cost_energy():
    config = SmacConfig(map=Map((("medivac", 1), ("marine", 2)), (("stalker", 2),), 50))
    units = units_of(
        config,
        [10, 12, 20, 30, 5],
        [16, 16, 16, 16, 12],
        health=[150, 20, 45, 80, 80],
        shield=[0, 0, 0, 10, 10],
        calm=[1e4, 1e4, 1e4, 0, 150],
        energy=[2, 0, 0, 0, 0],
    )
    orders = orders_of(config, target=[1, NOBODY, NOBODY, NOBODY, NOBODY])
    after, acts = march(config, (False, False), 200)(*jax.tree.map(lambda a: a[None], (orders, units)))
    after, acts = jax.tree.map(lambda a: np.asarray(a[0]), (after, acts))
    # hit at tick 0 and 150 ticks ago: the first regrown eighth comes after 160 calm ticks
    assert (after.shield[:160, 3] == 10).all()
    assert after.shield[160, 3] == pytest.approx(10.125)
    assert after.shield[10, 4] == pytest.approx(10.125)
    assert after.shield[199, 4] == pytest.approx(10 + 190 / 8)
    # 9 hp/s while energy lasts (2 at 3 hp each, growing by 0.5625/s), then 3 x 0.5625 = 1.6875 hp/s
    np.testing.assert_allclose(after.health[:8, 1], 20 + 9 / 16 * np.arange(1, 9), rtol=1e-5)
    late = np.diff(after.health[50:100, 1]).mean() * 16
    assert late == pytest.approx(3 * 0.5625, rel=1e-3)
    assert (after.energy[:, 0] >= 0).all()
    assert acts[:8, 0].all()


def test_nobody_passes_a_wall_but_flyers():
    armies = (("medivac", 1), ("zealot", 1)), (("zergling", 1),)
    config = SmacConfig(map=Map(*armies, 50, arena=SQUARE, walls=((15.0, 13.0, 1.0, -1.0),)))
    units = units_of(config, [20, 22, 25], [14, 14, 30])
    orders = orders_of(config, goal_x=[20, 22, 25], goal_y=[5, 5, 30], go=[1, 1, 0])
    after, _ = march(config, (False, False), 100)(*jax.tree.map(lambda a: a[None], (orders, units)))
    np.testing.assert_allclose(after.y[0, -1], [5.0, 13.375, 30.0], atol=1e-3)


def test_nobody_walks_through_a_closed_rank():
    """Three zealots that stand fill a passage; a zergling that wants to pass does not, and does not move them."""
    config = SmacConfig(map=Map((("zealot", 3),), (("zergling", 1),), 50, arena=(0.0, 0.0, 30.0, 2.25)))
    units = units_of(config, [15, 15, 15, 20], [0.375, 1.125, 1.875, 1.1])
    orders = orders_of(config, goal_x=[15, 15, 15, 1], goal_y=[0.375, 1.125, 1.875, 1.1], go=[0, 0, 0, 1])
    after, _ = march(config, (False, False), 200)(*jax.tree.map(lambda a: a[None], (orders, units)))
    assert (after.x[0, :, :3] == 15.0).all()
    assert 15.3 < after.x[0, -1, 3] < 16.0


def test_two_in_the_same_place_part():
    config = SmacConfig(map=Map((("marine", 2),), (("marine", 1),), 50, arena=SQUARE))
    units = units_of(config, [10, 10, 25], [16, 16, 16])
    orders = orders_of(config)
    after, _ = march(config, (False, False), 20)(*jax.tree.map(lambda a: a[None], (orders, units)))
    assert np.hypot(*(after.x[0, -1, 0] - after.x[0, -1, 1], after.y[0, -1, 0] - after.y[0, -1, 1])) > 0.74


def test_bodies_do_not_pile_up_in_a_crowd():
    """Corridor: two dozen zerglings come through a gap four units wide; hardly any stand inside another body."""
    config = SmacConfig(map="corridor")
    r, a = config.roster, config.roster.allies
    spread = np.random.default_rng(0).uniform(-2.0, 2.0, (2, r.size))
    x, y = (
        np.r_[np.full(a, 19.0), np.full(r.enemies, 27.0)] + spread[0],
        np.r_[np.full(a, 19.0), np.full(r.enemies, 27.0)] + spread[1],
    )
    units, goal = units_of(config, x, y), np.r_[np.full(a, 19.0), np.full(r.enemies, 4.4)]
    orders = orders_of(config, goal_x=goal, goal_y=goal, go=[0] * a + [1] * r.enemies)
    after, _ = march(config, (True, True), 240)(*jax.tree.map(lambda v: v[None], (orders, units)))
    away = np.hypot(*(np.asarray(v[0, 40:, :, None] - v[0, 40:, None, :]) for v in (after.x, after.y)))
    alive = np.asarray(after.health[0, 40:] > 0)
    pairs = alive[:, :, None] & alive[:, None, :] & ~np.eye(r.size, dtype=bool) & (r.body > 0)
    inside = (away < 0.5 * r.body) & pairs
    assert inside.any(2)[alive].mean() < 0.05
    assert (away[pairs] < 1e-3).mean() == 0.0


# --- no side is favoured --------------------------------------------------------------------------

MIX = (("marine", 2), ("stalker", 2), ("zealot", 2))
ARMIES = {  # ticks that are enough to decide the battle, and the army
    "mixed": (1280, MIX),
    "healers": (640, (("medivac", 1), ("marauder", 2), ("marine", 5))),
    "zerg": (480, (("hydralisk", 3), ("zergling", 6))),
    "27m": (400, (("marine", 27),)),
    "any": (640, tuple((kind, 1 if kind == "medivac" else 2) for kind in UNITS)),
}


def fair_map(army):
    return SmacConfig(map=Map(army, army, 120, arena=SQUARE))


def fair_start(config, rng, battles):
    n = config.roster.allies
    spread = 0.9 * n**0.5
    place = np.array([9.0, 16.0]) + rng.uniform(-spread, spread, (battles, n, 2))
    other = np.array([23.0, 16.0]) + rng.uniform(-spread, spread, (battles, n, 2))
    both = np.concatenate([place, other], 1)
    units = units_of(config, np.zeros(2 * n), np.zeros(2 * n))
    units = jax.tree.map(lambda a: jnp.broadcast_to(a, (battles, *a.shape)), units)
    units = units._replace(x=jnp.asarray(both[..., 0], jnp.float32), y=jnp.asarray(both[..., 1], jnp.float32))
    orders = orders_of(config, goal_x=[23] * n + [9] * n, goal_y=[16] * 2 * n, go=[1] * 2 * n)
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (battles, *a.shape)), orders), units


def mirrored(units):
    """The same battle seen from the other side: x -> 32 - x and the armies exchanged."""
    n = units.x.shape[-1] // 2
    swap = np.r_[n : 2 * n, 0:n]
    units = jax.tree.map(lambda a: a[..., swap], units)
    target = jnp.where(units.target < 0, NOBODY, (units.target + n) % (2 * n))
    return units._replace(x=32.0 - units.x, target=target)


@cache
def fair(name):
    """Battles between equals with both armies attack-moving, played to the end: the config, and what plays them."""
    ticks, army = ARMIES[name]
    config = fair_map(army)

    def run(orders, units):
        def step(units, _):
            return (tick(config, (True, True), orders, units)[0], None)

        return jax.lax.scan(step, units, None, length=ticks)[0]

    return config, jax.jit(jax.vmap(run))


def verdicts(name, orders, units):
    """How many battles the west won, and the east: those in which only one side has fighters left."""
    config, run = fair(name)
    fighters = np.asarray(run(orders, units).health > 0) & (config.roster.dps > 0)
    ours, theirs = (fighters[:, config.roster.side(side)].any(1) for side in (True, False))
    return int((ours & ~theirs).sum()), int((theirs & ~ours).sum())


def even(west, east):
    return abs(west - east) <= 3.5 * np.sqrt(west + east)


def test_a_mirrored_battle_is_the_mirror_image():
    config = fair_map(MIX)
    orders, units = fair_start(config, np.random.default_rng(1), 8)
    run = march(config, (True, True), 120)
    straight, _ = run(orders, units)
    image, _ = run(orders, mirrored(units))
    back = mirrored(image)
    agree = [
        np.isclose(getattr(straight, f), getattr(back, f), atol=0.02).mean() for f in ("x", "y", "health", "shield")
    ]
    assert min(agree) > 0.98  # rounding differs, and the order of sums: a battle or two may part late
    assert (straight.health[:, -1] < config.roster.health).any()


@pytest.mark.parametrize(("name", "battles"), [("mixed", 300), ("healers", 160), ("zerg", 160), ("27m", 60)])
def test_equal_armies_win_half_of_their_battles(name, battles):
    west, east = verdicts(name, *fair_start(fair(name)[0], np.random.default_rng(2), battles))
    assert west + east > 0.85 * battles
    assert even(west, east)


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_equal_armies_of_any_composition_win_half_of_their_battles(data):
    """One program for all of them: who is not in the army has fallen before the battle."""
    config, _ = fair("any")
    a = config.roster.allies
    kinds = [unit.name for unit in config.roster.types[:a]]
    present = np.zeros(a, bool)
    for kind in UNITS:
        most = kinds.count(kind)
        present[kinds.index(kind) : kinds.index(kind) + data.draw(st.integers(0, most), label=kind)] = True
    assume((present & (config.roster.dps[:a] > 0)).any())
    orders, units = fair_start(config, np.random.default_rng(data.draw(st.integers(0, 2**16), label="seed")), 48)
    there = np.concatenate([present, present])
    units = units._replace(health=units.health * there, shield=units.shield * there)
    assert even(*verdicts("any", orders, units))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "healers", "zerg"])
def test_equal_armies_win_half_of_many_battles(name):
    starts = (fair_start(fair(name)[0], np.random.default_rng(10 + k), 1000) for k in range(8))
    west, east = np.sum([verdicts(name, *start) for start in starts], 0)
    assert even(west, east)
