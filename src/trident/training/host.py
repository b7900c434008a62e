"""Training through a simulator outside JAX: its rollout is a Python loop, what is learned from it one compiled program.

The simulators cannot be saved. A resumed run goes on with its learner, replay and records; its episodes start anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from trident import replay as replays
from trident.simulation import host
from trident.training.loop import CompiledRun, RunState, annotated, learning, round_keys, strip_weak_types
from trident.training.settings import Setup
from trident.training.warm_start import check_warm_start, warm_start_keys
from trident.types import Algorithm, EnvSpec, HostEnv, HybridAction, Key, Metrics, Transition, View

RESUMED_STREAM = 2**30
"""Folded into a seed's key with the round at which the episodes of a resumed run start."""


def init_of(setup: Setup) -> Callable[[Key], RunState]:
    """The pure function of one seed: the first state, without environments."""
    algorithm = setup.algorithm

    def init(key: Key) -> RunState:
        algo_key, _, run_key = jax.random.split(key, 3)
        replay = None
        if algorithm.plan.replay:
            roll = lambda: annotated(algorithm, example_of(setup))  # noqa: E731
            example = jax.eval_shape(lambda: replays.block_of(roll(), algorithm.plan.remember))
            replay = replays.create(example, algorithm.plan.replay)
        return strip_weak_types(RunState(algorithm.init(algo_key), None, replay, run_key, jnp.bool_(False)))

    return init


def example_of(setup: Setup) -> Transition:
    """A rollout of zeros [T, E, ...] with every array that a simulator's rollout has."""
    spec, algorithm = setup.spec, setup.algorithm
    lead = (algorithm.plan.steps, algorithm.plan.envs)
    zeros = lambda *shape, dtype=jnp.float32: jnp.zeros((*lead, *shape), dtype)  # noqa: E731
    n, (_, modes, params) = spec.num_agents, spec.action.low.shape
    obs, state, mask, alive = (
        zeros(n, spec.obs_dim),
        zeros(spec.state_dim),
        zeros(n, modes, dtype=bool),
        zeros(n, dtype=bool),
    )
    action = HybridAction(zeros(n, dtype=jnp.int32), zeros(n, params))
    costs, flag = zeros(spec.num_constraints), zeros(dtype=bool)
    extras = _extras(algorithm, spec, setup.env.scripted)
    extras = jax.tree.map(lambda x: zeros(*x.shape, dtype=x.dtype), extras)
    if setup.settings.shielded:
        extras = extras | {"shielded": zeros(n, dtype=bool)}
    metrics = {m.name: zeros() for m in spec.metrics}
    cost_attribution = zeros(n, spec.num_constraints, dtype=bool)
    return Transition(
        obs, state, mask, alive, action, action, zeros(), costs, costs, flag, flag, obs, state, mask, alive,
        metrics, extras, cost_attribution,
    )  # fmt: skip


def _extras(algorithm: Algorithm, spec: EnvSpec, scripted: Any) -> Any:
    """Shapes of what the policy remembers of one step of one environment."""
    if algorithm.name in scripted:
        return {}
    n, modes = spec.num_agents, spec.action.num_modes
    view = View(jnp.zeros((n, spec.obs_dim)), jnp.ones((n, modes), bool), jnp.ones(n, bool))
    return jax.eval_shape(lambda key: algorithm.act(algorithm.init(key), view, key, False)[1], jax.random.key(0))


class Simulators:
    """E simulators for each seed."""

    def __init__(self, setup: Setup, env: HostEnv, say: host.Say):
        self.setup, self.say = setup, say
        self.seeds, self.envs = len(setup.seeds), setup.algorithm.plan.envs
        self.all = host.replicate(env, self.seeds * self.envs)
        name = setup.algorithm.name
        play = host.scripted(name)
        self.policy_of = (lambda _: play) if name in env.scripted else host.learned(setup.algorithm)
        self.actors: list[host.HostActors] = []

    def start(self, keys: Key) -> None:
        """Fresh episodes everywhere; one key per seed."""
        groups = [self.all[i * self.envs : (i + 1) * self.envs] for i in range(self.seeds)]
        self.actors = [host.start(group, key) for group, key in zip(groups, keys, strict=True)]

    def play(self, policies: list[host.HostPolicy], keys: Key, steps: int) -> Transition:
        """Rollouts of all seeds, [seeds, T, E, ...]."""
        shielded, each = self.setup.settings.shielded, zip(policies, keys, self.actors, strict=True)
        return host.stack([host.rollout(p, key, actors, steps, shielded, self.say) for p, key, actors in each])

    def close(self) -> None:
        for env in self.all:
            host.close(env)


def build(setup: Setup, env: HostEnv, template: RunState, say: host.Say) -> CompiledRun:
    """As `session.build`: what is learned from a round is compiled ahead, over all seeds."""
    plan, simulators = setup.algorithm.plan, Simulators(setup, env, say)
    learn = learning(setup.algorithm, setup.rounds)
    step = jax.jit(jax.vmap(lambda s, data, i: learn(s, None, data, i), in_axes=(0, 0, None)), donate_argnums=0)
    example = jax.eval_shape(lambda: jax.vmap(lambda _: example_of(setup))(jnp.arange(len(setup.seeds))))
    compiled = step.lower(template, example, jax.ShapeDtypeStruct((), jnp.int32)).compile()

    def begin(keys: Key) -> tuple[RunState, Metrics]:
        state, measured = jax.jit(jax.vmap(init_of(setup)))(keys), {}
        if setup.settings.warm_start is not None:
            state, measured = _warm_start(setup, simulators, state, keys)
        simulators.start(jax.vmap(lambda key: jax.random.split(key, 3)[1])(keys))
        return state, measured

    def round_(state: RunState, index: Any) -> tuple[RunState, Metrics]:
        if not simulators.actors:  # a resumed run
            simulators.start(jax.vmap(lambda key: _start_key(key, index))(state.key))
        keys = jax.vmap(lambda s: round_keys(s, index)[0])(state)
        policies = [simulators.policy_of(host.row(state.algo, i)) for i in range(len(setup.seeds))]
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
