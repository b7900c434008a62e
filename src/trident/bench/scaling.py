"""How the arithmetic of a step and of a round grows with agents, constraints and modes: counts, free of noise.

N   UAVs, with five users and one hotspot each at constant density, and two fogs
K   the first K of energy, coverage and separation
M   modes of each agent: M - 1 fogs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from trident.bench.flops import count_flops, fit_growth
from trident.bench.round_speed import LEARNERS, update_flops
from trident.bench.timing import Say
from trident.envs.random_policy import random_action
from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.env import UavMec
from trident.types import Env, EnvSpec, EnvState, HybridAction, Key, Physics, ScriptedPolicy, Shield, TimeStep

MODES = 3
"""While another size grows."""


@dataclass(frozen=True)
class Bounded:
    """An environment that keeps only its first `keep` constraints."""

    env: Env
    keep: int

    @property
    def spec(self) -> EnvSpec:
        return replace(self.env.spec, constraints=self.env.spec.constraints[: self.keep])

    @property
    def physics(self) -> Physics | None:
        full = self.env.physics
        return full and replace(full, signals=lambda s, a: full.signals(s, a)[: 1 + self.keep])

    @property
    def scripted(self) -> Mapping[str, ScriptedPolicy]:
        return self.env.scripted

    @property
    def shield(self) -> Shield | None:
        return self.env.shield

    def reset(self, key: Key) -> tuple[EnvState, TimeStep]:
        return self._cut(*self.env.reset(key))

    def step(self, key: Key, state: EnvState, action: HybridAction) -> tuple[EnvState, TimeStep]:
        return self._cut(*self.env.step(key, state, action))

    def _cut(self, state: EnvState, step: TimeStep) -> tuple[EnvState, TimeStep]:
        return state, step._replace(cost=step.cost[: self.keep], margin=step.margin[: self.keep])


def by_agents(n: int) -> Env:
    return UavMec(UavMecConfig(num_uavs=n, num_fogs=MODES - 1))


def by_constraints(k: int) -> Env:
    return Bounded(UavMec(UavMecConfig(separation=True)), k)


def by_modes(m: int) -> Env:
    return UavMec(UavMecConfig(num_fogs=m - 1))


AXES: dict[str, tuple[Callable[[int], Env], Callable[[int], int]]] = {
    "N": (by_agents, lambda n: n),
    "K": (by_constraints, lambda k: 1 + k),  # the reward is a signal too: J = 1 + K
    "M": (by_modes, lambda m: m),
}
"""name -> (size -> environment, size -> the number whose power is fitted)"""


def measure_growth(axes: Mapping[str, Sequence[int]], algos: Sequence[str], size: str, say: Say) -> dict[str, Any]:
    """{axis: {"at": sizes, "flops": {part: counts}, "fit": {part: exponent, r2, last}}}"""
    out = {}
    for axis, points in axes.items():
        make, number = AXES[axis]
        flops: dict[str, list[float]] = {}
        for point in points:
            say(f"counting operations at {axis} = {point}")
            for part, count in _counts(make(point), algos, size).items():
                flops.setdefault(part, []).append(count)
        fits = {part: fit_growth([number(p) for p in points], counts)._asdict() for part, counts in flops.items()}
        out[axis] = {"at": list(points), "flops": flops, "fit": fits}
    return out


def _counts(env: Env, algos: Sequence[str], size: str) -> dict[str, float]:
    counts = {"env step": step_flops(env)}
    for algo in algos:
        learner = LEARNERS[algo]
        parts = update_flops(env, learner.build(env, size), learner.critics)
        counts |= {f"{algo} {part}": parts[part] for part in ("critics", "policies")}
    return counts


def step_flops(env: Env) -> float:
    key = jax.random.key(0)
    state, last = jax.eval_shape(env.reset, key)
    action = jax.eval_shape(lambda k, mask: random_action(k, env.spec.action, mask), key, last.mode_mask)
    return count_flops(env.step, key, state, action)
