"""What the costs are, what they may change by, and how far predicted changes come true."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.algos.trident.config import SafetyConfig, TridentConfig
from trident.types import EnvSpec

Costs = Float[Array, "K"]
PRIOR = 1e-4
"""Weight of the prior that predictions come true, in squared units of cost per step."""
UNLIMITED = 1e6
DRIFT_RATE = 0.1
"""Weight of a round in the mean drift."""
MULTIPLIER_RATE = 0.05
"""Growth of a Lagrange multiplier per round and per limit of excess."""


class CostTracker(NamedTuple):
    """Measured costs, and how much of a predicted change of them was realised so far."""

    cross: Costs  # moving sum of realised x predicted
    square: Costs  # moving sum of predicted^2
    cost: Costs  # moving mean of the measured costs
    predicted: Costs  # change that the updates so far predicted against that mean
    known: Bool[Array, ""]  # whether a cost has been measured yet
    last: Costs  # the last round's cost
    change: Costs  # that the last round's updates predicted
    drift: Costs  # moving mean of what a round's cost rose by beyond what was predicted


def start(num_constraints: int) -> CostTracker:
    zeros = jnp.zeros(num_constraints)
    return CostTracker(zeros + PRIOR, zeros + PRIOR, zeros, zeros, jnp.bool_(False), zeros, zeros, zeros)


def measure(smooth: float, tracker: CostTracker, cost: Costs) -> tuple[CostTracker, Costs]:
    """The moving mean of the costs, and the calibration of the surrogates: sum(realised x predicted) /
    sum(predicted^2), fading with 0.9.

    A round sees parts of few episodes, so that its costs jump; what they are is better known over a few rounds. A
    surrogate values a change as if every later state stayed as it is now; where feedback would have mended things
    anyway it predicts several times too much, and a contraction that is only predicted is none.
    """
    mean = jnp.where(tracker.known, smooth * tracker.cost + (1.0 - smooth) * cost, cost)
    realised = jnp.where(tracker.known, cost - tracker.cost, 0.0)
    cross = 0.9 * tracker.cross + realised * tracker.predicted
    square = 0.9 * tracker.square + tracker.predicted**2
    calibration = jnp.clip(cross / square, 0.25, 1.0)
    beyond = jnp.where(tracker.known, cost - tracker.last - calibration * tracker.change, 0.0)
    drift = tracker.drift + DRIFT_RATE * (beyond - tracker.drift)
    known = jnp.bool_(True)
    return tracker._replace(cross=cross, square=square, cost=mean, known=known, last=cost, drift=drift), calibration


def predict(smooth: float, tracker: CostTracker, change: Costs, limits: Costs) -> CostTracker:
    """Remember the change that a round's updates predict. A moving mean lags behind: against it, a new cost shows the
    last round's change, `smooth` of that of the round before, and so on. No cost can fall by more than there is of it,
    and no budget lets one rise by more than its limit: what exceeds that is an error of the surrogate, and would drown
    what is measured."""
    change = jnp.clip(change, -jnp.maximum(tracker.cost, 0.0), jnp.maximum(limits, 0.0))
    return tracker._replace(predicted=change + smooth * tracker.predicted, change=change)


def training_limits(safety: SafetyConfig, spec: EnvSpec) -> Costs:
    return safety.tighten * jnp.asarray(spec.limits) - jnp.asarray(safety.slack)


def round_budget(
    config: TridentConfig, excess: Costs, calibration: Costs | float = 1.0, drift: Costs | float = 0.0
) -> Costs:
    """What the surrogate costs of the whole round may change by, all agents and passes together (negative: must)."""
    safety = config.safety
    if safety.method in ("lagrangian", "none"):
        return jnp.full_like(excess, UNLIMITED)
    if config.as_printed:
        return -excess
    share = jnp.where(excess > 0, jnp.asarray(safety.alpha_back) / calibration, jnp.asarray(safety.alpha))
    return -excess * share - jnp.maximum(drift, 0.0)


def raise_multiplier(spec: EnvSpec, multiplier: Costs, excess: Costs) -> Costs:
    """Dual ascent, in units of the limits."""
    return jnp.maximum(multiplier + MULTIPLIER_RATE * excess / jnp.maximum(jnp.asarray(spec.limits), 1e-3), 0.0)
