"""LCPO: kinds of agents improve one after another, each by a trust-region step under the round's cost budgets.

    J_k      measured cost rate of the last rounds (the critics give gradients only)
    budget_k = alpha (d_k - J_k - xi_k)     what all kinds and passes together may add to surrogate cost k, or, while
                                            J_k is too high, must take off it; one budget per round
    kind G   theta_G <- argmax L_0 subject to L_k <= what is left of budget_k, KL <= delta    (maths.trust_region)

L_j are the surrogates of `surrogate`, summed over the kind's members, each kind's evaluated with the kinds before it
already updated. Members move together: the line search judges what they do jointly. With a kind for every agent these
are the paper's agents one after another. Two things keep prediction and outcome together: states in which limits were
violated are rare, and are looked at more often than they occur (`batches`); and how far past predictions came true is
measured, and the demand raised accordingly (`cost_tracking`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from trident.algos.common.actor import actor_apply, actor_by_parts
from trident.algos.common.kfac import Seen, kronecker_inverse
from trident.algos.trident import cost_tracking
from trident.algos.trident.batches import Members, critic_cost_estimate, member_batches, rollout_batch
from trident.algos.trident.critics import CriticState
from trident.algos.trident.problem import Problem, temperature, trust_region
from trident.algos.trident.surrogate import (
    ADVANTAGE_ADAM,
    PolicyBatch,
    RolloutBatch,
    measured_change,
    own_view,
    pathwise_change,
    pathwise_gradients,
    score,
)
from trident.maths.fisher import fisher_product
from trident.maths.gradient_filter import shrink_to_signal
from trident.maths.hybrid import HybridDist
from trident.maths.trust_region import RECOVERY, REJECTED, TRUST_REGION, UpdateInfo, UpdateRule, constrained_update
from trident.types import Data, Metrics, PerCost, PerSignal, Transition, encode_params

DEAREST = 10.0
"""Most that measured advantages pay for costs, in units of the advantages' spreads."""
STEP_LENGTH = 0.03
"""Length of a step whose size is not measured by the KL (metric=euclidean)."""


class PolicyState(NamedTuple):
    actors: Any  # stacked over kinds of agents
    opt: Any  # of the steps on advantages, likewise
    tracker: cost_tracking.CostTracker
    multiplier: Float[Array, "K"]  # of the steps' own problems, a moving mean; with method=lagrangian by dual ascent


class Round(NamedTuple):
    """What all steps of a round have in common."""

    problem: Problem
    critic: CriticState
    rollout: RolloutBatch | None  # what was done in this round; None if only the critics are asked
    trust: Float[Array, "J"]  # how much of what the critics expect of actions is measured
    tau: Float[Array, ""]
    delta: Float[Array, ""]  # trust region of one update
    lr: Float[Array, ""]  # of steps on advantages
    multiplier: Float[Array, "K"]


class StepReport(NamedTuple):
    """What the step of a kind did."""

    kind: Int[Array, ""]
    info: UpdateInfo
    snr: Float[Array, "2 J"]  # signal fraction of the gradients, through the mode and through the parameters


def start(problem: Problem, actors: Any) -> PolicyState:
    tracker = cost_tracking.start(problem.spec.num_constraints)
    opt = jax.vmap(lambda actor: ADVANTAGE_ADAM.init(ravel_pytree(actor)[0]))(actors)
    return PolicyState(actors, opt, tracker, jnp.zeros(problem.spec.num_constraints))


def learn(
    problem: Problem, state: PolicyState, critic: CriticState, data: Data, key: Any, fraction: Any, rounds: Any
) -> tuple[PolicyState, Metrics]:
    """Lines 10-15 of Algorithm 1: U passes over the kinds of agents."""
    config, spec, roll, count = problem.config, problem.spec, data.rollout, problem.kinds.count
    smooth = config.safety.smooth
    rollout, trust, measures = rollout_batch(problem, state.actors, critic, roll)
    cost = jnp.mean(roll.cost, axis=(0, 1))
    if config.as_printed:
        cost = critic_cost_estimate(problem, state.actors, critic, roll)
    tracker, calibration = cost_tracking.measure(smooth, state.tracker, cost)
    limits = cost_tracking.training_limits(config.safety, spec)
    excess = tracker.cost - limits
    budget = cost_tracking.round_budget(config, excess, calibration, tracker.drift)
    multiplier = state.multiplier
    if config.safety.method == "lagrangian":
        multiplier = cost_tracking.raise_multiplier(spec, multiplier, excess)
    tau = temperature(config, fraction, rounds)
    delta = trust_region(config, fraction) / config.step.updates
    lr = config.step.advantage_lr * delta / (config.step.trust_region / config.step.updates)
    price = multiplier
    if rollout is not None:
        spread = jnp.std(rollout.advantage, axis=0)
        price = jnp.minimum(multiplier, DEAREST * spread[0] / jnp.maximum(spread[1:], 1e-6))
    common = Round(problem, critic, rollout, trust, tau, delta, lr, price)

    def one_pass(carry: Any, at: Any) -> Any:
        first, pass_key = at
        batch_key, order_key, inner_key = jax.random.split(pass_key, 3)
        order = jnp.arange(count)
        if config.step.agent_order == "random" and not config.as_printed:
            order = jax.random.permutation(order_key, order)
        before, left = carry[0], (budget - carry[2]) / count

        def one_kind(carry: Any, kind: Int[Array, ""]) -> Any:
            actors, opts, spent = carry
            opt = jax.tree.map(lambda x: x[kind], opts)
            members = member_batches(problem, data, kind, batch_key)
            own_key = jax.random.fold_in(inner_key, kind)
            if config.step.agent_order == "simultaneous":
                new, opt, report = kind_step(common, members, kind, own_key, before, opt, left, first)
            else:
                allowed = budget if config.as_printed else budget - spent
                new, opt, report = kind_step(common, members, kind, own_key, actors, opt, allowed, first)
            moved = _replaced(actors, kind, new), _replaced(opts, kind, opt)
            return (*moved, spent + report.info.change[1:]), report

        return jax.lax.scan(one_kind, carry, order)

    begin = (state.actors, state.opt, jnp.zeros(spec.num_constraints))
    passes = (problem.source != "score") * config.step.updates + (rollout is not None)
    first = (jnp.arange(passes) == 0) & (rollout is not None)
    (actors, opt, spent), report = jax.lax.scan(one_pass, begin, (first, jax.random.split(key, passes)))
    metrics = measures | _measures(problem, roll, report)
    granted = jnp.where(budget < 0, jnp.sum(jnp.minimum(report.info.granted, 0.0), axis=(0, 1)), budget)
    metrics |= {
        "budget_asked": PerCost(budget),
        "budget_granted": PerCost(granted),
        "budget_spent": PerCost(spent),
        "calibration": PerCost(calibration),
        "drift": PerCost(tracker.drift),
        "temperature": tau,
    }
    if spec.action.num_params:
        metrics["log_std"] = jnp.mean(actors["log_std"])
    if config.safety.method == "lyapunov":
        last = jnp.mean(report.info.multiplier[-1], axis=0)
        multiplier = multiplier + 0.2 * (jnp.where(jnp.isfinite(last), last, 0.0) - multiplier)
    metrics["multiplier"] = PerCost(multiplier)
    return PolicyState(actors, opt, cost_tracking.predict(smooth, tracker, spent, limits), multiplier), metrics


def _replaced(actors: Any, kind: Int[Array, ""], new: Any) -> Any:
    return jax.tree.map(lambda full, one: full.at[kind].set(one), actors, new)


def kind_step(
    common: Round,
    members: Members,
    kind: Int[Array, ""],
    key: Any,
    actors: Any,
    opt: Any,
    budget: Float[Array, "K"],
    first: Bool[Array, ""],
) -> tuple[Any, Any, StepReport]:
    """Lines 11-14: the constrained step of one kind, given what the kinds before it have become."""
    problem, step = common.problem, common.problem.config.step
    used = jnp.asarray(problem.spec.action.used)[members.agent[0]]
    rows, weight = own_rows(problem, members)
    theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[kind], actors))
    old, parts = unravel(theta), (problem, common.critic, common.tau)

    def of_member(*member: Any) -> Float[Array, "2 2 J D"]:
        return pathwise_gradients(*parts, actors, theta, unravel, *member)

    def change_among(others: Any, new: Any) -> Float[Array, "J"]:
        """Of all members' surrogates, each moved alone among `others`."""
        return members.size * _sum(lambda *member: pathwise_change(*parts, others, old, new, *member), members, weight)

    halves = members.size * _sum(of_member, members, weight)  # gradients of two halves of the batch
    fisher, precondition = _metric(common, rows, key, theta, unravel, used)
    filtered, snr = shrink_to_signal(halves)
    gradients = filtered if step.filter else jnp.sum(halves, axis=(0, 1))
    wish = measured = None
    rollout = common.rollout
    if rollout is not None:  # the first pass is the advantages'

        def advantage_step() -> tuple[Array, Any]:
            return score(
                problem, rollout, members.agent, members.share, key, actors, theta, unravel, opt, common.lr,
                common.multiplier,
            )  # fmt: skip

        direction, opt = jax.lax.cond(first, advantage_step, lambda: (jnp.zeros_like(theta), opt))
        climb = fisher(direction) + step.damping * direction  # whose natural gradient is the step that is wished for
        gradients = gradients.at[0].set(jnp.where(first, climb, gradients[0]))
        wish = first, direction
        measured = measured_change(problem, rollout, members.agent, members.share, actors, theta, unravel)
        costs = members.size * jax.jacrev(measured)(theta)
        gradients = gradients.at[1:].set(_mixed(common, gradients[1:], costs))

    def surrogates(t: Float[Array, "D"]) -> Float[Array, "J"]:
        """The true change of all surrogates, which the line search checks. Each member's change among the others as
        they are, and among those who have moved as well: the mean of the two is the joint change, interactions of
        pairs included."""
        new = unravel(t)
        changes = change_among(actors, new)
        if len(members.agent) > 1:
            changes = 0.5 * (changes + change_among(_replaced(actors, kind, new), new))
        changes = changes.at[0].set(jnp.where(first, 1e-6, changes[0]))  # clipped steps are their own judge
        if measured is not None:
            changes = changes.at[1:].set(_mixed(common, changes[1:], members.size * measured(t)))
        return _lagrangian(common, changes)

    new, info = constrained_update(
        _rule(common, first), theta, _lagrangian(common, gradients), surrogates, fisher,
        lambda t: actor_apply(unravel(t), rows.obs, rows.base_offset), rows.mode_mask, used, rows.weight, budget,
        precondition, wish,
    )  # fmt: skip
    return unravel(new), opt, StepReport(kind, info, snr)


def _mixed(common: Round, expected: Float[Array, "K *D"], measured: Float[Array, "K *D"]) -> Float[Array, "K *D"]:
    """What the critics say of the costs, as far as it came true; the rest is what was measured."""
    trust = common.trust[1:].reshape(-1, *(1,) * (expected.ndim - 1))
    return trust * expected + (1.0 - trust) * measured


def own_rows(problem: Problem, members: Members) -> tuple[Seen, Float[Array, "m B"]]:
    """What the members' actor sees, one row for each state and member, members taking turns; and the rows' weights by
    member. The dead have none."""

    def one(batch: PolicyBatch, agent: Int[Array, ""], share: Float[Array, ""]) -> Seen:
        weight = share * batch.weight * batch.alive[:, agent]
        obs, base = own_view(problem.kinds, batch, agent)
        return Seen(obs, batch.mode_mask[:, agent], base, weight)

    seen = jax.vmap(one, out_axes=1)(members.batch, members.agent, members.share)
    total = jnp.maximum(jnp.sum(seen.weight), 1e-8)
    seen = seen._replace(weight=seen.weight / total)
    rows = jax.tree.map(lambda x: x.reshape(seen.weight.size, *x.shape[2:]), seen)
    return rows, seen.weight.T


def _sum(of_member: Any, members: Members, weight: Float[Array, "m B"]) -> Any:
    """Sum over the members of a function of (batch, agent, rows' weights)."""
    if len(members.agent) == 1:
        return of_member(*jax.tree.map(lambda x: x[0], (members.batch, members.agent, weight)))
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.vmap(of_member)(members.batch, members.agent, weight))


def _rule(common: Round, first: Bool[Array, ""]) -> UpdateRule:
    config = common.problem.config
    step, recovery = config.step, config.safety.recovery
    rule = UpdateRule(common.delta, step.cg_steps, step.damping, step.backtracks, recovery=recovery)
    if config.as_printed:
        rule = rule._replace(demands="none", divergence="new-old", recovery="none" if recovery == "none" else "paper")
    if common.rollout is not None:
        rule = rule._replace(own_length=first, reach=jnp.where(first, jnp.inf, common.trust[0]))
    return rule._replace(slack=float("inf")) if step.metric == "euclidean" else rule


def _metric(
    common: Round, rows: Seen, key: Any, theta: Float[Array, "D"], unravel: Any, used: Bool[Array, "M P"]
) -> tuple[Any, Any]:
    """Multiplication with the metric of the trust region, the Fisher matrix, and with about its inverse (K-FAC)."""
    step = common.problem.config.step
    if step.metric == "euclidean":
        stretch = 2.0 * common.delta / STEP_LENGTH**2
        return (lambda v: stretch * v), (lambda v: v)
    few = jax.tree.map(lambda x: x[: step.fisher_batch], rows)
    few = few._replace(weight=few.weight / jnp.maximum(jnp.sum(few.weight), 1e-8))

    def dist(t: Float[Array, "D"]) -> HybridDist:
        return actor_by_parts(unravel(t), few.obs, few.base_offset)

    product = fisher_product(dist, theta, few.mode_mask, used, few.weight)
    if not step.precondition:
        return product, lambda v: v
    _, key = jax.random.split(key)
    inverse = kronecker_inverse(key, unravel(theta), few, used, step.damping)
    return product, lambda v: ravel_pytree(inverse(unravel(v)))[0]


def _lagrangian(common: Round, rows: Float[Array, "J *D"]) -> Float[Array, "J *D"]:
    """With Lagrange multipliers, the objective pays for the costs."""
    if common.problem.config.safety.method != "lagrangian":
        return rows
    return rows.at[0].add(-jnp.tensordot(common.multiplier, rows[1:], axes=1))


def _measures(problem: Problem, roll: Transition, report: StepReport) -> Metrics:
    info, kinds = report.info, problem.kinds
    kl = jnp.zeros(kinds.count).at[report.kind].add(info.kl)
    edge = jnp.abs(encode_params(problem.spec.action, *roll.action)) > 0.98
    mode, params = jnp.mean(report.snr, axis=(0, 1))
    return {
        "kl": jnp.mean(kl),
        **({f"kl/{'agent' if kinds.separate else 'kind'}{i}": x for i, x in enumerate(kl)} if len(kl) > 1 else {}),
        "trust_region": jnp.mean(info.kind == TRUST_REGION, dtype=jnp.float32),
        "recovery": jnp.mean(info.kind == RECOVERY, dtype=jnp.float32),
        "rejected": jnp.mean(info.kind == REJECTED, dtype=jnp.float32),
        "granted_fraction": jnp.mean(info.granted_fraction),
        "surrogate_gain": jnp.sum(info.change[..., 0]),
        "step_fraction": jnp.mean(info.fraction),
        "grad_snr/mode": PerSignal(mode),
        "grad_snr/params": PerSignal(params),
        "saturation": jnp.sum(jnp.any(edge, axis=-1) & roll.alive) / jnp.maximum(jnp.sum(roll.alive), 1),
    }
