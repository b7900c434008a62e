"""Tuned values per (algorithm, environment), and nothing else: the defaults stand next to the code that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trident.envs.smac.config import MAPS

LARGE_MAPS = ("smac-27m_vs_30m", "smac-27m_vs_30m-safe")
"""A transition of 27 agents that see 56 others takes 74 KiB."""
TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("mappo", "uav-mec"): {"lr": 1e-3},
    ("mappo-lag", "uav-mec"): {"rate": 0.02},
    ("madac", "uav-mec"): {"rho": 1.0, "multiplier_rate": 0.05},
    ("maddpg", "uav-mec"): {"lr": 1e-3},
    ("facmac", "uav-mec"): {"updates": 128},
    ("matd3", "uav-mec"): {"updates": 128},
    ("qmix", "uav-mec"): {"lr": 1e-3},
}
TUNED |= {(algo, env): {"replay": 16_000} for algo in ("qmix", "facmac", "madac") for env in LARGE_MAPS}
TUNED |= {
    # Few modes are summed exactly. Half of a batch's soldiers are dead: accurate natural gradients of the rest lose
    # 2s3z (docs/decisions.md).
    ("trident", f"smac-{name}{variant}"): {"step.precondition": False, "step.cg_steps": 8, "step.fisher_batch": 256}
    | ({"actor.estimator": "exact"} if sum(n for _, n in field.enemies) <= 12 else {})
    # Rounds of 27 agents, through the closed form of 36 modes, take long.
    | ({"data.replay": 16_000, "step.updates": 1, "step.inner_epochs": 2} if name == "27m_vs_30m" else {})
    for name, field in MAPS.items()
    for variant in ("", "-safe")
}
RESIDUAL_TUNED: dict[str, dict[str, Any]] = {
    # The closed form does not know tactics, and a soldier's base policy leaves much to be found: it is explored around
    # as widely as from scratch, and the critics' gradients count as far as they are right.
    f"smac-{name}{variant}": {
        "step.source": "score" if name == "27m_vs_30m" else "both",
        "step.trust_region": 0.06,
        "actor.log_std": -0.7,
        "actor.log_std_final": -1.8,
    }
    for name in MAPS
    for variant in ("", "-safe")
}
"""Tuned values of residual policies, by environment."""

STUDIES = Path(__file__).with_name("tuned.json")
"""environment -> method -> the values that a study of `trident tune` chose, and the study: they take the place of what
stands above. What is chosen for `trident-scratch` is for all of TRIDENT's presets, for `trident` where it corrects a
base policy."""


def add_studies(studies: dict[str, dict[str, dict[str, Any]]]) -> None:
    for env, methods in studies.items():
        for method, entry in methods.items():
            if method == "trident":
                RESIDUAL_TUNED[env] = entry["values"]
            else:
                TUNED[("trident" if method == "trident-scratch" else method, env)] = entry["values"]


add_studies(json.loads(STUDIES.read_text(encoding="utf-8")))
