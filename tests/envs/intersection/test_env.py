"""The intersection against a twin in plain Python, and its own promises."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import intersection_numpy as twin

from trident.envs.checks.values import check_env
from trident.envs.geometry import nearest
from trident.envs.intersection import roads as roads_module
from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.dynamics import CRASHED, DRIVING, FINISHED, WAITING
from trident.envs.intersection.env import VARIANTS, Intersection, empty_road_time, initial_traffic
from trident.envs.intersection.physics import pack, unpack
from trident.envs.intersection.roads import lane_shapes, locate, place, roads
from trident.errors import TridentError
from trident.simulation.evaluate import summarise
from trident.types import HybridAction

CONFIG = IntersectionConfig()


class Bench:
    """An environment with its compiled programs, over a batch."""

    def __init__(self, config, batch=8):
        self.env, self.batch = Intersection(config), batch
        self.reset = jax.jit(jax.vmap(self.env.reset))
        self.step = jax.jit(jax.vmap(self.env.step))
        self.act = {name: jax.jit(jax.vmap(policy)) for name, policy in self.env.scripted.items()}

    def keys(self, seed):
        return jax.random.split(jax.random.key(seed), self.batch)

    def episode(self, seed, name, steps):
        """[(state before, action, state after, timestep)]"""
        state, _ = self.reset(self.keys(seed))
        for t in range(steps):
            keys = self.keys(1000 * seed + t)
            action = self.act[name](keys, state)
            after, out = self.step(keys, state, action)
            yield state, action, after, out
            state = after


@pytest.fixture(scope="module")
def bench():
    return Bench(CONFIG)


@pytest.mark.parametrize("name", ["random", "aggressive"])
def test_agrees_with_the_twin_step_by_step(bench, name):
    """Every step of some episodes is repeated by the twin from the same state: poses, phases, reward, costs."""
    seen = set()
    for t, (state, action, after, out) in enumerate(bench.episode(3, name, 190)):
        if t % 7 and not np.asarray(out.cost[:2, 0]).any():
            continue
        for b in range(2):
            fields = {k: np.asarray(v)[b] for k, v in state._asdict().items()}
            n, clock = CONFIG.num_vehicles, int(fields["clock"])
            cars = [{k: v[i].item() for k, v in fields.items() if k not in ("clock", "cos", "sin")} for i in range(n)]
            cars, expected = twin.step(CONFIG, cars, clock, np.asarray(action.mode)[b], np.asarray(action.params)[b])
            for i, car in enumerate(cars):
                if fields["phase"][i] != DRIVING:
                    continue
                for key in ("x", "y", "heading", "speed", "steer", "s", "e", "error", "request", "commit"):
                    got = float(getattr(after, key)[b, i])
                    assert got == pytest.approx(car[key], rel=1e-4, abs=2e-3), (t, b, i, key)
                for key in ("lane", "phase"):
                    assert int(getattr(after, key)[b, i]) == car[key], (t, b, i, key)
                seen.add(car["phase"])
            assert float(out.reward[b]) == pytest.approx(expected["reward"], abs=2e-3), (t, b)
            np.testing.assert_allclose(out.cost[b], expected["cost"], atol=1e-6)
    assert {DRIVING, CRASHED} <= seen


def test_locate_and_place_are_inverse():
    r = roads(CONFIG)
    there_and_back = jax.jit(lambda s, e, error, path: locate(CONFIG, *place(CONFIG, s, e, error, path), path))
    for path in range(4):
        s = jnp.linspace(-100.0, float(r.inside[path]) + 39.0, 400)
        e, error = 0.6 * jnp.sin(s), 0.2 * jnp.cos(s)
        paths = jnp.full(400, path)
        back = there_and_back(s, e, error, paths)
        for got, want in zip(back, (s, e, error), strict=True):
            np.testing.assert_allclose(got, want, atol=3e-4)


def test_paths_lead_where_their_names_say():
    """From the south: left ends in the west, right in the east, in the lane they came from; lengths are arc lengths."""
    shapes = lane_shapes(CONFIG)
    np.testing.assert_allclose(shapes["0-left"][-1][1], 1.6, atol=1e-3)
    np.testing.assert_allclose(shapes["0-right"][-1][1], -4.8, atol=1e-3)
    assert shapes["0-left"][-1][0] < -50 < 50 < shapes["0-right"][-1][0]
    np.testing.assert_allclose(shapes["1-straight-left-lane"][:, 1], 1.6, atol=1e-3)
    for shape in shapes.values():
        np.testing.assert_allclose(np.linalg.norm(np.diff(shape, axis=0), axis=1), 1.0, atol=2e-3)


def test_conflicts_are_mutual_and_begin_after_the_stop_line():
    r = roads(CONFIG)
    for k in range(1, 4):
        np.testing.assert_array_equal(r.enter[k] < 1e5, (r.enter[-k % 4] < 1e5).T)
        # vehicles that commit in the same step move their stopping places by less than this
        assert (r.enter[k] > CONFIG.stop + 2.5).all()
    assert (r.enter[2, 1:3, 1:3] > 1e5).all()  # straight against straight from the other side
    assert r.enter[2, 0, 0] > 1e5  # two left turns face to face
    assert (r.enter[1, 1:3, 1:3] < 1e5).all()
    assert roads_module.merges(1, 0, 1)
    assert not roads_module.merges(1, 0, 2)


def test_following_rules_keep_boxes_apart_on_every_pair_of_paths():
    """Behind a leader at the shield's spacing, on one path, on paths that part and on paths that merge."""
    r, c = roads(CONFIG), CONFIG
    size = (0.5 * c.length + 0.3, 0.5 * c.width + c.tube)
    for k in range(4):
        for p in range(4):
            for q in range(4):
                merging = k > 0 and roads_module.merges(k, p, q)
                if not merging and not (k == 0 and roads_module.LANE_OF[p] == roads_module.LANE_OF[q]):
                    continue
                lead, tail = (np.arange(-12.0, r.inside[x] + 25.0, 0.3) for x in (p, q))
                touch = roads_module.touching(
                    roads_module.poses(c, lead, p, 0, 1.5), roads_module.poses(c, tail, q, k, 1.5), *size
                )
                u = (
                    (lead - r.inside[p])[:, None] - (tail - r.inside[q])[None]
                    if merging
                    else lead[:, None] - tail[None]
                )
                behind = (u >= c.spacing) & (not merging or lead[:, None] >= r.leave[k, p, q])
                assert not (touch & behind).any(), (k, p, q)


@pytest.mark.parametrize("steering", ["lane", pytest.param("raw", marks=pytest.mark.slow)])
def test_keeps_the_contract(steering):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(Intersection(IntersectionConfig(num_vehicles=2, horizon=40, steering=steering)), stochastic=True)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_every_variant_has_the_shapes_it_declares(name):
    env = Intersection(VARIANTS[name])
    out = jax.eval_shape(lambda key: env.step(key, *_acted(env, key)), jax.random.key(0))[1]
    assert out.obs.shape == (env.spec.num_agents, env.spec.obs_dim)
    assert out.state.shape == (env.spec.state_dim,)
    assert set(out.metrics) == {m.name for m in env.spec.metrics}


def _acted(env, key):
    state, _ = env.reset(key)
    return state, env.scripted["random"](key, state)


def test_lanes_can_be_chosen_only_before_the_lock_line_and_only_if_they_suit(bench):
    for state, _, after, out in bench.episode(5, "random", 120):
        mask, lane = np.asarray(out.mode_mask), np.asarray(after.lane)
        assert np.take_along_axis(mask, lane[..., None], -1).all()
        driving = np.asarray(after.phase) == DRIVING
        both = mask.all(-1)
        np.testing.assert_array_equal(out.alive, driving)
        assert not (both & (np.asarray(after.s) >= -CONFIG.lock)).any()
        assert not (both & ~driving).any()
        kept = np.asarray(after.lane) == np.asarray(state.lane)
        assert kept[np.asarray(state.s) >= -CONFIG.lock].all()
        right_turn_left = (np.asarray(after.movement) == 2) & (lane == 1)
        assert not mask[..., 0][right_turn_left].any()


def test_who_is_gone_stays_gone_and_the_episode_ends(bench):
    ended = np.zeros(bench.batch, bool)
    for state, _, after, out in bench.episode(6, "aggressive", 230):
        was, now = np.asarray(state.phase), np.asarray(after.phase)
        assert (now[was >= FINISHED] == was[was >= FINISHED]).all()
        assert (np.asarray(out.obs)[now != DRIVING] == 0).all()
        over = (now >= FINISHED).all(1)
        np.testing.assert_array_equal(out.terminated, over)
        np.testing.assert_array_equal(np.asarray(out.metrics["episodes"]) > 0, over)
        ended |= over
        assert not np.asarray(out.truncated).any()
        np.testing.assert_array_equal(np.asarray(out.cost[:, 0]) > 0, np.asarray(out.margin[:, 0]) < 0)
        np.testing.assert_array_equal(np.asarray(out.cost[:, 1]) > 0, np.asarray(out.margin[:, 1]) < 0)
    assert ended.all()


def test_horizon_truncates(bench):
    state, _ = bench.reset(bench.keys(0))
    late = state._replace(clock=state.clock + CONFIG.horizon - 1)
    _, out = bench.step(bench.keys(0), late, bench.act["aim"](bench.keys(0), late))
    assert np.asarray(out.truncated).all()
    np.testing.assert_allclose(out.metrics["vehicles"], CONFIG.num_vehicles)


def test_a_lone_vehicle_loses_no_time(bench):
    """The empty-road time is what the flat-out driver really takes, for every movement, to a few steps."""
    state, _ = bench.reset(bench.keys(8))
    first = state.phase == DRIVING
    state = state._replace(phase=jnp.where(first, DRIVING, FINISHED), movement=jnp.resize(jnp.arange(3), (8, 8)))
    state = state._replace(lane=jnp.where(state.movement == 2, 1, 0))
    state = state._replace(x=CONFIG.lane_width * (state.lane + 0.5))
    free = np.asarray(jax.jit(jax.vmap(lambda t: empty_road_time(CONFIG, t)))(state))[np.asarray(first)]
    taken = np.zeros(len(free))
    for t in range(200):
        state, _ = bench.step(bench.keys(t), state, bench.act["aggressive"](bench.keys(t), state))
        arrived = np.asarray(state.phase)[np.asarray(first)] == FINISHED
        taken = np.where(arrived & (taken == 0), 0.1 * (t + 1), taken)
    np.testing.assert_allclose(taken, free, atol=0.35)


def test_same_key_same_episode(bench):
    runs = [[out for *_, out in bench.episode(9, "random", 15)] for _ in range(2)]
    for one, two in zip(*runs, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, two)
    other = [out for *_, out in bench.episode(10, "random", 15)][-1]
    assert (np.asarray(other.state) != np.asarray(runs[0][-1].state)).any()


def test_state_array_holds_the_whole_state_and_predicts_it(bench):
    both = jax.jit(jax.vmap(lambda t: pack(CONFIG, unpack(CONFIG, pack(CONFIG, t)))))
    predict = jax.jit(jax.vmap(bench.env.physics.predict))
    flat = jax.jit(jax.vmap(lambda t: pack(CONFIG, t)))
    for t, (state, action, _, out) in enumerate(bench.episode(11, "random", 150)):
        if t % 10 == 0:
            array = flat(state)
            np.testing.assert_allclose(both(state), array, atol=2e-5)
            np.testing.assert_allclose(predict(array, action), out.state, atol=2e-4)


def test_signals_know_progress_and_see_collisions_coming(bench):
    signals = jax.jit(jax.vmap(bench.env.physics.signals))
    flat = jax.jit(jax.vmap(lambda t: pack(CONFIG, t)))
    rows = [(signals(flat(s), a), o) for s, a, _, o in bench.episode(12, "aggressive", 170)]
    said = np.array([r for r, _ in rows])
    reward, cost = np.array([o.reward for _, o in rows]), np.array([o.cost for _, o in rows])
    assert np.corrcoef(said[..., 0].ravel(), reward.ravel())[0, 1] > 0.9
    crashes = cost[..., 0] > 0
    assert crashes.sum() >= 3
    ahead = np.zeros_like(crashes)
    for lag in range(6):  # within half a second before a crash
        ahead[: len(ahead) - lag] |= crashes[lag:]
    assert said[..., 1][ahead].mean() > 5 * said[..., 1][~ahead].mean()
    assert (said[..., 1:] >= 0).all()
    assert (said[..., 1:] <= 1).all()


def test_references_rank_as_they_should(bench):
    """AIM clears without a collision and fastest; all-stop is safe and slow; aggressive crashes."""
    scores = {}
    for name in bench.env.scripted:
        totals = {"length": 0.0, "reward": 0.0, "cost": np.zeros((1, 2))}
        for seed in (13, 14, 15) if name in ("aggressive", "random") else (13,):  # crashes are rare enough to scatter
            running = np.ones(bench.batch, bool)
            for _, _, _, out in bench.episode(seed, name, CONFIG.horizon):
                row = {f"metric/{k}": v for k, v in out.metrics.items()} | {"reward": out.reward, "length": np.ones(8)}
                for key, value in row.items():
                    totals[key] = totals.get(key, 0.0) + (np.asarray(value) * running).sum()
                running &= ~np.asarray(out.terminated | out.truncated)
            assert not running.any()
        scores[name] = summarise(bench.env.spec, totals)

    def at(name, metric):
        return scores[name][f"metric/{metric}"]

    assert at("aim", "collisions") == at("all-stop", "collisions") == 0
    assert at("aim", "arrived") == 1.0
    assert at("aim", "off_lane") == 0.0
    assert at("aggressive", "collisions") > 10
    assert at("random", "collisions") > 5
    assert at("aim", "delay") < 2.5 < at("all-stop", "delay")
    assert at("aim", "throughput") > 1.3 * at("all-stop", "throughput")
    assert at("aim", "return") > max(at(n, "return") for n in ("all-stop", "aggressive", "random"))


def test_arrivals_are_staggered_and_start_at_zero():
    t = jax.jit(jax.vmap(lambda k: initial_traffic(CONFIG, k)))(jax.random.split(jax.random.key(0), 200))
    arrival = np.asarray(t.arrival)
    np.testing.assert_array_equal(arrival.min(1), 0.0)
    assert 4.0 < arrival.max(1).mean() < 6.0
    np.testing.assert_array_equal((np.asarray(t.phase) == DRIVING).sum(1), 1)
    assert (np.asarray(t.phase)[arrival > 0] == WAITING).all()
    np.testing.assert_allclose([(t.movement == m).mean() for m in range(3)], CONFIG.turns, atol=0.05)


def test_nearest_agrees_with_sorting():
    rng = np.random.default_rng(0)
    distance = rng.uniform(0, 5000, (9, 9)).astype(np.float32)
    seen = rng.uniform(size=(9, 9)) < 0.5
    index, found = nearest(jnp.asarray(distance), jnp.asarray(seen), 4)
    for i in range(9):
        want = sorted(np.flatnonzero(seen[i]), key=lambda j: distance[i, j])[:4]
        assert list(np.asarray(index)[i][np.asarray(found)[i]]) == want


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"num_vehicles": 0}, "num_vehicles"),
        ({"lock": 10.0}, "lock"),
        ({"turns": (0.5, 0.5, 0.5)}, "turns"),
        ({"turn_accel": 12.0}, "grip"),
        ({"box": 10.0}, "box"),
        ({"entry_speed": (9.0, 20.0)}, "entry_speed"),
    ],
)
def test_a_wrong_number_is_one_clear_line(change, word):
    with pytest.raises(TridentError, match=word) as error:
        IntersectionConfig(**change)
    assert "\n" not in str(error.value)


def test_a_mode_that_is_masked_changes_nothing(bench):
    state, out = bench.reset(bench.keys(1))
    params = jnp.zeros((8, 8, 3))
    for _ in range(60):
        state, out = bench.step(bench.keys(1), state, HybridAction(state.lane, params))
    forbidden = ~np.asarray(out.mode_mask)[..., 0]
    assert forbidden.any()
    kept, _ = bench.step(bench.keys(1), state, HybridAction(state.lane, params))
    asked, _ = bench.step(bench.keys(1), state, HybridAction(jnp.where(forbidden, 0, state.lane), params))
    jax.tree.map(np.testing.assert_array_equal, kept, asked)
