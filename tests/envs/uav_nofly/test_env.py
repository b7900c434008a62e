"""The no-fly scenario against a twin in plain Python, and its own contract."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import uav_nofly_numpy as twin

from trident.envs.checks.values import check_env
from trident.envs.uav_nofly import maps as drawing
from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.env import VARIANTS, UavNoFly
from trident.envs.uav_nofly.physics import pack, unpack
from trident.errors import TridentError

CONFIG = NoFlyConfig(num_maps=12)
BATCH = 8


@pytest.fixture(scope="module")
def env():
    return UavNoFly(CONFIG)


@pytest.fixture(scope="module")
def episodes(env):
    """(states [T + 1], actions, noise, timesteps) of a mixture of policies, [BATCH, T, ...] each."""

    @jax.jit
    @jax.vmap
    def play(key):
        state, first = env.reset(key)
        chosen = jax.random.randint(key, (), 0, 3)

        def advance(state, key):
            noise_key, act_key = jax.random.split(key)
            noise = jax.random.normal(noise_key, (2,))
            tries = [env.scripted[name](act_key, state) for name in ("straight", "random", "planner")]
            action = jax.tree.map(lambda *x: jnp.stack(x)[chosen], *tries)
            after, out = env.transition(state, noise, action)
            return after, (state, action, noise, after, out)

        rows = jax.lax.scan(advance, state, jax.random.split(key, 110))[1]
        return first, rows

    return jax.device_get(play(jax.random.split(jax.random.key(0), BATCH)))


def test_agrees_with_the_twin_step_by_step(env, episodes):
    _, (states, actions, noise, after, out) = episodes
    seen = {"in": 0, "out": 0, "arrived": 0, "over": 0}
    for b in range(BATCH):
        zones, table = env.maps.zones[states.map[b, 0]], env.maps.to_go[states.map[b, 0]]
        for t in range(b % 2, 110, 2):
            row = {k: v[b, t] for k, v in states._asdict().items()}
            mode, params = int(actions.mode[b, t, 0]), actions.params[b, t, 0].astype(float)
            want, paid = twin.step(CONFIG, row, zones, table, noise[b, t], mode, params)
            for name in ("place", "velocity", "offset", "wind", "waypoint", "power"):
                np.testing.assert_allclose(getattr(after, name)[b, t], want[name], rtol=1e-4, atol=2e-3, err_msg=name)
            np.testing.assert_allclose(after.clearance[b, t], want["clearance"], atol=5e-3)
            assert bool(after.arrived[b, t]) == want["arrived"]
            np.testing.assert_allclose(out.reward[b, t], paid["reward"], atol=1e-3)
            if abs(want["clearance"]) > 0.02 and abs(want["power"] - CONFIG.max_power) > 0.02:
                np.testing.assert_array_equal(out.cost[b, t], paid["cost"])
            seen["in"] += want["clearance"] < 0
            seen["out"] += want["clearance"] > 0
            seen["arrived"] += want["arrived"]
            seen["over"] += want["power"] > CONFIG.max_power
    assert min(seen.values()) > 0, seen


def test_shortest_ways_are_dijkstras(env):
    for i in range(2):
        want = twin.shortest_ways(CONFIG, env.maps.zones[i], env.maps.goal[i])
        np.testing.assert_allclose(env.maps.to_go[i], want, rtol=1e-4)


def test_zones_leave_their_passages_and_are_convex_and_not():
    maps = drawing.draw_maps(CONFIG)
    convex = 0
    for zones in maps.zones:
        plain = [twin.outline(z) for z in zones]
        corners = np.concatenate([np.array(z) for z in plain])
        assert (corners[:, 0] > CONFIG.strip - 0.1).all()
        assert (corners[:, 0] < CONFIG.area - CONFIG.strip + 0.1).all()
        assert (np.abs(corners[:, 1] - 0.5 * CONFIG.area) < 0.5 * CONFIG.area - CONFIG.passage + 0.1).all()
        for i, one in enumerate(plain):
            edges = [np.subtract(p, q) for p, q in zip(one, one[-1:] + one[:-1], strict=True)]
            convex += all(u[0] * v[1] > u[1] * v[0] for u, v in zip(edges, edges[1:] + edges[:1], strict=True))
            for other in plain[i + 1 :]:
                gap = min(twin.distance(p, b) for a, b in ((one, other), (other, one)) for p in a)
                assert gap >= CONFIG.passage - 0.1
    assert 0.3 < convex / maps.zones[..., 0, 0].size < 0.7


def test_maps_come_from_their_seed():
    other = drawing.draw_maps(NoFlyConfig(num_maps=12, map_seed=1))
    again = drawing.draw_maps.__wrapped__(CONFIG)
    np.testing.assert_array_equal(again.zones, drawing.draw_maps(CONFIG).zones)
    assert (other.zones != again.zones).any(axis=(1, 2, 3)).all()


def test_waypoints_that_are_allowed_can_be_flown_to(env, episodes):
    """Between free cells the tube around the straight way is clear; who holds may always."""
    out = episodes[1][-1]
    assert out.mode_mask[..., 0].all()
    assert out.mode_mask[..., 1:].any(-1).all()
    zones = [twin.outline(z) for z in env.maps.zones[0]]
    centres, n = drawing.centres(CONFIG), CONFIG.grid
    rng, masked = np.random.default_rng(0), 0
    for i, j in rng.integers(1, n - 1, (40, 2)):
        here = tuple(map(float, centres[i, j]))
        if min(twin.distance(here, z) for z in zones) < CONFIG.tube:
            continue
        for k, (di, dj) in enumerate(twin.STEPS[1:]):
            there = tuple(map(float, centres[i + di, j + dj]))
            clear = min(twin.clearance(here, there, z) for z in zones)
            if abs(clear - CONFIG.tube) > 1e-3:
                assert env.maps.allowed[0, i, j, k + 1] == (clear > CONFIG.tube)
            masked += not env.maps.allowed[0, i, j, k + 1]
    assert masked > 0


def test_state_array_holds_what_evolves_and_predicts_its_mean(env, episodes):
    _, (states, actions, _, after, _) = episodes
    flat = lambda tree: jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[::7], tree)  # noqa: E731
    states, actions, after = map(flat, (states, actions, after))

    @jax.jit
    @jax.vmap
    def rows(s, a):
        array = pack(CONFIG, env.maps, s)
        back = unpack(CONFIG, env.maps, array)
        still = env.transition(s, jnp.zeros(2), a)[1].state
        return array, pack(CONFIG, env.maps, back._replace(power=s.power)), env.physics.predict(array, a), still

    array, back, said, still = jax.device_get(rows(states, actions))
    np.testing.assert_allclose(back, array, atol=1e-4)
    np.testing.assert_allclose(said, still, atol=2e-4)


def test_signals_know_the_reward_and_see_zones_coming(env, episodes):
    _, (states, actions, _, _, out) = episodes
    signals = jax.jit(jax.vmap(jax.vmap(lambda s, a: env.physics.signals(pack(CONFIG, env.maps, s), a))))
    said = np.asarray(signals(states, actions))
    away = np.linalg.norm(states.place - states.goal, axis=-1) > 60.0  # the goal's rim is soft in the closed form
    assert np.corrcoef(said[..., 0][away], out.reward[away])[0, 1] > 0.98
    assert np.corrcoef(said[..., 0].ravel(), out.reward.ravel())[0, 1] > 0.9
    touched = out.cost[..., 0] > 0
    ahead = np.zeros_like(touched)
    for lag in range(3):  # within a second before
        ahead[:, : touched.shape[1] - lag] |= touched[:, lag:]
    assert said[..., 1][ahead].mean() > 5 * said[..., 1][~ahead].mean()
    assert np.corrcoef(said[..., 2].ravel(), out.cost[..., 1].ravel())[0, 1] > 0.7


@pytest.mark.slow
def test_references_rank_as_they_should(env):
    """The planner arrives soonest and touches nothing; the base policy sees zones, straight does not."""

    def flight(key, name):
        def advance(carry, key):
            state, on = carry
            after, out = env.step(key, state, env.scripted[name](key, state))
            row = on * jnp.stack([out.reward, out.cost[0], out.metrics["arrived"]])
            return (after, on & ~(out.terminated | out.truncated)), row

        start = env.reset(key)[0], jnp.array(True)
        return jax.lax.scan(advance, start, jax.random.split(key, CONFIG.horizon))[1].sum(0)

    @jax.jit
    def flights(keys):
        names = ("planner", "base-policy", "straight", "hold")
        return {name: jax.vmap(lambda key, n=name: flight(key, n))(keys).mean(0) for name in names}

    score = jax.device_get(flights(jax.random.split(jax.random.key(5), 48)))
    assert score["planner"][2] == 1.0
    assert score["planner"][1] == 0.0
    assert score["base-policy"][2] > 0.9
    assert score["base-policy"][1] < 0.2
    assert score["straight"][1] > 3.0
    assert score["hold"][2] == 0.0
    assert score["planner"][0] > score["base-policy"][0] + 0.5 > score["hold"][0]


@pytest.mark.slow
def test_keeps_the_contract():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(UavNoFly(NoFlyConfig(num_maps=3, horizon=30)), stochastic=True)


@pytest.mark.parametrize("name", ["uav-nofly-dense", "uav-nofly-storm"])
def test_every_variant_differs_in_nothing_that_a_policy_notices(name):
    env = UavNoFly(VARIANTS[name].__class__(**{**VARIANTS[name].__dict__, "num_maps": 2}))
    assert env.spec.action.num_modes == 9
    assert (env.spec.obs_dim, env.spec.num_constraints) == (42, 2)


WALL = tuple((x, y) for x, y in ((180.0, -5.0), (220.0, -5.0), (220.0, 405.0), (180.0, 405.0)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"zones": (WALL,)}, "block every way"),
        ({"num_zones": 40}, "do not fit"),
        ({"cell": 30.0}, "whole number"),
        ({"cell": 20.0}, "cell must be at most 14.1"),
        ({"tube": 9.0}, "tube"),
        ({"zone_radius": (50.0, 20.0)}, "zone_radius"),
        ({"rays": 12}, "rays"),
        ({"zones": (((0.0, 0.0), (1.0, 1.0)),)}, "corners"),
    ],
)
def test_a_config_that_cannot_be_is_one_clear_line(change, words):
    with pytest.raises(TridentError, match=words) as error:
        UavNoFly(NoFlyConfig(num_maps=2, **change) if "num_maps" not in change else NoFlyConfig(**change))
    assert "\n" not in str(error.value)


def test_a_map_by_hand_is_the_only_one():
    house = ((148.0, 100.0), (250.0, 100.0), (250.0, 300.0), (148.0, 300.0))
    maps = drawing.draw_maps(NoFlyConfig(zones=(house,)))
    assert maps.zones.shape == (1, 1, 9, 2)
    assert twin.outline(maps.zones[0, 0]) == list(house)
    assert not maps.allowed[0, 11, 15, 1]  # from (144, 194) the way east leads into the house
    assert maps.allowed[0, 11, 15, 3]  # and the way north past it
