"""THE loop: one round is rollout -> replay -> update, one compiled program for every algorithm and every seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trident import replay as replays
from trident.simulation.episode_sums import EpisodeSums, add_rollout, start_sums
from trident.simulation.rollout import Actors, rollout, start
from trident.simulation.step import Policy, Step, scripted, transition
from trident.types import Algorithm, AlgoState, Data, Env, HybridAction, Key, Metrics, TimeStep, Transition


class RunState(NamedTuple):
    """Everything one seed of a run is. With a leading axis: all its seeds."""

    algo: AlgoState
    actors: Actors | None  # None if the environments are not ours to save (trident.training.host)
    replay: Any
    key: Key
    diverged: Any  # bool: frozen at its last good state
    episodes: EpisodeSums  # for metrics alone

    def __repr__(self) -> str:
        leaves = jax.tree.leaves(self)
        return f"RunState({len(leaves)} arrays, {sum(x.nbytes for x in leaves) / 1e6:.1f} MB)"


class Program(NamedTuple):
    init: Callable[[Key], RunState]
    round: Callable[[RunState, Any], tuple[RunState, Metrics]]
    """(state, round index) -> (state, metrics)"""


class CompiledRun(NamedTuple):
    """The compiled parts of a run, over all its seeds."""

    init: Callable[[Any], tuple[RunState, Metrics]]
    """Keys of the seeds -> (first state, what a warm start measured)"""
    round: Callable[[RunState, Any], tuple[RunState, Metrics]]
    template: RunState  # shapes and dtypes
    close: Callable[[], None] = lambda: None
    """Ends simulators that run outside JAX."""
    to_devices: Callable[[RunState], RunState] = lambda state: state
    """A state as it is saved -> as rounds take it."""
    to_here: Callable[[RunState], RunState] = lambda state: state
    """The way back: whole arrays, on every host."""
    program: Any = None
    """The compiled round, where it is one program."""


def policy_of(env: Env, algorithm: Algorithm, state: AlgoState, deterministic: bool = False) -> Policy:
    """A learned policy sees only its view; a scripted one belongs to its environment and sees the private state."""
    if algorithm.name in env.scripted:
        return scripted(env, algorithm.name)
    return lambda key, _, step: algorithm.act(state, step.view, key, deterministic)


def program(env: Env, algorithm: Algorithm, total_rounds: int, shielded: bool = False) -> Program:
    """The pure functions of one seed's run; the caller vmaps them over seeds and jits them."""
    plan, learn = algorithm.plan, learning(algorithm, total_rounds)

    def init(key: Key) -> RunState:
        actors = start(env, jax.random.split(key, 3)[1], plan.envs)

        def example(algo: AlgoState) -> Transition:
            keys = jax.random.split(key, plan.envs)
            action, extras = jax.vmap(policy_of(env, algorithm, algo))(keys, actors.env_state, actors.last)
            return example_of(action, extras, actors.last, plan.steps, shielded)

        sums = start_sums(plan.envs, env.spec.num_constraints)
        return first_state(algorithm, key, actors, sums, example)

    def collect(algo: AlgoState, actors: Actors, key: Key) -> tuple[Actors, Transition]:
        return rollout(env, policy_of(env, algorithm, algo), key, actors, plan.steps, shielded)

    def round_(state: RunState, index: Any) -> tuple[RunState, Metrics]:
        assert state.actors is not None
        roll_key, _ = round_keys(state, index)
        actors, data = collect(state.algo, state.actors, roll_key)
        return learn(state, actors, data, index)

    return Program(init, round_)


def first_state(
    algorithm: Algorithm,
    key: Key,
    actors: Actors | None,
    sums: EpisodeSums,
    example: Callable[[AlgoState], Transition],
) -> RunState:
    """One seed's state before its first round; `example` makes a rollout of the right shapes."""
    algo_key, _, run_key = jax.random.split(key, 3)
    plan, algo, replay = algorithm.plan, algorithm.init(algo_key), None
    if plan.replay:
        block = jax.eval_shape(lambda: replays.block_of(annotated(algorithm, example(algo)), plan.remember))
        replay = replays.create(block, plan.replay)
    return strip_weak_types(RunState(algo, actors, replay, run_key, jnp.bool_(False), sums))


def example_of(action: HybridAction, extras: dict[str, Any], last: TimeStep, steps: int, shielded: bool) -> Transition:
    """A rollout's shapes [T, E, ...] from a time step and a decision of E environments: nothing is played."""
    did = Step(action, action, jnp.zeros(last.alive.shape, bool), extras, last)
    one = transition(last, did, last.truncated, shielded)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (steps, *x.shape)), one)


def round_keys(state: RunState, index: Any) -> tuple[Key, Key]:
    """Keys of one round's rollout and update."""
    roll_key, update_key = jax.random.split(jax.random.fold_in(state.key, index))
    return roll_key, update_key


def annotated(algorithm: Algorithm, rollout: Transition) -> Transition:
    """A rollout with everything that its algorithm wants to know of it."""
    return rollout._replace(extras=rollout.extras | algorithm.annotate(rollout))


def learning(algorithm: Algorithm, total_rounds: int) -> Callable[..., tuple[RunState, Metrics]]:
    """The second half of a round, wherever its data came from: (state, actors, rollout, round index) -> state."""
    plan = algorithm.plan

    def learn(state: RunState, actors: Any, data: Transition, index: Any) -> tuple[RunState, Metrics]:
        _, update_key = round_keys(state, index)
        replay, data = state.replay, annotated(algorithm, data)
        if plan.replay:
            replay = replays.add(replay, data, plan.remember, index)
        fraction = jnp.minimum(index / max(total_rounds - 1, 1), 1.0)
        algo, metrics = algorithm.update(state.algo, Data(data, replay), update_key, fraction)
        episodes, whole = add_rollout(state.episodes, data)
        fresh = RunState(algo, actors, replay, state.key, state.diverged, episodes)
        kept, metrics = _freeze_if_bad(state, fresh, _rollout_metrics(data) | metrics, data)
        return kept, whole | metrics

    return learn


def _rollout_metrics(data: Transition) -> Metrics:
    """Means over the round's steps; the environment's metrics as sums would be, divided by the number of steps."""
    metrics = {"reward": jnp.mean(data.reward), "cost": jnp.mean(data.cost, axis=(0, 1))}
    metrics |= {f"metric/{k}": jnp.mean(v) for k, v in data.metrics.items()}
    if "shielded" in data.extras:
        metrics["shielded"] = jnp.mean(data.extras["shielded"], dtype=jnp.float32)
    alive = data.alive.astype(jnp.float32)
    onehot = jax.nn.one_hot(data.action.mode, data.mode_mask.shape[-1])
    metrics["modes"] = jnp.sum(onehot * alive[..., None], axis=(0, 1, 2)) / jnp.maximum(jnp.sum(alive), 1.0)
    return metrics


def _freeze_if_bad(old: RunState, new: RunState, metrics: Metrics, data: Transition) -> tuple[RunState, Metrics]:
    """A seed whose numbers are no longer finite stays at its last good state while its siblings go on.

    `bad/<quantity>` says where the first non-finite number was seen.
    """
    seen = {
        "observation": (data.obs, data.state, data.next_obs, data.next_state),
        "action": data.action,
        "reward": data.reward,
        "cost": data.cost,
        "parameters": new.algo,
    }
    bad = {f"bad/{name}": ~is_finite(tree) for name, tree in seen.items()}
    bad |= {f"bad/{name}": ~is_finite(value) for name, value in metrics.items() if name not in ("reward", "cost")}
    diverged = old.diverged | jnp.any(jnp.stack(list(bad.values())))
    # The replay buffer is not selected (that would copy it every round); a frozen seed never reads it again.
    keep = jax.tree.map(lambda o, n: jnp.where(diverged, o, n), old._replace(replay=None), new._replace(replay=None))
    return strip_weak_types(keep._replace(replay=new.replay, diverged=diverged)), metrics | bad


def strip_weak_types(tree: Any) -> Any:
    """Without weak types: a state that goes in with one and comes out without it compiles the round a second time."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype) if x.weak_type else x, tree)


def is_finite(tree: Any) -> Any:
    """Whether all numbers of a tree are."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves])) if leaves else jnp.bool_(True)
