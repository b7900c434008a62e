"""The evaluation of a run: every seed's policy and the scripted references on the same fresh episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from trident.report.progress import Progress, Silent
from trident.simulation.evaluate import summarise
from trident.simulation.host import Say
from trident.training.apart import each
from trident.training.backend import backend_of
from trident.training.settings import Setup
from trident.types import AlgoState

STREAM = 2**31
"""Folded into the base key: no seed has this number, so evaluation episodes were never trained on."""
REFERENCES = ("random", "greedy", "planner", "nominal", "base-policy")


def evaluation_keys(setup: Setup) -> Any:
    """One key per seed; shared by all policies, which makes their comparison a paired one."""
    base = jax.random.fold_in(jax.random.key(setup.settings.seed), STREAM)
    return jax.vmap(lambda i: jax.random.fold_in(base, i))(jnp.array(setup.seeds, jnp.uint32))


def assess_learned(
    setup: Setup, states: AlgoState, episodes: int, deterministic: bool = True, say: Say | None = None
) -> list[dict[str, float]]:
    """One summary per seed; `states` has a leading seed axis."""
    env, backend, keys = setup.env, backend_of(setup.env), evaluation_keys(setup)
    policy_of = backend.policy_of(env, setup.algorithm, deterministic)
    shielded = setup.settings.shielded

    def over_seeds(states: AlgoState, keys: Any) -> dict[str, Any]:
        return backend.evaluate_seeds(env, policy_of, states, keys, episodes, shielded, say)

    apart = setup.settings.seeds_apart
    sums = (each(over_seeds, len(setup.seeds), trees=2) if apart else over_seeds)(states, keys)
    return [summarise(setup.spec, {k: v[i] for k, v in sums.items()}) for i in range(len(setup.seeds))]


def assess_scripted(setup: Setup, name: str, episodes: int, say: Say | None = None) -> list[dict[str, float]]:
    # On the first seed's episodes only: a script has no seeds, and a planner can be heavy.
    env, backend, key = setup.env, backend_of(setup.env), evaluation_keys(setup)[0]
    sums = backend.evaluate(env, backend.scripted(env, name), key, episodes, setup.settings.shielded, say)
    return [summarise(setup.spec, sums)]


def assess_run(
    setup: Setup,
    states: AlgoState,
    diverged: dict[str, Any],
    episodes: int,
    deterministic: bool | None = None,
    references: bool = True,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """The content of result.json, anew after every policy, the run's own first: summaries per policy and seed. Who is
    still to come stands in `pending`. A diverged seed is listed, not averaged. By default policies are
    evaluated as their algorithm asks for, stochastically or not (Algorithm.sampled)."""
    progress = progress or Silent()
    good = [i for i, seed in enumerate(setup.seeds) if str(seed) not in diverged]
    name = setup.algorithm.name
    deterministic = not setup.algorithm.sampled if deterministic is None else deterministic
    beside = [r for r in REFERENCES if references and r in setup.env.scripted and r != name]
    progress.doing(f"evaluating {name} on {episodes} fresh episodes per seed")
    learned = assess_learned(setup, states, episodes, deterministic, progress.say)
    policies = {name: [learned[i] for i in good]}
    result = _result(setup, diverged, episodes, deterministic, [setup.seeds[i] for i in good], policies)
    for i, reference in enumerate(beside):
        yield result | {"pending": beside[i:]}
        progress.doing(f"evaluating {reference} {i + 1}/{len(beside)} on the same episodes")
        policies[reference] = assess_scripted(setup, reference, episodes, progress.say)
    yield result


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
