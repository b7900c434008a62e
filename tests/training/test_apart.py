"""Seeds that are trained apart are, bit for bit, those that are trained alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

from trident import api
from trident.errors import TridentError
from trident.report import records as recording
from trident.training import session
from trident.training.settings import Settings, identity, make_setup

del tiny  # registers the environment and the learner of that name


def bits(state, seed):
    leaves = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
              for x in jax.tree.leaves(state)]  # fmt: skip
    return [np.asarray(x)[seed].tobytes() for x in leaves]


def test_a_seed_apart_from_others_is_the_seed_alone(tmp_path):
    def run(name, **settings):
        setup = make_setup("tiny", "tiny", Settings(episodes=10, **settings))
        return session.train(setup, tmp_path / name)

    three, alone = run("three", seeds=3, seeds_apart=True), run("alone", seeds=(1,))
    assert bits(three.state, 1) == bits(alone.state, 0)
    assert bits(three.state, 1) != bits(three.state, 0)
    rows, one = (recording.read(tmp_path / name / "records.jsonl") for name in ("three", "alone"))
    assert [r["values"]["reward"][1] for r in rows] == [r["values"]["reward"][0] for r in one]
    results = [api.load(tmp_path / name).evaluate(5, references=False) for name in ("three", "alone")]
    assert results[0]["policies"]["tiny"][1] == results[1]["policies"]["tiny"][0]


def test_a_run_does_not_change_between_the_two(tmp_path):
    together, apart = (make_setup("tiny", "tiny", Settings(seeds_apart=value)) for value in (False, True))
    assert identity(together) != identity(apart)
    with pytest.raises(TridentError, match="--seeds-apart must be true or false"):
        make_setup("tiny", "tiny", Settings(seeds_apart=1))  # pyright: ignore[reportArgumentType]
