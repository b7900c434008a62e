"""Simulators that are wrong on purpose: an environment says which of its numbers nobody knows for certain (`uncertain`)
and how it would be with other ones (`varied`). What the learner knows of it (physics, base policy, shield) stays what
it was: the world differs from the model, and not the model from itself.

    uncertain = {"mass": Uncertain("take-off mass"), "wind": Uncertain("steady wind, of the top speed", size=2)}

    def varied(self, errors):                     # {"mass": [0.1], "wind": [0.0, -0.05]}: traced arrays
        return copy of self whose `step` computes with them
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.errors import TridentError
from trident.fields import check_name
from trident.types import AnyEnv, Env, EnvState, HostEnv, HybridAction, Key, TimeStep

Errors = Mapping[str, Float[Array, "size"]]
Config = TypeVar("Config")
STREAM = 7
"""Folded into an episode's key: its errors are drawn apart from all else."""


class Uncertain(NamedTuple):
    """What nobody knows for certain, as a share of what it is thought to be."""

    help: str
    size: int = 1
    """How many numbers it has: 2 for what has a direction."""


class Varying:
    """An environment that computes with its config alone, whose `errors` are asked wherever they matter."""

    config: Any

    def varied(self, errors: Errors) -> Any:
        other = copy.copy(self)
        other.config = with_errors(self.config, errors)
        return other


class Erring(NamedTuple):
    """The state of a simulator that is wrong."""

    state: EnvState
    errors: dict[str, Any]


def with_errors(config: Config, errors: Errors) -> Config:
    """A copy of a frozen config that remembers errors beside its fields, of which they are no part."""
    other = copy.copy(config)
    object.__setattr__(other, "errors", dict(errors))
    return other


def off(errors: Errors, name: str, value: Any) -> Any:
    """The value as it really is; untouched where nothing is known to be wrong."""
    return value * (1.0 + errors[name][0]) if name in errors else value


def uncertain_of(env: AnyEnv) -> Mapping[str, Uncertain]:
    return {} if isinstance(env, HostEnv) else getattr(env, "uncertain", {})


def as_thought(env: Any) -> Any:
    """The environment as it is thought to be."""
    return env.env if isinstance(env, Randomised) else env


def randomised(env: AnyEnv, widths: Mapping[str, float]) -> AnyEnv:
    """Each episode's errors are drawn evenly from [-width, width]."""
    env = as_thought(env)
    if not widths:
        return env
    known = uncertain_of(env)
    if not known:
        raise TridentError(f"{env.spec.name} does not say what it is uncertain of: leave out --randomise")
    for name in widths:
        check_name("uncertainty", name, known, env.spec.name)
    return Randomised(env, widths)  # pyright: ignore[reportArgumentType,reportReturnType]


class Randomised:
    def __init__(self, env: Env, widths: Mapping[str, float]):
        self.env, self.widths = env, dict(widths)
        self.spec, self.physics = env.spec, env.physics
        self.scripted = {name: _of_state(act) for name, act in env.scripted.items()}
        self.shield = None if env.shield is None else lambda state, action: env.shield(state.state, action)  # pyright: ignore[reportOptionalCall]
        own: Any = env
        for name in ("config",):
            if hasattr(own, name):
                setattr(self, name, getattr(own, name))
        if hasattr(own, "scene"):
            self.scene = _unwrapped(own.scene)

    def reset(self, key: Key) -> tuple[Erring, TimeStep]:
        errors = draw(self.env, self.widths, jax.random.fold_in(key, STREAM))
        state, first = self.env.varied(errors).reset(key)  # pyright: ignore[reportAttributeAccessIssue]
        return Erring(state, errors), first

    def step(self, key: Key, state: Erring, action: HybridAction) -> tuple[Erring, TimeStep]:
        after, out = self.env.varied(state.errors).step(key, state.state, action)  # pyright: ignore[reportAttributeAccessIssue]
        return Erring(after, state.errors), out


def draw(env: AnyEnv, widths: Mapping[str, float], key: Key) -> dict[str, Any]:
    known, errors = uncertain_of(env), {}
    for i, name in enumerate(sorted(widths)):
        unit = jax.random.uniform(jax.random.fold_in(key, i), (known[name].size,), minval=-1.0, maxval=1.0)
        errors[name] = jnp.float32(widths[name]) * unit
    return errors


def _of_state(act: Any) -> Any:
    return lambda key, state: act(key, state.state)


def _unwrapped(scene: Any) -> Any:
    import functools

    @functools.wraps(scene)  # who draws asks for its parameters
    def of(states: Erring, *rest: Any, **named: Any) -> Any:
        return scene(states.state, *rest, **named)

    return of
