"""Environment steps per second with 8 vehicles on the road, ours and SMARTS in one run on one core.

taskset -c 0 python benchmarks/smarts/speed.py          # about 3 minutes; needs the extra `smarts`

Both run in turn, on traffic that arrives all at once. CPU time of the process counts: other users of the machine do
not. Of SMARTS only its own step is timed, while all 8 are on the road; ours draws random actions and computes
observations, reward, costs and metrics in every step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.env import Intersection
from trident.envs.intersection.smarts.bridge import Readings
from trident.envs.intersection.smarts.env import SmartsIntersection, SmartsRoad
from trident.simulation import batch
from trident.types import Env

ENVS, STEPS, TURNS = 256, 100, 6
SMARTS_STEPS = 40
"""Per turn."""


class Timed(SmartsRoad):
    """SMARTS with a stop-watch around its own step, running while everyone is on the road."""

    spent, steps = 0.0, 0

    def advance(self, pedals: Mapping[int, tuple[float, float, float]]) -> Readings:
        began = time.process_time()
        seen = super().advance(pedals)
        if len(pedals) == self.config.num_vehicles:
            self.spent, self.steps = self.spent + time.process_time() - began, self.steps + 1
        return seen


def jax_steps(env: Env) -> Any:
    """A call that plays ENVS episodes for STEPS steps."""

    def advance(carry: Any, key: Any) -> Any:
        def one(state: Any, k: Any) -> Any:
            act, step = jax.random.split(k)
            after, out = env.step(step, state, env.scripted["random"](act, state))
            return after, sum(jnp.sum(x) for x in jax.tree.leaves(out))  # so that nothing is optimised away

        state, total = jax.vmap(one)(carry[0], jax.random.split(key, ENVS))
        return (state, carry[1] + total.sum()), None

    @jax.jit
    def run(states: Any, key: Any) -> Any:
        return jax.lax.scan(advance, (states, 0.0), jax.random.split(key, STEPS))[0][1]

    states, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), ENVS))
    return lambda turn: run(states, jax.random.key(turn)).block_until_ready()


class Player:
    """SMARTS with reservations (`aim`), so that nobody crashes; one episode after another."""

    def __init__(self, config: IntersectionConfig):
        self.env = SmartsIntersection(config, road=Timed)
        self.seed, self.out = 0, batch.reset(self.env, 0)

    def play(self) -> float:
        """SMARTS' own steps per second over the next SMARTS_STEPS full ones."""
        road: Any = self.env._road
        spent, steps = road.spent, road.steps
        while road.steps < steps + SMARTS_STEPS:
            if self.out.terminated or self.out.truncated:
                self.seed += 1
                self.out = batch.reset(self.env, self.seed)
            action = batch.as_numpy(self.env.scripted["aim"](jax.random.key(0), self.env.env_state))
            self.out = batch.step(self.env, action)
        return SMARTS_STEPS / (road.spent - spent)


def main() -> None:
    config = IntersectionConfig(headway=0.5)
    ours, smarts = jax_steps(Intersection(config)), Player(config)
    rates: dict[str, list[float]] = {"ours": [], "smarts": []}
    for turn in range(TURNS + 1):
        began = time.process_time()
        ours(turn)
        mine, other = ENVS * STEPS / (time.process_time() - began), smarts.play()
        if turn:  # the first turn compiles
            rates["ours"].append(mine)
            rates["smarts"].append(other)
    smarts.env.close()
    best, median = ({name: float(f(r)) for name, r in rates.items()} for f in (np.max, np.median))
    record = {
        "smarts_version": version("smarts"), "jax": jax.__version__, "vehicles": config.num_vehicles, "envs": ENVS,
        "turns": TURNS, "best": best, "median": median, "best_ratio": best["ours"] / best["smarts"],
        "median_ratio": median["ours"] / median["smarts"],
    }  # fmt: skip
    (Path(__file__).parent / "speed.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
