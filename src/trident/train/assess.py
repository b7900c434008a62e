"""The evaluation of a run: every seed's policy and the scripted references on the same fresh episodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.eval.evaluate import evaluate, summarise
from trident.rollout import Policy
from trident.train.loop import policy_of
from trident.train.settings import Setup
from trident.types import AlgoState

STREAM = 2**31
"""Folded into the base key: no seed has this number, so evaluation episodes were never trained on."""
REFERENCES = ("random", "greedy", "planner")


def evaluation_keys(setup: Setup) -> Any:
    """One key per seed; shared by all policies, which makes their comparison a paired one."""
    base = jax.random.fold_in(jax.random.key(setup.settings.seed), STREAM)
    return jax.vmap(lambda i: jax.random.fold_in(base, i))(jnp.array(setup.seeds, jnp.uint32))


def assess_learned(
    setup: Setup, states: AlgoState, episodes: int, deterministic: bool = True
) -> list[dict[str, float]]:
    """One summary per seed; `states` has a leading seed axis."""

    def one(state: AlgoState, key: Any) -> Any:
        return _play(setup, policy_of(setup.env, setup.algorithm, state, deterministic), key, episodes)

    sums = jax.device_get(jax.jit(jax.vmap(one))(states, evaluation_keys(setup)))
    return _per_seed(setup, sums)


def assess_scripted(setup: Setup, name: str, episodes: int) -> list[dict[str, float]]:
    scripted = setup.env.scripted[name]

    def one(key: Any) -> Any:
        return _play(setup, lambda k, env_state, _: (scripted(k, env_state), {}), key, episodes)

    # On the first seed's episodes only: a script has no seeds, and a planner can be heavy.
    sums = jax.device_get(jax.jit(one)(evaluation_keys(setup)[0]))
    return [summarise(setup.spec, sums)]


def _play(setup: Setup, policy: Policy, key: Any, episodes: int) -> dict[str, Any]:
    return evaluate(setup.env, policy, key, episodes, setup.settings.shielded)


def _per_seed(setup: Setup, sums: dict[str, np.ndarray]) -> list[dict[str, float]]:
    count = len(setup.seeds)
    return [summarise(setup.spec, {k: v[i] for k, v in sums.items()}) for i in range(count)]


def assess_run(
    setup: Setup,
    states: AlgoState,
    diverged: dict[str, Any],
    episodes: int,
    deterministic: bool = True,
    references: bool = True,
) -> dict[str, Any]:
    """The content of result.json: summaries per policy and seed. A diverged seed is listed, not averaged."""
    good = [i for i, seed in enumerate(setup.seeds) if str(seed) not in diverged]
    name = setup.algorithm.name
    learned = assess_learned(setup, states, episodes, deterministic)
    policies = {name: [learned[i] for i in good]}
    for reference in REFERENCES if references else ():
        if reference in setup.env.scripted and reference != name:
            policies[reference] = assess_scripted(setup, reference, episodes)
    return {
        "episodes": episodes,
        "deterministic": deterministic,
        "shielded": setup.settings.shielded,
        "seeds": [setup.seeds[i] for i in good],
        "diverged": diverged,
        "policies": policies,
    }
