"""Which metrics of a learner belong together, and what they mean; for figures and the page alike."""

from __future__ import annotations

import re

from trident.report.palette import agent_name

DIAGNOSTICS: dict[str, tuple[str, ...]] = {
    "how far an update moves the policy (KL)": ("kl", "kl_max"),
    "share of updates by their outcome": ("recovery", "trust_region", "rejected"),
    "share of the returns that physics explains (R2)": ("r2_phys",),
    "share of the returns that critics explain": ("explained_variance",),
    "loss of the critics": ("critic_loss",),
    "cost per step that an update may add": ("budget_asked",),
    "... of it, what trust regions allow": ("budget_granted",),
    "... of it, what the update is predicted to add": ("budget_spent",),
    "rise of a cost in a round beyond what was predicted": ("drift",),
    "temperature of the mode gradient": ("temperature", "tau"),
    "share of the demanded decrease in cost granted": ("granted_fraction",),
    "share of the gradient that is signal, not noise": ("grad_snr",),
    "share of parameters at the edge of their box": ("saturation",),
    "entropy of the policy": ("entropy",),
    "Lagrange multipliers": ("multiplier", "lambda"),
    "share of actions that the shield changed": ("shielded",),
}
"""Panel title -> metric names; a metric belongs to a panel if its name up to the first "/" is listed."""
FLOORS = {"r2_phys": -1.0, "explained_variance": -1.0}
"""Below it, it does not matter how far below: to explain nothing is 0."""


def part_of(name: str) -> str:
    """What a metric's name says beyond its panel's title, agents counted from 1."""
    head, _, rest = name.partition("/")
    agent = re.fullmatch(r"agent(\d+)", rest)
    text = f"agent {agent_name(int(agent[1]))}" if agent else rest.replace("/", ", ") or head
    return text.replace("_", " ")
