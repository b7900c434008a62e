"""Hybrid SMAC as an environment: masks, orders, reward, costs, ends, and invariants under any action."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.checks.values import find_faults
from trident.envs.random_policy import random_action
from trident.envs.smac.actions import FIRST_TARGET, STOP, passable
from trident.envs.smac.config import MAPS, Map, SmacConfig
from trident.envs.smac.env import VARIANTS, Smac, formation, initial_units, most_reward, outcome
from trident.errors import TridentError
from trident.training.registry import ENVS, make_env
from trident.types import HybridAction

ALLIES = (("medivac", 1), ("marauder", 1), ("stalker", 2), ("zealot", 2))
ENEMIES = (("medivac", 1), ("marine", 4), ("zealot", 3))
FIELD = Map(
    ALLIES,
    ENEMIES,
    40,
    (13.0, 15.0),
    (18.0, 19.0),
    (13.0, 8.0),
    arena=(1.0, 1.0, 31.0, 31.0),
    walls=((11.0, 13.0, -1.0, 1.0), (15.0, 13.0, 1.0, -1.0)),
    diagonal=(-10.0, 13.0),
)
MIXED = SmacConfig(map=FIELD, safe=True)
ENV = Smac(MIXED)
ROSTER, A = MIXED.roster, MIXED.roster.allies
STEP = jax.jit(jax.vmap(lambda s, a: ENV.step(jax.random.key(0), s, a)))
RESET = jax.jit(jax.vmap(ENV.reset))


BATTLES = 24


@pytest.fixture(scope="module")
def walk():
    """Random episodes: (states, time steps), [time, battle, ...], the reset first. In the second half of the battles
    anything is tried: any mode whether open or not, also by the dead, and offsets far beyond the box."""

    def anything(key):
        which, how = jax.random.split(key)
        mode = jax.random.randint(which, (A,), 0, ENV.spec.action.num_modes)
        return HybridAction(mode, jnp.array([1.0, 1e6])[mode % 2, None] * jax.random.normal(how, (A, 2)))

    def run(key, wild):
        first = ENV.reset(key)

        def advance(carry, key):
            allowed = random_action(key, ENV.spec.action, carry[1].mode_mask)
            action = jax.tree.map(lambda a, b: jnp.where(wild, a, b), anything(key), allowed)
            after = ENV.step(key, carry[0], action)
            return after, after

        _, (states, out) = jax.lax.scan(advance, first, jax.random.split(key, 40))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, (states, out))

    keys, wild = jax.random.split(jax.random.key(0), 2 * BATTLES), jnp.arange(2 * BATTLES) >= BATTLES
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(run, out_axes=1))(keys, wild))


def start(batch=1, **changes):
    """Fresh battles with some of the units' arrays replaced."""
    state, _ = RESET(jax.random.split(jax.random.key(1), batch))
    return state._replace(
        units=state.units._replace(**{k: jnp.asarray(v, jnp.float32)[None] for k, v in changes.items()})
    )


def act(modes, offsets=None):
    params = np.zeros((A, 2)) if offsets is None else offsets
    return HybridAction(jnp.asarray([modes], jnp.int32), jnp.asarray([params], jnp.float32))


# --- names ----------------------------------------------------------------------------------------


def test_every_map_is_in_the_registry_plain_and_safe():
    for name in MAPS:
        assert {f"smac-{name}", f"smac-{name}-safe"} <= set(ENVS)
    assert VARIANTS["smac-MMM2-safe"].safe
    env = make_env("smac-27m_vs_30m")
    assert (env.spec.num_agents, env.spec.action.num_modes, env.spec.num_constraints) == (27, 36, 0)
    assert [c.name for c in make_env("smac-3m-safe").spec.constraints] == ["losses", "deaths", "crowding"]


def test_the_task_without_a_maps_name_is_one_of_the_maps_and_names_the_others():
    assert make_env("smac-hybrid").spec.name == "smac-3s5z_vs_3s6z"
    assert make_env("smac-hybrid-safe").spec.name == "smac-3s5z_vs_3s6z-safe"
    assert all(name in ENVS["smac-hybrid"].help for name in MAPS)


def test_one_of_a_kind_has_no_plural():
    assert "1 medivac, 2 marauders, 7 marines against" in ENVS["smac-MMM2"].help


@pytest.mark.parametrize("name", ["smac-9m", "smac-corridr-safe"])
def test_an_unknown_map_is_one_line_that_lists_the_known_ones(name):
    with pytest.raises(TridentError) as error:
        make_env(name)
    assert "\n" not in str(error.value)
    assert all(known in str(error.value) for known in MAPS)


def test_a_wrong_number_is_one_clear_line():
    with pytest.raises(TridentError, match="shoot"):
        SmacConfig(shoot=10.0)
    with pytest.raises(TridentError, match="spacing"):
        SmacConfig(spacing=0.0)
    with pytest.raises(TridentError, match="3 starting places for 6 units"):
        SmacConfig(map=replace(MAPS["3m"], places=((1.0, 9.0), (2.0, 9.0), (3.0, 9.0))))


def test_a_map_may_say_where_everybody_starts():
    places = ((9.0, 16.0), (9.0, 18.0), (9.0, 14.0), (23.0, 16.0), (23.0, 18.5), (21.0, 14.0))
    config = SmacConfig(map=replace(MAPS["3m"], places=places), jitter=0.0)
    units = initial_units(config, jax.random.key(0))
    np.testing.assert_allclose(np.stack([units.x, units.y], -1), places)


@pytest.mark.parametrize("name", list(MAPS))
def test_armies_start_inside_the_arena_apart_and_facing_each_other(name):
    config = SmacConfig(map=name)
    place = np.concatenate([formation(config, True), formation(config, False)])
    assert np.asarray(passable(config, jnp.asarray(place[:, 0]), jnp.asarray(place[:, 1]))).all()
    gap = np.linalg.norm(place[:, None] - place[None], axis=-1) - config.roster.body
    assert gap[~np.eye(len(place), dtype=bool)].min() > 0
    np.testing.assert_allclose(place[: config.roster.allies].mean(0), config.field.ally_spawn, atol=0.6)


# --- what is allowed ------------------------------------------------------------------------------


def test_masks_allow_exactly_what_is_possible(walk):
    states, out = walk
    u, mask = states.units, out.mode_mask
    alive = u.health > 0
    distance = np.hypot(u.x[..., :A, None] - u.x[..., None, :], u.y[..., :A, None] - u.y[..., None, :])
    near = (distance <= 6.0) & alive[..., None, :] & alive[..., :A, None] & ROSTER.allowed[:A]
    foes = np.zeros_like(mask[..., FIRST_TARGET:])
    foes[..., 1:, : ROSTER.enemies] = near[..., 1:, A:]
    foes[..., 0, :A] = near[..., 0, :A]  # the medivac heals allies
    np.testing.assert_array_equal(mask[..., FIRST_TARGET:], foes)
    np.testing.assert_array_equal(mask[..., 0], ~alive[..., :A])
    np.testing.assert_array_equal(mask[..., 1], alive[..., :A])
    assert not mask[..., 2:][~alive[..., :A]].any()
    assert mask[..., 2:6].any()
    assert not mask[..., 2:6][alive[..., :A]].all()  # walls
    assert not mask[..., 1, FIRST_TARGET].any()  # marauders cannot hit the medivac in the air


@pytest.mark.parametrize("half", [slice(0, BATTLES), slice(BATTLES, None)], ids=["allowed", "anything"])
def test_invariants_under_any_action(walk, half):
    states, out = jax.tree.map(lambda x: x[:, half], walk)
    u, r = states.units, ROSTER
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((states, out)))
    west, south, east, north = MIXED.field.arena
    assert ((u.health >= 0) & (u.health <= r.health + 1e-3)).all()
    assert ((u.shield >= 0) & (u.shield <= r.shield + 1e-3)).all()
    assert ((u.energy >= 0) & (u.energy <= 200)).all()
    assert ((u.x >= west) & (u.x <= east) & (u.y >= south) & (u.y <= north)).all()
    ground = ~r.flying
    inside = np.asarray(passable(MIXED, jnp.asarray(u.x[..., ground]), jnp.asarray(u.y[..., ground])))
    assert inside[u.health[..., ground] > 0].all()
    dead = u.health[:-1] <= 0
    assert (u.health[1:][dead] == 0).all()  # nobody rises again
    assert (u.x[1:][dead] == u.x[:-1][dead]).all()
    assert (states.fire.shots[1:][dead] == 0).all()
    assert dead.any()
    assert (out.cost >= 0).all()
    assert np.abs(out.obs).max() <= 2.0
    assert (out.obs[~out.alive] == 0).all()
    speed = np.hypot(np.diff(u.x, axis=0), np.diff(u.y, axis=0))
    assert (speed <= 8 * (r.speed + 0.25 * 2**0.5) + 1e-3).all()
    assert (np.hypot(*np.moveaxis(states.offset, -1, 0)) <= MIXED.offset + 1e-5).all()


@pytest.mark.parametrize("half", [slice(0, BATTLES), slice(BATTLES, None)], ids=["allowed", "anything"])
def test_hardly_anybody_stands_inside_another(walk, half):
    """Deeper than half a body; in a battle in a gap four units wide."""
    u = walk[0].units
    x, y, alive = u.x[1:, half], u.y[1:, half], u.health[1:, half] > 0
    away = np.hypot(x[..., :, None] - x[..., None, :], y[..., :, None] - y[..., None, :])
    pairs = alive[..., :, None] & alive[..., None, :] & (ROSTER.body > 0)
    inside = (pairs & (away < 0.5 * ROSTER.body)).any(-1)
    assert inside[alive].mean() < 0.02


def test_costs_margins_and_metrics_tell_the_same(walk):
    _, out = walk
    losses, deaths, crowding = np.moveaxis(out.cost[1:], -1, 0)
    margin = out.margin[1:]
    np.testing.assert_array_equal(losses > MIXED.loss_limit, margin[..., 0] < 0)
    np.testing.assert_array_equal(deaths > 0, margin[..., 1] < 0)
    np.testing.assert_array_equal(crowding > 0, margin[..., 2] < 0)
    for k, name in enumerate(("losses", "deaths", "crowding")):
        np.testing.assert_array_equal(out.metrics[name][1:], out.cost[1:, :, k])
    assert (losses > 0).any()
    assert (deaths > 0).any()
    assert (crowding > 0).any()


# --- orders ---------------------------------------------------------------------------------------

APART = {  # the marauder (1) alone in the open, everybody else far away
    "x": [25, 20, 3, 5, 7, 9, 30, 30, 29, 28, 27, 3, 4, 5],
    "y": [27, 20, 2, 2, 2, 2, 27, 25, 24, 23, 22, 11, 11, 11],
}


@pytest.mark.parametrize(("mode", "way"), [(2, (0, 1)), (3, (0, -1)), (4, (1, 0)), (5, (-1, 0)), (STOP, (0, 0))])
def test_a_move_goes_its_way_at_full_speed(mode, way):
    state = start(**APART)
    after, _ = STEP(state, act([1, mode, 1, 1, 1, 1]))
    moved = np.array([after.units.x[0, 1] - 20.0, after.units.y[0, 1] - 20.0])
    np.testing.assert_allclose(moved, 2.25 * 0.5 * np.array(way), atol=1e-4)


def test_an_offset_turns_a_move_towards_its_new_destination():
    after, _ = STEP(start(**APART), act([1, 4, 1, 1, 1, 1], [[0, 0], [0, 1], *[[0, 0]] * 4]))
    moved = np.array([after.units.x[0, 1] - 20.0, after.units.y[0, 1] - 20.0])
    np.testing.assert_allclose(moved, 1.125 * np.array([2, 1]) / 5**0.5, atol=1e-4)


def test_an_offset_is_flown_between_shots_and_not_without_one():
    """A marauder that has just fired drifts by its offset; with none it stands; a ready one fires first."""
    close = {k: [*APART[k][: A + 1], meet, *APART[k][A + 2 :]] for k, meet in (("x", 24), ("y", 20))}
    attack, offsets = [1, FIRST_TARGET + 1, 1, 1, 1, 1], [[0, 0], [-1, 0], *[[0, 0]] * 4]
    cooling = start(**close, cooldown=[0, 20, *[0] * 12], calm=[1e4] * 14)
    plain, _ = STEP(cooling, act(attack))
    drifted, _ = STEP(cooling, act(attack, offsets))
    ready, _ = STEP(start(**close), act(attack, offsets))
    assert plain.units.x[0, 1] == pytest.approx(20.0)
    assert drifted.units.x[0, 1] == pytest.approx(19.0, abs=1e-3)
    assert ready.units.x[0, 1] == pytest.approx(20.0 - 7 / 8, abs=1e-3)
    assert ready.fire.shots[0, 1] == 1
    assert ready.fire.aim[0, 1] == A + 1
    assert ready.units.health[0, A + 1] == 45 - 10
    unread, _ = STEP(cooling, act([1, STOP, 1, 1, 1, 1], offsets))
    assert unread.units.x[0, 1] == pytest.approx(20.0)


@pytest.mark.parametrize(("mode", "length"), [(STOP, 0.0), (0, 0.0), (4, 1 / 6), (FIRST_TARGET + 1, 1 / 6)])
def test_the_offset_metric_counts_what_is_read(mode, length):
    _, out = STEP(start(**APART), act([1, mode, 1, 1, 1, 1], np.ones((A, 2))))
    assert out.metrics["offset"][0] == pytest.approx(length, abs=1e-5)


# --- reward and ends ------------------------------------------------------------------------------


def test_reward_of_a_kill_and_of_the_win():
    """The last fighter, a marine with 5 left, falls to the marauder: 5 + 10 + 200, though the medivac lives."""
    close = {"x": [25, 20, 3, 5, 7, 9, 30, 24, 1, 1, 1, 1, 1, 1], "y": [27, 20, 2, 2, 2, 2, 27, 20, 1, 1, 1, 1, 1, 1]}
    state = start(**close, health=[*ROSTER.health[:A], 150, 5, 0, 0, 0, 0, 0, 0], shield=[*ROSTER.shield[:A], *[0] * 8])
    _, out = STEP(state, act([1, FIRST_TARGET + 1, 1, 1, 1, 1]))
    assert out.reward[0] == pytest.approx(20.0 / most_reward(MIXED) * 215.0, rel=1e-5)
    assert out.terminated[0]
    assert not out.truncated[0]
    assert out.metrics["win"][0] == out.metrics["ended"][0] == 1
    assert out.metrics["enemies_left"][0] == pytest.approx(1 / 8)


def test_ends():
    units = start().units
    units = jax.tree.map(lambda a: a[0], units)

    def verdict(ours, theirs):
        health = jnp.concatenate([jnp.asarray(ours, jnp.float32), jnp.asarray(theirs, jnp.float32)])
        return tuple(bool(v) for v in outcome(MIXED, units._replace(health=health)))

    some, none, healer_e = [1.0] * A, [0.0] * A, [9.0] + [0.0] * 7
    assert verdict(some, [1.0] * 8) == (False, False)
    assert verdict(some, [0.0] * 8) == (True, True)
    assert verdict(some, healer_e) == (True, True)
    assert verdict([5.0, *none[1:]], [1.0] * 8) == (True, False)  # only our healer is left
    assert verdict(none, [0.0] * 8) == (True, False)
    state = start(**APART)
    _, out = STEP(state._replace(t=state.t + 39), act([1] * A))
    assert out.truncated[0]
    assert out.metrics["ended"][0] == 1
    assert out.metrics["win"][0] == 0


def test_keeps_the_contract():
    assert find_faults(make_env("smac-3m-safe"), stochastic=True) == []


@pytest.mark.slow
def test_a_map_with_everything_keeps_the_contract():
    assert find_faults(ENV, stochastic=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VARIANTS))
def test_every_map_keeps_the_contract(name):
    assert find_faults(make_env(name), steps=60, stochastic=True) == []
