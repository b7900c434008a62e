"""SHA: the surrogate of a hybrid policy, seen through the critics (pathwise), and the ratios of probabilities that a
surrogate of advantages is made of (score). For agents i of one kind G, who share the parameters theta:

    L_j(theta) = sum_{i in G} E_s[ sum_r w_r(theta) Q_j(s, (y_r(theta), x_r(theta)), a_-i) ],    j = 0..K

(w_r, y_r) are weighted relaxations of agent i's mode by a discrete-gradient estimator, x_r the squashed parameters
that go with them; the other agents act as their current policies do. All J = 1 + K surrogates share every forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from trident.algos.common.actor import BaseOffset, actor_apply, actors_apply
from trident.algos.common.central_critic import CriticInput, Slot
from trident.algos.common.kinds import Kinds, actor_input
from trident.algos.trident import critics as pirc
from trident.algos.trident.critics import Critics, CriticState
from trident.algos.trident.problem import Problem
from trident.maths import hybrid
from trident.maths.discrete_gradient import relaxations
from trident.physics_value import PhysicsFit, physics_parts, q_phys
from trident.types import ActionSpec, HybridAction, Physics, decode_params

KAPPA = 2.0
"""Ratio of the two temperatures of ratio-locked stgc."""
ADVANTAGE_ADAM = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam(eps=1e-5))
"""Without its step size."""
INNER_MINIBATCHES = 4
MOST_WEIGHT = 2.0
"""Truncation of importance weights: a few samples that have become much likelier must not speak for all."""


class PolicyBatch(NamedTuple):
    """Replayed states in which one agent's policy is improved; noise is fixed, so that old and new policy share it."""

    state: Float[Array, "B S"]
    obs: Float[Array, "B N O"]
    mode_mask: Array  # [B, N, M]
    alive: Array  # [B, N]
    weight: Float[Array, "B"]  # sums to one
    gumbel: Float[Array, "B N M"]
    noise: Float[Array, "B N P"]
    base_offset: BaseOffset | None = None  # what a base policy adds to the policies in these states


class RolloutBatch(NamedTuple):
    """What was really done in a round, how likely it was, and how well it turned out."""

    obs: Float[Array, "B N O"]
    mode_mask: Array  # [B, N, M]
    alive: Array  # [B, N]
    mode: Int[Array, "B N"]
    raw: Float[Array, "B N P"]
    log_prob: Float[Array, "B N"]
    advantage: Float[Array, "B J"]  # of the reward and of every cost, without their means
    base_offset: BaseOffset | None = None


def policies(kinds: Kinds, actors: Any, rows: PolicyBatch | RolloutBatch) -> hybrid.HybridDist:
    """Distributions of all agents, shape [B, N, ...]."""
    return actors_apply(actors, rows.obs, rows.base_offset, kinds)


def policy(kinds: Kinds, actor: Any, rows: PolicyBatch | RolloutBatch, agent: Any) -> hybrid.HybridDist:
    """Distribution of one agent."""
    return actor_apply(actor, *own_view(kinds, rows, agent))


def own_view(kinds: Kinds, rows: PolicyBatch | RolloutBatch, agent: Any) -> tuple[Array, BaseOffset | None]:
    """What an agent's actor reads, and what a base policy adds to it."""
    return jax.tree.map(lambda x: x[:, agent], (actor_input(kinds, rows.obs), rows.base_offset))


class Joint(NamedTuple):
    """What all agents do in a batch of states: their actions, and the same as the critics read them."""

    action: HybridAction
    encoded: Float[Array, "B N A"]


class Choice(NamedTuple):
    """What agent i's policy offers the critics: R weighted relaxations and the parameters of every mode."""

    weight: Float[Array, "B R"]
    sample: Float[Array, "B R M"]
    unit: Float[Array, "B M P"]


class CriticView(NamedTuple):
    """How agent i's choice is valued: closures over critics, physics and the other agents' actions."""

    value: Any  # Choice -> [B, J]
    action_grad: Any  # Choice -> ([B, J], d value_j / d Choice for every j)


def act_with_noise(spec: ActionSpec, dist: hybrid.HybridDist, batch: PolicyBatch) -> Joint:
    """The agents' sampled actions as a smooth function of their policies' parameters, given the batch's noise."""
    perturbed = jnp.where(batch.mode_mask, dist.logits + batch.gumbel, -jnp.inf)
    mode = jnp.argmax(perturbed, axis=-1)
    onehot = jax.nn.one_hot(mode, spec.num_modes)
    unit = jnp.tanh(dist.mean + jnp.exp(dist.log_std) * batch.noise[..., None, :]) * spec.used
    unit = jnp.sum(unit * onehot[..., None], axis=-2)
    return Joint(HybridAction(mode, decode_params(spec, mode, unit)), jnp.concatenate([onehot, unit], axis=-1))


def choose(
    estimator: str,
    tau: Any,
    used: Bool[Array, "M P"],
    kinds: Kinds,
    agent: Any,
    batch: PolicyBatch,
    actor: Any,
    tau0: float = 1.0,
) -> Choice:
    """Agent i's policy -> the relaxations of its mode and the parameters of each mode."""
    dist = policy(kinds, actor, batch, agent)
    unit = jnp.tanh(dist.mean + jnp.exp(dist.log_std) * batch.noise[:, agent, None, :]) * used

    def relax(logits: Array, mask: Array, gumbel: Array) -> tuple[Array, Array]:
        return relaxations(estimator, logits, mask, gumbel, tau, tau0=tau0, kappa=KAPPA)

    weight, sample = jax.vmap(relax)(dist.logits, batch.mode_mask[:, agent], batch.gumbel[:, agent])
    return Choice(weight, sample, unit)


def drifts(kinds: Kinds, used: Any, rollout: RolloutBatch, actors: Any) -> Float[Array, "B N"]:
    """log pi / pi_old of what every agent did, with the policies as they are now; 0 for the dead."""
    now = hybrid.log_prob(policies(kinds, actors, rollout), rollout.mode_mask, used, rollout.mode, rollout.raw)
    return jnp.where(rollout.alive, now - rollout.log_prob, 0.0)


def pathwise_gradients(
    problem: Problem,
    critic: CriticState,
    tau: Float[Array, ""],
    actors: Any,
    theta: Float[Array, "D"],
    unravel: Any,
    batch: PolicyBatch,
    agent: Int[Array, ""],
    weight: Float[Array, "B"],
) -> Float[Array, "2 2 J D"]:
    """Gradients of one member's surrogates: of two halves of the batch, through the mode and through the parameters."""
    name, kinds, used = problem.estimator, problem.kinds, jnp.asarray(problem.spec.action.used)[agent]
    tau0 = problem.config.actor.tau_start
    view = _view(problem, critic, actors, batch, agent)
    _, action_grads = view.action_grad(choose(name, tau, used, kinds, agent, batch, unravel(theta), tau0))

    def gradient(half: PolicyBatch, rows: Float[Array, "H"], grads: Choice) -> Float[Array, "2 J D"]:
        """Of all surrogates over half of the rows: through the mode, and through the parameters."""
        _, pull = jax.vjp(lambda t: choose(name, tau, used, kinds, agent, half, unravel(t), tau0), theta)
        grads = jax.tree.map(lambda x: x * rows.reshape(1, -1, *(1,) * (x.ndim - 2)), grads)
        zero = jax.tree.map(jnp.zeros_like, grads)
        paths = [grads._replace(unit=zero.unit), zero._replace(unit=grads.unit)]

        def one_by_one(path: Choice) -> Float[Array, "J D"]:  # faster than all at once
            return jax.lax.map(lambda each: pull(each)[0], path)

        return jax.lax.map(one_by_one, jax.tree.map(lambda *x: jnp.stack(x), *paths))

    def split(x: Array) -> Array:
        """Every other row: the two draws of a state stay together."""
        return jnp.moveaxis(x.reshape(x.shape[0] // 2, 2, *x.shape[1:]), 1, 0)

    separate = jax.tree.map(jax.vmap(split, out_axes=1), action_grads)
    return jax.vmap(gradient)(jax.tree.map(split, batch), split(weight), separate)


def pathwise_change(
    problem: Problem,
    critic: CriticState,
    tau: Float[Array, ""],
    actors: Any,
    old: Any,
    new: Any,
    batch: PolicyBatch,
    agent: Int[Array, ""],
    weight: Float[Array, "B"],
) -> Float[Array, "J"]:
    """Change of one member's surrogates from its actor `old` to `new`, everyone else acting as `actors` do."""
    used = jnp.asarray(problem.spec.action.used)[agent]
    view = _view(problem, critic, actors, batch, agent)
    tau0, kinds = problem.config.actor.tau_start, problem.kinds
    ends = (view.value(choose(problem.estimator, tau, used, kinds, agent, batch, a, tau0)) for a in (new, old))
    after, before = ends
    return weight @ (after - before)


def _view(problem: Problem, critic: CriticState, actors: Any, batch: PolicyBatch, agent: Int[Array, ""]) -> CriticView:
    """What the critics (or the closed form alone) say of one agent's choice, everyone else acting as `actors` do."""
    spec, fit = problem.spec, critic.fit
    everyone = act_with_noise(spec.action, policies(problem.kinds, actors, batch), batch)
    if problem.source == "closed-form":
        fit = fit._replace(unit=fit.unit.at[0].set(0.0))
    return through_critics(
        pirc.bodies(problem), critic.critics, fit, problem.closed_form, spec.action, problem.discounts, batch,
        everyone, agent, problem.num_signals,
    )  # fmt: skip


def score(
    problem: Problem,
    rollout: RolloutBatch,
    agents: Int[Array, "m"],
    share: Float[Array, "m"],
    key: Any,
    actors: Any,
    theta: Float[Array, "D"],
    unravel: Any,
    opt: Any,
    lr: Any,
    multiplier: Float[Array, "K"],
) -> tuple[Float[Array, "D"], Any]:
    """The step that a few clipped minibatch updates on this round's advantages take (PPO's), costs being paid for by
    their multipliers; and the optimiser as it is then. Rows are pairs of a sample and a member."""
    step_config, used = problem.config.step, jnp.asarray(problem.spec.action.used)
    own, weight, others = weighted_rows(problem, rollout, agents, share, actors)
    paid = rollout.advantage[:, 0] - rollout.advantage[:, 1:] @ multiplier
    paid = (paid - jnp.mean(paid)) / (jnp.std(paid) + 1e-8)
    advantage = jnp.repeat(paid, len(agents)) * others

    def loss(t: Float[Array, "D"], pick: Int[Array, "H"]) -> Float[Array, ""]:
        ratio = own.ratio(unravel(t), used[agents[0]], pick)
        clipped = jnp.clip(ratio, 1.0 - step_config.clip, 1.0 + step_config.clip)
        worst = jnp.minimum(ratio * advantage[pick], clipped * advantage[pick])
        return -jnp.sum(weight[pick] * worst) * INNER_MINIBATCHES

    def step(carry: Any, pick: Int[Array, "H"]) -> Any:
        t, opt = carry
        updates, opt = ADVANTAGE_ADAM.update(jax.grad(loss)(t, pick), opt, t)
        return (t - lr * updates, opt), None

    total = advantage.shape[0]
    key, _ = jax.random.split(key)
    keys = jax.random.split(key, step_config.inner_epochs)
    size = total // INNER_MINIBATCHES
    picks = jax.vmap(lambda k: jax.random.permutation(k, total))(keys)[:, : size * INNER_MINIBATCHES]
    (there, opt), _ = jax.lax.scan(step, (theta, opt), picks.reshape(-1, size))
    return there - theta, opt


def measured_change(
    problem: Problem,
    rollout: RolloutBatch,
    agents: Int[Array, "m"],
    share: Float[Array, "m"],
    actors: Any,
    theta: Float[Array, "D"],
    unravel: Any,
) -> Callable[[Float[Array, "D"]], Float[Array, "K"]]:
    """The mean change of a member's costs as a function of theta', from theta on, by this round's advantages:
    E[w (pi'/pi - 1) A_k] with the truncated importance weights w of what the policies have become since the rollout."""
    used = jnp.asarray(problem.spec.action.used)[agents[0]]
    own, weight, others = weighted_rows(problem, rollout, agents, share, actors)
    moved = own.log_ratio(unravel(theta), used, slice(None))
    now = own._replace(log_prob=own.log_prob + moved)
    seen = weight * jnp.minimum(jnp.exp(moved) * others, MOST_WEIGHT)
    advantage = (seen / jnp.maximum(jnp.sum(seen), 1e-8))[:, None] * jnp.repeat(
        rollout.advantage[:, 1:], len(agents), axis=0
    )

    def change(t: Float[Array, "D"]) -> Float[Array, "K"]:
        return (jnp.minimum(now.ratio(unravel(t), used, slice(None)), MOST_WEIGHT) - 1.0) @ advantage

    return change


def weighted_rows(
    problem: Problem, rollout: RolloutBatch, agents: Int[Array, "m"], share: Float[Array, "m"], actors: Any
) -> tuple[RatioRows, Float[Array, "R"], Float[Array, "R"]]:
    """Rows of samples and members, their weights, which sum to one, and how much likelier what the others did has
    become since."""
    drift = drifts(problem.kinds, jnp.asarray(problem.spec.action.used), rollout, actors)
    log_others = jnp.sum(drift, axis=-1, keepdims=True) - drift[:, agents]  # of everyone but the member itself
    others = jnp.minimum(jnp.exp(log_others), MOST_WEIGHT)
    weight = (rollout.alive[:, agents] * share).reshape(-1)
    weight = weight / jnp.maximum(jnp.sum(weight), 1e-8)
    return RatioRows.of(problem.kinds, rollout, agents), weight, others.reshape(-1)


class RatioRows(NamedTuple):
    """What some agents did in a rollout, one row for each sample and agent."""

    obs: Float[Array, "R I"]
    base_offset: BaseOffset | None
    mode_mask: Bool[Array, "R M"]
    mode: Int[Array, "R"]
    raw: Float[Array, "R P"]
    log_prob: Float[Array, "R"]

    @classmethod
    def of(cls, kinds: Kinds, rollout: RolloutBatch, agents: Int[Array, "m"]) -> RatioRows:
        obs, done = actor_input(kinds, rollout.obs), (rollout.mode_mask, rollout.mode, rollout.raw, rollout.log_prob)
        rows = cls(obs, rollout.base_offset, *done)
        count = len(rollout.advantage) * len(agents)
        return jax.tree.map(lambda x: x[:, agents].reshape(count, *x.shape[2:]), rows)

    def ratio(self, actor: Any, used: Bool[Array, "M P"], pick: Any) -> Float[Array, "H"]:
        """pi_theta / pi_old."""
        return jnp.exp(self.log_ratio(actor, used, pick))

    def log_ratio(self, actor: Any, used: Bool[Array, "M P"], pick: Any) -> Float[Array, "H"]:
        rows = jax.tree.map(lambda x: x[pick], self)
        dist = actor_apply(actor, rows.obs, rows.base_offset)
        return hybrid.log_prob(dist, rows.mode_mask, used, rows.mode, rows.raw) - rows.log_prob


def through_critics(
    nets: pirc.Bodies,
    critics: Critics,
    fit: PhysicsFit,
    physics: Physics | None,
    spec: ActionSpec,
    discount: Float[Array, "J"],
    batch: PolicyBatch,
    joint: Joint,
    agent: Int[Array, ""],
    num_signals: int,
) -> CriticView:
    """Value (and gradient) of agent i's choice, everyone else acting as in `joint`.

    The residual networks read the relaxed mode, and the parameters mixed accordingly; the closed form is evaluated at
    every mode and mixed linearly. Only agent i's action differs between relaxations and candidates, so the first
    layers' sums over all other inputs are formed once; the gradient costs one backward pass of each network.
    """

    def phys(unit: Array) -> Array:
        return physics_of_modes(physics, fit, spec, discount, batch.state, joint.action, agent, unit, num_signals)

    x = CriticInput(batch.state, batch.obs, joint.encoded)
    stack = [jax.vmap(lambda net: nets.reward.slot(net, x, agent))(jax.tree.map(lambda w: w[None], critics.reward))]
    if critics.cost is not None:
        stack.append(jax.vmap(lambda net: nets.cost.slot(net, x, agent))(critics.cost))

    def my_input(choice: Choice) -> Array:
        mixed = jnp.einsum("brm,bmp->brp", choice.sample, choice.unit)
        return jnp.concatenate([choice.sample, mixed], axis=-1)  # [B, R, A]

    def total(choice: Choice, learned: Array, closed: Array) -> Array:
        mixed = learned + jnp.einsum("brm,bmj->brj", choice.sample, closed)
        return jnp.einsum("br,brj->bj", choice.weight, mixed)

    def value(choice: Choice) -> Array:
        mine = my_input(choice)
        learned = jnp.concatenate([jax.vmap(Slot.value, in_axes=(0, None))(slot, mine) for slot in stack])
        return total(choice, jnp.moveaxis(learned, 0, -1) * fit.unit, phys(choice.unit))

    def action_grad(choice: Choice) -> tuple[Array, Choice]:
        closed, d_closed = physics_gradients(phys, choice.unit)
        mine, back = jax.vjp(my_input, choice)
        values, action_grads = zip(
            *(jax.vmap(Slot.value_and_gradient, in_axes=(0, None))(slot, mine) for slot in stack), strict=True
        )
        learned = jnp.moveaxis(jnp.concatenate(values), 0, -1) * fit.unit
        dq = jnp.concatenate(action_grads) * fit.unit[:, None, None, None]  # [J, B, R, A]
        out, pull = jax.vjp(total, choice, learned, closed)

        def of_signal(j: Array) -> Choice:
            direct, to_learned, to_closed = pull(jnp.zeros_like(out).at[:, j].set(1.0))
            (via_networks,) = back(to_learned[..., j, None] * dq[j])
            summed = jax.tree.map(jnp.add, direct, via_networks)
            via_physics = jnp.einsum("bmj,pbmj->bmp", to_closed, d_closed)
            return summed._replace(unit=summed.unit + via_physics)

        return out, jax.vmap(of_signal)(jnp.arange(num_signals))

    return CriticView(value, action_grad)


def physics_of_modes(
    physics: Physics | None, fit: PhysicsFit, spec: ActionSpec, discount: Float[Array, "J"],
    state: Array, action: HybridAction, agent: Any, unit: Array, num_signals: int,
) -> Float[Array, "B M J"]:  # fmt: skip
    """Every mode of agent i with that mode's parameters: Q_phys up to what no action changes."""
    batch, modes, _ = unit.shape
    if physics is None:
        level = discount / (1.0 - discount) * fit.level
        return jnp.broadcast_to(level, (batch, modes, num_signals))
    mode, params = (jnp.repeat(x[:, None], modes, axis=1) for x in action)
    mode = mode.at[:, :, agent].set(jnp.arange(modes))
    mine = decode_params(spec, mode, jnp.broadcast_to(unit[:, :, None], params.shape))
    mine = jax.lax.dynamic_index_in_dim(mine, agent, axis=2, keepdims=False)
    changed = HybridAction(mode, params.at[:, :, agent].set(mine))
    return q_phys(fit, physics_parts(physics, num_signals, state, changed, current=False), discount)


def physics_gradients(phys: Any, unit: Float[Array, "B M P"]) -> tuple[Float[Array, "B M J"], Float[Array, "P B M J"]]:
    """Q_phys, and its derivatives in the parameters: one forward derivative per parameter, since rows are independent;
    the values are computed along with them."""

    def along(p: Array) -> Any:
        tangent = jnp.zeros_like(unit).at[..., p].set(1.0)
        return jax.jvp(phys, (unit,), (tangent,))

    if unit.shape[-1] == 0:
        closed = phys(unit)
        return closed, jnp.zeros((0, *closed.shape))
    return jax.vmap(along, out_axes=(None, 0))(jnp.arange(unit.shape[-1]))
