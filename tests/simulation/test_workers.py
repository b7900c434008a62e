"""Simulators that are stepped together: in worker processes or by themselves they play what they play one by one."""

import os

import jax
import numpy as np
import pytest
from support.plain import Plain, PlainVector

from trident.errors import TridentError
from trident.simulation import host, workers
from trident.simulation.batch import OneByOne, Vectorised, replicate
from trident.simulation.workers import Workers, batches_of, how_many
from trident.types import HybridAction

COUNT = 5
KEY = jax.random.key(0)


def policy(keys, envs, last):
    """By what is seen alone."""
    mode = (last.obs[..., 0] > 0).astype(np.int32)
    return HybridAction(mode, np.clip(last.obs[..., :1], 0, 1).astype(np.float32)), {}


def play(batch, home, steps=25):
    actors = host.start(home, KEY, batch, COUNT)
    return host.rollout(policy, KEY, actors, steps)


@pytest.fixture(scope="module")
def one_by_one():
    envs = replicate(Plain(), COUNT)
    return play(OneByOne(envs), envs)


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_workers_play_the_same_episodes_bit_for_bit(one_by_one):
    batch = Workers(Plain(), COUNT, 2, pytest.fail)
    try:
        assert equal(play(batch, [Plain()]), one_by_one)
        assert one_by_one.truncated.sum() >= 2 * COUNT  # over the ends of episodes, too
    finally:
        file = batch.file
        batch.close()
    assert not file.exists()
    assert all(p.returncode is not None for p in batch.running)


def test_so_does_a_vectorised_simulator(one_by_one):
    env = PlainVector()
    assert equal(play(Vectorised(env, COUNT), [env]), one_by_one)
    [(batch, home)] = batches_of(env, 1, COUNT, None, False, pytest.fail)
    assert (type(batch), home) == (Vectorised, [env])


def test_a_dead_worker_is_named_and_started_anew(one_by_one):
    said = []
    seed = int(host.seeds_of(jax.random.split(KEY, COUNT))[3])
    batch = Workers(Plain(dies=4, seed=seed), COUNT, 2, said.append)
    try:
        roll = play(batch, [Plain()], 8)
    finally:
        batch.close()
    assert said == [
        "tiny: worker 2 of 2, simulators 3 to 5, ended with code 7; started anew, its episodes are cut short"
    ]
    assert roll.truncated[3, 2:].all()
    assert (roll.reward[3, 2:] == 0).all()
    assert np.array_equal(roll.next_obs[3, 2:], roll.obs[3, 2:])  # what it led to is not known
    assert not np.array_equal(roll.obs[4, 2:], roll.obs[3, 2:])  # fresh episodes
    assert np.array_equal(roll.obs[:, :2], one_by_one.obs[:8, :2])  # the other worker's go on


@pytest.mark.slow
def test_one_that_keeps_dying_ends_the_run(monkeypatch):
    monkeypatch.setattr(workers, "MOST_DEATHS", 1)
    batch = Workers(Plain(dies=1), 2, 2, lambda text: None)
    try:
        with pytest.raises(TridentError, match=r"worker \d of 2, .* ended with code 7, 2 times now"):
            host.rollout(policy, KEY, host.start([Plain()], KEY, batch, 2), 8)
    finally:
        batch.close()


@pytest.mark.slow
def test_what_a_simulator_raises_in_a_worker_is_one_line():
    batch = Workers(Plain(fails=2), 3, 2, pytest.fail)
    try:
        with pytest.raises(TridentError, match=r"^OSError: no licence \(in worker 1 of 2, simulators 1 to 1,\)$"):
            host.rollout(policy, KEY, host.start([Plain()], KEY, batch, 3), 8)
    finally:
        batch.close()


def test_how_many_workers(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    said = []
    assert how_many(Plain(), 8, None, said.append) == 1  # as quick as it is, processes would only cost
    assert said == []
    assert how_many(Plain(seconds=0.002), 8, None, said.append) == 4
    assert "8 copies in 4 worker processes" in said[0]
    assert how_many(Plain(seconds=0.002), 3, None, said.append) == 3
    assert how_many(Plain(), 8, 6, said.append) == 6
    locked = Plain(seconds=0.002)
    locked.handle = open(os.devnull)  # noqa: SIM115 (it cannot be pickled)
    assert how_many(locked, 8, None, said.append) == 1
    assert "cannot be sent to another process" in said[-1]
    locked.handle.close()


def test_who_asks_the_simulators_themselves_has_them_here():
    [(batch, home)] = batches_of(Plain(), 1, 3, 2, True, pytest.fail)
    assert type(batch) is OneByOne
    assert len(home) == 3
