"""Simulators outside JAX: rollouts, evaluation and single episodes as a Python loop around them and a compiled policy.

Keys are drawn as in JAX: an episode's seed is a number made from the key that would reset a JAX environment. So a JAX
environment behind a Python face, resetting from that number, plays the same episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.simulation.batch import Batch, OneByOne, as_numpy, reset, row, stack
from trident.simulation.episode import Episode
from trident.simulation.rollout import NEVER
from trident.simulation.step import Step, measure, transition
from trident.types import Algorithm, AlgoState, Env, HostEnv, HybridAction, Key, TimeStep, Transition, View

HostPolicy = Callable[[Key, Sequence[HostEnv], TimeStep], tuple[HybridAction, dict[str, Any]]]
"""(keys [E], simulators, their last time steps [E, ...]) -> actions and extras [E, ...], NumPy"""
Say = Callable[[str], None]
TELL_EVERY = 10.0
"""Seconds without news after which a slow simulator says how far it is."""


def policy_of(env: HostEnv, algorithm: Algorithm, deterministic: bool = False) -> Callable[[AlgoState], HostPolicy]:
    """By an algorithm's name: one of the simulator's scripted policies, or a learned one."""
    name = algorithm.name
    return (lambda _: scripted(name)) if name in env.scripted else learned(algorithm, deterministic)


def learned(algorithm: Algorithm, deterministic: bool = False) -> Callable[[AlgoState], HostPolicy]:
    """A policy as its state makes it; it is compiled once for all states and calls."""

    @jax.jit
    def act(state: AlgoState, view: View, keys: Key) -> Any:
        return jax.vmap(lambda v, k: algorithm.act(state, v, k, deterministic))(view, keys)

    def with_state(state: AlgoState) -> HostPolicy:
        return lambda keys, _, last: jax.device_get(act(state, last.view, keys))

    return with_state


def scripted(name: str) -> HostPolicy:
    """A scripted policy of the simulators themselves, called as it is: it may be JAX or NumPy."""

    def decide(keys: Key, envs: Sequence[HostEnv], last: TimeStep) -> tuple[HybridAction, dict[str, Any]]:
        actions = [env.scripted[name](key, env.env_state) for env, key in zip(envs, keys, strict=True)]
        return stack(as_numpy(actions)), {}

    return decide


# --- one step of every simulator ------------------------------------------------------------------


def act_and_step(envs: Sequence[HostEnv], policy: HostPolicy, keys: Key, last: TimeStep, shielded: bool) -> Step:
    """As `step.act_and_step`, with everything [E, ...]; the simulators move on."""
    action, extras = policy(keys, envs, last)
    executed, changed = _shield(envs, action, shielded)
    return Step(action, executed, changed, extras, OneByOne(envs).step(executed))


# --- rollouts -------------------------------------------------------------------------------------


@dataclass
class HostActors:
    """E simulators in mid-episode. They live here and nowhere else: a checkpoint cannot hold them."""

    envs: list[HostEnv]
    last: TimeStep  # [E, ...]
    cut: np.ndarray  # [E]: as in rollout.Actors
    batch: Batch
    """What steps them; scripted policies and shields ask the simulators themselves."""


def start(envs: list[HostEnv], key: Key, batch: Batch | None = None, count: int | None = None) -> HostActors:
    """Fresh episodes, staggered as in `rollout.start`; `count` of them where a batch holds more than `envs`."""
    count = len(envs) if count is None else count
    batch = OneByOne(envs) if batch is None else batch
    seeds = seeds_of(jax.random.split(key, count))
    cut = np.ceil((np.arange(count) + 1) * envs[0].spec.horizon / count).astype(np.int64)
    return HostActors(envs, batch.reset(np.asarray(seeds)), cut, batch)


def rollout(
    policy: HostPolicy, key: Key, actors: HostActors, steps: int, shielded: bool = False, say: Say | None = None
) -> Transition:
    """Advance all simulators by `steps`; episodes that end are reset, their last observation is kept. [T, E, ...]"""
    act_keys, seeds = _rollout_keys(key, steps, len(actors.cut))
    seeds, began, records = np.asarray(seeds), time.monotonic(), []
    told = began
    for t in range(steps):
        records.append(_step(policy, actors, act_keys[t], seeds[t], shielded))
        if say is not None and time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            speed = (t + 1) * len(actors.cut) / (told - began)
            say(f"{actors.envs[0].spec.name}: {t + 1} of {steps} steps of this round, {speed:,.0f} env steps/s")
    return stack(records)


def _step(policy: HostPolicy, actors: HostActors, keys: Key, seeds: np.ndarray, shielded: bool) -> Transition:
    """One step of every simulator; `actors` moves on."""
    before = actors.last
    action, extras = policy(keys, actors.envs, before)
    executed, changed = _shield(actors.envs, action, shielded)
    after, actors.cut = actors.batch.step(executed), actors.cut - 1
    did = Step(action, executed, changed, extras, after)
    truncated = (after.truncated | (actors.cut <= 0)) & ~after.terminated
    ended = after.terminated | truncated
    if ended.any():
        after = actors.batch.reset_where(ended, seeds, after)
        actors.cut = np.where(ended, NEVER, actors.cut)
    actors.last = after
    return transition(before, did, truncated, shielded)


def _shield(envs: Sequence[HostEnv], action: HybridAction, shielded: bool) -> tuple[HybridAction, np.ndarray]:
    """What is executed [E, ...], and by whom it was changed [E, N]."""
    if not shielded or envs[0].shield is None:
        return action, np.zeros(action.mode.shape, bool)
    rows = [as_numpy(env.shield(env.env_state, row(action, e))) for e, env in enumerate(envs) if env.shield is not None]
    return stack(rows)


@partial(jax.jit, static_argnums=(1, 2))
def _rollout_keys(key: Key, steps: int, count: int) -> tuple[Key, Any]:
    """Keys of the policy and seeds of the resets, [T, E] each."""
    three = jax.vmap(jax.vmap(lambda k: jax.random.split(k, 3)))(jax.random.split(key, (steps, count)))
    return three[..., 0], seeds_of(three[..., 2])


# --- whole episodes -------------------------------------------------------------------------------


def evaluate(
    env: HostEnv, policy: HostPolicy, key: Key, episodes: int, shielded: bool = False, say: Say | None = None
) -> dict[str, Any]:
    """Sums over each episode, as `evaluate.evaluate` gives them, with the same keys; one after another."""
    seeds, act_keys = _evaluation_keys(key, episodes, env.spec.horizon)
    told, sums = time.monotonic(), []
    for e, seed in enumerate(np.asarray(seeds)):
        if say is not None and time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            say(f"{env.spec.name}: {e} of {episodes} episodes")
        steps = _episode(env, policy, reset(env, int(seed)), act_keys[:, e], shielded)
        values = stack([as_numpy(measure(did)) for did in steps])
        sums.append(jax.tree.map(lambda x: x.sum(axis=0, dtype=np.float32), values))
    return stack(sums)


@partial(jax.jit, static_argnums=(1, 2))
def _evaluation_keys(key: Key, episodes: int, horizon: int) -> tuple[Any, Key]:
    """Seeds of the resets [episodes] and keys of the policy [T, episodes]."""
    reset_key, run_key = jax.random.split(key)
    seeds = seeds_of(jax.random.split(reset_key, episodes))
    steps = jax.random.split(run_key, horizon)
    return seeds, jax.vmap(lambda k: jax.random.split(k, (episodes, 2))[:, 0])(steps)


def play(env: HostEnv, policy: HostPolicy, key: Key, steps: int | None = None, shielded: bool = False) -> Episode:
    """As `episode.play`, with the same keys."""
    steps = env.spec.horizon if steps is None else min(steps, env.spec.horizon)
    reset_key, run_key = jax.random.split(key)
    first = reset(env, int(seeds_of(reset_key[None])[0]))
    act_keys = jax.vmap(lambda k: jax.random.split(k)[0])(jax.random.split(run_key, steps))
    states, rest = [env.env_state], []
    for did in _episode(env, policy, first, act_keys, shielded):
        states.append(env.env_state)
        rest.append((did.action, did.executed, did.after, did.changed))
    return Episode(stack(states), first, *stack(rest))


def play_many(
    env: HostEnv, policy: HostPolicy, keys: Key, steps: int | None = None, shielded: bool = False
) -> list[Episode]:
    """One after another."""
    return [play(env, policy, key, steps, shielded) for key in keys]


def _episode(env: HostEnv, policy: HostPolicy, last: TimeStep, keys: Key, shielded: bool) -> Iterator[Step]:
    """Steps of one simulator until its episode ends, or as many as there are keys."""
    for t in range(len(keys)):
        did = row(act_and_step([env], policy, keys[t : t + 1], stack([last]), shielded), 0)
        yield did
        last = did.after
        if last.terminated or last.truncated:
            return


# --- seeds ----------------------------------------------------------------------------------------


class FromSeeds:
    """A JAX environment that resets from the numbers that the loop here makes of keys: evaluated with the same key, it
    plays the same episodes as a simulator whose `reset(seed)` does what its reset does with `jax.random.key(seed)`."""

    def __init__(self, env: Env):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, key: Key) -> Any:
        return self.env.reset(jax.random.key(seeds_of(key[None])[0]))


@jax.jit
def seeds_of(keys: Key) -> Any:
    """A whole number in [0, 2^31) from each key."""

    def draw(key):
        return jax.random.bits(key, dtype=jnp.uint32) >> 1

    return jax.vmap(draw)(keys.reshape(-1)).reshape(keys.shape)
