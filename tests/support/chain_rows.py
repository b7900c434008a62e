"""Replayed rows and random networks for tests of off-policy learners; nearly nothing is compiled for them."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.probes.chain import probe_chain
from trident.simulation.rollout import rollout, start

CHAIN = probe_chain()


@cache
def make_rows():
    """48 random steps of the chain with walkers that die, flattened."""

    @jax.jit
    def play(key):
        def policy(k, s, t):
            return (CHAIN.scripted["random"](k, s), {})

        return rollout(CHAIN, policy, key, start(CHAIN, key, 4), 12)[1]

    rows = jax.tree.map(lambda x: x.reshape(48, *x.shape[2:]), play(jax.random.key(3)))
    assert not rows.alive.all()
    return rows


def random_like(make):
    """A pytree of normal numbers in the shape of `make(key)`."""
    draw = np.random.default_rng(0)
    shapes = jax.eval_shape(make, jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape, scale=0.7), jnp.float32), shapes)
