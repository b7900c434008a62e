"""Simulators outside JAX: rollouts, evaluation and single episodes as a Python loop around them and a compiled policy.

Keys are drawn as in JAX: an episode's seed is a number made from the key that would reset a JAX environment. So a JAX
environment behind a Python face, resetting from that number, plays the same episodes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.checks.shapes import timestep_faults
from trident.errors import TridentError
from trident.simulation.episode import Episode
from trident.simulation.rollout import NEVER
from trident.simulation.step import Step, measure, transition
from trident.types import Algorithm, AlgoState, Env, EnvSpec, HostEnv, HybridAction, Key, TimeStep, Transition, View

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
    rows = [_shield_and_step(env, row(action, e), shielded) for e, env in enumerate(envs)]
    executed, changed, after = stack(rows)
    return Step(action, executed, changed, extras, after)


def _shield_and_step(env: HostEnv, action: HybridAction, shielded: bool) -> tuple[HybridAction, np.ndarray, TimeStep]:
    changed = np.zeros(env.spec.num_agents, bool)
    if shielded and env.shield is not None:
        action, changed = as_numpy(env.shield(env.env_state, action))
    return action, changed, step(env, action)


def reset(env: HostEnv, seed: int) -> TimeStep:
    return conform(env.spec, "reset", env.reset(seed))


def step(env: HostEnv, action: HybridAction) -> TimeStep:
    return conform(env.spec, "step", env.step(action))


# --- rollouts -------------------------------------------------------------------------------------


@dataclass
class HostActors:
    """E simulators in mid-episode. They live here and nowhere else: a checkpoint cannot hold them."""

    envs: list[HostEnv]
    last: TimeStep  # [E, ...]
    cut: np.ndarray  # [E]: as in rollout.Actors


def close(env: HostEnv) -> None:
    if hasattr(env, "close"):
        env.close()  # pyright: ignore[reportAttributeAccessIssue]


def replicate(env: HostEnv, count: int) -> list[HostEnv]:
    """The simulator itself and copies of it."""
    try:
        return [env, *(copy.deepcopy(env) for _ in range(count - 1))]
    except Exception as error:  # a simulator's handles may fail in any way
        raise TridentError(
            f"{env.spec.name} cannot be copied ({type(error).__name__}: {error}): give it __deepcopy__, or train with "
            "--algo.envs 1 --seeds 1"
        ) from error


def start(envs: list[HostEnv], key: Key) -> HostActors:
    """Fresh episodes, staggered as in `rollout.start`."""
    count = len(envs)
    seeds = seeds_of(jax.random.split(key, count))
    last = stack([reset(env, int(seed)) for env, seed in zip(envs, seeds, strict=True)])
    cut = np.ceil((np.arange(count) + 1) * envs[0].spec.horizon / count).astype(np.int64)
    return HostActors(envs, last, cut)


def rollout(
    policy: HostPolicy, key: Key, actors: HostActors, steps: int, shielded: bool = False, say: Say | None = None
) -> Transition:
    """Advance all simulators by `steps`; episodes that end are reset, their last observation is kept. [T, E, ...]"""
    act_keys, seeds = _rollout_keys(key, steps, len(actors.envs))
    seeds, told, records = np.asarray(seeds), time.monotonic(), []
    for t in range(steps):
        records.append(_step(policy, actors, act_keys[t], seeds[t], shielded))
        if say is not None and time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            say(f"{actors.envs[0].spec.name}: {t + 1} of {steps} steps of this round")
    return stack(records)


def _step(policy: HostPolicy, actors: HostActors, keys: Key, seeds: np.ndarray, shielded: bool) -> Transition:
    """One step of every simulator; `actors` moves on."""
    before, envs = actors.last, actors.envs
    did = act_and_step(envs, policy, keys, before, shielded)
    after, actors.cut = did.after, actors.cut - 1
    truncated = (after.truncated | (actors.cut <= 0)) & ~after.terminated
    ended = after.terminated | truncated
    if ended.any():
        fresh = [reset(env, int(seeds[e])) if ended[e] else row(after, e) for e, env in enumerate(envs)]
        after, actors.cut = stack(fresh), np.where(ended, NEVER, actors.cut)
    actors.last = after
    return transition(before, did, truncated, shielded)


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
        rest.append((did.executed, did.after, did.changed))
    return Episode(stack(states), *stack(rest))


def _episode(env: HostEnv, policy: HostPolicy, last: TimeStep, keys: Key, shielded: bool) -> Iterator[Step]:
    """Steps of one simulator until its episode ends, or as many as there are keys."""
    for t in range(len(keys)):
        did = row(act_and_step([env], policy, keys[t : t + 1], stack([last]), shielded), 0)
        yield did
        last = did.after
        if last.terminated or last.truncated:
            return


# --- arrays ---------------------------------------------------------------------------------------

FLAGS = ("mode_mask", "alive", "terminated", "truncated")
NUMBERS = ("obs", "state", "reward", "cost", "margin")


def conform(spec: EnvSpec, what: str, out: TimeStep) -> TimeStep:
    """NumPy arrays of the contract's dtypes, `cost_attribution` filled in; or a TridentError that says what does not
    fit."""
    if isinstance(out, TimeStep):
        flags = {name: np.asarray(getattr(out, name), bool) for name in FLAGS}
        numbers = {name: np.asarray(getattr(out, name), np.float32) for name in NUMBERS}
        metrics = {name: np.asarray(value, np.float32) for name, value in out.metrics.items()}
        cost_attribution = None if out.cost_attribution is None else np.asarray(out.cost_attribution, bool)
        out = TimeStep(**flags, **numbers, metrics=metrics, cost_attribution=cost_attribution)  # pyright: ignore[reportArgumentType]
    faults = list(timestep_faults(what, spec, out))
    if faults:
        raise TridentError(f"{spec.name}: {faults[0]}")
    if out.cost_attribution is None:  # every agent looks at every violation
        everyone = np.broadcast_to(out.cost > 0, (spec.num_agents, spec.num_constraints))
        out = out._replace(cost_attribution=everyone)  # pyright: ignore[reportArgumentType]
    return out


def as_numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def row(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


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
