"""Every environment and every algorithm preset by name, one line of help each."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trident.envs import intersection, smac
from trident.envs.intersection.smarts.env import SmartsIntersection
from trident.envs.probes import PROBES
from trident.envs.uav_mec import VARIANTS, UavMec
from trident.errors import TridentError
from trident.fields import change, flatten
from trident.training.presets import ALGORITHMS, residual_values
from trident.training.tuned import RESIDUAL_TUNED, TUNED
from trident.types import Algorithm, AnyEnv, DataPlan, EnvSpec


@dataclass(frozen=True)
class EnvEntry:
    help: str
    make: Callable[[], AnyEnv]


UAV_MEC_HELP = {
    "uav-mec": "4 UAVs serve 20 users as edge computers within energy and coverage limits (version 1, frozen)",
    "uav-mec-easy": "looser limits, slow hotspots, starts that cover",
    "uav-mec-hard": "tighter limits, fast hotspots",
    "uav-mec-n8": "8 UAVs; area, users and fogs grow with them",
    "uav-mec-n16": "16 UAVs",
    "uav-mec-n32": "32 UAVs",
    "uav-mec-polar": "the paper's (speed, heading) flight command",
    "uav-mec-course": "flight command as speed and a vector of direction",
    "uav-mec-parallel": "on-board and fog shares of a task run at once",
    "uav-mec-separation": "a third constraint: minimum distance between UAVs",
    "uav-mec-suburban": "suburban channel",
    "uav-mec-dense-urban": "dense urban channel",
    "uav-mec-3gpp": "TR 36.777 UMi-AV channel",
}

INTERSECTION_HELP = {
    "intersection": "8 vehicles cross a junction without lights, collision-free and in lane (version 1, frozen)",
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
ENVS["smarts-intersection"] = EnvEntry(
    "intersection in the SMARTS simulator, outside JAX (extra: smarts)", SmartsIntersection
)
ENVS |= {name: EnvEntry(smac.describe(config), partial(smac.Smac, config)) for name, config in smac.VARIANTS.items()}
ENVS |= {
    f"smac-hybrid{suffix}": EnvEntry(
        f"smac-{smac.DEFAULT}{suffix}; the other maps: {', '.join(m for m in smac.MAPS if m != smac.DEFAULT)}",
        partial(smac.Smac, smac.VARIANTS[f"smac-{smac.DEFAULT}{suffix}"]),
    )
    for suffix in ("", "-safe")
}
ENVS |= {name: EnvEntry((make.__doc__ or name).splitlines()[0], make) for name, make in PROBES.items()}


@dataclass(frozen=True)
class ScriptedConfig:
    """A scripted policy learns nothing: only the amount of data per round can be set."""

    envs: int = 64
    """Parallel environments."""
    steps: int = 50
    """Steps of each environment per round."""


def needs_shield(algo: str) -> bool:
    return algo in ALGORITHMS and ALGORITHMS[algo].shielded


def make_env(name: str) -> AnyEnv:
    if name not in ENVS:
        if name.startswith("smac-"):
            smac.SmacConfig(map=name.removeprefix("smac-").removesuffix("-safe"))  # raises, and names the maps
        raise TridentError(_unknown("environment", name, ENVS))
    return ENVS[name].make()


def default_config(algo: str, env: AnyEnv, warm_started: bool = False) -> Any:
    """The preset's config with the values tuned for this environment (see tuned.py), for a residual policy if it has a
    base policy, and for a warm start."""
    if algo in env.scripted:
        return ScriptedConfig()
    if algo not in ALGORITHMS:
        raise TridentError(_unknown("algorithm", algo, [*ALGORITHMS, *env.scripted]))
    preset, env_name = ALGORITHMS[algo], env.spec.name
    tuned = dict(TUNED.get((algo, env_name), {}))
    if preset.like is not None:  # but for what the two presets differ in
        mine, model = flatten(preset.config), flatten(ALGORITHMS[preset.like].config)
        inherited = TUNED.get((preset.like, env_name), {})
        tuned = {k: v for k, v in inherited.items() if mine[k] == model[k]} | tuned
    if preset.residual is not None and env.physics is not None and env.physics.base_policy is not None:
        tuned |= residual_values(preset, RESIDUAL_TUNED.get(env_name, {}))
    if warm_started:
        tuned |= preset.warm
    return change(preset.config, tuned, algo)


def make_algorithm(algo: str, env: AnyEnv, spec: EnvSpec | None = None, config: Any = None) -> Algorithm:
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
    raise TypeError("a scripted policy acts through its environment (training.loop.policy_of)")


def _unknown(kind: str, name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}: {hint}`trident list` shows all of them"
