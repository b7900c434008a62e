"""Every algorithm preset by name: a factory and a few config fields, not a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from trident.algos import macpo, madac, off_policy, ppo, qmix, trident
from trident.fields import change
from trident.types import Algorithm, EnvSpec, Physics


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
    residual: dict[str, Any] | None = None
    """What it sets otherwise than RESIDUAL where there is a base policy to correct; None if it learns from scratch."""
    warm: dict[str, Any] = field(default_factory=dict)
    """What it sets after a warm start."""
    name: str = ""
    """Of an algorithm that is handed to `trident.train`; the others have theirs in ALGORITHMS or an entry point."""


MADDPG = off_policy.OffPolicyConfig()
MATD3 = replace(MADDPG, twin=True, delay=2, target_noise=0.2)
FACMAC = replace(MADDPG, critic="factored", gradient="joint")

TRIDENT = trident.TridentConfig()
RESIDUAL_LOG_STD = -3.0
RESIDUAL = {
    "actor.log_std": RESIDUAL_LOG_STD,
    "actor.log_std_final": -3.5,
    "step.trust_region": 0.003,
    "step.source": "closed-form",
}
"""What a residual policy is set to. A base policy needs no search by large noise and would be ruined by it; a good
policy is lost by long steps sooner than it is bettered; and with little noise a residual critic has nothing to learn
gradients in the action from, advantages are faint, and ascent would follow the errors of both."""


def residual_values(preset: Preset, tuned: dict[str, Any]) -> dict[str, Any]:
    """What a preset sets where there is a base policy to correct, given what was tuned for the environment."""
    values = RESIDUAL | tuned | (preset.residual or {})
    if values["step.source"] == "closed-form" and preset.config.critic.physics != "residual":
        del values["step.source"]  # plain critics have no closed form to go by
    return values


LARGE = change(TRIDENT, {"hidden": (256, 256), "reward_hidden": (512, 512, 512), "cost_hidden": (256, 256)})
PRINTED = change(
    LARGE,
    {
        "as_printed": True,
        "share_actors": False,
        "estimator": "stgc-paper",
        "base_policy": False,
        "horizon": "one-step",
        "cost_physics": False,
        "target_rate": 0.005,
        "source": "pathwise",
        "filter": False,
        "violation_fraction": 0.01,
        "precondition": False,
        "cg_steps": 8,
        "fisher_batch": 256,
        "updates": 2,
        "policy_batch": 512,
        "trust_region": 0.02,
        "trust_region_final": 1.0,  # 0.01 each of two updates a round
        "smooth": 0.0,
        "tighten": 1.0,
        "log_std_final": TRIDENT.actor.log_std,
    },
)
SCRATCH = change(TRIDENT, {"base_policy": False})
"""What parts are taken away from: around a base policy nothing is learned that they could make a difference to."""
FORMS: dict[str, tuple[str, trident.TridentConfig, dict[str, Any] | None]] = {
    "scratch": ("trident whose actors learn from scratch, as the paper's do", SCRATCH, None),
    "large": ("trident with the paper's network sizes (256-256, 512-512-512, 256-256)", LARGE, {}),
    "paper": ("from scratch, everything as printed", PRINTED, None),
    "pathwise": (
        "the reward's direction by the critics' gradients alone",
        change(TRIDENT, {"source": "pathwise"}),
        {"step.source": "pathwise"},
    ),
    "both": (
        "the reward's direction by the critics' gradients and advantages around the base policy too",
        TRIDENT,
        {"step.source": "both"},
    ),
    "no-pirc": (
        "plain critics around the base policy",
        change(TRIDENT, {"critic.physics": "none"}),
        {},
    ),
}
ABLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "unfiltered": ("gradients as they come, noise and all", {"filter": False}),
    "stgc": ("the mode's gradient by STGC, however few the modes", {"estimator": "stgc"}),
    "no-stgc": ("plain Gumbel-Softmax", {"estimator": "gs"}),
    "lagrangian": ("multipliers instead of Lyapunov budgets", {"safety.method": "lagrangian"}),
    "no-recovery": ("an impossible step is not replaced by recovery", {"recovery": "none"}),
    "no-physics": ("plain critics", {"critic.physics": "none"}),
    "additive-physics": ("physics in the reward instead of the critics", {"critic.physics": "additive"}),
    "no-trust-region": ("steps of fixed length, KL unchecked", {"metric": "euclidean"}),
    "no-hybrid": (
        "modes mixed as if continuous, parameters the same in all of them",
        {"estimator": "relax", "conditional": False},
    ),
    "separate": ("an actor for every agent", {"share_actors": False}),
    "concatenated": ("critics that see agents side by side", {"critic.body": "concatenated"}),
    "simultaneous": (
        "an actor for every agent, all at once",
        {"agent_order": "simultaneous", "share_actors": False},
    ),
    "unconstrained": ("limits are only reported", {"safety.method": "none"}),
}

WARM = {"safety.smooth": 0.85}
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
    "mappo-residual": Preset(
        "mappo whose actors correct the base policy that trident's do",
        ppo.make,
        ppo.PPOConfig(order="simultaneous", base_policy=True, log_std=RESIDUAL_LOG_STD),
        like="mappo",
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
    "trident": Preset(
        "SHA + PIRC + LCPO: safe, hybrid, physics-informed", trident.make, TRIDENT, residual={}, warm=WARM
    ),
}
ALGORITHMS |= {
    f"trident-{name}": Preset(
        text, trident.make, config, like="trident", residual=residual, warm={} if config.as_printed else WARM
    )
    for name, (text, config, residual) in FORMS.items()
}
ALGORITHMS |= {
    f"trident-{name}": Preset(
        f"ablation, from scratch: {text}", trident.make, change(SCRATCH, changes), like="trident", warm=WARM
    )
    for name, (text, changes) in ABLATIONS.items()
}
