"""Every claim, by experiment, in the order of the paper."""

from __future__ import annotations

from trident.verify import gumbel, safety, stgc
from trident.verify.claim import Claim, Experiment

EXPERIMENTS: tuple[Experiment, ...] = (stgc.EXPERIMENT, gumbel.EXPERIMENT, safety.EXPERIMENT)
CLAIMS: tuple[Claim, ...] = tuple(claim for experiment in EXPERIMENTS for claim in experiment.claims)
