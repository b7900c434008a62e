"""Training on a probe environment until the answer known on paper should have been found."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from trident.envs.probes.one_shot import PROBES
from trident.simulation.evaluate import evaluate, summarise
from trident.training.loop import policy_of, program


def train(name, make, config, rounds, seeds=2, deterministic=False):
    """(env, evaluation of every seed, states of the algorithm, metrics of the last round)"""
    env = PROBES[name]()
    algorithm = make(config, env.spec, env.physics)
    made = program(env, algorithm, rounds)
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0), i))(jnp.arange(seeds))
    state = jax.jit(jax.vmap(made.init))(keys)
    step = jax.jit(jax.vmap(made.round, in_axes=(0, None)), donate_argnums=0)
    history = []
    for i in range(rounds):
        state, metrics = step(state, i)
        history.append(jax.device_get(metrics))
    play = jax.jit(lambda s, k: evaluate(env, policy_of(env, algorithm, s, deterministic), k, 400))
    results = [
        summarise(env.spec, jax.device_get(play(jax.tree.map(lambda x, j=j: x[j], state.algo), jax.random.key(9))))
        for j in range(seeds)
    ]
    return env, results, state.algo, history
