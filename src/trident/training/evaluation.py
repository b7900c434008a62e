"""The evaluation of a run: every seed's policy and the scripted references on the same fresh episodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.simulation import host
from trident.simulation import host_evaluate as host_eval
from trident.simulation.evaluate import evaluate, summarise
from trident.training.loop import policy_of
from trident.training.settings import Setup
from trident.types import AlgoState, HostEnv

STREAM = 2**31
"""Folded into the base key: no seed has this number, so evaluation episodes were never trained on."""
REFERENCES = ("random", "greedy", "planner", "nominal", "base-policy")


def evaluation_keys(setup: Setup) -> Any:
    """One key per seed; shared by all policies, which makes their comparison a paired one."""
    base = jax.random.fold_in(jax.random.key(setup.settings.seed), STREAM)
    return jax.vmap(lambda i: jax.random.fold_in(base, i))(jnp.array(setup.seeds, jnp.uint32))


def assess_learned(
    setup: Setup, states: AlgoState, episodes: int, deterministic: bool = True, say: host.Say | None = None
) -> list[dict[str, float]]:
    """One summary per seed; `states` has a leading seed axis."""
    env, algorithm, keys, shielded = setup.env, setup.algorithm, evaluation_keys(setup), setup.settings.shielded
    if isinstance(env, HostEnv):
        if algorithm.name in env.scripted:
            policies = [host.scripted(algorithm.name)] * len(setup.seeds)
        else:
            with_state = host.learned(algorithm, deterministic)
            policies = [with_state(host.row(states, i)) for i in range(len(setup.seeds))]
        played = [host_eval.evaluate(env, p, k, episodes, shielded, say) for p, k in zip(policies, keys, strict=True)]
        return _per_seed(setup, host.stack(played))

    def one(state: AlgoState, key: Any) -> Any:
        return evaluate(env, policy_of(env, algorithm, state, deterministic), key, episodes, shielded)

    return _per_seed(setup, jax.device_get(jax.jit(jax.vmap(one))(states, keys)))


def assess_scripted(setup: Setup, name: str, episodes: int, say: host.Say | None = None) -> list[dict[str, float]]:
    # On the first seed's episodes only: a script has no seeds, and a planner can be heavy.
    env, key, shielded = setup.env, evaluation_keys(setup)[0], setup.settings.shielded
    if isinstance(env, HostEnv):
        return [summarise(setup.spec, host_eval.evaluate(env, host.scripted(name), key, episodes, shielded, say))]
    scripted = env.scripted[name]

    def one(key: Any) -> Any:
        return evaluate(env, lambda k, env_state, _: (scripted(k, env_state), {}), key, episodes, shielded)

    return [summarise(setup.spec, jax.device_get(jax.jit(one)(key)))]


def _per_seed(setup: Setup, sums: dict[str, np.ndarray]) -> list[dict[str, float]]:
    count = len(setup.seeds)
    return [summarise(setup.spec, {k: v[i] for k, v in sums.items()}) for i in range(count)]


def assess_run(
    setup: Setup,
    states: AlgoState,
    diverged: dict[str, Any],
    episodes: int,
    deterministic: bool | None = None,
    references: bool = True,
    say: host.Say | None = None,
) -> dict[str, Any]:
    """The content of result.json: summaries per policy and seed. A diverged seed is listed, not averaged. Unless told
    otherwise, policies are flown as their algorithm wants it (Algorithm.sampled)."""
    good = [i for i, seed in enumerate(setup.seeds) if str(seed) not in diverged]
    name = setup.algorithm.name
    deterministic = not setup.algorithm.sampled if deterministic is None else deterministic
    learned = assess_learned(setup, states, episodes, deterministic, say)
    policies = {name: [learned[i] for i in good]}
    for reference in REFERENCES if references else ():
        if reference in setup.env.scripted and reference != name:
            policies[reference] = assess_scripted(setup, reference, episodes, say)
    return _result(setup, diverged, episodes, deterministic, [setup.seeds[i] for i in good], policies)


def empty_result(setup: Setup, diverged: dict[str, Any]) -> dict[str, Any]:
    """The content of result.json when every seed has diverged: nobody is left to be evaluated."""
    algorithm = setup.algorithm
    return _result(setup, diverged, setup.settings.eval_episodes, not algorithm.sampled, [], {algorithm.name: []})


def _result(
    setup: Setup,
    diverged: dict[str, Any],
    episodes: int,
    deterministic: bool,
    seeds: list[int],
    policies: dict[str, list[dict[str, float]]],
) -> dict[str, Any]:
    return {
        "episodes": episodes,
        "deterministic": deterministic,
        "shielded": setup.settings.shielded,
        "seeds": seeds,
        "diverged": diverged,
        "policies": policies,
    }
