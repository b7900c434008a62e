"""What the closed form of UAV-MEC alone is worth: a controller that sees everything and searches Q_phys at every step.

    python benchmarks/calibration/lookahead.py            # 200 episodes each, a few minutes; writes lookahead.jsonl

Modes are the nominal ones. UAV after UAV takes the best of 38 flight commands by

    Q_phys = signals(s, a) + k signals(s', nominal(s')),      s' = predict(s, a),      reward - 20 (sum of the costs)

k = 0 looks at the next slot alone; k = 14 is about the weight that TRIDENT fits to early data. `nominal` does not
search at all, and `fogs` is the search (k = 1) with on-board computing replaced by the better fog.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from trident.envs.uav_mec.env import UavMec
from trident.envs.uav_mec.physics import mode_costs, pack, unpack
from trident.simulation.evaluate import evaluate, summarise
from trident.types import HybridAction

PRICES = jnp.array([1.0, -20.0, -20.0])
ANGLES = jnp.arange(12) * jnp.pi / 6.0
COMPASS = jnp.stack([jnp.cos(ANGLES), jnp.sin(ANGLES)], -1)
FLIGHTS = jnp.concatenate([share * COMPASS for share in (0.35, 0.6, 0.9)])
SHOWN = ("reward", "metric/ev", "metric/cv", "metric/served", "metric/local")


def search(env: UavMec, state: Any, k: float) -> HybridAction:
    physics, array = env.physics, pack(env.config, state)

    def worth(action: HybridAction) -> Any:
        later = physics.predict(array, action)
        return PRICES @ (physics.signals(array, action) + k * physics.signals(later, physics.nominal(later)))

    action = physics.nominal(array)
    for i in range(env.config.num_uavs):
        options = jnp.concatenate([FLIGHTS, action.params[i : i + 1, :2], jnp.zeros((1, 2))])
        tried = jax.vmap(lambda v, a=action, i=i: worth(a._replace(params=a.params.at[i, :2].set(v))))(options)
        action = action._replace(params=action.params.at[i, :2].set(options[jnp.argmax(tried)]))
    return action


def fogs_only(env: UavMec, state: Any) -> HybridAction:
    action = search(env, state, 1.0)
    costs = mode_costs(env.config, unpack(env.config, pack(env.config, state)).uav, state.link.sum(1) + 0.0)
    mode = jnp.where(action.mode == 0, 1 + jnp.argmin(costs[:, 1:], axis=1).astype(jnp.int32), action.mode)
    return HybridAction(mode, action.params.at[:, 2].set(1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    episodes, env = parser.parse_args().episodes, UavMec()
    policies = {
        "nominal": lambda state: env.scripted["nominal"](None, state),
        **{f"k = {k}": lambda state, k=k: search(env, state, k) for k in (0.0, 1.0, 14.0)},
        "fogs": lambda state: fogs_only(env, state),
    }
    lines = []
    for name, policy in policies.items():
        play = jax.jit(lambda key, policy=policy: evaluate(env, lambda _, s, __: (policy(s), {}), key, episodes))
        mean = summarise(env.spec, jax.device_get(play(jax.random.key(2026))))
        print(f"{name:10} " + "  ".join(f"{k} {mean[k]:.4g}" for k in SHOWN), flush=True)
        lines.append(json.dumps({"policy": name, "episodes": episodes, "seed": 2026, "mean": mean}) + "\n")
    (Path(__file__).parent / "lookahead.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
