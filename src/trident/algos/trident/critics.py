"""PIRC: critics that are a frozen closed-form physics value plus a learned residual, for the reward and every cost.

    Q_j(s, a) = Q_phys,j(s, a) + u_j Q_res,j(s, a),           j = 0 (reward), 1..K (costs)

`trident.physics_value` has Q_phys and its few weights, which are fitted in the first rounds and then frozen. u_j is the
spread of the returns, so that the networks regress numbers of order one. One-step TD on the sum, target networks,
replay.

The residual reads the state, what every agent sees and what every agent does; where that leads is left to the closed
form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from trident import replay as replays
from trident.algos.common.actor import act
from trident.algos.common.central_critic import CentralCritic, CriticInput, central_critic
from trident.algos.common.inputs import encode_action
from trident.algos.trident.problem import Problem
from trident.maths.returns import explained_variance
from trident.physics_value import (
    Discount,
    FitSums,
    Parts,
    PhysicsFit,
    current_signals,
    fit_physics,
    fit_sums,
    persistence_sums,
    physics_parts,
    q_phys,
    r2_phys,
    spread,
)
from trident.types import ActionSpec, Data, Expectation, HybridAction, Metrics, Moments, PerSignal, Transition, View


class Critics(NamedTuple):
    reward: Any
    cost: Any  # stacked over K; None without constraints


class Bodies(NamedTuple):
    """What the networks of the reward and of the costs are."""

    reward: CentralCritic
    cost: CentralCritic


def bodies(problem: Problem) -> Bodies:
    config, action = problem.config.critic, problem.spec.action
    width = action.num_modes + action.num_params
    return Bodies(
        *(central_critic(problem.spec, config.body, h, width) for h in (config.reward_hidden, config.cost_hidden))
    )


class CriticBatch(NamedTuple):
    """Rows for TD: inputs, physics values and signals; everything but the target networks' output."""

    x: CriticInput
    q_phys: Float[Array, "*batch J"]
    signals: Float[Array, "*batch J"]
    next_x: CriticInput
    next_q_phys: Float[Array, "*batch J"]
    terminated: Bool[Array, "*batch"]


def init(key: Any, nets: Bodies, num_constraints: int) -> Critics:
    """The last layers start at 1 % scale: the first critic is the physics."""
    reward_key, cost_key = jax.random.split(key)
    cost = jax.vmap(nets.cost.init)(jax.random.split(cost_key, max(num_constraints, 1)))
    return Critics(nets.reward.init(reward_key), cost if num_constraints else None)


def residual(nets: Bodies, critics: Critics, x: CriticInput) -> Float[Array, "*batch J"]:
    """Q_res / u for the reward and all costs."""
    reward = nets.reward.apply(critics.reward, x)
    if critics.cost is None:
        return reward
    cost = jax.vmap(nets.cost.apply, in_axes=(0, None), out_axes=-1)(critics.cost, x)[..., 0, :]
    return jnp.concatenate([reward, cost], axis=-1)


def expect(problem: Problem, state: CriticState, moments: Moments) -> Expectation:
    """Of the closed form alone, and with what is learned on top."""
    parts = physics_parts(problem.closed_form, problem.num_signals, moments.state, moments.action)
    physics = q_phys(state.fit, parts, problem.discounts)
    x = CriticInput(moments.state, moments.obs, encode_action(problem.spec.action, *moments.action))
    values = {"closed form": physics, "critics": physics + state.fit.unit * residual(bodies(problem), state.critics, x)}
    return Expectation(values, problem.discounts)


# --- learning -------------------------------------------------------------------------------------


def td_targets(
    nets: Bodies, target: Critics, fit: PhysicsFit, batch: CriticBatch, discount: Discount
) -> Float[Array, "*batch J"]:
    """y = signal + gamma (1 - terminated) (Q_phys(s', a') + u Q_res'(s', a'))."""
    following = batch.next_q_phys + fit.unit * residual(nets, target, batch.next_x)
    return batch.signals + discount * jnp.where(batch.terminated[..., None], 0.0, following)


def td_step(
    nets: Bodies, critics: Critics, target: Critics, opt: Any, adam: Any, fit: PhysicsFit, batch: CriticBatch,
    discount: Discount, rate: float,
) -> tuple[Critics, Critics, Any, dict[str, PerSignal]]:  # fmt: skip
    """One minibatch: mean squared TD error of the sum, in units u; then the target networks follow at `rate`."""
    y = td_targets(nets, target, fit, batch, discount)
    goal = jax.lax.stop_gradient((y - batch.q_phys) / fit.unit)

    def loss(c: Critics) -> tuple[Any, Any]:
        error = residual(nets, c, batch.x) - goal
        return jnp.mean(jnp.sum(error**2, axis=-1)), error

    grads, error = jax.grad(loss, has_aux=True)(critics)
    measures = {
        "critic_loss": PerSignal(jnp.mean(error**2, axis=0)),
        "explained_variance": PerSignal(explained_variance(y - fit.unit * error, y, axis=0)),
    }
    updates, opt = adam.update(grads, opt, critics)
    critics = jax.tree.map(jnp.add, critics, updates)
    target = jax.tree.map(lambda t, c: t + rate * (c - t), target, critics)
    return critics, target, opt, measures


FIT_ROUNDS = 8
"""The closed form's weights are fitted anew in the first rounds, then frozen: what follows an action depends on the
policy, and the first one is random."""
SHAPING = 0.5
"""Weight of the closed form in the reward of physics=additive."""
KNOWN = "closed-form"
"""The name among a transition's extras of what the closed form says of it."""


class Known(NamedTuple):
    """What the closed form says of a transition, whatever is done after it: worked out once, and kept with it."""

    parts: Parts  # of what was done
    next_current: Float[Array, "*batch J"]  # of where it ended


def annotate(problem: Problem, roll: Transition) -> dict[str, Known]:
    """Extras of a rollout [T, E, ...]."""
    lead = roll.reward.shape
    flat = lambda x: x.reshape(roll.reward.size, *x.shape[2:])  # noqa: E731
    state, action, after = jax.tree.map(flat, (roll.state, roll.executed, roll.next_state))
    parts = physics_parts(problem.closed_form, problem.num_signals, state, action)
    known = Known(parts, current_signals(problem.closed_form, problem.num_signals, after))
    return {KNOWN: jax.tree.map(lambda x: x.reshape(*lead, x.shape[-1]), known)}


def batch_of(
    rows: Transition, next_action: HybridAction, spec: ActionSpec, before: Parts, after: Parts, fit: PhysicsFit,
    discount: Discount,
) -> CriticBatch:  # fmt: skip
    """Everything of a TD minibatch that does not depend on the networks, for any number of rows [B, ...] at once, given
    the closed form of what was done and of what is done next."""
    return CriticBatch(
        x=CriticInput(rows.state, rows.obs, encode_action(spec, *rows.executed)),
        q_phys=q_phys(fit, before, discount),
        signals=rows.signals,
        next_x=CriticInput(rows.next_state, rows.next_obs, encode_action(spec, *next_action)),
        next_q_phys=q_phys(fit, after, discount),
        terminated=rows.terminated,
    )


class CriticState(NamedTuple):
    critics: Critics
    target: Critics
    opt: Any
    fit: PhysicsFit
    sums: FitSums


def start(problem: Problem, key: Any) -> CriticState:
    config, ones = problem.config, jnp.ones(problem.num_signals)
    critics = init(key, bodies(problem), problem.spec.num_constraints)
    fit = PhysicsFit(0.0 * ones, 0.0 * ones, 0.0 * ones, ones)
    sums = FitSums(jnp.zeros((ones.size, 3, 3)), jnp.zeros((ones.size, 3)), jnp.zeros((ones.size, 2)))
    return CriticState(critics, critics, optax.adam(config.critic.lr).init(critics), fit, sums)


def fit_early(problem: Problem, state: CriticState, roll: Transition, rounds: Any) -> tuple[CriticState, Metrics]:
    """The weights of the closed form come from early data and then stay."""
    discount, parts = problem.discounts, roll.extras[KNOWN].parts
    ended = roll.terminated | roll.truncated
    early = rounds < FIT_ROUNDS
    rows = jax.tree.map(lambda x: x.reshape(roll.reward.size, *x.shape[2:]), (roll.state, roll.executed))
    lasting = (
        persistence_sums(problem.closed_form, problem.num_signals, *rows) if problem.source == "closed-form" else 0.0
    )
    fresh = fit_sums(roll.signals, ended, parts, discount, lasting)
    sums = jax.tree.map(lambda old, new: old + jnp.where(early, new, 0.0), state.sums, fresh)
    unit = jnp.where(early, spread(roll.signals, ended, discount), state.fit.unit)
    fit = fit_physics(sums, unit, discount)
    if problem.config.critic.horizon == "one-step":
        nothing = jnp.zeros_like(unit)
        fit = PhysicsFit(nothing, nothing, nothing, unit)
    r2 = r2_phys(fit, roll.signals, ended, parts, discount)
    return state._replace(fit=fit, sums=sums), {
        "r2_phys": PerSignal(r2),
        "physics_next_step": PerSignal(fit.next_step),
        "physics_current": PerSignal(fit.current),
    }


def learn(
    problem: Problem, state: CriticState, data: Data, actors: Any, key: Any, rounds: Int[Array, ""]
) -> tuple[CriticState, Metrics]:
    """The closed form's weights from the rollout, then TD on replayed rows. Policy and closed form do not change
    meanwhile: what is done next is drawn and valued at once for all minibatches."""
    config, spec = problem.config, problem.spec
    state, fitted = fit_early(problem, state, data.rollout, rounds)
    row_key, act_key = jax.random.split(key)
    count = config.critic.minibatches * config.critic.batch
    rows = shaped(problem, replays.sample(data.replay, row_key, count))

    def choose_action(view: View, k: Any) -> HybridAction:
        return act(actors, spec.action, view, k, False, problem.base_policy, problem.kinds)[0]

    following = jax.vmap(choose_action)(rows.next_view, jax.random.split(act_key, count))
    known = rows.extras[KNOWN]
    after = physics_parts(problem.closed_form, problem.num_signals, rows.next_state, following, current=False)
    after = after._replace(current=known.next_current)
    batch = batch_of(rows, following, spec.action, known.parts, after, state.fit, problem.discounts)
    batches = jax.tree.map(lambda x: x.reshape(config.critic.minibatches, config.critic.batch, *x.shape[1:]), batch)
    adam, nets = optax.adam(config.critic.lr), bodies(problem)

    def step(carry: Any, minibatch: Any) -> Any:
        critics, target, opt = carry
        critics, target, opt, measures = td_step(
            nets, critics, target, opt, adam, state.fit, minibatch, problem.discounts, config.critic.target_rate
        )
        return (critics, target, opt), measures

    (critics, target, opt), measures = jax.lax.scan(step, (state.critics, state.target, state.opt), batches)
    metrics = fitted | jax.tree.map(lambda m: jnp.mean(m, axis=0), measures)
    return state._replace(critics=critics, target=target, opt=opt), metrics


def shaped(problem: Problem, rows: Transition) -> Transition:
    """With physics="additive": r + 0.5 r_phys(s, a), which moves the optimum (and is there to show that)."""
    if problem.physics is None or problem.config.critic.physics != "additive":
        return rows
    lead = rows.reward.shape
    flat = lambda x: x.reshape(rows.reward.size, *x.shape[len(lead) :])  # noqa: E731
    bonus = jax.vmap(problem.physics.signals)(flat(rows.state), jax.tree.map(flat, rows.executed))[:, 0]
    return rows._replace(reward=rows.reward + SHAPING * bonus.reshape(lead))
