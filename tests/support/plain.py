"""A simulator in plain Python for tests of worker processes: it can be slow, fail or die."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from support.tiny import SPEC

from trident.types import TimeStep

SHORT = replace(SPEC, horizon=10)


@dataclass
class Plain:
    """Walks at random by its own seed; `dies` and `fails` at that step of every episode, of `seed` alone if given."""

    fails: int = -1
    dies: int = -1
    seed: int | None = None
    seconds: float = 0.0
    spec: Any = SHORT
    physics: Any = None
    shield: Any = None
    env_state: Any = None

    @property
    def scripted(self) -> dict[str, Any]:
        return {}

    def reset(self, seed: int) -> TimeStep:
        self.now, self.dice, self.t = seed, np.random.default_rng(seed), 0
        return self._look(0.0)

    def step(self, action: Any) -> TimeStep:
        self.t += 1
        time.sleep(self.seconds)
        if self.t == self.fails and self.seed in (None, self.now):
            raise OSError("no licence")
        if self.t == self.dies and self.seed in (None, self.now):
            os._exit(7)
        return self._look(float(np.sum(action.mode) + np.sum(action.params)))

    def _look(self, reward: float) -> TimeStep:
        s = self.spec
        cost = self.dice.uniform(size=s.num_constraints)
        parts: list[Any] = [
            self.dice.normal(size=(s.num_agents, s.obs_dim)), self.dice.normal(size=s.state_dim),
            np.ones((s.num_agents, s.action.num_modes), bool), np.ones(s.num_agents, bool), reward, cost, 0.5 - cost,
            False, self.t >= s.horizon, {m.name: 0.0 for m in s.metrics},
        ]  # fmt: skip
        return TimeStep(*parts)


class PlainVector(Plain):
    """The same, many at once."""

    def batched(self, count: int) -> Any:
        return Many([Plain() for _ in range(count)])


class Many:
    def __init__(self, envs: list[Plain]):
        self.envs = envs

    def reset(self, seeds: Any) -> TimeStep:
        return _stack([env.reset(int(s)) for env, s in zip(self.envs, seeds, strict=True)])

    def step(self, action: Any) -> TimeStep:
        pairs = zip(self.envs, action.mode, action.params, strict=True)
        return _stack([env.step(type(action)(mode, params)) for env, mode, params in pairs])

    def reset_where(self, ended: Any, seeds: Any, steps: TimeStep) -> TimeStep:
        fresh = [env.reset(int(s)) if e else None for env, e, s in zip(self.envs, ended, seeds, strict=True)]
        rows = [_row(steps, i) if one is None else one for i, one in enumerate(fresh)]
        return _stack([row._replace(cost_attribution=None) for row in rows])


def _stack(rows: list[TimeStep]) -> TimeStep:
    import jax

    return jax.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *rows)


def _row(steps: TimeStep, i: int) -> TimeStep:
    import jax

    return jax.tree.map(lambda x: x[i], steps)
