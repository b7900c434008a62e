"""Every claim, by experiment, in the order of the paper."""

from __future__ import annotations

from trident.verify import actor_critic, coupling, gumbel, invariance, safety, samples, stgc
from trident.verify.claim import Claim, Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    stgc.EXPERIMENT,
    gumbel.EXPERIMENT,
    actor_critic.EXPERIMENT,
    coupling.EXPERIMENT,
    safety.EXPERIMENT,
    invariance.EXPERIMENT,
    samples.EXPERIMENT,
)
CLAIMS: tuple[Claim, ...] = tuple(claim for experiment in EXPERIMENTS for claim in experiment.claims)
