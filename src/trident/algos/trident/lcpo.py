"""LCPO: agents improve one after another, each by a trust-region step under the round's cost budgets.

    J_k      measured cost rate of the last rounds (the critics give gradients only)
    budget_k = alpha (d_k - J_k - xi_k)     what all agents and passes together may add to surrogate cost k, or, while
                                            J_k is too high, must take off it; one budget per round
    agent i  theta_i <- argmax L_0 subject to L_k <= what is left of budget_k, KL <= delta    (maths.trust_region)

L_j are the surrogates of `surrogate`, each agent's evaluated with the agents before it already updated. Two
things keep prediction and outcome together: states in which limits were violated are rare, and are looked at more
often than they occur (`batches`); and how far past predictions came true is measured, and the demand raised
accordingly (`cost_tracking`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from trident.algos.common.actor import actor_by_parts
from trident.algos.common.kfac import Seen, kronecker_inverse
from trident.algos.trident import cost_tracking
from trident.algos.trident.batches import critic_cost_estimate, policy_batch, rollout_batch
from trident.algos.trident.critics import CriticState
from trident.algos.trident.problem import Problem, temperature, trust_region
from trident.algos.trident.surrogate import PolicyBatch, RolloutBatch, pathwise, policy, score
from trident.maths.fisher import fisher_product
from trident.maths.gradient_filter import shrink_to_signal
from trident.maths.trust_region import RECOVERY, REJECTED, TRUST_REGION, UpdateInfo, UpdateRule, constrained_update
from trident.types import Data, Metrics, PerCost, PerSignal, Transition, encode_params

STEP_LENGTH = 0.03
"""Length of a step whose size is not measured by the KL (metric=euclidean)."""


class PolicyState(NamedTuple):
    actors: Any  # stacked over agents
    tracker: cost_tracking.CostTracker
    multiplier: Float[Array, "K"]  # of safety.method=lagrangian


class Round(NamedTuple):
    """What all agents' steps of a round have in common."""

    problem: Problem
    critic: CriticState
    rollout: RolloutBatch | None  # what was done in this round; None if only the critics are asked
    critic_weight: Float[Array, ""] | float  # of the critics' gradients beside the advantages
    tau: Float[Array, ""]
    delta: Float[Array, ""]  # trust region of one update
    multiplier: Float[Array, "K"]


class AgentReport(NamedTuple):
    """What one agent's step did."""

    agent: Int[Array, ""]
    info: UpdateInfo
    snr: Float[Array, "2 J"]  # signal fraction of the gradients, through the mode and through the parameters


def start(problem: Problem, actors: Any) -> PolicyState:
    tracker = cost_tracking.start(problem.spec.num_constraints)
    return PolicyState(actors, tracker, jnp.zeros(problem.spec.num_constraints))


def learn(
    problem: Problem, state: PolicyState, critic: CriticState, data: Data, key: Any, fraction: Any, rounds: Any
) -> tuple[PolicyState, Metrics]:
    """Lines 10-15 of Algorithm 1: U passes over the agents."""
    config, spec, roll = problem.config, problem.spec, data.rollout
    smooth = config.safety.smooth
    rollout, critic_weight = rollout_batch(problem, state.actors, critic, roll)
    cost = jnp.mean(roll.cost, axis=(0, 1))
    if config.as_printed:
        cost = critic_cost_estimate(problem, state.actors, critic, roll)
    tracker, calibration = cost_tracking.measure(smooth, state.tracker, cost)
    excess = tracker.cost - cost_tracking.training_limits(config.safety, spec)
    budget = cost_tracking.round_budget(config, excess, calibration)
    multiplier = cost_tracking.raise_multiplier(spec, state.multiplier, excess)
    tau = temperature(config, fraction, rounds)
    delta = trust_region(config, fraction) / config.step.updates
    common = Round(problem, critic, rollout, critic_weight, tau, delta, multiplier)

    def one_pass(carry: Any, pass_key: Any) -> Any:
        batch_key, order_key, inner_key = jax.random.split(pass_key, 3)
        order = jnp.arange(spec.num_agents)
        if config.step.agent_order == "random" and not config.as_printed:
            order = jax.random.permutation(order_key, order)
        before, left = carry[0], (budget - carry[1]) / spec.num_agents

        def one_agent(carry: Any, agent: Int[Array, ""]) -> Any:
            actors, spent = carry
            batch = policy_batch(problem, data, agent, jax.random.fold_in(batch_key, agent))
            own_key = jax.random.fold_in(inner_key, agent)
            if config.step.agent_order == "simultaneous":
                new, report = agent_step(common, batch, agent, own_key, before, left)
            else:
                allowed = budget if config.as_printed else budget - spent
                new, report = agent_step(common, batch, agent, own_key, actors, allowed)
            actors = jax.tree.map(lambda full, one: full.at[agent].set(one), actors, new)
            return (actors, spent + report.info.change[1:]), report

        return jax.lax.scan(one_agent, carry, order)

    begin = (state.actors, jnp.zeros(spec.num_constraints))
    (actors, spent), report = jax.lax.scan(one_pass, begin, jax.random.split(key, config.step.updates))
    metrics = _measures(problem, roll, report)
    granted = jnp.where(budget < 0, jnp.sum(jnp.minimum(report.info.granted, 0.0), axis=(0, 1)), budget)
    metrics |= {
        "budget_asked": PerCost(budget),
        "budget_granted": PerCost(granted),
        "budget_spent": PerCost(spent),
        "calibration": PerCost(calibration),
        "temperature": tau,
    }
    if spec.action.num_params:
        metrics["log_std"] = jnp.mean(actors["log_std"])
    if problem.source == "weighed":
        metrics["critic_grad_weight"] = critic_weight
    if config.safety.method == "lagrangian":
        metrics["multiplier"] = PerCost(multiplier)
    return PolicyState(actors, cost_tracking.predict(smooth, tracker, spent), multiplier), metrics


def agent_step(
    common: Round, batch: PolicyBatch, agent: Int[Array, ""], key: Any, actors: Any, budget: Float[Array, "K"]
) -> tuple[Any, AgentReport]:
    """Lines 11-14: one agent's constrained step, given what the agents before it have become."""
    problem, step = common.problem, common.problem.config.step
    used = jnp.asarray(problem.spec.action.used)[agent]
    mask, weight = batch.mode_mask[:, agent], batch.weight * batch.alive[:, agent]
    weight = weight / jnp.maximum(jnp.sum(weight), 1e-8)
    theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[agent], actors))

    halves, critic_change = pathwise(
        problem, common.critic, common.tau, batch, agent, actors, theta, unravel, weight
    )  # gradients of two halves of the batch
    direction, score_change = score(problem, common.rollout, agent, key, actors, theta, unravel)
    fisher, precondition = _metric(common, batch, agent, key, theta, unravel, mask, used, weight)
    filtered, snr = shrink_to_signal(halves)
    gradients = filtered if step.filter else jnp.sum(halves, axis=(0, 1))
    if direction is not None:  # as long as the critics' gradient, so that a multiplier means the same for both
        rise = fisher(direction)
        rise *= jnp.linalg.norm(gradients[0]) / jnp.maximum(jnp.linalg.norm(rise), 1e-10)
        own = 0.0 if step.source == "score" else common.critic_weight * gradients[0]
        gradients = gradients.at[0].set(own + rise)

    def surrogates(new: Float[Array, "D"]) -> Float[Array, "J"]:
        """The true change of all surrogates, which the line search checks."""
        changes = critic_change(new)
        if step.source == "score":
            changes = changes.at[0].set(score_change(new))
        if step.source in ("both", "weighed"):
            changes = changes.at[0].multiply(common.critic_weight).at[0].add(score_change(new))
        return _lagrangian(common, changes)

    new, info = constrained_update(
        _rule(common), theta, _lagrangian(common, gradients), surrogates, fisher,
        lambda t: policy(unravel(t), batch, agent), mask, used, weight, budget, precondition,
    )  # fmt: skip
    return unravel(new), AgentReport(agent, info, snr)


def _rule(common: Round) -> UpdateRule:
    config = common.problem.config
    step, recovery = config.step, config.safety.recovery
    rule = UpdateRule(common.delta, step.cg_steps, step.damping, step.backtracks, recovery=recovery)
    if config.as_printed:
        rule = rule._replace(demands="none", divergence="new-old", recovery="none" if recovery == "none" else "paper")
    return rule._replace(slack=float("inf")) if step.metric == "euclidean" else rule


def _metric(
    common: Round,
    batch: PolicyBatch,
    agent: Int[Array, ""],
    key: Any,
    theta: Float[Array, "D"],
    unravel: Any,
    mask: Bool[Array, "B M"],
    used: Bool[Array, "M P"],
    weight: Float[Array, "B"],
) -> tuple[Any, Any]:
    """Multiplication with the metric of the trust region, the Fisher matrix, and with about its inverse (K-FAC)."""
    step = common.problem.config.step
    if step.metric == "euclidean":
        stretch = 2.0 * common.delta / STEP_LENGTH**2
        return (lambda v: stretch * v), (lambda v: v)
    few = slice(0, step.fisher_batch)
    mask, weight = mask[few], weight[few] / jnp.maximum(jnp.sum(weight[few]), 1e-8)
    obs, base = jax.tree.map(lambda x: x[few, agent], (batch.obs, batch.base_offset))
    product = fisher_product(lambda t: actor_by_parts(unravel(t), obs, base), theta, mask, used, weight)
    if not step.precondition:
        return product, lambda v: v
    _, key = jax.random.split(key)
    inverse = kronecker_inverse(key, unravel(theta), Seen(obs, mask, base, weight), used, step.damping)
    return product, lambda v: ravel_pytree(inverse(unravel(v)))[0]


def _lagrangian(common: Round, rows: Float[Array, "J *D"]) -> Float[Array, "J *D"]:
    """With Lagrange multipliers, the objective pays for the costs."""
    if common.problem.config.safety.method != "lagrangian":
        return rows
    return rows.at[0].add(-jnp.tensordot(common.multiplier, rows[1:], axes=1))


def _measures(problem: Problem, roll: Transition, report: AgentReport) -> Metrics:
    info, agents = report.info, problem.spec.num_agents
    kl = jnp.zeros(agents).at[report.agent].add(info.kl)
    edge = jnp.abs(encode_params(problem.spec.action, *roll.action)) > 0.98
    mode, params = jnp.mean(report.snr, axis=(0, 1))
    return {
        "kl": jnp.mean(kl),
        **{f"kl/agent{i}": kl[i] for i in range(agents)},
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
