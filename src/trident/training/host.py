"""Training through a simulator outside JAX: its rollout is a Python loop, what is learned from it one compiled program.

The simulators cannot be saved. A resumed run goes on with its learner, replay and records; its episodes start anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from trident.envs.checks.shapes import action_shape, timestep_shape
from trident.simulation import host
from trident.simulation.batch import Batch, row, stack
from trident.simulation.episode_sums import EpisodeSums, start_sums
from trident.simulation.workers import batches_of
from trident.training.apart import each, first_seed
from trident.training.loop import CompiledRun, RunState, example_of, first_state, learning, round_keys
from trident.training.settings import Setup
from trident.training.warm_start import check_warm_start, warm_start_keys
from trident.types import AlgoState, HostEnv, Key, Metrics, Transition

RESUMED_STREAM = 2**30
"""Folded into a seed's key with the round at which the episodes of a resumed run start."""


def init_of(setup: Setup) -> Callable[[Key], RunState]:
    """The pure function of one seed: the first state, without environments."""
    return lambda key: first_state(
        setup.algorithm, key, None, sums_of(setup), lambda algo: example_rollout(setup, algo)
    )


def key_shapes(setup: Setup) -> Any:
    """Shapes and dtypes of the seeds' keys."""
    return jax.eval_shape(lambda: jax.random.split(jax.random.key(0), setup.settings.num_seeds))


def sums_of(setup: Setup) -> EpisodeSums:
    """Of episodes that have just begun."""
    return start_sums(setup.algorithm.plan.envs, setup.spec.num_constraints)


def example_rollout(setup: Setup, algo: AlgoState) -> Transition:
    """A rollout of zeros [T, E, ...] with every array that one has, in whichever kind of environment."""
    spec, algorithm = setup.spec, setup.algorithm
    envs, steps = algorithm.plan.envs, algorithm.plan.steps
    zeros = lambda x: jnp.zeros((envs, *x.shape), x.dtype)  # noqa: E731
    last, action = jax.tree.map(zeros, (timestep_shape(spec), action_shape(spec)))
    extras = {}
    if algorithm.name not in setup.env.scripted:
        act = lambda view: algorithm.act(algo, view, jax.random.key(0), False)  # noqa: E731
        action, extras = jax.vmap(act)(last.view)
    return example_of(action, extras, last, steps, setup.settings.shielded)


class Simulators:
    """E simulators for each seed."""

    def __init__(self, setup: Setup, say: host.Say):
        env: Any = setup.env
        self.setup, self.say = setup, say
        seeds, self.envs = len(setup.seeds), setup.algorithm.plan.envs
        self.policy_of = host.policy_of(env, setup.algorithm)
        self.actors: list[host.HostActors] = []
        asked = (setup.settings.shielded, setup.settings.warm_start, setup.algorithm.name in env.scripted)
        self.batches: list[Batch] = []
        self.homes: list[list[HostEnv]] = []
        try:
            for batch, home in batches_of(env, seeds, self.envs, setup.settings.workers, any(asked), say):
                self.batches.append(batch)
                self.homes.append(home)
        except BaseException:
            self.close()
            raise

    def start(self, keys: Key) -> None:
        """Fresh episodes everywhere; one key per seed."""
        each = zip(self.homes, keys, self.batches, strict=True)
        self.actors = [host.start(home, key, batch, self.envs) for home, key, batch in each]

    def play(self, policies: list[host.HostPolicy], keys: Key, steps: int) -> Transition:
        """Rollouts of all seeds, [seeds, T, E, ...]."""
        shielded, each = self.setup.settings.shielded, zip(policies, keys, self.actors, strict=True)
        return stack([host.rollout(p, key, actors, steps, shielded, self.say) for p, key, actors in each])

    def close(self) -> None:
        for batch in self.batches:
            batch.close()


def build(setup: Setup, say: host.Say) -> CompiledRun:
    """As `backend.build_jax`: what is learned from a round is compiled ahead, over all seeds."""
    plan, simulators = setup.algorithm.plan, Simulators(setup, say)
    first = jax.jit(jax.vmap(init_of(setup)))
    template = jax.eval_shape(first, key_shapes(setup))
    learn = learning(setup.algorithm, setup.rounds)
    step = jax.jit(jax.vmap(lambda s, data, i: learn(s, None, data, i), in_axes=(0, 0, None)), donate_argnums=0)
    example = jax.eval_shape(jax.vmap(lambda algo: example_rollout(setup, algo)), template.algo)
    apart = setup.settings.seeds_apart
    rows = first_seed((template, example)) if apart else (template, example)
    one = step.lower(*rows, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    compiled = each(one, len(setup.seeds), trees=2) if apart else one

    def begin(keys: Key) -> tuple[RunState, Metrics]:
        state, measured = first(keys), {}
        if setup.settings.warm_start is not None:
            state, measured = _warm_start(setup, simulators, state, keys)
        simulators.start(jax.vmap(lambda key: jax.random.split(key, 3)[1])(keys))
        return state, measured

    def round_(state: RunState, index: Any) -> tuple[RunState, Metrics]:
        if not simulators.actors:  # a resumed run
            simulators.start(jax.vmap(lambda key: _start_key(key, index))(state.key))
            state = state._replace(episodes=jax.vmap(lambda _: sums_of(setup))(jnp.arange(len(setup.seeds))))
        keys = jax.vmap(lambda s: round_keys(s, index)[0])(state)
        policies = [simulators.policy_of(row(state.algo, i)) for i in range(len(setup.seeds))]
        return compiled(state, simulators.play(policies, keys, plan.steps), jnp.int32(index))

    return CompiledRun(begin, round_, template, simulators.close)


def _warm_start(setup: Setup, simulators: Simulators, state: RunState, keys: Key) -> tuple[RunState, Metrics]:
    name, prepare = check_warm_start(setup)
    env_keys, roll_keys, fit_keys = jax.vmap(warm_start_keys, out_axes=1)(keys)
    simulators.start(env_keys)
    steps = setup.settings.warm_start_rounds * setup.algorithm.plan.steps
    data = simulators.play([host.scripted(name)] * len(setup.seeds), roll_keys, steps)
    algo, measured = jax.jit(jax.vmap(prepare))(state.algo, data, fit_keys)
    return state._replace(algo=algo), measured


def _start_key(key: Key, index: Any) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, RESUMED_STREAM), index)
