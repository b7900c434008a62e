"""Hashes of programs: what must change them and what must not, and that the stored ones still hold."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.bench.fingerprint import changed, digest, measure, read, write
from trident.errors import TridentError

RECORD = Path(__file__).parents[2] / "benchmarks" / "fingerprints.json"


def test_names_and_dead_code_do_not_count():
    @jax.jit
    def doubled(x):
        return 2.0 * x

    @jax.jit
    def twice(x):
        jnp.sin(x)
        return 2.0 * x

    assert digest(doubled, jnp.ones(3)) == digest(twice, jnp.ones(3))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: 3.0 * jnp.sin(x) + np.arange(3.0),  # a number
        lambda x: 2.0 * jnp.cos(x) + np.arange(3.0),  # an operation
        lambda x: 2.0 * jnp.sin(x) + np.arange(1.0, 4.0),  # a constant array
        lambda x: 2.0 * jnp.sin(2.0 * jnp.sin(x)) + np.arange(3.0),  # who feeds whom
    ],
)
def test_what_is_computed_counts(other):
    assert digest(other, jnp.ones(3)) != digest(lambda x: 2.0 * jnp.sin(x) + np.arange(3.0), jnp.ones(3))


def test_loops_count_inside():
    def scan(factor):
        return lambda x: jax.lax.scan(lambda c, _: (factor * c, c), x, length=4)

    assert digest(scan(2.0), jnp.ones(3)) == digest(scan(2.0), jnp.ones(3))
    assert digest(scan(2.0), jnp.ones(3)) != digest(scan(3.0), jnp.ones(3))


def test_stored_hashes_are_kept_and_compared(tmp_path):
    path = tmp_path / "f.json"
    write(path, {"e": {"a": "1"}})
    write(path, {"e": {"b": "2"}})
    assert read(path) == {"e": {"a": "1", "b": "2"}}
    assert changed({"e": {"a": "1", "b": "3"}, "f": {"a": "1"}}, read(path)) == ["e b", "f a"]
    path.write_text(path.read_text().replace(jax.__version__, "0.0.1"))
    with pytest.raises(TridentError, match=r"made with jax 0\.0\.1"):
        read(path)


@pytest.mark.parametrize(
    ("env", "algos"),
    [
        ("probe-chain", ("trident", "trident-paper", "macpo", "qmix", "madac", "matd3-hybrid")),
        ("uav-mec", ("trident",)),
    ],
)
def test_rounds_are_the_programs_that_were_stored(env, algos):
    stored = read(RECORD)
    hashes: dict = {}
    for e, a, text in measure((env,), algos):
        hashes.setdefault(e, {})[a] = text
    assert not changed(hashes, stored)
