"""The UAV-MEC environment against its NumPy twin, and its own promises."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import uav_mec_numpy as twin

from trident.envs.geometry import disc_to_square, square_to_disc
from trident.envs.uav_mec import env
from trident.envs.uav_mec.config import UavMecConfig, check, lattice
from trident.envs.uav_mec.dynamics import flight_params, velocity_of
from trident.envs.uav_mec.env import VARIANTS, UavMec, initial_state
from trident.errors import TridentError
from trident.types import HybridAction

CASES = {
    "default": UavMecConfig(),
    "other": UavMecConfig(
        num_uavs=8, flight="polar", execution="parallel", separation=True, separation_min=80.0, channel="suburban"
    ),
    "velocity": UavMecConfig(flight="cartesian"),
}


class Bench:
    """An environment with its compiled programs, over a batch."""

    def __init__(self, config):
        self.env = UavMec(config)
        self.reset = jax.jit(jax.vmap(self.env.reset))
        self.transition = jax.jit(jax.vmap(self.env.transition))
        self.draw = jax.jit(jax.vmap(lambda key: env.draw_slot(config, key)))
        self.random = jax.jit(jax.vmap(self.env.scripted["random"]))

    def start(self, seed, batch=6):
        return self.reset(jax.random.split(jax.random.key(seed), batch))

    def random_step(self, seed, state):
        keys = jax.random.split(jax.random.key(seed), state.slot.shape[0])
        draws, action = self.draw(keys), self.random(keys, state)
        return draws, action, *self.transition(state, draws, action)


@pytest.fixture(scope="module")
def benches():
    return {name: Bench(config) for name, config in CASES.items()}


@pytest.fixture(scope="module")
def default(benches):
    return benches["default"]


@pytest.mark.parametrize("name", list(CASES))
def test_agrees_with_numpy_step_by_step(benches, name):
    bench, c = benches[name], CASES[name]
    state, _ = bench.start(0)
    state = state._replace(slot=state.slot + c.grace - 2)  # some steps inside the grace, some outside
    mine = {k: np.asarray(v) for k, v in state._asdict().items()}
    for t in range(6):
        draws, action, state, ts = bench.random_step(10 + t, state)
        mine, expected = twin.step(c, mine, *map(np.asarray, (*draws, *action)))
        for field, value in mine.items():
            np.testing.assert_allclose(getattr(state, field), value, rtol=2e-4, atol=2e-3, err_msg=field)
        for field in ("reward", "cost", "margin", "obs", "state"):
            np.testing.assert_allclose(getattr(ts, field), expected[field], rtol=2e-4, atol=2e-4, err_msg=field)
        for field, value in expected["metrics"].items():
            np.testing.assert_allclose(ts.metrics[field], value, rtol=3e-4, atol=1e-4, err_msg=field)


def test_costs_and_margins_tell_the_same(default):
    state, _ = default.start(3)
    hits = np.zeros(2)
    for t in range(30):
        *_, state, ts = default.random_step(t, state)
        np.testing.assert_array_equal(ts.cost > 0, ts.margin < 0)
        np.testing.assert_array_equal(ts.cost[:, 1], ts.metrics["cv_all"] * (t >= CASES["default"].grace))
        np.testing.assert_allclose(
            ts.cost_attribution.mean(1), ts.cost, err_msg="as many are to blame as the cost counts"
        )
        hits += np.asarray(ts.cost > 0).sum(0)
    assert (hits > 3).all()


def test_grace_runs_out_and_the_horizon_truncates(default):
    state, first = default.start(4)
    assert first.obs[0, 0, 4] == 1.0
    assert not first.truncated.any()
    *_, after = default.random_step(0, state._replace(slot=state.slot + jnp.arange(6) + 17))
    np.testing.assert_allclose(after.obs[:, 2, 4], [0.1, 0.05, 0, 0, 0, 0], atol=1e-6)
    np.testing.assert_array_equal(after.metrics["charged"], [0, 0, 0, 1, 1, 1])
    *_, after = default.random_step(0, state._replace(slot=state.slot + jnp.arange(6) + 196))
    np.testing.assert_array_equal(after.truncated, [False, False, False, True, True, True])
    assert not after.terminated.any()


def test_coverage_of_exactly_the_minimum_is_allowed():
    assert UavMecConfig(coverage_min=0.7).needed == 14  # 0.7 * 20 is 14.000000000000002 in floating point
    assert UavMecConfig(coverage_min=0.5).needed == 10


@pytest.mark.parametrize("name", list(VARIANTS))
def test_every_variant_has_the_shapes_it_declares(name):
    env = UavMec(VARIANTS[name])
    spec = env.spec

    def two_slots(key):
        state, _ = env.reset(key)
        return env.step(key, state, env.scripted["random"](key, state))[1]

    ts = jax.eval_shape(two_slots, jax.random.key(1))
    assert ts.obs.shape == (spec.num_agents, spec.obs_dim)
    assert ts.state.shape == (spec.state_dim,)
    assert ts.cost.shape == ts.margin.shape == (spec.num_constraints,)
    assert set(ts.metrics) == {m.name for m in spec.metrics}


@pytest.mark.parametrize("name", list(CASES))
def test_features_are_bounded(benches, name):
    state, _ = benches[name].start(7)
    for t in range(10):
        *_, state, ts = benches[name].random_step(t, state)
        assert np.abs(ts.obs).max() <= 2.0
        assert np.abs(ts.state).max() <= 3.0
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(ts))


def test_density_is_kept_when_the_fleet_grows():
    four, big = UavMecConfig(), UavMecConfig(num_uavs=16)
    assert (big.num_users, big.num_fogs, big.num_hotspots) == (80, 8, 16)
    assert big.area == pytest.approx(2 * four.area)
    np.testing.assert_allclose(four.fogs, [[150, 150], [450, 450]])
    gap = np.linalg.norm(big.fogs[:, None] - big.fogs[None], axis=-1)[~np.eye(8, dtype=bool)]
    assert gap.min() > 350.0


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_lattice_is_spread_inside_the_unit_square(count):
    points = lattice(count)
    assert points.shape == (count, 2)
    assert (points > 0).all()
    assert (points < 1).all()
    gap = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.eye(count)
    assert gap.min() > 0.6 / count**0.5


def test_all_flight_commands_fly_alike():
    polar, cart, course = UavMecConfig(flight="polar"), UavMecConfig(flight="cartesian"), UavMecConfig()
    speed, heading = jnp.array([0.0, 9.7, 30.0, 21.0]), jnp.array([0.3, -2.0, 3.1, 0.785])
    asked = velocity_of(polar, jnp.stack([speed, heading, speed], -1))
    np.testing.assert_allclose(asked[2], [30 * np.cos(3.1), 30 * np.sin(3.1)], rtol=1e-5)
    for config in (polar, cart, course):
        params = flight_params(config, asked)
        box = UavMec(config).spec.action
        assert params.shape[-1] == box.num_params - 1
        assert np.all((params >= box.low[0, 0, :-1] - 1e-5) & (params <= box.high[0, 0, :-1] + 1e-5))
        np.testing.assert_allclose(velocity_of(config, params), asked, atol=5e-3)
    length = velocity_of(course, jnp.array([[10.0, 0.03, -0.04, 0.5], [10.0, 0.3, -0.4, 0.5], [10.0, 0.0, 0.0, 0.5]]))
    np.testing.assert_allclose(length, [[6 * 0.98, -8 * 0.98], [6, -8], [0, 0]], atol=6e-3)
    box = UavMec(polar).spec.action
    np.testing.assert_allclose(box.low[0, 1], [0.0, -np.pi, 0.0], rtol=1e-6)
    np.testing.assert_allclose(box.high[0, 1], [30.0, np.pi, 1.0], rtol=1e-6)


def test_square_maps_onto_the_disc_and_back():
    square = jax.random.uniform(jax.random.key(0), (2000, 2), minval=-1.0, maxval=1.0)
    disc = square_to_disc(square)
    assert jnp.linalg.norm(disc, axis=-1).max() <= 1.0
    assert jnp.linalg.norm(disc, axis=-1).max() > 0.99
    np.testing.assert_allclose(disc_to_square(disc), square, atol=2e-3)
    corners = jnp.array([[1.0, 1.0], [-1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(jnp.linalg.norm(square_to_disc(corners), axis=-1), [1, 1, 1, 0], atol=1e-6)
    speed = jnp.linalg.norm(velocity_of(UavMecConfig(flight="cartesian"), jnp.ones((1, 3))), axis=-1)
    np.testing.assert_allclose(speed, 30.0, rtol=1e-6)


def test_local_mode_does_not_read_the_ratio(default):
    used = default.env.spec.action.used
    assert used[:, 0].tolist() == [[True, True, True, False]] * 4
    assert used[:, 1:].all()
    state, _ = default.start(5)
    draws = default.draw(jax.random.split(jax.random.key(1), 6))
    mode = jnp.tile(jnp.array([0, 0, 1, 0]), (6, 1))
    params = jnp.full((6, 4, 4), 0.3)
    ratios = [params, params.at[:, :2, 3].set(0.9), params.at[:, 2, 3].set(0.9)]
    base, unread, read = (default.transition(state, draws, HybridAction(mode, p))[1].reward for p in ratios)
    np.testing.assert_array_equal(base, unread)
    assert (base != read).any()


def test_users_keep_their_spread_and_stay_inside():
    """The spring makes the spread round a hotspot stationary, far from the border."""
    c = UavMecConfig(area=6000.0, num_users=400, hotspot_share=1.0, hotspot_border=2900.0, hotspot_speed=0.0)
    state = initial_state(c, jax.random.key(0))

    def move(s, key):
        noise = jax.random.normal(key, (c.num_users, 2))
        user, vel, hot, hot_vel = env.move_users(c, s.user, s.user_vel, s.hot, s.hot_vel, noise)
        return s._replace(user=user, user_vel=vel, hot=hot, hot_vel=hot_vel), None

    after, _ = jax.jit(lambda s: jax.lax.scan(move, s, jax.random.split(jax.random.key(1), 1200)))(state)
    offset = after.user - jnp.resize(after.hot, (400, 2))
    assert float(offset.std()) == pytest.approx(c.hotspot_spread, rel=0.12)
    assert float(jnp.sqrt((after.user_vel**2).sum(-1).mean())) == pytest.approx(c.user_speed, rel=0.1)


@pytest.mark.parametrize("start", ["uniform", "depot", "grid", "covering"])
def test_starts(start):
    env = UavMec(UavMecConfig(start=start))
    init = jax.jit(jax.vmap(lambda key: initial_state(env.config, key)))
    state = init(jax.random.split(jax.random.key(0), 20))
    assert (state.uav >= 0).all()
    assert (state.uav <= 600).all()
    covered = (state.reach <= 128.0).sum(1) >= env.config.needed
    assert covered.mean() > 0.8 if start == "covering" else covered.mean() < 0.8


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"num_uavs": 0}, "num_uavs"),
        ({"channel": "ocean"}, "channel"),
        ({"coverage_radius": 300.0}, "coverage_radius"),
        ({"coverage_min": 1.5}, "coverage_min"),
        ({"size_low": 9.0}, "size"),
        ({"altitude": 5.0}, "altitude"),
        ({"channel": "umi-av", "altitude": 20.0}, "altitude"),
        ({"separation": True, "num_uavs": 1}, "separation"),
        ({"capacity": 0}, "capacity"),
    ],
)
def test_a_wrong_number_is_one_clear_line(change, word):
    with pytest.raises(TridentError, match=word) as error:
        UavMecConfig(**change)
    assert "\n" not in str(error.value)


def test_an_unknown_word_is_one_clear_line():
    config = UavMecConfig()
    object.__setattr__(config, "flight", "spiral")
    with pytest.raises(TridentError, match="flight='spiral' is not one of course, cartesian, polar"):
        check(config)
