"""Environment steps per second of uav-mec alone, against the same environment in NumPy.

All three draw random actions and the slot's randomness, and compute observations, reward, costs, margins and
metrics in every step. One at a time is how public UAV-MEC code runs; batched is the best NumPy can do.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from trident.bench.timing import interleave
from trident.envs.random_policy import random_action
from trident.envs.uav_mec.env import UavMec
from trident.errors import TridentError

SOURCE = Path(__file__).parents[3]
"""The top of a source checkout, when there is one."""


def from_checkout(path: str) -> Path:
    """A file that comes with the sources, not with the installed package."""
    if not (SOURCE / path).is_file():
        raise TridentError(f"needs a source checkout: {path} is not installed with the package")
    return SOURCE / path


def load_twin() -> ModuleType:
    """UAV-MEC in NumPy: written independently as the oracle of the tests, and so found beside them."""
    path = from_checkout("tests/oracles/uav_mec_numpy.py")
    found = importlib.util.spec_from_file_location("uav_mec_numpy", path)
    assert found is not None
    assert found.loader is not None
    twin = importlib.util.module_from_spec(found)
    found.loader.exec_module(twin)
    return twin


def measure_env(num_envs: int, steps: int, alone_steps: int, repeats: int) -> dict[str, Any]:
    """Steps per second, counting each environment's step as one. `alone_steps`: of NumPy, one environment at a time."""
    env = UavMec()
    start = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), num_envs))
    calls: dict[str, Callable[[], Any]] = {"jax": jax_steps(env, start, steps)}
    work = {"jax": num_envs * steps}
    try:
        twin = load_twin()
    except TridentError as error:
        missing = str(error)
    else:
        missing = None
        batched, many = max(alone_steps // 16, 2), jax.device_get(start[0])._asdict()
        single = {name: x[:1] for name, x in many.items()}
        calls |= {
            "numpy batched": numpy_steps(twin, env, many, batched),
            "numpy one at a time": numpy_steps(twin, env, single, alone_steps),
        }
        work |= {"numpy batched": num_envs * batched, "numpy one at a time": alone_steps}
    seconds = interleave(calls, repeats)
    rates = {name: work[name] / seconds[name] for name in calls}
    ratios = {name: rates["jax"] / rate for name, rate in rates.items() if name != "jax"}
    return {"envs": num_envs, "steps_per_second": rates, "jax_over": ratios, "missing": missing}


def jax_steps(env: UavMec, start: Any, steps: int) -> Callable[[], Any]:
    """A call that advances all environments by `steps`, jitted. The whole TimeStep is carried, so nothing of it can
    be optimised away."""
    num_envs = start[1].reward.shape[0]

    def one(key: Any, carry: Any) -> Any:
        state, last = carry
        act_key, step_key = jax.random.split(key)
        return env.step(step_key, state, random_action(act_key, env.spec.action, last.mode_mask))

    @jax.jit
    def run(key: Any, carry: Any) -> Any:
        keys = jax.random.split(key, (steps, num_envs))
        return jax.lax.scan(lambda c, k: (jax.vmap(one)(k, c), None), carry, keys)[0]

    return lambda: run(jax.random.key(0), start)


def numpy_steps(twin: ModuleType, env: UavMec, start: dict[str, Any], steps: int) -> Callable[[], Any]:
    """The same in NumPy, with the batch axis of `start`."""
    config, action, rng = env.config, env.spec.action, np.random.default_rng(0)
    num_envs = len(start["slot"])
    low, high = action.low[:, 0], action.high[:, 0]  # every mode of uav-mec has the same box

    def draw(low: Any, high: Any, *shape: int) -> Any:
        return rng.uniform(low, high, (num_envs, *shape)).astype(np.float32)

    def run() -> Any:
        state, out = start, {}
        for _ in range(steps):
            mode = rng.integers(action.num_modes, size=(num_envs, config.num_uavs))
            params = draw(low, high, *low.shape)
            size = draw(config.size_low, config.size_high, config.num_users)
            work = draw(config.work_low, config.work_high, config.num_users)
            noise = rng.standard_normal((num_envs, config.num_users, 2), np.float32)
            state, out = twin.step(config, state, size, work, noise, mode, params)
        return out["reward"]

    return run
