"""Fine-tuning: a run that begins with what another run has learned, on the same spaces (say, in another simulator)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from trident.errors import TridentError
from trident.training.settings import Setup, setup_of
from trident.types import AnyEnv, EnvSpec


def has_base_policy(env: AnyEnv) -> bool:
    return env.physics is not None and env.physics.base_policy is not None


def space_difference(mine: EnvSpec, other: EnvSpec) -> str | None:
    """The first thing in which the spaces of `other` are not those that a policy was trained with, or None."""
    for name in ("num_agents", "obs_dim", "num_constraints"):
        old, new = getattr(mine, name), getattr(other, name)
        if old != new:
            return f"{name} is {new}, not {old}"
    if mine.action.low.shape != other.action.low.shape:
        return f"actions [agents, modes, parameters] are {other.action.low.shape}, not {mine.action.low.shape}"
    for name in ("used", "low", "high"):
        old, new = getattr(mine.action, name), getattr(other.action, name)
        if not np.allclose(old, new):
            agent, mode, param = np.argwhere(~np.isclose(old, new))[0].tolist()
            place = f"[agent {agent}, mode {mode}, parameter {param}]"
            return f"action.{name}{place} is {new[agent, mode, param]:g}, not {old[agent, mode, param]:g}"
    return None


def check_fit(old: Setup, out: Path, new: Setup) -> None:
    """Policies of the run in `out` must find what they were trained with."""
    difference = space_difference(old.spec, new.spec)
    if difference is not None:
        raise TridentError(f"{new.spec.name} does not fit {out}: its {difference}")
    if getattr(old.algorithm.config, "base_policy", False) and has_base_policy(old.env) != has_base_policy(new.env):
        has = has_base_policy(new.env)
        lacks = "has a base policy, and they were" if has else "has no base policy, and they were not"
        raise TridentError(f"the policies of {out} do not fit {new.spec.name}: it {lacks} trained without one")


def check_start_from(setup: Setup) -> tuple[Setup, Path]:
    """The run that --start-from names, if this one can go on from it."""
    out = Path(setup.settings.start_from or "")
    if setup.settings.warm_start is not None:
        raise TridentError("--start-from and --warm-start are two ways to begin: choose one")
    old = setup_of(out)
    if old.algorithm.name != setup.algorithm.name:
        raise TridentError(f"{out} was trained by {old.algorithm.name}: --algo {old.algorithm.name} goes on from it")
    check_fit(old, out, setup)
    return old, out


def check_sizes(learned: Any, fresh: Any, out: Path) -> None:
    """Of two learners' states, arrays or shapes, over their seeds."""

    def shape(tree):
        return jax.tree.map(lambda x: (x.shape[1:], x.dtype), tree)

    if shape(learned) != shape(fresh):
        raise TridentError(f"the networks of {out} have other sizes: give this run the same --algo options")


def tile_seeds(learned: Any, seeds: int) -> Any:
    """What the seeds of another run have learned, in turn, for the seeds of this one."""
    return jax.tree.map(lambda x: x[np.arange(seeds) % x.shape[0]], learned)
