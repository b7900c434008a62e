"""simple_spread against what the package mpe2 (1.1.1) did with the same actions, and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.checks import find_doubts, find_faults
from trident.envs.scatter import scatter
from trident.envs.simple_spread.env import VARIANTS, SimpleSpread, SimpleSpreadConfig, SpreadState, observe
from trident.errors import TridentError
from trident.simulation.evaluate import evaluate, summarise
from trident.simulation.step import scripted
from trident.training.registry import make_env
from trident.types import HybridAction

KEY = jax.random.key(0)
START = [[-0.2, 0.0], [0.12, 0.05], [0.0, 0.5]]
MARKS = [[0.5, 0.5], [-0.5, 0.25], [0.0, -0.75]]
PUSHES = [
    [[1, 0], [-1, 0], [0, -1]], [[1, 0.5], [-0.5, 0], [0.25, -1]], [[0.5, 0.5], [-1, 1], [0, -0.5]],
    [[0, 0], [1, 1], [-1, 0.25]], [[-1, -1], [0, 0], [0.5, 0]],
]  # fmt: skip
PLACES = [
    [[-0.2, 0.0], [0.12, 0.05], [0.0, 0.5]], [[-0.15, 0.0], [0.07, 0.05], [0.0, 0.45]],
    [[-0.0625, 0.025], [0.0075, 0.05], [0.0125, 0.3625]],
    [[-0.04441, 0.05226], [-0.01684, 0.11649], [0.02188, 0.27187]],
    [[-0.24337, -0.00319], [0.22744, 0.29225], [-0.02109, 0.21641]],
]  # fmt: skip
REWARDS = [-1.66672, -1.69746, -1.776, -1.8299, -1.48868]
LAST_SEEN_BY_1 = [
    2.40193, 2.07544, 0.22744, 0.29225, 0.27256, 0.20775, -0.72744, -0.04225, -0.22744, -1.04225, -0.47081, -0.29544,
    -0.24853, -0.07585,
]  # fmt: skip


def of(pos, vel=None, marks=MARKS):
    pos = jnp.asarray(pos, jnp.float32)
    return SpreadState(pos, jnp.zeros_like(pos) if vel is None else jnp.asarray(vel), jnp.asarray(marks), jnp.int32(0))


def test_it_moves_sees_and_pays_as_mpe2_does_through_two_contacts():
    env, s = SimpleSpread(), of(START)
    for push, place, reward in zip(PUSHES, PLACES, REWARDS, strict=True):
        s, out = env.step(KEY, s, HybridAction(jnp.zeros(3, jnp.int32), jnp.asarray(push, jnp.float32)))
        np.testing.assert_allclose(s.pos, place, atol=2e-5)
        assert out.reward == pytest.approx(reward, abs=5e-5)
        apart = np.linalg.norm(np.subtract(place[0], place[1]))
        assert out.cost[0] == (apart < 0.3 or np.linalg.norm(np.subtract(place[1], place[2])) < 0.3)
    np.testing.assert_allclose(out.obs[1], LAST_SEEN_BY_1, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "mode", "params"), [("-discrete", 3, []), ("-hybrid", 3, [1.0]), ("", 0, [0.0, -1.0])]
)
def test_the_same_push_in_every_form_of_the_actions(name, mode, params):
    env = make_env(f"simple-spread{name}")
    s, _ = env.step(KEY, of(START), HybridAction(jnp.full(3, mode, jnp.int32), jnp.tile(jnp.array(params), (3, 1))))
    np.testing.assert_allclose(s.vel, [[0.0, -0.5]] * 3, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["simple-spread-discrete", pytest.param("simple-spread-hybrid", marks=pytest.mark.slow)]
)
def test_it_keeps_the_contract(name):
    assert (find_faults(make_env(name)), find_doubts(make_env(name))) == ([], [])


def test_agents_start_apart_unless_asked_otherwise():
    close = [
        np.asarray(jax.vmap(SimpleSpread(SimpleSpreadConfig(apart=apart)).reset)(jax.random.split(KEY, 400))[1].margin)
        for apart in (True, False)
    ]
    assert close[0].min() > 0.0
    assert 0.1 < (close[1] < 0.0).mean() < 0.3  # 3 pairs x pi 0.3^2 / 4, less at the walls


def test_scatter_keeps_the_room_it_is_asked_for():
    room = np.where(np.arange(5)[:, None] == 4, 0.9, 0.4)
    places = np.asarray(jax.vmap(lambda k: scatter(k, 1.0, room))(jax.random.split(KEY, 200)))
    gap = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
    assert np.abs(places).max() <= 1.0
    assert gap[:, *np.tril_indices(4, -1)].min() > 0.4
    assert (gap[:, 4, :4].min(axis=1) > 0.9).mean() > 0.5  # not always possible
    assert (gap[:, 4, :4].min(axis=1) > 0.9).mean() > 3 * (gap[:, 3, :3].min(axis=1) > 0.9).mean()


def test_the_closed_form_is_the_next_step():
    """Signals are the reward and, but for the blur, the cost; predict is the successor."""
    env = SimpleSpread()
    s = of(START, vel=[[1.0, 0.0], [-1.0, 0.5], [0.0, -2.0]])
    action = HybridAction(jnp.zeros(3, jnp.int32), jnp.asarray(PUSHES[1], jnp.float32))
    packed = jnp.concatenate([x.ravel() for x in (s.pos, s.vel, s.landmarks)])
    _, out = env.step(KEY, s, action)
    signals = env.physics.signals(packed, action)
    assert signals[0] == pytest.approx(float(out.reward), abs=1e-5)
    assert (signals[1] > 0.5) == (out.cost[0] > 0.5)
    np.testing.assert_allclose(env.physics.predict(packed, action), out.state, atol=1e-5)


def test_everybody_agrees_who_goes_where():
    """Sent along the base policy's pushes, agents end on different landmarks."""
    env = SimpleSpread()
    sums = jax.jit(lambda k: evaluate(env, scripted(env, "base-policy"), k, 200))(KEY)
    result = summarise(env.spec, sums)
    assert result["reward"] > -0.45  # random: -2.0
    assert result["cost/collision"] < 0.02
    s, _ = env.reset(jax.random.key(3))
    for _ in range(env.spec.horizon):
        s, out = env.step(KEY, s, env.scripted["base-policy"](KEY, s))
    assert out.metrics["covered"] == 3
    assert bool(out.truncated)


def test_who_overlaps_is_told():
    _, out = SimpleSpread().step(
        KEY, of([[0, 0], [0.1, 0], [0.9, 0.9]]), HybridAction(jnp.zeros(3, int), jnp.zeros((3, 2)))
    )
    assert out.cost_attribution[:, 0].tolist() == [True, True, False]
    assert out.metrics["collisions"] == 1


def test_one_agent_has_nobody_to_meet():
    env = SimpleSpread(SimpleSpreadConfig(agents=1))
    s, _ = jax.eval_shape(env.reset, KEY)
    assert jax.eval_shape(env.step, KEY, s, env.scripted["base-policy"](KEY, env.reset(KEY)[0]))[1].obs.shape == (1, 6)
    assert env.reset(KEY)[1].margin[0] > 1.0
    with pytest.raises(TridentError, match="takes 1 to 5 agents, not 6"):
        SimpleSpreadConfig(agents=6)


def test_it_can_be_drawn():
    from matplotlib.figure import Figure

    env, figure = make_env(next(iter(VARIANTS))), Figure()
    states = jax.tree.map(lambda x: np.asarray(x)[None], of(START))
    env.draw(figure, states, 0)
    assert len(figure.axes[0].patches) == 3
    assert observe(of(START)).shape == (3, env.spec.obs_dim)
