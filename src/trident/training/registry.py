"""Every environment and every algorithm preset by name, one line of help each."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from trident.allowed import Count
from trident.envs import intersection, navigation, simple_spread, smac, uav_coverage, uav_cruise, uav_nofly
from trident.envs.checks.shapes import declaration_faults
from trident.envs.intersection.smarts.env import SmartsIntersection
from trident.envs.probes import PROBES
from trident.envs.uav_mec import VARIANTS, UavMec, UavMecConfig
from trident.errors import TridentError
from trident.fields import change, flatten
from trident.renamed import BY_VELOCITY, current
from trident.renamed import ENVS as OLD_NAMES
from trident.training import names, plugins
from trident.training.presets import ALGORITHMS, Preset, residual_values
from trident.training.tuned import RESIDUAL_TUNED, TUNED
from trident.types import Algorithm, AnyEnv, DataPlan, EnvSpec


@dataclass(frozen=True)
class EnvEntry:
    help: str
    make: Callable[[], AnyEnv]


UAV_MEC_HELP = {
    "uav-mec": "4 UAVs serve 20 users as edge computers within energy and coverage limits (version 2, frozen)",
    "uav-mec-easy": "looser limits, slow hotspots, starts that cover",
    "uav-mec-hard": "tighter limits, fast hotspots",
    "uav-mec-n8": "8 UAVs; area, users and fogs grow with them",
    "uav-mec-n16": "16 UAVs",
    "uav-mec-n32": "32 UAVs",
    "uav-mec-polar": "the paper's (speed, heading) flight command",
    "uav-mec-velocity": "version 1: flight command (vx, vy); also of variants, as in uav-mec-n8-velocity",
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

SPREAD_HELP = {
    "simple-spread": "MPE's simple_spread: 3 agents cover 3 landmarks and may overlap in 2 % of the steps (version 1)",
    "simple-spread-discrete": "the same with MPE's five pushes",
    "simple-spread-hybrid": "the same: a push and how strong it is",
    "simple-spread-n5": "5 agents, 5 landmarks",
}

NAVIGATION_HELP = {
    "navigation": "4 agents drive to their goals past 4 obstacles and each other, after VMAS's task (version 1)",
    "navigation-hybrid": "the same: drive or brake",
    "navigation-free": "without obstacles",
    "navigation-n8": "8 agents, 8 obstacles",
    "navigation-n16": "16 agents, 16 obstacles",
}

UAV_NOFLY_HELP = {
    "uav-nofly": "a UAV crosses an area among no-fly zones, choosing waypoint cells and velocities (version 1)",
    "uav-nofly-unseen": "uav-nofly on 256 other maps, to evaluate on",
    "uav-nofly-dense": "12 smaller zones",
    "uav-nofly-storm": "stronger wind and gusts",
}

UAV_COVERAGE_HELP = {
    "uav-coverage": "6 identical UAVs share out a region, sensing radius against energy (version 1)",
    "uav-coverage-free": "energy does not count",
    "uav-coverage-obstacles": "3 tall buildings",
    "uav-coverage-n12": "12 UAVs, 16 sectors",
}

UAV_CRUISE_HELP = {
    "uav-cruise": "relays, scouts and carriers share out roles: points to watch and supply (version 1)",
    "uav-cruise-n12": "4 of each kind, 20 points",
    "uav-cruise-scarce": "one relay, two scouts, one carrier",
}

ENVS: dict[str, EnvEntry] = {
    name: EnvEntry(UAV_MEC_HELP.get(name, "a variant of uav-mec"), partial(UavMec, config))
    for name, config in VARIANTS.items()
}
ENVS |= {
    name: EnvEntry(INTERSECTION_HELP[name], partial(intersection.Intersection, config))
    for name, config in intersection.VARIANTS.items()
}
ENVS |= {
    name: EnvEntry(SPREAD_HELP[name], partial(simple_spread.SimpleSpread, config))
    for name, config in simple_spread.VARIANTS.items()
}
ENVS |= {
    name: EnvEntry(NAVIGATION_HELP[name], partial(navigation.Navigation, config))
    for name, config in navigation.VARIANTS.items()
}
ENVS |= {
    name: EnvEntry(UAV_NOFLY_HELP[name], partial(uav_nofly.UavNoFly, config))
    for name, config in uav_nofly.VARIANTS.items()
}
ENVS |= {
    name: EnvEntry(UAV_COVERAGE_HELP[name], partial(uav_coverage.UavCoverage, config))
    for name, config in uav_coverage.VARIANTS.items()
}
ENVS |= {
    name: EnvEntry(UAV_CRUISE_HELP[name], partial(uav_cruise.UavCruise, config))
    for name, config in uav_cruise.VARIANTS.items()
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

FORMER_ENVS = {
    f"{name}-velocity": EnvEntry(f"version 1 of {name}", partial(UavMec, replace(VARIANTS[name], flight="cartesian")))
    for name in BY_VELOCITY
    if name != "uav-mec"
}
FORMER_ENVS |= {
    f"uav-mec-n{n}": EnvEntry(f"{n} UAVs", partial(UavMec, UavMecConfig(num_uavs=n))) for n in (64, 128, 256)
}
FORMER_ENVS |= {
    f"uav-mec-omega-{percent}": EnvEntry(
        f"uav-mec whose closed form counts energy {percent / 100:g} times", partial(UavMec, omega=percent / 100)
    )
    for percent in (25, 50, 90, 110, 200)
}
"""Known by name, but not listed."""
BUILT_IN_ENVS, BUILT_IN_ALGORITHMS = frozenset([*ENVS, *FORMER_ENVS, *OLD_NAMES]), frozenset(ALGORITHMS)


@dataclass(frozen=True)
class ScriptedConfig:
    """A scripted policy learns nothing: only the amount of data per round can be set."""

    envs: Count = 64
    """Parallel environments."""
    steps: Count = 50
    """Steps of each environment per round."""


# --- what other packages and users add -------------------------------------------------------------


def plugin_envs() -> dict[str, EntryPoint]:
    return plugins.find("trident.envs", BUILT_IN_ENVS)


def plugin_algorithms() -> dict[str, EntryPoint]:
    return plugins.find("trident.algorithms", BUILT_IN_ALGORITHMS)


def has_env(name: str) -> bool:
    """Whether an environment has this name, or the name says where to import one from; a plug-in's joins ENVS."""
    if name in OLD_NAMES or (name not in ENVS and names.is_import_string(name)):
        return True
    if name in FORMER_ENVS:
        ENVS.setdefault(name, FORMER_ENVS[name])
    point = plugin_envs().get(name)
    if point is not None and name not in ENVS:
        ENVS[name] = _plugin_env(point)
    return name in ENVS


def has_algorithm(name: str) -> bool:
    """Whether an algorithm has this name; a plug-in's joins ALGORITHMS."""
    point = plugin_algorithms().get(name)
    if point is not None and name not in ALGORITHMS:
        ALGORITHMS[name] = _plugin_preset(point)
    return name in ALGORITHMS


def load_plugins() -> Iterator[TridentError]:
    """All of them join ENVS and ALGORITHMS; what is wrong with those that cannot."""
    for find, join in ((plugin_envs, has_env), (plugin_algorithms, has_algorithm)):
        for name in find():
            try:
                join(name)
            except TridentError as error:
                yield error


def add_algorithm(preset: Preset) -> str:
    """An algorithm of the user's own is known by its name from now on, in this process."""
    if not preset.name:
        raise TridentError('an algorithm of your own needs a name: trident.Preset(..., name="mine")')
    if preset.name in BUILT_IN_ALGORITHMS:
        raise TridentError(f"{preset.name!r} is a built-in algorithm: give yours another name")
    ALGORITHMS[preset.name] = preset
    return preset.name


def _plugin_env(point: EntryPoint) -> EnvEntry:
    factory = plugins.attempt(point, point.load)

    def make() -> AnyEnv:
        env = plugins.attempt(point, factory)
        for fault in declaration_faults(env):
            raise plugins.broken(point, f"environment: {fault}")
        return env

    text = (factory.__doc__ or "").strip().partition("\n")[0]
    return EnvEntry(f"{text} (package {plugins.package(point)})".strip(), make)


def _plugin_preset(point: EntryPoint) -> Preset:
    preset = plugins.attempt(point, point.load)
    if not isinstance(preset, Preset):
        raise plugins.broken(point, f"it is of the type {type(preset).__name__}, not a trident.Preset")
    if not dataclasses.is_dataclass(preset.config) or not dataclasses.fields(preset.config):
        raise plugins.broken(point, "its config is not a dataclass with fields")
    return replace(preset, help=f"{preset.help} (package {plugins.package(point)})")


# --- by name ---------------------------------------------------------------------------------------


def needs_shield(algo: str) -> bool:
    return has_algorithm(algo) and ALGORITHMS[algo].shielded


def make_env(name: str, args: Mapping[str, Any] | None = None, trusted: bool = True) -> AnyEnv:
    """By name, or by an import string (`trident.training.names`), which may be given arguments and must be trusted."""
    name = current(name, OLD_NAMES)
    if name not in ENVS and names.is_import_string(name):
        return names.make(name, args, trusted)
    if args:
        raise TridentError(f"{name} takes no arguments: they are for environments by import string, e.g. my_pkg:Tanks")
    if not has_env(name):
        if name.startswith("smac-"):
            smac.SmacConfig(map=name.removeprefix("smac-").removesuffix("-safe"))  # raises, and names the maps
        raise TridentError(_unknown("environment", name, [*ENVS, *plugin_envs()]))
    return ENVS[name].make()


def about_env(name: str, env: AnyEnv) -> str:
    """The line of help that belongs to a name."""
    if name in ENVS:
        return ENVS[name].help
    return (type(env).__doc__ or "").strip().partition("\n")[0]


def default_config(algo: str, env: AnyEnv, warm_started: bool = False) -> Any:
    """The preset's config with the values tuned for this environment (see tuned.py), for a residual policy if it has a
    base policy, and for a warm start."""
    if algo in env.scripted:
        return ScriptedConfig()
    if not has_algorithm(algo):
        raise TridentError(_unknown("algorithm", algo, [*ALGORITHMS, *plugin_algorithms(), *env.scripted]))
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
