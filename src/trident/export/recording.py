"""What a policy sees: observations of fresh episodes, for ranges, thresholds and the comparison with JAX."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from trident.api import Run
from trident.simulation.rollout import rollout, start
from trident.training.backend import backend_of
from trident.training.session import enable_compilation_cache
from trident.types import HostEnv

STREAM = 2**31 + 3
"""Folded into the base key: neither trained, evaluated nor shown before."""


class Recording(NamedTuple):
    """R steps of whole teams, and the mean cost of every whole episode [E, K]."""

    obs: np.ndarray  # [R, N, O]
    mask: np.ndarray  # [R, N, M]
    alive: np.ndarray  # [R, N]
    state: np.ndarray  # [R, S]
    episode_cost: np.ndarray  # [E, K]


def record(run: Run, policy: Any, observations: int) -> Recording:
    """At least so many observations of single agents, all from whole episodes."""
    enable_compilation_cache()
    setup, spec = run.setup, run.setup.spec
    key = jax.random.fold_in(jax.random.key(setup.settings.seed), STREAM)
    episodes = max(1, math.ceil(observations / (spec.num_agents * spec.horizon)))
    if isinstance(setup.env, HostEnv):
        parts = [_host_episode(run, policy, jax.random.fold_in(key, i)) for i in range(episodes)]
        return Recording(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    env: Any = setup.env

    def roll(key: Any) -> Any:
        start_key, roll_key = jax.random.split(key)
        actors = start(env, start_key, episodes, stagger=False)
        seen = rollout(env, policy, roll_key, actors, spec.horizon, setup.settings.shielded)[1]
        return seen.obs, seen.mode_mask, seen.alive, seen.state, seen.cost, seen.terminated | seen.truncated

    *rows, cost, ended = jax.device_get(jax.jit(roll)(key))
    obs, mask, alive, state = (np.asarray(x).reshape(-1, *x.shape[2:]) for x in rows)
    return Recording(obs, mask, alive, state, _episode_costs(np.asarray(cost), np.asarray(ended)))


def _episode_costs(cost: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Costs [T, E, K] and ends [T, E] -> the mean cost per step of every episode that ended."""
    means = []
    for e in range(cost.shape[1]):
        edges = [0, *(np.flatnonzero(ended[:, e]) + 1)]
        means += [cost[a:b, e].mean(0) for a, b in itertools.pairwise(edges)]
    return np.array(means) if means else cost.mean(0)


def _host_episode(run: Run, policy: Any, key: Any) -> tuple[np.ndarray, ...]:
    setup = run.setup
    steps = backend_of(setup.env).play(setup.env, policy, key, None, setup.settings.shielded).steps
    rows = [np.asarray(x) for x in (steps.obs, steps.mode_mask, steps.alive, steps.state)]
    return (*rows, np.asarray(steps.cost).mean(0, keepdims=True))
