"""Run with several virtual devices: rounds over different layouts, and how far they are from those on one.

`python tests/support/spread.py ENV/ALGO SEEDS DEVICES,DEVICES,...` prints {devices: {"off": worst relative difference
of the state, "metrics": of the last round's metrics, "collectives": how many the compiled round runs, "local": whether
a device's part of the replay has its own environments alone, "saved": whether its saved form is the usual}}.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import jax
import numpy as np
from support import tiny

from trident.bench.communication import collectives
from trident.bench.fingerprint import tiny as at_tiny_sizes
from trident.replay import SpreadReplay
from trident.training import registry
from trident.training.backend import build_jax
from trident.training.loop import CompiledRun, RunState
from trident.training.session import seed_keys
from trident.training.settings import Settings, make_setup

del tiny  # registers the environment and the learner of that name
ROUNDS = 4


def play(pair: str, seeds: int, devices: int) -> tuple[CompiledRun, RunState, Any]:
    env, algo = pair.split("/")
    config = registry.default_config(algo, registry.make_env(env))
    config = config if algo == "tiny" else at_tiny_sizes(config)
    setup = make_setup(env, algo, Settings(episodes=8, seeds=seeds, devices=devices), config)
    machine, metrics = build_jax(setup, print), {}
    state, _ = machine.init(seed_keys(setup))
    for index in range(ROUNDS):
        if index == 2:  # there and back again, as a checkpoint does
            state = machine.to_devices(machine.to_here(state))
        state, metrics = machine.round(state, index)
    return machine, state, jax.device_get(metrics)


def off(one: Any, other: Any) -> float:
    """Largest difference of two trees, relative to the largest number in each array."""
    worst = 0.0
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        x, y = (np.asarray(plain(z), float) for z in (x, y))
        assert x.shape == y.shape
        if x.size:
            worst = max(worst, float(np.max(np.abs(x - y)) / (1e-6 + np.max(np.abs(x)))))
    return worst


def plain(x: Any) -> Any:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def is_local(state: RunState, parts: int) -> bool:
    """Whether devices share the replay by environments."""
    if not isinstance(state.replay, SpreadReplay):
        return parts == 1
    reward = state.replay.data.reward
    return reward.addressable_data(0).shape[3] * parts == reward.shape[3]


if __name__ == "__main__":
    pair, seeds = sys.argv[1], int(sys.argv[2])
    _, alone, measured = play(pair, seeds, 1)
    out = {}
    for devices in map(int, sys.argv[3].split(",")):
        machine, state, metrics = play(pair, seeds, devices)
        saved = machine.to_here(state)
        shapes = [[(x.shape, str(x.dtype)) for x in jax.tree.leaves(tree)] for tree in (saved, machine.template)]
        out[devices] = {
            "off": off(alone, saved),
            "metrics": off(measured, metrics),
            "collectives": sum(c.times for c in collectives(machine.program.as_text())) if machine.program else 0,
            "local": is_local(state, devices // math.gcd(devices, seeds)),
            "saved": shapes[0] == shapes[1],
        }
    print(json.dumps(out))
