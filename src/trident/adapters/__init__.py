"""Environments of other interfaces as TRIDENT's own, and TRIDENT's as theirs. Their packages are extras, and are
imported when an adapter is used."""

from __future__ import annotations

from typing import Any

from trident.envs.checks.shapes import declaration_faults
from trident.errors import TridentError
from trident.types import AnyEnv, EnvSpec

SUITES = ("jaxmarl", "camar", "safe_velocity")
"""Benchmarks whose environments have names of their own. The first two are in JAX, and compiled into the round."""


def adapt(thing: Any, name: str) -> AnyEnv:
    """An environment as it is, or through the adapter of its interface; told apart by what it has."""
    if isinstance(getattr(thing, "spec", None), EnvSpec):
        for fault in declaration_faults(thing):
            raise TridentError(f"{name} is no sound environment: {fault}")
        return thing
    if hasattr(thing, "step_env") or (hasattr(thing, "map_generator") and hasattr(thing, "dynamic")):
        return from_suite(thing, name=name)
    if hasattr(thing, "possible_agents") or hasattr(thing, "agent_iter"):
        return from_pettingzoo(thing, name=name)
    if all(hasattr(thing, part) for part in ("observation_space", "action_space", "reset", "step")):
        return from_gymnasium(thing, name=name)
    raise TridentError(
        f"{name} is no environment: it is of the type {type(thing).__name__}, and has neither a trident.EnvSpec as "
        "`spec` nor the interface of PettingZoo, Gymnasium, JaxMARL or CAMAR"
    )


def from_pettingzoo(env: Any, **declared: Any) -> AnyEnv:
    """A ParallelEnv or AECEnv of PettingZoo; see `trident.adapters.inward.Declared` for what can be declared."""
    from trident.adapters.inward import adapt_pettingzoo

    return adapt_pettingzoo(env, **declared)


def from_gymnasium(env: Any, args: Any = None, **declared: Any) -> AnyEnv:
    """An environment of Gymnasium, or the id of one (`args` are for its constructor), as a system of one agent."""
    from trident.adapters.inward import adapt_gymnasium

    return adapt_gymnasium(env, dict(args or {}), **declared)


def from_suite(env: Any, suite: str | None = None, args: Any = None, **declared: Any) -> AnyEnv:
    """An environment of JaxMARL or CAMAR, or its name in that suite; see `trident.adapters.suites.Declared`."""
    from trident.adapters import suites, velocity

    if suite == "safe_velocity":
        return velocity.make(env)
    if isinstance(env, str):
        makers = {"jaxmarl": suites.make_jaxmarl, "camar": suites.make_camar}
        env = makers[str(suite)](env, dict(args or {}))
    made: Any = suites.adapt_suite(env, **declared)
    return made


def to_pettingzoo(env: AnyEnv, render_mode: str | None = None) -> Any:
    """One of TRIDENT's environments as a ParallelEnv of PettingZoo."""
    from trident.adapters.outward import parallel_env

    return parallel_env(env, render_mode)


def to_gymnasium(env: AnyEnv, render_mode: str | None = None) -> Any:
    """One of TRIDENT's environments with a single agent as an environment of Gymnasium."""
    from trident.adapters.outward import single_env

    return single_env(env, render_mode)
