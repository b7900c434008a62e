"""Means over whole episodes: what staggering has cut short does not count, and rounds may end in mid-episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

from trident.simulation.episode_sums import add_rollout, start_sums
from trident.training.loop import program
from trident.training.registry import make_algorithm
from trident.types import HybridAction, Transition


def rollout_of(reward, ended, cost):
    """A rollout of which only these matter."""
    nothing = jnp.zeros(0)
    fields = dict.fromkeys(Transition._fields, nothing) | {"action": HybridAction(nothing, nothing)}
    terminated, truncated = jnp.asarray(ended) == 1, jnp.asarray(ended) == 2
    return Transition(
        **fields
        | {
            "reward": jnp.asarray(reward, jnp.float32),
            "cost": jnp.asarray(cost, jnp.float32)[..., None],
            "terminated": terminated,
            "truncated": truncated,
        }
    )


def test_whole_episodes_are_summed_across_rounds_and_first_ones_left_out():
    reward = np.array([[1, 10], [2, 20], [3, 30], [4, 40], [5, 50], [6, 60]])
    ended = np.array([[2, 0], [0, 0], [0, 1], [1, 0], [0, 1], [2, 0]])  # environment 0: 1 | 3 | 2 steps, 1: 3 | 2 | 1..
    cost = 0.1 * reward
    sums, first = add_rollout(start_sums(2, 1), rollout_of(reward[:3], ended[:3], cost[:3]))
    assert first["episode_steps"] == first["episode_reward"] == 0
    sums, second = add_rollout(sums, rollout_of(reward[3:], ended[3:], cost[3:]))
    assert second["episode_steps"] == 3 + 2 + 2
    assert second["episode_reward"] == (2 + 3 + 4) + (5 + 6) + (40 + 50)
    np.testing.assert_allclose(second["episode_cost"], [11.0], rtol=1e-6)
    np.testing.assert_array_equal(sums.steps, [0, 1])
    np.testing.assert_array_equal(sums.signals[:, 0], [0, 60])


def test_how_a_round_is_cut_does_not_matter():
    """The sums of eight rounds of 3 steps are those of one of 24."""
    draw = np.random.default_rng(0)
    reward, cost, ended = draw.integers(9, size=(24, 5)), draw.integers(9, size=(24, 5)), draw.random((24, 5)) < 0.2
    _, whole = add_rollout(start_sums(5, 1), rollout_of(reward, ended, cost))
    sums, parts = start_sums(5, 1), []
    for t in range(0, 24, 3):
        sums, part = add_rollout(sums, rollout_of(*(x[t : t + 3] for x in (reward, ended, cost))))
        parts.append(part)
    assert whole["episode_steps"] > 0
    for name, value in whole.items():
        np.testing.assert_array_equal(value, sum(p[name] for p in parts))


@pytest.fixture(scope="module")
def built():
    return program(tiny.TinyEnv(), make_algorithm("tiny", tiny.TinyEnv()), 8)


def test_the_learner_does_not_see_the_sums(built):
    """Whatever is carried, the rest of the state is bit for bit the same."""
    play = jax.jit(built.round)
    state = other = jax.jit(built.init)(jax.random.key(0))
    for i in range(6):
        state, _ = play(state, i)
        other, _ = play(other._replace(episodes=jax.tree.map(jnp.ones_like, other.episodes)), i)

    def plain(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    mine, its = (jax.tree.map(plain, s._replace(episodes=None)) for s in (state, other))
    for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(its), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_a_policy_that_does_not_learn_has_a_level_curve():
    """Regression: with every environment at the start of its episode, the reward of the first rounds was that of the
    episode's start, and rose (or fell) without learning."""

    class Course(tiny.TinyEnv):
        """The reward of a step is its time."""

        def step(self, key, state, action):
            after, out = super().step(key, state, action)
            return after, out._replace(reward=after.t.astype(jnp.float32))

    env = Course()
    one = program(env, make_algorithm("random", env), 8)
    play, state, curve, naive = jax.jit(one.round), jax.jit(one.init)(jax.random.key(0)), [], []
    for i in range(3):
        state, metrics = play(state, i)
        naive.append(metrics["reward"])
        curve += [metrics["episode_reward"] / metrics["episode_steps"]] if metrics["episode_steps"] > 0 else []
    assert len(curve) >= 2
    np.testing.assert_allclose(curve, 4.5)  # 1, 2, .. 8
    assert abs(float(naive[0]) - 4.5) > 0.01
