"""Every environment and every algorithm preset by name, one line of help each."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trident.algos import ppo, trident
from trident.envs import intersection
from trident.envs.probes import PROBES
from trident.envs.uav_mec import VARIANTS, UavMec
from trident.errors import TridentError
from trident.train.tuned import TUNED
from trident.types import Algorithm, DataPlan, Env, EnvSpec, Physics


@dataclass(frozen=True)
class EnvEntry:
    help: str
    make: Callable[[], Env]


@dataclass(frozen=True)
class Preset:
    """An algorithm by name: a factory and the config it starts from (a preset is a few config fields, not a copy)."""

    help: str
    make: Callable[[Any, EnvSpec, Physics | None], Algorithm]
    config: Any


UAV_MEC_HELP = {
    "uav-mec": "4 UAVs serve 20 users as edge computers within energy and coverage limits (version 1, frozen)",
    "uav-mec-easy": "looser limits, slow hotspots, starts that cover",
    "uav-mec-hard": "tighter limits, fast hotspots",
    "uav-mec-n8": "8 UAVs; area, users and fogs grow with them",
    "uav-mec-n16": "16 UAVs",
    "uav-mec-n32": "32 UAVs",
    "uav-mec-polar": "the paper's (speed, heading) flight command",
    "uav-mec-parallel": "on-board and fog shares of a task run at once",
    "uav-mec-separation": "a third constraint: minimum distance between UAVs",
    "uav-mec-suburban": "suburban channel",
    "uav-mec-dense-urban": "dense urban channel",
    "uav-mec-3gpp": "TR 36.777 UMi-AV channel",
}

INTERSECTION_HELP = {
    "intersection": "8 vehicles cross a junction without lights: no collisions, all in their lanes (version 1, frozen)",
    "intersection-n2": "2 vehicles",
    "intersection-n4": "4 vehicles",
    "intersection-n16": "16 vehicles",
    "intersection-n32": "32 vehicles",
    "intersection-dense": "twice the traffic, and faster",
    "intersection-raw": "steering angles instead of corrections to a lane tracker",
}

ENVS: dict[str, EnvEntry] = {
    name: EnvEntry(UAV_MEC_HELP.get(name, "a variant of uav-mec"), partial(UavMec, config))
    for name, config in VARIANTS.items()
}
ENVS |= {
    name: EnvEntry(INTERSECTION_HELP[name], partial(intersection.Intersection, config))
    for name, config in intersection.VARIANTS.items()
}
ENVS |= {name: EnvEntry((make.__doc__ or name).splitlines()[0], make) for name, make in PROBES.items()}

LARGE = trident.TridentConfig(hidden=(256, 256), critic_hidden=(512, 512, 512), cost_hidden=(256, 256))

ALGORITHMS: dict[str, Preset] = {
    "mappo": Preset("PPO, all agents at once (Yu et al. 2022)", ppo.make, ppo.PPOConfig(order="simultaneous")),
    "happo": Preset("PPO, agents one after another (Kuba et al. 2022)", ppo.make, ppo.PPOConfig(order="sequential")),
    "trident": Preset("SHA + PIRC + LCPO: safe, hybrid, physics-informed", trident.make, trident.TridentConfig()),
    "trident-large": Preset(
        "trident with the paper's network sizes (256-256, 512-512-512, 256-256)", trident.make, LARGE
    ),
}


@dataclass(frozen=True)
class ScriptedConfig:
    """A scripted policy learns nothing: only the amount of data per round can be set."""

    envs: int = 64
    """Parallel environments."""
    steps: int = 50
    """Steps of each environment per round."""


def make_env(name: str) -> Env:
    if name not in ENVS:
        raise TridentError(_unknown("environment", name, ENVS))
    return ENVS[name].make()


def default_config(algo: str, env: Env) -> Any:
    """The preset's config with the values tuned for this environment (see tuned.py)."""
    if algo in env.scripted:
        return ScriptedConfig()
    if algo not in ALGORITHMS:
        raise TridentError(_unknown("algorithm", algo, [*ALGORITHMS, *env.scripted]))
    tuned = TUNED.get((algo, env.spec.name), {})
    return replace(ALGORITHMS[algo].config, **tuned)


def make_algorithm(algo: str, env: Env, spec: EnvSpec | None = None, config: Any = None) -> Algorithm:
    """`spec` may carry other limits than the environment's own (EnvSpec.with_limits)."""
    config = default_config(algo, env) if config is None else config
    spec = env.spec if spec is None else spec
    if algo in env.scripted:
        return Algorithm(
            name=algo,
            plan=DataPlan(config.envs, config.steps),
            init=lambda key: (),
            act=_never_acts,
            update=lambda state, data, key, fraction: (state, {}),
            config=config,
        )
    return replace(ALGORITHMS[algo].make(config, spec, env.physics), name=algo)


def _never_acts(*_: Any) -> Any:
    raise TypeError("a scripted policy acts through its environment (train.loop.policy_of)")


def _unknown(kind: str, name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}: {hint}`trident list` shows all of them"
