"""What may be tuned of each method: four settings of every one, TRIDENT included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trident.errors import TridentError


@dataclass(frozen=True)
class Choice:
    """One of these values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Scale:
    """Any number in between; `log`: evenly on the logarithm."""

    low: float
    high: float
    log: bool = True


Space = dict[str, Choice | Scale]
PPO: Space = {
    "lr": Scale(1e-4, 3e-3),
    "epochs": Choice((3, 5, 10)),
    "entropy": Scale(1e-4, 1e-2),
    "log_std": Scale(-1.6, -0.2, log=False),
}
LAGRANGIAN: Space = {
    "lr": PPO["lr"],
    "epochs": PPO["epochs"],
    "rate": Scale(0.01, 0.5),
    "cost_discount": Choice((0.8, 0.9, 0.95)),
}
MACPO: Space = {
    "trust_region": Scale(0.003, 0.1),
    "damping": Scale(0.01, 0.3),
    "critic_lr": Scale(3e-4, 3e-3),
    "cost_discount": Choice((0.8, 0.9, 0.95)),
}
OFF_POLICY: Space = {
    "lr": Scale(1e-4, 3e-3),
    "critic_lr": Scale(3e-4, 3e-3),
    "noise": Scale(0.1, 0.6, log=False),
    "updates": Choice((32, 64, 128)),
}
QMIX: Space = {
    "lr": Scale(1e-4, 3e-3),
    "levels": Choice((3, 5)),
    "updates": Choice((32, 64, 128)),
    "discount": Choice((0.9, 0.95, 0.98)),
}
MADAC: Space = {
    "lr": Scale(1e-4, 3e-3),
    "alpha": Scale(0.003, 0.1),
    "rho": Scale(0.3, 30.0),
    "multiplier_rate": Scale(0.02, 0.5),
}
TRIDENT: Space = {
    "step.trust_region": Scale(0.015, 0.2),
    "step.advantage_lr": Scale(1e-4, 3e-3),
    "critic.lr": Scale(3e-4, 3e-3),
    "safety.tighten": Choice((0.5, 0.7, 1.0)),
}
RESIDUAL: Space = TRIDENT | {"step.trust_region": Scale(0.0003, 0.03), "step.advantage_lr": Scale(1e-5, 1e-3)}
SPACES: dict[str, Space] = {
    "mappo": PPO,
    "happo": PPO,
    "mappo-lag": LAGRANGIAN,
    "macpo": MACPO,
    "maddpg": OFF_POLICY,
    "matd3": OFF_POLICY,
    "facmac": OFF_POLICY,
    "qmix": QMIX,
    "madac": MADAC,
    "trident-scratch": TRIDENT,
    "trident": RESIDUAL,
}
UNCONSTRAINED = ("mappo", "happo", "maddpg", "matd3", "facmac", "qmix")
"""They are not told of limits, so that their trials are not judged by them."""


def space_of(method: str) -> Space:
    if method not in SPACES:
        raise TridentError(f"nothing is said of what may be tuned of {method}: there are {', '.join(SPACES)}")
    return SPACES[method]
