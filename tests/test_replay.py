import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident import replay
from trident.errors import TridentError
from trident.rollout import rollout, start
from trident.train.registry import make_env


def block_from(env, key, envs=3, steps=4):
    policy = lambda k, s, t: (env.scripted["random"](k, s), {"noise": jnp.zeros(1)})  # noqa: E731
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


def test_a_buffer_that_cannot_fit_is_refused(blocks):
    with pytest.raises(TridentError, match=r"GiB.*lower"):
        replay.check_memory(blocks[0], 10**9, seeds=3, available_bytes=2**30)
    replay.check_memory(blocks[0], 1000, seeds=3, available_bytes=2**30)
