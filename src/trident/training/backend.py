"""Where an environment runs: in JAX, inside the compiled round, or in a simulator outside it. Asked here and once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trident.simulation import host
from trident.simulation.batch import reset, row, stack
from trident.simulation.episode import Episode, play, play_many
from trident.simulation.evaluate import evaluate
from trident.simulation.host import HostPolicy, Say
from trident.simulation.step import Policy, scripted
from trident.training import devices
from trident.training import host as host_training
from trident.training.apart import all_seeds, each, first_seed
from trident.training.host import key_shapes
from trident.training.layout import layout_of
from trident.training.loop import CompiledRun, Program, RunState, policy_of, program
from trident.training.memory import check_program
from trident.training.settings import Setup
from trident.training.warm_start import warm_start
from trident.types import Algorithm, AlgoState, AnyEnv, Env, HostEnv, Key

AnyPolicy = Policy | HostPolicy
PolicyOf = Callable[[AlgoState], Any]


class Backend(NamedTuple):
    """What a run needs of either kind. Environments and policies are of that kind."""

    check: Callable[[Any], Any]
    """(environment) -> an error, if it cannot start, before anything is written or compiled"""
    init: Callable[[Setup], Callable[[Key], RunState]]
    """The pure function of one seed: its first state."""
    build: Callable[[Setup, Say], CompiledRun]
    """(setup, what tells of slow simulators) -> compiled over all seeds"""
    policy_of: Callable[[Any, Algorithm, bool], PolicyOf]
    """(environment, algorithm, deterministic) -> learner's state -> policy"""
    scripted: Callable[[Any, str], AnyPolicy]
    evaluate: Callable[[Any, Any, Key, int, bool, Say | None], dict[str, Any]]
    """(environment, policy, key, episodes, shielded, say) -> sums over each episode"""
    evaluate_seeds: Callable[[Any, PolicyOf, AlgoState, Key, int, bool, Say | None], dict[str, Any]]
    """The same for the policy of each seed's state, with a key each: one row per seed."""
    play: Callable[[Any, Any, Key, int | None, bool], Episode]
    play_many: Callable[[Any, Any, Key, int | None, bool], list[Episode]]
    resume_note: str | None = None
    """What to know of a run that goes on."""


def backend_of(env: AnyEnv) -> Backend:
    return HOST if isinstance(env, HostEnv) else JAX


# --- in JAX ---------------------------------------------------------------------------------------


def _program(setup: Setup) -> Program:
    env: Any = setup.env
    return program(env, setup.algorithm, setup.rounds, setup.settings.shielded)


def build_jax(setup: Setup, say: Say) -> CompiledRun:
    """The round is compiled ahead, so that a second compilation cannot happen; the first state's program beside it, in
    a thread: tracing a round keeps only one core busy."""
    one, apart, seeds = _program(setup), setup.settings.seeds_apart, len(setup.seeds)
    if (layout := layout_of(setup)) is not None:
        return devices.build(setup, one, layout)
    keys = first_seed(key_shapes(setup)) if apart else key_shapes(setup)
    first = jax.jit(jax.vmap(one.init)).trace(keys)
    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first.out_info)
    step = jax.jit(jax.vmap(one.round, in_axes=(0, None)), donate_argnums=0)
    with ThreadPoolExecutor(1) as beside:
        starting = beside.submit(first.lower().compile)
        compiled = step.lower(rows, jax.ShapeDtypeStruct((), jnp.int32)).compile()
        check_program(compiled)
        start = starting.result()
    prepare = None if setup.settings.warm_start is None else jax.jit(jax.vmap(warm_start(setup)))

    def init(keys: Key) -> tuple[RunState, dict[str, Any]]:
        state = start(keys)
        return (state, {}) if prepare is None else prepare(state, keys)

    def round_(state: RunState, index: Any) -> tuple[RunState, dict[str, Any]]:
        return compiled(state, jnp.int32(index))

    if apart:
        return CompiledRun(each(init, seeds), each(round_, seeds), all_seeds(rows, seeds))
    return CompiledRun(init, round_, rows, program=compiled)


def _evaluate_jax(env: Env, policy: Policy, key: Key, episodes: int, shielded: bool, say: Say | None) -> dict[str, Any]:
    return jax.device_get(jax.jit(lambda key: evaluate(env, policy, key, episodes, shielded))(key))


def _evaluate_seeds_jax(
    env: Env, policy_of: PolicyOf, states: AlgoState, keys: Key, episodes: int, shielded: bool, say: Say | None
) -> dict[str, Any]:
    one = lambda state, key: evaluate(env, policy_of(state), key, episodes, shielded)  # noqa: E731
    return jax.device_get(jax.jit(jax.vmap(one))(states, keys))


JAX = Backend(
    check=lambda env: None,
    init=lambda setup: _program(setup).init,
    build=build_jax,
    policy_of=lambda env, algorithm, deterministic: lambda state: policy_of(env, algorithm, state, deterministic),
    scripted=scripted,
    evaluate=_evaluate_jax,
    evaluate_seeds=_evaluate_seeds_jax,
    play=play,
    play_many=play_many,
)

# --- in a simulator outside it --------------------------------------------------------------------


def _evaluate_seeds_host(
    env: HostEnv, policy_of: PolicyOf, states: AlgoState, keys: Key, episodes: int, shielded: bool, say: Say | None
) -> dict[str, Any]:
    policies = [policy_of(row(states, i)) for i in range(len(keys))]
    each = zip(policies, keys, strict=True)
    return stack([host.evaluate(env, policy, key, episodes, shielded, say) for policy, key in each])


HOST = Backend(
    check=lambda env: reset(env, 0),
    init=host_training.init_of,
    build=host_training.build,
    policy_of=host.policy_of,
    scripted=lambda env, name: host.scripted(name),
    evaluate=host.evaluate,
    evaluate_seeds=_evaluate_seeds_host,
    play=host.play,
    play_many=host.play_many,
    resume_note="cannot be saved in mid-episode: its episodes start anew",
)
