"""Every environment and every algorithm preset by name, one line of help each."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trident.algos import macpo, madac, off_policy, ppo, qmix, trident
from trident.envs import intersection, smac
from trident.envs.intersection.smarts.env import SmartsIntersection
from trident.envs.probes import PROBES
from trident.envs.uav_mec import VARIANTS, UavMec
from trident.errors import TridentError
from trident.training.tuned import TUNED
from trident.types import Algorithm, AnyEnv, DataPlan, EnvSpec, Physics


@dataclass(frozen=True)
class EnvEntry:
    help: str
    make: Callable[[], AnyEnv]


@dataclass(frozen=True)
class Preset:
    """An algorithm by name: a factory and the config it starts from (a preset is a few config fields, not a copy)."""

    help: str
    make: Callable[[Any, EnvSpec, Physics | None], Algorithm]
    config: Any
    shielded: bool = False
    """It runs behind its environment's shield, in training and in evaluation."""
    like: str | None = None
    """It takes what was tuned for this one, but for the fields in which the two presets differ."""


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

MADDPG = off_policy.OffPolicyConfig()
MATD3 = replace(MADDPG, twin=True, delay=2, target_noise=0.2)
FACMAC = replace(MADDPG, critic="factored", gradient="joint")

TRIDENT = trident.TridentConfig()
RESIDUAL_LOG_STD = TRIDENT.reflex_log_std
LARGE = replace(TRIDENT, hidden=(256, 256), critic_hidden=(512, 512, 512), cost_hidden=(256, 256))
PRINTED = replace(
    LARGE, estimator="stgc-paper", safety="paper", recovery="paper", agent_order="fixed", anneal="paper",
    trust_region=0.02, trust_region_final=1.0,  # 0.01 each of two updates a round
    calibrate=False, smooth=0.0, warm_smooth=0.0, tighten=1.0, violation_fraction=0.01,
    cost_physics=False, target_rate=0.005, source="pathwise", filter=False, base_policy=False, horizon="one-step",
    share_budget=False, feasible="critic", precondition=False, cg_steps=8, fisher_batch=256,
    log_std_final=TRIDENT.log_std,
)  # fmt: skip
SCRATCH = replace(TRIDENT, base_policy=False)
"""What parts are taken away from: around a base policy nothing is learned that they could make a difference to."""
FORMS: dict[str, tuple[str, trident.TridentConfig]] = {
    "scratch": ("trident whose actors start from scratch, as the paper's do", SCRATCH),
    "large": ("trident with the paper's network sizes (256-256, 512-512-512, 256-256)", LARGE),
    "paper": ("from scratch, everything as printed", PRINTED),
    "pathwise": (
        "the reward's direction by the critics' gradients alone",
        replace(TRIDENT, source="pathwise", reflex_source="pathwise"),
    ),
    "both": (
        "the reward's direction by residual gradients and advantages around the base policy too",
        replace(TRIDENT, reflex_source="both"),
    ),
    "no-pirc": ("plain critics around the base policy", replace(TRIDENT, physics="none")),
}
ABLATIONS: dict[str, tuple[str, trident.TridentConfig]] = {
    "unfiltered": ("gradients as they come, noise and all", replace(SCRATCH, filter=False)),
    "stgc": ("the mode's gradient by STGC, however few the modes", replace(SCRATCH, estimator="stgc")),
    "no-stgc": ("plain Gumbel-Softmax", replace(SCRATCH, estimator="gs")),
    "lagrangian": ("multipliers instead of Lyapunov budgets", replace(SCRATCH, safety="lagrangian")),
    "no-recovery": ("an impossible step is not replaced by recovery", replace(SCRATCH, recovery="none")),
    "no-physics": ("plain critics", replace(SCRATCH, physics="none")),
    "additive-physics": ("physics in the reward instead of the critics", replace(SCRATCH, physics="additive")),
    "no-trust-region": ("steps of fixed length, KL unchecked", replace(SCRATCH, metric="euclidean")),
    "no-hybrid": (
        "modes mixed as if continuous, parameters the same in all of them",
        replace(SCRATCH, estimator="relax", conditional=False),
    ),
    "simultaneous": ("all agents at once", replace(SCRATCH, agent_order="simultaneous")),
    "unconstrained": ("limits are only reported", replace(SCRATCH, safety="none")),
}

ALGORITHMS: dict[str, Preset] = {
    "maddpg": Preset(
        "central critic, actions on a grid (Lowe et al. 2017)", off_policy.make, replace(MADDPG, actions="discretised")
    ),
    "matd3": Preset(
        "twin central critics, modes relaxed to continuous numbers (Ackermann et al. 2019)",
        off_policy.make,
        replace(MATD3, actions="relaxed"),
    ),
    "facmac": Preset(
        "mixed critics of each agent, modes relaxed to continuous numbers (Peng et al. 2021)",
        off_policy.make,
        replace(FACMAC, actions="relaxed"),
    ),
    "maddpg-hybrid": Preset(
        "maddpg with hybrid actions (Gumbel-softmax modes)", off_policy.make, MADDPG, like="maddpg"
    ),
    "matd3-hybrid": Preset("matd3 with hybrid actions", off_policy.make, MATD3, like="matd3"),
    "facmac-hybrid": Preset("facmac with hybrid actions", off_policy.make, FACMAC, like="facmac"),
    "qmix": Preset(
        "monotonic mixture of utilities of a grid of actions (Rashid et al. 2018)", qmix.make, qmix.QMIXConfig()
    ),
    "mappo": Preset("PPO, all agents at once (Yu et al. 2022)", ppo.make, ppo.PPOConfig(order="simultaneous")),
    "happo": Preset("PPO, agents one after another (Kuba et al. 2022)", ppo.make, ppo.PPOConfig(order="sequential")),
    "mappo-lag": Preset(
        "mappo with a Lagrange multiplier per constraint (Gu et al. 2021)",
        ppo.make,
        ppo.LagrangianConfig(order="simultaneous"),
    ),
    "happo-lag": Preset(
        "happo with a Lagrange multiplier per constraint",
        ppo.make,
        ppo.LagrangianConfig(order="sequential"),
        like="mappo-lag",
    ),
    "macpo": Preset(
        "constrained trust-region steps, agents one after another (Gu et al. 2021)", macpo.make, macpo.MACPOConfig()
    ),
    "mappo-lag-residual": Preset(
        "mappo-lag whose actors correct the base policy that trident's do",
        ppo.make,
        ppo.LagrangianConfig(order="simultaneous", base_policy=True, log_std=RESIDUAL_LOG_STD),
        like="mappo-lag",
    ),
    "macpo-residual": Preset(
        "macpo whose actors correct the base policy that trident's do",
        macpo.make,
        macpo.MACPOConfig(base_policy=True, log_std=RESIDUAL_LOG_STD),
        like="macpo",
    ),
    "madac": Preset(
        "a safety actor and a task actor per agent, state-wise constraints (Li & Azizan 2024)",
        madac.make,
        madac.MADACConfig(),
    ),
    "shielded": Preset(
        "mappo behind the environment's shield (any other: --shielded)",
        ppo.make,
        ppo.PPOConfig(order="simultaneous"),
        shielded=True,
        like="mappo",
    ),
    "trident": Preset("SHA + PIRC + LCPO: safe, hybrid, physics-informed", trident.make, TRIDENT),
}
ALGORITHMS |= {
    f"trident-{name}": Preset(help_, trident.make, config, like="trident")
    for forms in (FORMS, {k: (f"ablation, from scratch: {h}", c) for k, (h, c) in ABLATIONS.items()})
    for name, (help_, config) in forms.items()
}


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


def default_config(algo: str, env: AnyEnv) -> Any:
    """The preset's config with the values tuned for this environment (see tuned.py)."""
    if algo in env.scripted:
        return ScriptedConfig()
    if algo not in ALGORITHMS:
        raise TridentError(_unknown("algorithm", algo, [*ALGORITHMS, *env.scripted]))
    preset, inherited = ALGORITHMS[algo], {}
    if preset.like is not None:
        model, tuned = ALGORITHMS[preset.like].config, TUNED.get((preset.like, env.spec.name), {})
        inherited = {k: v for k, v in tuned.items() if getattr(preset.config, k) == getattr(model, k)}
    return replace(preset.config, **inherited | TUNED.get((algo, env.spec.name), {}))


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
    raise TypeError("a scripted policy acts through its environment (train.loop.policy_of)")


def _unknown(kind: str, name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}: {hint}`trident list` shows all of them"
