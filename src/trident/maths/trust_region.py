"""LCPO's inner step: one agent's trust-region update under K budgets, with recovery.

    theta' = argmax  g'x    subject to   b_k'x <= c_k (k = 1..K),   x'Hx / 2 <= delta,       x = theta' - theta

H is the Fisher matrix of the hybrid policy, c_k the change this update may make to surrogate cost k (negative: must).
Demands are clipped jointly to what the trust region can give; the step is then shortened until the *true* KL and the
true surrogates agree. If that fails while something is violated, recovery: a natural step that lowers the violated
costs and keeps the satisfied ones within their budgets. If that fails too, the old parameters come back exactly.
With demands="whole" and recovery="descent" it is CPO's step for K constraints (Achiam et al. 2017), as MACPO uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trident.maths import hybrid
from trident.maths.constrained_qp import constrained_step, joint_clip, multipliers, recovery, single_clip
from trident.maths.fisher import conjugate_gradient

REJECTED, TRUST_REGION, RECOVERY = 0, 1, 2


class UpdateRule(NamedTuple):
    delta: float | Float[Array, ""]
    """Trust region: mean KL(old || new)."""
    cg_steps: int = 10
    damping: float = 0.01
    backtracks: int = 8
    ratio: float = 0.7
    margin: float = 0.3
    """Share of the trust region's radius that demanded decreases must leave to the reward."""
    slack: float = 1.3
    """The line search accepts a true KL up to this multiple of delta: the quadratic model is not exact."""
    demands: Literal["clipped", "whole", "none"] = "clipped"
    """clipped: ask for no more than the trust region can give; whole: ask for all of it, or recover (CPO); none: while
    anything is violated, recover and do nothing else (as printed)."""
    divergence: Literal["old-new", "new-old"] = "old-new"
    """Which way round the line search measures the KL; new-old as printed. The two agree to second order."""
    recovery: Literal["natural", "paper", "descent", "none"] = "natural"
    """natural: lower the violated costs within the others' budgets; descent: the longest natural step down the violated
    costs, whatever it does to the others (CPO)."""
    own_length: bool | Bool[Array, ""] = False
    """The reward's gradient says how long its step should be: it is not stretched to the edge of the trust region."""
    reach: float | Float[Array, ""] = float("inf")
    """Share of the trust region's radius that the reward may take beyond what the budgets ask for."""
    recovery_rate: float = 1e-4
    """Step size of the printed recovery."""


class UpdateInfo(NamedTuple):
    kind: Int[Array, ""]  # REJECTED, TRUST_REGION or RECOVERY
    fraction: Float[Array, ""]  # of the step that the line search accepted
    granted_fraction: Float[Array, ""]  # of the demanded decreases, by the trust region
    kl: Float[Array, ""]
    change: Float[Array, "J"]  # of every surrogate; NaN if gradients or Fisher products are not finite
    granted: Float[Array, "K"]  # of the budget
    multiplier: Float[Array, "K"]  # Lagrange multipliers: reward per unit of each cost


class Candidate(NamedTuple):
    theta: Float[Array, "D"]
    kind: Int[Array, ""]
    fraction: Float[Array, ""]
    kl: Float[Array, ""]
    change: Float[Array, "J"]


def constrained_update(
    rule: UpdateRule,
    theta: Float[Array, "D"],
    gradients: Float[Array, "J D"],
    surrogates: Callable[[Float[Array, "D"]], Float[Array, "J"]],
    product: Callable[[Float[Array, "D"]], Float[Array, "D"]],
    dist: Callable[[Float[Array, "D"]], hybrid.HybridDist],
    mask: Bool[Array, "B M"],
    used: Bool[Array, "M P"],
    weight: Float[Array, "B"],
    budget: Float[Array, "K"],
    precondition: Callable[[Float[Array, "D"]], Float[Array, "D"]] = lambda v: v,
    wish: tuple[Bool[Array, ""], Float[Array, "D"]] | None = None,
) -> tuple[Float[Array, "D"], UpdateInfo]:
    """`surrogates(theta')` is the change of the reward and cost surrogates from `theta`; `product` multiplies with the
    Fisher matrix (maths.fisher; fewer states suffice for it), `precondition` with about its inverse; `weight` sums to
    one. `wish` (whether, what): the reward's natural gradient, where it is known.
    """
    old = dist(theta)
    natural = conjugate_gradient(product, gradients, rule.cg_steps, rule.damping, precondition)
    if wish is not None:
        natural = natural.at[0].set(jnp.where(wish[0], wish[1], natural[0]))
    gram = gradients @ natural.T
    if rule.demands == "clipped":
        requested = single_clip(gram[1:, 1:], budget, rule.delta, rule.margin)
        _, granted = joint_clip(gram[1:, 1:], requested, rule.delta, rule.margin)
    else:  # what no gradient can change is not asked for
        granted = jnp.where(jnp.diagonal(gram)[1:] > 1e-12, budget, jnp.maximum(budget, 0.0))
    step = constrained_step(gram, granted, rule.delta, rule.own_length, rule.reach)

    violated = budget < 0
    granted_fraction = jnp.min(jnp.where(violated, granted / jnp.where(violated, budget, 1.0), 1.0), initial=1.0)
    possible = step.feasible & ~(jnp.any(violated) & (rule.demands == "none"))
    recovery_step, may_recover = recovery_direction(rule, gram, natural, gradients, budget)
    directions = jnp.stack([step.weights @ natural, recovery_step])
    allowance = jnp.maximum(budget, 0.0) + 1e-6

    def try_candidate(index: Array) -> tuple[Array, Candidate]:
        """Candidates 0..J-1 shorten the constrained step, J..2J-1 the recovery: one compiled body for both."""
        recovering = index >= rule.backtracks
        fraction = rule.ratio ** (index % rule.backtracks).astype(theta.dtype)
        new = theta + fraction * directions[recovering.astype(jnp.int32)]
        change = surrogates(new)
        ends = (old, dist(new)) if rule.divergence == "old-new" else (dist(new), old)
        kl = jnp.sum(weight * hybrid.kl(*ends, mask, used))
        demanded = jnp.where(recovering, 0.0, 0.1 * fraction * granted)
        costs = jnp.where(jnp.where(recovering, violated, granted < 0), change[1:] <= demanded, change[1:] <= allowance)
        gains = jnp.where(recovering, jnp.any(change[1:] < 0.0), (change[0] > 0) | jnp.any(granted < 0))
        good = (kl <= rule.slack * rule.delta) & jnp.all(costs) & gains
        if rule.recovery == "paper":
            good |= recovering & jnp.isfinite(kl)
        if rule.recovery == "descent":
            good |= recovering & (kl <= rule.slack * rule.delta) & jnp.all(~violated | (change[1:] < 0.0))
        kind = jnp.where(recovering, RECOVERY, TRUST_REGION)
        return good, Candidate(new, kind, fraction, kl, change)

    nothing = Candidate(theta, jnp.int32(REJECTED), jnp.zeros(()), jnp.zeros(()), jnp.zeros(len(gradients)))
    first = jnp.where(possible, 0, rule.backtracks)
    last = jnp.where(may_recover & jnp.any(violated), 2, 1) * rule.backtracks
    chosen = first_accepted(try_candidate, nothing, first, last)
    change = jnp.where(jnp.all(jnp.isfinite(gram)), chosen.change, jnp.nan)  # the step is none then: it must be seen
    multiplier = multipliers(gram, budget, rule.delta)
    return chosen.theta, UpdateInfo(
        chosen.kind, chosen.fraction, granted_fraction, chosen.kl, change, granted, multiplier
    )


def recovery_direction(
    rule: UpdateRule, gram: Array, natural: Array, gradients: Array, budget: Array
) -> tuple[Float[Array, "D"], bool]:
    if rule.recovery == "none":
        return jnp.zeros_like(natural[0]), False
    if rule.recovery == "paper":
        return -rule.recovery_rate * jnp.where(budget < 0, 1.0, 0.0) @ gradients[1:], True
    if rule.recovery == "descent":
        length = jnp.sqrt(jnp.maximum(jnp.diagonal(gram)[1:], 1e-12))
        weights = jnp.where(budget < 0, 1.0 / length, 0.0)  # unit steps of every violated cost, added up
        direction = weights @ natural[1:]
        size = jnp.sqrt(jnp.maximum(weights @ gram[1:, 1:] @ weights, 1e-12))
        return -jnp.sqrt(2.0 * rule.delta) / size * direction, True
    return recovery(gram, budget, rule.delta).weights @ natural, True


Attempt = Callable[[Int[Array, ""]], tuple[Bool[Array, ""], Any]]


def first_accepted(attempt: Attempt, nothing: Any, first: int | Int[Array, ""], last: int | Int[Array, ""]) -> Any:
    """The first of the candidates `first` .. `last` - 1 that is accepted; otherwise `nothing`, bit for bit.

    `attempt(index)` returns whether the candidate will do, and the candidate (a pytree like `nothing`). It is compiled
    once, however many kinds of candidates the index stands for. A test that is NaN does not accept.
    """

    def searching(carry: tuple[Array, Array, Any]) -> Array:
        index, found, _ = carry
        return ~found & (index < last)

    def try_next(carry: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
        index, _, _ = carry
        found, candidate = attempt(index)
        return index + 1, found, jax.tree.map(lambda new, old: jnp.where(found, new, old), candidate, nothing)

    start = (jnp.asarray(first, jnp.int32), jnp.bool_(False), nothing)
    return jax.lax.while_loop(searching, try_next, start)[2]
