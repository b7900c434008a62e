"""Every claim, by experiment, in the order of the paper."""

from __future__ import annotations

from trident.verify import (
    actor_critic,
    complexity,
    coupling,
    gumbel,
    paper_arithmetic,
    safety,
    samples,
    shaping,
    single_round,
    stgc,
    training_curves,
    uav_critic,
)
from trident.verify.claim import Claim, Experiment

EXPERIMENTS: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        stgc,
        gumbel,
        actor_critic,
        coupling,
        safety,
        single_round,
        training_curves,
        shaping,
        samples,
        uav_critic,
        complexity,
        paper_arithmetic,
    )
)
CLAIMS: tuple[Claim, ...] = tuple(claim for experiment in EXPERIMENTS for claim in experiment.claims)
