"""Simulators outside JAX: a Python loop around them and a compiled policy, with the same records as `rollout`.

Keys are drawn as `rollout` draws them: an episode's seed is a number made from the key that would reset a JAX
environment. So a JAX environment behind a Python face, resetting from that number, plays the same episodes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.checks.shapes import timestep_shape
from trident.errors import TridentError
from trident.simulation.rollout import NEVER
from trident.types import Algorithm, AlgoState, Env, EnvSpec, HostEnv, HybridAction, Key, TimeStep, Transition, View

HostPolicy = Callable[[Key, Sequence[HostEnv], TimeStep], tuple[HybridAction, dict[str, Any]]]
"""(keys [E], simulators, their last time steps [E, ...]) -> actions and extras [E, ...], NumPy"""
Say = Callable[[str], None]
TELL_EVERY = 10.0
"""Seconds without news after which a slow simulator says how far it is."""


def learned(algorithm: Algorithm, deterministic: bool = False) -> Callable[[AlgoState], HostPolicy]:
    """An algorithm's policy; it is compiled once for all states and calls."""

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
    act_keys, seeds = _keys(key, steps, len(actors.envs))
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
    action, extras = policy(keys, envs, before)
    executed = action
    if shielded:
        executed, changed = shield(envs, action)
        extras = extras | {"shielded": changed}
    after = stack([step(env, row(executed, e)) for e, env in enumerate(envs)])
    actors.cut = actors.cut - 1
    truncated = (after.truncated | (actors.cut <= 0)) & ~after.terminated
    record = Transition(
        before.obs, before.state, before.mode_mask, before.alive, action, executed,
        after.reward, after.cost, after.margin, after.terminated, truncated,
        after.obs, after.state, after.mode_mask, after.alive, after.metrics, extras, after.cost_attribution,
    )  # fmt: skip
    ended = after.terminated | truncated
    if ended.any():
        fresh = [reset(env, int(seeds[e])) if ended[e] else row(after, e) for e, env in enumerate(envs)]
        after, actors.cut = stack(fresh), np.where(ended, NEVER, actors.cut)
    actors.last = after
    return record


def shield(envs: Sequence[HostEnv], action: HybridAction) -> tuple[HybridAction, np.ndarray]:
    """Every simulator's own shield: (executed actions, which were changed [E, N])."""
    through = []
    for e, env in enumerate(envs):
        mine = row(action, e)
        nothing = np.zeros(env.spec.num_agents, bool)
        through.append((mine, nothing) if env.shield is None else as_numpy(env.shield(env.env_state, mine)))
    return stack(through)


# --- one simulator, in the contract's dtypes ------------------------------------------------------


def reset(env: HostEnv, seed: int) -> TimeStep:
    return conform(env.spec, "reset", env.reset(seed))


def step(env: HostEnv, action: HybridAction) -> TimeStep:
    return conform(env.spec, "step", env.step(action))


FLAGS = ("mode_mask", "alive", "terminated", "truncated")
NUMBERS = ("obs", "state", "reward", "cost", "margin")


def conform(spec: EnvSpec, what: str, out: TimeStep) -> TimeStep:
    """NumPy arrays of the contract's dtypes, `cost_attribution` filled in; or a TridentError that says what does not
    fit."""
    if isinstance(out, TimeStep):
        flags = {
            name: np.asarray(getattr(out, name), bool) for name in ("mode_mask", "alive", "terminated", "truncated")
        }
        names = ("obs", "state", "reward", "cost", "margin")
        numbers = {name: np.asarray(getattr(out, name), np.float32) for name in names}
        metrics = {name: np.asarray(value, np.float32) for name, value in out.metrics.items()}
        cost_attribution = None if out.cost_attribution is None else np.asarray(out.cost_attribution, bool)
        out = TimeStep(**flags, **numbers, metrics=metrics, cost_attribution=cost_attribution)  # pyright: ignore[reportArgumentType]
    faults = list(timestep_shape(what, spec, out))
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
    draw = lambda key: jax.random.bits(key, dtype=jnp.uint32) >> 1  # noqa: E731
    return jax.vmap(draw)(keys.reshape(-1)).reshape(keys.shape)


@partial(jax.jit, static_argnums=(1, 2))
def _keys(key: Key, steps: int, count: int) -> tuple[Key, Any]:
    """Keys of the policy and seeds of the resets, [T, E] each."""
    three = jax.vmap(jax.vmap(lambda k: jax.random.split(k, 3)))(jax.random.split(key, (steps, count)))
    return three[..., 0], seeds_of(three[..., 2])
