"""navigation against a twin in NumPy that is written out agent by agent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.checks import find_doubts, find_faults
from trident.envs.checks.shapes import shape_faults
from trident.envs.navigation.env import VARIANTS, Navigation, NavigationConfig, NavState
from trident.simulation.evaluate import evaluate, summarise
from trident.simulation.step import scripted
from trident.training.registry import make_env
from trident.types import HybridAction

KEY = jax.random.key(0)


def twin(pos, vel, obstacles, force):
    """Drag, force and contacts, then the velocity, then the place."""
    after, speeds = [], []
    for i, place in enumerate(pos):
        total = force[i].copy()
        for other in [*(p for j, p in enumerate(pos) if j != i), *obstacles]:
            away = place - other
            distance = np.hypot(*away)
            total += 100.0 * away / distance * 1e-3 * np.logaddexp(0.0, (0.2 - distance) / 1e-3)
        speeds.append(0.75 * vel[i] + 0.1 * total)
        after.append(place + 0.1 * speeds[-1])
    return np.array(after), np.array(speeds)


def test_it_moves_and_pays_as_its_twin_does():
    env, dice = Navigation(), np.random.default_rng(0)
    s, _ = env.reset(KEY)
    s = s._replace(pos=0.4 * s.pos, obstacles=0.6 * s.obstacles)  # crowded: some touch
    pos, vel, hits = np.asarray(s.pos, float), np.zeros((4, 2)), 0
    for _ in range(30):
        force = dice.uniform(-1, 1, (4, 2))
        before = np.linalg.norm(s.goals - pos, axis=1)
        pos, vel = twin(pos, vel, np.asarray(s.obstacles), force)
        s, out = env.step(KEY, s, HybridAction(jnp.zeros(4, jnp.int32), jnp.asarray(force, jnp.float32)))
        np.testing.assert_allclose(s.pos, pos, atol=1e-4)
        after = np.linalg.norm(s.goals - pos, axis=1)
        assert out.reward == pytest.approx(np.mean(10.0 * (before - after) + 0.1 * (after < 0.1)), abs=2e-3)
        everything = np.concatenate([pos, np.asarray(s.obstacles)])
        gaps = np.linalg.norm(pos[:, None] - everything[None], axis=-1) + 9.0 * np.eye(4, 8)
        touching = gaps.min(axis=1) < 0.2
        assert out.cost[0] == touching.mean()
        assert out.cost_attribution[:, 0].tolist() == touching.tolist()
        hits += touching.sum()
    assert hits > 0


def test_a_brake_stops_what_a_force_of_one_can():
    env = make_env("navigation-hybrid")
    s, _ = env.reset(KEY)
    s = s._replace(vel=jnp.array([[0.1, 0.0], [0.0, -0.3], [0.0, 0.0], [0.4, 0.4]]), obstacles=s.obstacles + 9.0)
    s, _ = env.step(KEY, s, HybridAction(jnp.ones(4, jnp.int32), jnp.zeros((4, 2))))
    np.testing.assert_allclose(s.vel, [[0, 0], [0, -0.125], [0, 0], [0.2, 0.2]], atol=1e-6)


def test_it_has_the_shapes_of_the_contract():
    for name in VARIANTS:
        assert list(shape_faults(make_env(name))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["navigation-hybrid", "navigation-free"])
def test_it_keeps_the_contract(name):
    assert (find_faults(make_env(name)), find_doubts(make_env(name))) == ([], [])


def test_nothing_touches_at_the_start_and_goals_can_be_reached():
    env = make_env("navigation-n8")
    s, out = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 200))
    assert np.asarray(out.margin).min() > 0.0
    between = np.linalg.norm(s.goals[:, :, None] - s.obstacles[:, None], axis=-1)
    assert between.min() > 0.2
    assert (out.cost == 0).all()


def test_an_agent_sees_its_nearest_neighbours_and_obstacles():
    env = Navigation(NavigationConfig(agents=3, obstacles=3, seen=(1, 2)))
    pos, vel = jnp.array([[0.0, 0.0], [0.5, 0.0], [0.0, -0.3]]), jnp.array([[0.2, 0.0], [0.0, 0.0], [0.0, 0.4]])
    s = NavState(pos, vel, pos + 0.1, jnp.array([[0.9, 0.9], [-0.3, 0.0], [0.0, 0.8]]), jnp.int32(0))
    _, out = env.step(KEY, s, HybridAction(jnp.zeros(3, jnp.int32), jnp.zeros((3, 2))))
    here, them = np.asarray(out.state[:6]).reshape(3, 2), np.asarray(out.state[6:12]).reshape(3, 2)
    seen = np.asarray(out.obs[0])
    np.testing.assert_allclose(seen[:6], [*them[0] / 0.4, *here[0], *(s.goals[0] - here[0])], atol=1e-6)
    np.testing.assert_allclose(seen[6:10], [*(here[2] - here[0]), *(them[2] - them[0]) / 0.4], atol=1e-6)
    np.testing.assert_allclose(seen[10:], [*(s.obstacles[1] - here[0]), *(s.obstacles[2] - here[0])], atol=1e-6)


def test_the_base_policy_arrives_within_the_limit():
    env = Navigation()
    result = summarise(env.spec, jax.jit(lambda k: evaluate(env, scripted(env, "base-policy"), k, 100))(KEY))
    assert result["cost/collision"] < 0.005
    assert result["metric/arrived"] > 0.6
    assert result["reward"] > 0.15  # random: 0


def test_the_closed_form_is_the_next_step():
    env = Navigation()
    s, out = env.reset(KEY)
    action = HybridAction(jnp.zeros(4, jnp.int32), jnp.full((4, 2), 0.5))
    _, after = env.step(KEY, s, action)
    np.testing.assert_allclose(env.physics.predict(out.state, action), after.state, atol=1e-6)
    assert env.physics.signals(out.state, action)[0] == pytest.approx(float(after.reward), abs=1e-3)


def test_it_can_be_drawn():
    from matplotlib.figure import Figure

    env, figure = Navigation(), Figure()
    s, _ = env.reset(KEY)
    env.draw(figure, jax.tree.map(lambda x: np.asarray(x)[None], s), 0)
    assert len(figure.axes[0].patches) == 8
