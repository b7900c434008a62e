"""Does a simulator outside JAX keep the contract? Random episodes, each played twice from the same seed.

The counterpart of `trident.envs.checks.values` for a `trident.types.HostEnv`; `trident.check_env` takes both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from trident.envs.checks.shapes import LARGEST, declaration_faults, describe, timestep_faults
from trident.types import EnvSpec, HostEnv, HybridAction, TimeStep

EPISODES = 2
WALK = 300
"""Steps of an episode that are looked at: a simulator can be slow."""


def host_faults(env: HostEnv, steps: int = WALK) -> list[str]:
    """What must be fixed, one line each."""
    faults = list(declaration_faults(env))
    if faults:
        return faults
    steps = min(steps, env.spec.horizon)
    for seed in range(EPISODES):
        try:
            first, again = (_episode(env, seed, steps) for _ in range(2))
        except (Exception, SystemExit) as error:  # an author's code may raise anything
            return [f"an episode fails ({describe(error)})"]
        if isinstance(first, str):
            return [first]
        faults += [f for f in _episode_faults(env.spec, first, steps) if f not in faults]
        if isinstance(again, str) or not _equal(first, again):
            faults.append(f"reset({seed}) twice, then the same actions, led to different episodes; draw from the seed")
            break
    return faults


def _episode(env: HostEnv, seed: int, steps: int) -> list[TimeStep] | str:
    """Time steps of an episode with random actions, the reset first; or what is wrong with one of them."""
    dice, out, found = np.random.default_rng(seed), env.reset(seed), []
    for t in range(steps + 1):
        name = "step" if t else "reset"
        if isinstance(out, TimeStep):
            out = jax.tree.map(_as_contract, out)
        fault = next(timestep_faults(name, env.spec, out), None)
        if fault is not None:
            return fault
        found.append(out)
        if t == steps or (t and (out.terminated or out.truncated)):
            break
        out = env.step(_random_action(env.spec, dice, out))
    return found


def _as_contract(value: Any) -> np.ndarray:
    """Plain numbers and float64 are taken too."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind in "fiu" else array


def _random_action(spec: EnvSpec, dice: np.random.Generator, out: TimeStep) -> HybridAction:
    mode = np.where(out.mode_mask, dice.uniform(size=np.shape(out.mode_mask)), -1.0).argmax(-1).astype(np.int32)
    rows = np.arange(spec.num_agents)
    low, high, used = (table[rows, mode] for table in (spec.action.low, spec.action.high, spec.action.used))
    params = np.where(used, low + (high - low) * dice.uniform(size=low.shape), 0.0)
    return HybridAction(mode, params.astype(np.float32))  # pyright: ignore[reportArgumentType]


def _episode_faults(spec: EnvSpec, steps: list[TimeStep], wanted: int) -> Iterator[str]:
    if steps[0].terminated or steps[0].truncated:
        yield "reset returns an episode that has ended; terminated and truncated must be False there"
    for t, out in enumerate(steps):
        moment = f"after step {t}" if t else "after reset"
        values = {name: getattr(out, name) for name in ("obs", "state", "reward", "cost", "margin")}
        values |= {f"metric {name!r}": value for name, value in out.metrics.items()}
        for name, value in values.items():
            if not np.isfinite(value).all():
                yield f"{name} is not finite {moment}"
                return
            if np.abs(value).max(initial=0.0) > LARGEST:
                yield f"{name} is beyond {LARGEST:g} {moment}; squares of such numbers overflow: choose another unit"
                return
        if not out.mode_mask.any(-1).all():
            yield f"mode_mask allows no mode {moment}; allow one for every agent, the dead included"
            return
        if (out.cost < 0).any():
            yield f"a cost is negative {moment}; costs are >= 0, signed quantities go to margin"
            return
    last = steps[-1]
    if wanted == spec.horizon and not (last.terminated or last.truncated):
        yield f"truncated does not fire at the horizon; set it when {spec.horizon} steps (spec.horizon) are over"
    if last.truncated and not last.terminated and len(steps) - 1 < spec.horizon:
        yield f"truncated fires before the horizon of {spec.horizon}; use terminated for other ends"


def _equal(a: list[TimeStep], b: list[TimeStep]) -> bool:
    if len(a) != len(b):
        return False
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.allclose(x, y, atol=1e-5, equal_nan=True) for x, y in pairs)
