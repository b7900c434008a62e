"""Two simulators outside JAX: tanks in pure NumPy, and any JAX environment behind a Python face."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from trident.types import ActionSpec, Constraint, Env, EnvSpec, HybridAction, Metric, TimeStep

TANKS = EnvSpec(
    name="tanks",
    version=1,
    num_agents=3,
    obs_dim=2,
    state_dim=4,
    horizon=12,
    action=ActionSpec(
        low=np.zeros((3, 2, 1), np.float32),
        high=np.full((3, 2, 1), 5.0, np.float32),
        used=np.array([[[False], [True]]] * 3),
        mode_names=("idle", "pump"),
        param_names=("rate",),
    ),
    constraints=(Constraint("overflow", limit=0.02),),
    metrics=(Metric("level", "neither", "l"),),
)


class Tanks:
    """Three tanks, each filled by a pump and emptied at random. Plain Python floats and float64 arrays throughout."""

    physics, shield, env_state, spec = None, None, None, TANKS

    def __init__(self):
        self.closed = 0
        self.scripted = {"half": self.half}

    def half(self, key: Any, state: Any) -> HybridAction:
        return HybridAction(np.ones(3, np.int32), np.full((3, 1), 2.5, np.float32))

    def reset(self, seed: int) -> TimeStep:
        self.dice, self.t = np.random.default_rng(seed), 0
        self.level = self.dice.uniform(5.0, 15.0, 3)
        return self.look(0.0, np.zeros(3, bool))

    def step(self, action: HybridAction) -> TimeStep:
        assert isinstance(action.mode, np.ndarray)
        inflow = np.where(action.mode == 1, action.params[:, 0], 0.0)
        served = np.minimum(self.level + inflow, self.dice.uniform(1.0, 4.0, 3))
        raw = self.level + inflow - served
        self.level, self.t = np.clip(raw, 0.0, 25.0), self.t + 1
        return self.look(served.mean(), raw > 20.0)

    def look(self, reward: float, over: np.ndarray) -> TimeStep:
        time = self.t / 12.0
        return TimeStep(
            obs=np.stack([self.level / 20.0, np.full(3, time)], -1),
            state=np.append(self.level / 20.0, time),
            mode_mask=np.ones((3, 2), bool),
            alive=np.ones(3, bool),
            reward=reward,
            cost=np.array([over.mean()]),
            margin=np.array([1.0 - self.level.max() / 20.0]),
            terminated=False,
            truncated=self.t >= 12,
            metrics={"level": self.level.mean()},
        )  # pyright: ignore

    def close(self) -> None:
        self.closed += 1


class Behind:
    """A JAX environment whose steps are deterministic, as a simulator: NumPy in, NumPy out, state kept inside."""

    def __init__(self, env: Env):
        self.env, self.spec, self.physics = env, env.spec, env.physics
        self.env_state, self.shield = None, None if env.shield is None else jax.jit(env.shield)
        self.scripted = {name: jax.jit(policy) for name, policy in env.scripted.items()}
        self._reset = jax.jit(lambda seed: env.reset(jax.random.key(seed)))
        self._step = jax.jit(lambda state, action: env.step(jax.random.key(0), state, action))

    def __deepcopy__(self, memo: Any) -> Behind:
        other = object.__new__(Behind)
        other.__dict__.update(self.__dict__)
        return other

    def reset(self, seed: int) -> TimeStep:
        self.env_state, out = jax.device_get(self._reset(np.uint32(seed)))
        return out

    def step(self, action: HybridAction) -> TimeStep:
        assert isinstance(action.params, np.ndarray)
        self.env_state, out = jax.device_get(self._step(self.env_state, action))
        return out
