"""E simulators that are stepped together: one after another, by their own vectorised step, or in worker processes.

A simulator that can step many copies at once (on NumPy, or torch) says so by a method `batched(count)`, which returns
an object with `reset(seeds [E])`, `step(action [E, ...])`, `reset_where(ended [E], seeds [E], steps [E, ...])` and
`close()`; the first three return time steps [E, ...], the last of them with fresh rows where episodes have ended.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol, cast

import jax
import numpy as np

from trident.envs.checks.shapes import timestep_faults, timestep_shape
from trident.errors import TridentError
from trident.types import EnvSpec, HostEnv, HybridAction, TimeStep


class Batch(Protocol):
    def reset(self, seeds: Any) -> TimeStep: ...
    def step(self, action: HybridAction) -> TimeStep: ...
    def reset_where(self, ended: Any, seeds: Any, steps: TimeStep) -> TimeStep: ...
    def close(self) -> None: ...


class OneByOne:
    """Plain simulators."""

    def __init__(self, envs: Sequence[HostEnv]):
        self.envs = list(envs)

    def reset(self, seeds: Any) -> TimeStep:
        return stack([reset(env, int(seed)) for env, seed in zip(self.envs, seeds, strict=True)])

    def step(self, action: HybridAction) -> TimeStep:
        return stack([step(env, row(action, e)) for e, env in enumerate(self.envs)])

    def reset_where(self, ended: Any, seeds: Any, steps: TimeStep) -> TimeStep:
        rows = [reset(env, int(seeds[e])) if ended[e] else row(steps, e) for e, env in enumerate(self.envs)]
        return stack(rows)

    def close(self) -> None:
        for env in self.envs:
            close(env)


class Vectorised:
    """A simulator's own `batched`, whatever arrays it speaks."""

    def __init__(self, env: HostEnv, count: int):
        self.spec: EnvSpec = env.spec
        self.count, self.inner = count, env.batched(count)  # pyright: ignore[reportAttributeAccessIssue]

    def reset(self, seeds: Any) -> TimeStep:
        return self._conform("batched reset", self.inner.reset(np.asarray(seeds)))

    def step(self, action: HybridAction) -> TimeStep:
        return self._conform("batched step", self.inner.step(action))

    def reset_where(self, ended: Any, seeds: Any, steps: TimeStep) -> TimeStep:
        fresh = self.inner.reset_where(np.asarray(ended), np.asarray(seeds), steps)
        return self._conform("batched reset_where", fresh)

    def close(self) -> None:
        if hasattr(self.inner, "close"):
            self.inner.close()

    def _conform(self, what: str, steps: Any) -> TimeStep:
        plain = jax.tree.map(lambda x: np.asarray(x.detach().cpu() if hasattr(x, "detach") else x), steps)
        return conform_batch(self.spec, what, plain, self.count)


# --- one simulator --------------------------------------------------------------------------------


def reset(env: HostEnv, seed: int) -> TimeStep:
    return conform(env.spec, "reset", env.reset(seed))


def step(env: HostEnv, action: HybridAction) -> TimeStep:
    return conform(env.spec, "step", env.step(action))


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
    if not (isinstance(out, TimeStep) and _fits(spec, out)):
        for fault in timestep_faults(what, spec, out):
            raise TridentError(f"{spec.name}: {fault}")
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


def _fits(spec: EnvSpec, out: TimeStep) -> bool:
    """The quick way to find nothing wrong: dtypes are those that `conform` has just made."""
    agents, costs = spec.num_agents, (spec.num_constraints,)
    shapes = ((agents, spec.obs_dim), (spec.state_dim,), (agents, spec.action.num_modes), (agents,), (), costs, costs)
    return (
        all(np.shape(value) == shape for value, shape in zip(cast(Any, out), shapes, strict=False))
        and out.terminated.shape == out.truncated.shape == ()
        and [*out.metrics] == [m.name for m in spec.metrics]
        and all(value.shape == () for value in out.metrics.values())
        and (out.cost_attribution is None or out.cost_attribution.shape == (agents, *costs))
    )


def conform_batch(spec: EnvSpec, what: str, out: Any, count: int) -> TimeStep:
    """As `conform`, for time steps [E, ...]."""
    if not isinstance(out, TimeStep) or np.shape(out.reward) != (count,):
        raise TridentError(f"{spec.name}: {what} must return a TimeStep with a leading axis of {count} copies")
    conform(spec, what, row(out, 0))
    wanted = timestep_shape(spec)
    whole = out._replace(cost_attribution=np.zeros(0) if out.cost_attribution is None else out.cost_attribution)
    steps = TimeStep(
        *(
            jax.tree.map(lambda x, like: np.asarray(x, like.dtype), value, like)
            for value, like in zip(whole, wanted, strict=True)
        )
    )
    if out.cost_attribution is None:
        everyone = np.broadcast_to(steps.cost[:, None] > 0, (count, spec.num_agents, spec.num_constraints))
        steps = steps._replace(cost_attribution=everyone)
    return steps
