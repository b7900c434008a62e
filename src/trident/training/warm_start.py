"""A warm start: fit the learner to a scripted policy's rollout before the first round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from trident.errors import TridentError
from trident.fields import check_name
from trident.simulation.rollout import rollout, start
from trident.simulation.step import scripted
from trident.training.loop import RunState
from trident.training.settings import Setup
from trident.types import Key, Metrics

STREAM = 2**31 + 1
"""Folded into a seed's key: apart from every round's stream."""


def check_warm_start(setup: Setup) -> tuple[str, Callable[..., Any]]:
    """The scripted policy's name and the algorithm's `prepare`; or a TridentError that says what is missing."""
    name, prepare = setup.settings.warm_start, setup.algorithm.prepare
    assert name is not None
    check_name("scripted policy", name, setup.env.scripted, setup.spec.name)
    if prepare is None:
        raise TridentError(f"{setup.algorithm.name} has no warm start: leave out --warm-start")
    return name, prepare


def warm_start_keys(key: Key) -> Key:
    """Keys of the environments, of the rollout and of the fit."""
    return jax.random.split(jax.random.fold_in(key, STREAM), 3)


def warm_start(setup: Setup) -> Callable[[RunState, Key], tuple[RunState, Metrics]]:
    """The pure function of one seed: (fresh state, key of the seed) -> (prepared state, what `prepare` measured)."""
    env: Any = setup.env
    algorithm, settings = setup.algorithm, setup.settings
    name, prepare = check_warm_start(setup)

    def run(state: RunState, key: Key) -> tuple[RunState, Metrics]:
        env_key, roll_key, fit_key = warm_start_keys(key)
        steps = settings.warm_start_rounds * algorithm.plan.steps
        actors = start(env, env_key, algorithm.plan.envs)
        _, data = rollout(env, scripted(env, name), roll_key, actors, steps, settings.shielded)
        algo, metrics = prepare(state.algo, data, fit_key)
        return state._replace(algo=algo), metrics

    return run
