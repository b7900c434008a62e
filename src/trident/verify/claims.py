"""Every claim, by experiment, in the order of the paper."""

from __future__ import annotations

from trident.verify import (
    actor_critic,
    arithmetic,
    complexity,
    coupling,
    curves,
    gumbel,
    invariance,
    rounds,
    safety,
    samples,
    stgc,
    uav_critic,
)
from trident.verify.claim import Claim, Experiment

EXPERIMENTS: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        stgc, gumbel, actor_critic, coupling, safety, rounds, curves, invariance, samples, uav_critic,
        complexity, arithmetic
    )
)  # fmt: skip
CLAIMS: tuple[Claim, ...] = tuple(claim for experiment in EXPERIMENTS for claim in experiment.claims)
