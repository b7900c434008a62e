import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident import replay
from trident.simulation.rollout import rollout, start
from trident.training.registry import make_env


def block_from(env, key, envs=3, steps=4):
    def policy(k, s, t):
        return (env.scripted["random"](k, s), {"noise": jnp.zeros(1)})

    actors = start(env, key, envs)
    return rollout(env, policy, key, actors, steps)[1]


@pytest.fixture(scope="module")
def blocks():
    env = make_env("probe-mode")
    make = jax.jit(lambda k: replay.block_of(block_from(env, k)))
    return [make(jax.random.key(i)) for i in range(4)]


def test_block_keeps_the_extras_a_learner_asked_for():
    env = make_env("probe-mode")
    block = jax.eval_shape(lambda k: replay.block_of(block_from(env, k), ("noise",)), jax.random.key(0))
    assert block.extras["noise"].shape == (12, 1)


def test_block_drops_what_replay_never_reads(blocks):
    assert blocks[0].metrics == {}
    assert blocks[0].extras == {}
    assert blocks[0].reward.shape == (12,)


def test_oldest_block_is_overwritten(blocks):
    buffer = replay.create(blocks[0], capacity=30)  # room for two whole blocks
    for i, block in enumerate(blocks[:3]):
        buffer = replay.insert(buffer, block, jnp.int32(i))
    assert buffer.size == 24
    np.testing.assert_array_equal(buffer.data.reward[:12], blocks[2].reward)
    np.testing.assert_array_equal(buffer.data.reward[12:], blocks[1].reward)


def test_samples_come_only_from_what_was_written(blocks):
    buffer = replay.insert(replay.create(blocks[0], 120), blocks[0], jnp.int32(0))
    rows = replay.sample(buffer, jax.random.key(0), 500)
    assert set(np.asarray(rows.reward).tolist()) == set(np.asarray(blocks[0].reward).tolist())


def test_weighted_draws_are_unbiased_and_follow_their_weights(blocks):
    buffer = replay.insert(replay.create(blocks[0], 24), blocks[0], jnp.int32(0))  # half of it is not written yet
    value = jnp.arange(24.0)
    buffer = buffer._replace(data=buffer.data._replace(reward=value))
    weight = jnp.where(jnp.arange(24) < 3, 9.0, 1.0)
    draw = jax.jit(lambda k: replay.sample_by_weight(buffer, k, 36, weight))
    drawn = [draw(jax.random.key(i)) for i in range(40)]
    rows, importance = drawn[0]
    assert importance.sum() == pytest.approx(1.0, abs=1e-5)
    counts = np.bincount(np.asarray(rows.reward, int), minlength=24)
    np.testing.assert_array_equal(counts, [9, 9, 9] + [1] * 9 + [0] * 12)  # 27 of 36 draws; the unwritten: none
    mean = np.mean([(r.reward * w).sum() for r, w in drawn])
    assert mean == pytest.approx(5.5, abs=1e-4)
    assert (np.diff(np.asarray(rows.reward)) < 0).any()  # in random order: parts of a batch are samples too
