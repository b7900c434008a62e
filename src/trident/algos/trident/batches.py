"""The rows that a policy is improved on: replayed states for pathwise surrogates, the round's own data for scores."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trident import physics_value
from trident import replay as replays
from trident.algos.common.actor import act, base_offset
from trident.algos.common.central_critic import CriticInput
from trident.algos.common.inputs import encode_action
from trident.algos.trident import critics as pirc
from trident.algos.trident.config import StepConfig
from trident.algos.trident.critics import CriticState
from trident.algos.trident.problem import Problem
from trident.algos.trident.surrogate import PolicyBatch, RolloutBatch
from trident.maths.returns import explained_variance, gae
from trident.maths.spread import over_devices
from trident.types import Data, HybridAction, Metrics, PerSignal, Transition, View

MAX_BOOST = 20.0
"""No state is drawn more often than this multiple of the others."""


MAX_MEMBERS = 8
"""Members of a kind whose rows one step is made of; of larger kinds so many are drawn for each step."""


class Members(NamedTuple):
    """Members of a kind, with states in which to improve each of them."""

    agent: Int[Array, "m"]
    share: Float[Array, "m"]  # of each in the kind's mean; a member that stands here twice has half of it each time
    size: Float[Array, ""]  # how many the kind has
    batch: PolicyBatch  # [m, ...]


def member_batches(problem: Problem, data: Data, kind: Any, key: Any) -> Members:
    """The rows of a kind's step, spread over its members."""
    kinds = problem.kinds
    agent = jnp.asarray(kinds.members)[kind]
    if len(agent) == 1:
        one = policy_batch(problem, data, agent[0], jax.random.fold_in(key, kind))
        return Members(agent, jnp.ones(1), jnp.ones(()), jax.tree.map(lambda x: x[None], one))
    pick_key, batch_key = jax.random.split(jax.random.fold_in(key, kind))
    if len(agent) > MAX_MEMBERS:
        agent = jax.random.permutation(pick_key, agent)[:MAX_MEMBERS]
    share = 1.0 / jnp.sum(agent[:, None] == agent, axis=-1)
    keys = jax.random.split(batch_key, len(agent))
    batch = jax.vmap(lambda a, k: policy_batch(problem, data, a, k, len(agent)))(agent, keys)
    size = jnp.asarray(kinds.sizes, jnp.float32)[kind]
    return Members(agent, share / jnp.sum(share), size, batch)


def policy_batch(problem: Problem, data: Data, agent: Any, key: Any, members: int = 1) -> PolicyBatch:
    """Replayed states in which to improve one agent, each twice, with fresh and opposite (antithetic) noise.

    With one draw each, a network that can tell the states apart moves against (or along) every single draw: that
    lowers the costs of the batch and of nothing else. Opposite draws leave only what holds for both.
    """
    step = problem.config.step
    row_key, gumbel_key, noise_key = jax.random.split(key, 3)
    count = 2 * max(step.policy_batch // (4 * members), 1)  # even: each half of the batch has both draws of its states
    rows, weight = replays.sample_by_weight(data.replay, row_key, count, violation_weights(step, data, agent))
    noise = jax.random.normal(noise_key, (*rows.alive.shape, problem.spec.action.num_params))

    def twice(x: Array) -> Array:
        return jnp.concatenate([x, x])

    state, obs, mask, alive, weight = map(twice, (rows.state, rows.obs, rows.mode_mask, rows.alive, 0.5 * weight))
    gumbel, base = jax.random.gumbel(gumbel_key, mask.shape), base_offset(problem.base_policy, rows.obs)
    return PolicyBatch(
        state, obs, mask, alive, weight, gumbel, jnp.concatenate([noise, -noise]), jax.tree.map(twice, base)
    )


def violation_weights(step: StepConfig, data: Data, agent: Any) -> Float[Array, "C"]:
    """Weights with which states are drawn: 1, and more where the agent had a part in some cost, so that those make up
    `violation_fraction` of a batch (within MAX_BOOST)."""
    rows = data.replay.data
    lead = rows.cost.shape[:-1]
    written = jnp.arange(math.prod(lead)) < data.replay.size
    everywhere = (slice(None),) * len(lead)
    at_fault = rows.cost > 0 if rows.cost_attribution is None else rows.cost_attribution[*everywhere, agent]
    violated = replays.in_order(data.replay, jnp.any(at_fault, axis=-1)) & written
    bad, all_ = jnp.sum(violated), jnp.maximum(jnp.sum(written), 1)
    odds = step.violation_fraction / (1.0 - step.violation_fraction)
    boost = jnp.clip(odds * (all_ - bad) / jnp.maximum(bad, 1), 1.0, MAX_BOOST)
    return jnp.where(violated, boost, 1.0)


def rollout_batch(
    problem: Problem, actors: Any, critic: CriticState, roll: Transition
) -> tuple[RolloutBatch | None, Float[Array, "J"], Metrics]:
    """What was done in this round with the advantages of the reward and the costs, GAE upon the critics (None if only
    the critics are asked); and how much of what the critics expected of it came true."""
    config = problem.config
    if problem.source in ("pathwise", "closed-form"):
        return None, jnp.ones(problem.num_signals), {}
    roll = pirc.shaped(problem, roll)

    def flat(x: Array) -> Array:
        return over_devices(x.reshape(roll.reward.size, *x.shape[2:]))

    known = roll.extras[pirc.KNOWN]
    before = (roll.state, roll.view, known.parts.current)
    after = (roll.next_state, roll.next_view, known.next_current)
    ends = jax.tree.map(lambda a, b: jnp.stack([flat(a), flat(b)]), before, after)  # through one compiled body

    def value(end: Any) -> Float[Array, "B J"]:
        state, view, current = end
        return _values(problem, critic, state, view, current, mode_action(problem, actors, view))

    values = jax.lax.map(value, ends)
    here, there = values.reshape(2, *roll.reward.shape, -1)
    ended = roll.terminated | roll.truncated

    def of_signal(signal: Array, now: Array, following: Array, discount: Array) -> Array:
        return gae(signal, now, following, roll.terminated, ended, discount, config.step.gae_lambda)

    advantage = jax.vmap(of_signal, in_axes=(-1, -1, -1, 0), out_axes=-1)(roll.signals, here, there, problem.discounts)
    mode, raw, log_prob = roll.action.mode, roll.extras["raw"], roll.extras["log_prob"]
    obs, mask, alive, mode, raw, log_prob = map(flat, (roll.obs, roll.mode_mask, roll.alive, mode, raw, log_prob))
    base = base_offset(problem.base_policy, obs)
    measured = flat(advantage)
    batch = RolloutBatch(obs, mask, alive, mode, raw, log_prob, measured - jnp.mean(measured, axis=0), base)
    told = jax.vmap(explained_variance, in_axes=-1)(values[0], values[0] + measured)
    metrics = {"return_explained": PerSignal(told)}
    if problem.source == "score":
        return batch, jnp.zeros(problem.num_signals), metrics
    done = _values(problem, critic, *jax.tree.map(flat, (*before, roll.executed)))
    trust = jax.vmap(realised_fraction, in_axes=-1)(done - values[0], measured)
    return batch, trust, metrics | {"realised_advantage": PerSignal(trust)}


def realised_fraction(expected: Float[Array, "B"], measured: Float[Array, "B"]) -> Float[Array, ""]:
    """How much of the advantages that the critics expect of actions is measured, in [0, 1]: the coefficient of a
    regression of the measured ones on theirs. The noise of what is measured does not lower it (as it does a
    correlation), errors of the critics do."""
    expected, measured = expected - jnp.mean(expected), measured - jnp.mean(measured)
    return jnp.clip(jnp.vdot(expected, measured) / jnp.maximum(jnp.vdot(expected, expected), 1e-8), 0.0, 1.0)


def critic_cost_estimate(problem: Problem, actors: Any, critic: CriticState, roll: Transition) -> Float[Array, "K"]:
    """(1 - gamma) V_c(s0), over the states in which episodes begin (over all, if none does in this round)."""
    start = (roll.state, roll.view, roll.extras[pirc.KNOWN].parts.current)
    state, view, current = jax.tree.map(lambda x: x.reshape(roll.reward.size, *x.shape[2:]), start)
    values = _values(problem, critic, state, view, current, mode_action(problem, actors, view))
    cost = ((1.0 - problem.discounts) * values)[:, 1:]
    first = jnp.concatenate([jnp.zeros_like(roll.terminated[:1]), (roll.terminated | roll.truncated)[:-1]]).reshape(-1)
    weight = jnp.where(first.any(), first, True)
    return weight @ cost / jnp.sum(weight)


def mode_action(problem: Problem, actors: Any, view: View) -> HybridAction:
    """The policy's mode, its deterministic action: a baseline without the noise of a drawn one."""
    return jax.vmap(lambda v: act(actors, problem.spec.action, v, None, True, problem.base_policy, problem.kinds)[0])(
        view
    )


def _values(
    problem: Problem,
    critic: CriticState,
    state: Float[Array, "B S"],
    view: View,
    current: Float[Array, "B J"],
    action: HybridAction,
) -> Float[Array, "B J"]:
    """Q of an action; `current` is what no action changes of the closed form, and is known of every transition."""
    parts = physics_value.physics_parts(problem.closed_form, problem.num_signals, state, action, current=False)
    parts = parts._replace(current=current)
    x = CriticInput(state, view.obs, encode_action(problem.spec.action, *action))
    closed_form = physics_value.q_phys(critic.fit, parts, problem.discounts)
    return closed_form + critic.fit.unit * pirc.residual(pirc.bodies(problem), critic.critics, x)
