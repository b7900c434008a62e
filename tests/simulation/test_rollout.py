"""Automatic resets keep the final observation; the first episodes are staggered; the shield is applied and recorded."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.simulation.rollout import rollout, start
from trident.types import ActionSpec, EnvSpec, HybridAction, TimeStep

HORIZON = 5


class Clock(NamedTuple):
    time: jax.Array
    episode: jax.Array


class ClockEnv:
    """Observation = (episode id, time). Mode 1 terminates at once. The shield turns mode 1 into mode 0."""

    physics = None
    scripted = {}  # noqa: RUF012
    spec = EnvSpec(
        name="clock",
        version=1,
        num_agents=1,
        obs_dim=2,
        state_dim=2,
        constraints=(),
        horizon=HORIZON,
        action=ActionSpec(-np.ones((1, 2, 1), np.float32), np.ones((1, 2, 1), np.float32), np.ones((1, 2, 1), bool)),
    )

    def _look(self, s, terminated=False):
        view = jnp.stack([s.episode, s.time.astype(jnp.float32)])
        return TimeStep(
            view[None],
            view,
            jnp.ones((1, 2), bool),
            jnp.ones(1, bool),
            s.time.astype(jnp.float32),
            jnp.zeros(0),
            jnp.zeros(0),
            jnp.asarray(terminated),
            (s.time >= HORIZON) & ~jnp.asarray(terminated),
            {},
        )

    def reset(self, key):
        s = Clock(jnp.int32(0), jax.random.uniform(key))
        return s, self._look(s)

    def step(self, key, s, action):
        s = s._replace(time=s.time + 1)
        return s, self._look(s, action.mode[0] == 1)

    def shield(self, s, action):
        return action._replace(mode=jnp.zeros_like(action.mode)), action.mode == 1


def play(env, mode, steps, envs=1, stagger=False, shielded=False):
    def run(k):
        return rollout(env, always(mode), k, start(env, k, envs, stagger), steps, shielded)

    return jax.jit(run)(jax.random.key(0))


def always(mode):
    return lambda key, state, step: (HybridAction(jnp.array([mode]), jnp.zeros((1, 1))), {})


def test_truncation_keeps_the_final_observation_and_starts_afresh():
    actors, data = play(ClockEnv(), 0, 7, envs=2)
    times, next_times = data.obs[:, :, 0, 1], data.next_obs[:, :, 0, 1]
    np.testing.assert_array_equal(times[:, 0], [0, 1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(next_times[:, 0], [1, 2, 3, 4, 5, 1, 2])
    np.testing.assert_array_equal(data.truncated[:, 0], [0, 0, 0, 0, 1, 0, 0])
    assert not data.terminated.any()
    episodes = np.asarray(data.obs[:, :, 0, 0])
    assert np.all(episodes[:5] == episodes[0])
    assert np.all(episodes[5] != episodes[4])
    np.testing.assert_array_equal(data.next_obs[4, :, 0, 0], episodes[4])  # the final observation is the old episode's
    np.testing.assert_array_equal(actors.last.obs[:, 0, 1], [2, 2])


def test_termination_is_not_truncation():
    _, data = play(ClockEnv(), 1, 3)
    assert data.terminated.all()
    assert not data.truncated.any()
    np.testing.assert_array_equal(data.reward[:, 0], 1.0)


def test_first_episodes_are_cut_at_staggered_times_and_later_ones_are_not():
    _, data = play(ClockEnv(), 0, 11, envs=5, stagger=True)
    first_end = np.argmax(np.asarray(data.truncated), axis=0)
    np.testing.assert_array_equal(first_end + 1, [1, 2, 3, 4, 5])
    second_end = [np.flatnonzero(column)[1] for column in np.asarray(data.truncated).T]
    np.testing.assert_array_equal(second_end - first_end, HORIZON)


@pytest.mark.parametrize("shielded", [False, True])
def test_intended_and_executed_actions_are_both_recorded(shielded):
    _, data = play(ClockEnv(), 1, 2, shielded=shielded)
    assert (data.action.mode == 1).all()
    assert (data.executed.mode == (0 if shielded else 1)).all()
    assert data.terminated.all() == (not shielded)
    if shielded:
        assert data.extras["shielded"].all()
