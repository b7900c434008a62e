"""PIRC: critics that are a frozen closed-form physics value plus a learned residual, for the reward and every cost.

    Q_j(s, a) = Q_phys,j(s, a) + u_j Q_res,j(s, a),           j = 0 (reward), 1..K (costs)
    Q_phys,j  = now_j + gamma / (1 - gamma) (k_j later_j + h_j here_j + l_j)
    now       = signals(s, a)
    later     = signals(s', nominal(s')),   s' = predict(s, a)
    here      = signals(s, nominal(s))

The closed form of one step is exact about the action's immediate effect. What follows is valued by how well the system
stands if it carries on sensibly, after the action (`later`) and in any case (`here`). Two weights, because they answer
different questions: good places stay good for long, but what one action gains in place could be had a little later
too. With `later` alone the value's level would be right and its slope in the action exaggerated several times. Data
cannot tell the two apart, for one action moves a system by little and `later` is nearly `here`. The closed form can: if
a share rho of what an action changes one step on is still there two steps on while everyone carries on, then what it
changes is worth gamma (1 + gamma rho + ...) times the change, and k is at most (1 - gamma) / (1 - gamma rho).
k, h, l are fitted by least squares on early data, then frozen; u_j is the spread of the returns, so that the networks
regress numbers of order one. Without physics only the level l_j remains. One-step TD on the sum, target networks,
replay.

The residual reads s, a *and* s' = predict(s, a). One action moves a system by little, so a network that must find out
from (s, a) alone how the action changes the value has little to go by; places, however, differ widely over the data,
and through s' what was learned of places becomes a slope in the action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from trident import replay as replays
from trident.maths.returns import explained_variance
from trident.nets import act, mlp_apply, mlp_init
from trident.recipe import Task
from trident.types import ActionSpec, Data, EnvSpec, HybridAction, Metrics, Physics, Transition, encode_params

Discount = Float[Array, "J"]
"""Of the reward and of every cost: costs that follow at once from an action are better judged at a short horizon."""


class PhysicsFit(NamedTuple):
    """Weights of the closed form, frozen after the first rounds; [1 + K] each."""

    later: Float[Array, "J"]
    here: Float[Array, "J"]
    level: Float[Array, "J"]
    unit: Float[Array, "J"]


class Parts(NamedTuple):
    """The closed form of one state and joint action."""

    now: Float[Array, "*batch J"]
    later: Float[Array, "*batch J"]
    here: Float[Array, "*batch J"]
    successor: Float[Array, "*batch Z"]  # s' = predict(s, a); of no width without physics


class FitSums(NamedTuple):
    """Normal equations of the least-squares fit and of how long changes last, summed over rounds."""

    gram: Float[Array, "J 3 3"]
    moment: Float[Array, "J 3"]
    lasting: Float[Array, "J 2"]


class Critics(NamedTuple):
    reward: Any
    cost: Any  # stacked over K; None without constraints


class CriticBatch(NamedTuple):
    """Rows for TD: inputs, physics values and signals; everything but the target networks' output."""

    x: Float[Array, "*batch X"]
    q_phys: Float[Array, "*batch J"]
    signals: Float[Array, "*batch J"]
    next_x: Float[Array, "*batch X"]
    next_q_phys: Float[Array, "*batch J"]
    terminated: Bool[Array, "*batch"]


def init(key: Any, input_dim: int, num_constraints: int, hidden: Sequence[int], cost_hidden: Sequence[int]) -> Critics:
    """The last layers start at 1 % scale: the first critic is the physics."""
    reward_key, cost_key = jax.random.split(key)
    reward = mlp_init(reward_key, [input_dim, *hidden, 1], out_scale=0.01)
    keys = jax.random.split(cost_key, max(num_constraints, 1))
    cost = jax.vmap(lambda k: mlp_init(k, [input_dim, *cost_hidden, 1], out_scale=0.01))(keys)
    return Critics(reward, cost if num_constraints else None)


def residual(critics: Critics, x: Float[Array, "*batch X"]) -> Float[Array, "*batch J"]:
    """Q_res / u for the reward and all costs."""
    reward = mlp_apply(critics.reward, x)
    if critics.cost is None:
        return reward
    cost = jax.vmap(mlp_apply, in_axes=(0, None), out_axes=-1)(critics.cost, x)[..., 0, :]
    return jnp.concatenate([reward, cost], axis=-1)


def encode_action(
    spec: ActionSpec, mode: Int[Array, "*batch N"], params: Float[Array, "*batch N P"]
) -> Float[Array, "*batch N M+P"]:
    """One-hot mode and parameters in [-1, 1], per agent."""
    return jnp.concatenate([jax.nn.one_hot(mode, spec.num_modes), encode_params(spec, mode, params)], axis=-1)


def input_size(spec: EnvSpec, physics: Physics | None) -> int:
    per_agent = spec.obs_dim + spec.action.num_modes + spec.action.num_params
    return spec.state_dim * (1 if physics is None else 2) + spec.num_agents * per_agent


def critic_input(
    state: Float[Array, "*batch S"],
    obs: Float[Array, "*batch N O"],
    encoded: Float[Array, "*batch N A"],
    successor: Float[Array, "*batch Z"] | None = None,
) -> Float[Array, "*batch X"]:
    """Central critics see the global state, what every agent sees, what every agent does, and (with physics) where that
    leads."""
    flat = [state, obs.reshape(*obs.shape[:-2], -1), encoded.reshape(*encoded.shape[:-2], -1)]
    return jnp.concatenate(flat if successor is None else [*flat, successor], axis=-1)


# --- the closed form ------------------------------------------------------------------------------


def physics_parts(
    physics: Physics | None, num_signals: int, state: Float[Array, "B S"], action: HybridAction, here: bool = True
) -> Parts:
    """Of B states and joint actions; zeros without physics. `here` is the same for every action, so whoever compares
    actions may leave it out (it is zero then)."""
    if physics is None:
        zeros = jnp.zeros((state.shape[0], num_signals))
        return Parts(zeros, zeros, zeros, state[:, :0])

    def some(rows: tuple[Array, HybridAction]) -> Parts:
        state, action = rows
        successor = jax.vmap(physics.predict)(state, action)
        states = [state, successor, *([state] if here else [])]
        # All states and actions side by side along one batch axis: compiled once, and fast (nested axes are not).
        carry_on = jax.vmap(physics.nominal)(jnp.concatenate(states[1:]))
        actions = jax.tree.map(lambda a, n: jnp.concatenate([a, n]), action, carry_on)
        values = jax.vmap(physics.signals)(jnp.concatenate(states), actions)
        now, later, *rest = jnp.split(values, len(states))
        return Parts(now, later, rest[0] if here else jnp.zeros_like(now), successor)

    return in_chunks(some, (state, action))


CHUNK = 512
"""Rows of the closed form that are computed at once: what lies between its operations should stay in the cache."""


def in_chunks(f: Callable[[Any], Any], rows: Any) -> Any:
    """f of rows [B, ...], by equal parts of at most CHUNK rows (all at once where there are no such of decent size)."""
    batch = jax.tree.leaves(rows)[0].shape[0]
    counts = [n for n in range(1, batch // (CHUNK // 8) + 1) if batch % n == 0 and batch // n <= CHUNK]
    if not counts or counts[0] == 1:
        return f(rows)
    parts = jax.tree.map(lambda x: x.reshape(counts[0], batch // counts[0], *x.shape[1:]), rows)
    return jax.tree.map(lambda x: x.reshape(batch, *x.shape[2:]), jax.lax.map(f, parts))


def q_phys(fit: PhysicsFit, parts: Parts, discount: Discount) -> Float[Array, "*batch J"]:
    return parts.now + discount / (1.0 - discount) * (fit.later * parts.later + fit.here * parts.here + fit.level)


def discounted_tail(
    signals: Float[Array, "T E J"], ended: Bool[Array, "T E"], discount: Discount
) -> tuple[Float[Array, "T E J"], Float[Array, "T E J"]]:
    """Discounted sums to the end of the rollout or episode, and the discounted number of *future* steps in them."""

    def back(carry: Any, row: Any) -> Any:
        total, weight = carry
        signal, over = row
        live = jnp.where(over[:, None], 0.0, discount)
        total = signal + live * total
        weight = live * (1.0 + weight)
        return (total, weight), (total, weight)

    ended = ended.at[-1].set(True)  # the rollout's last step has no future in it
    start = (jnp.zeros_like(signals[0]), jnp.zeros_like(signals[0]))
    _, (total, weight) = jax.lax.scan(back, start, (signals, ended), reverse=True)
    return total, weight


def lasting_sums(physics: Physics | None, num_signals: int, state: Array, action: HybridAction) -> Float[Array, "J 2"]:
    """Over B states: what actions change in comparison with nominal ones two steps on and one step on, d2 d1 and d1^2,
    if everyone carries on after them. Nothing here is random: a few hundred states are enough."""
    if physics is None:
        return jnp.zeros((num_signals, 2))
    batch = min(state.shape[0], CHUNK)
    stride = state.shape[0] // batch
    state, action = jax.tree.map(lambda x: x[::stride][:batch], (state, action))

    def carry_on(carry: tuple[Array, HybridAction], _: None) -> tuple[tuple[Array, HybridAction], Array]:
        successor = jax.vmap(physics.predict)(*carry)
        action = jax.vmap(physics.nominal)(successor)
        return (successor, action), jax.vmap(physics.signals)(successor, action)

    both = jax.tree.map(lambda a, n: jnp.concatenate([a, n]), action, jax.vmap(physics.nominal)(state))
    _, values = jax.lax.scan(carry_on, (jnp.concatenate([state, state]), both), length=2)
    first, second = values[:, :batch] - values[:, batch:]
    return jnp.stack([(second * first).sum(0), (first * first).sum(0)], axis=-1)


def fit_sums(
    signals: Float[Array, "T E J"],
    ended: Bool[Array, "T E"],
    parts: Parts,
    discount: Discount,
    lasting: Float[Array, "J 2"] | float = 0.0,
) -> FitSums:
    """Of the regression of (return - now) on w (later, here, 1), w the discounted number of future steps in the return:
    rollouts end before their returns do, and the fit must not mistake that for a small weight."""
    total, weight = discounted_tail(signals, ended, discount)
    features = jnp.stack([parts.later, parts.here, jnp.ones_like(parts.later)], axis=-1) * weight[..., None]
    return FitSums(
        jnp.einsum("teja,tejb->jab", features, features),
        jnp.einsum("teja,tej->ja", features, total - parts.now),
        jnp.broadcast_to(lasting, (signals.shape[-1], 2)),
    )


def most_later(sums: FitSums, discount: Discount) -> Float[Array, "J"]:
    """(1 - gamma) / (1 - gamma rho), the weight of `later` whose slope is right if changes last as long as the closed
    form says; 1 if actions change nothing there."""
    change, last = sums.lasting[:, 1], sums.lasting[:, 0]
    rho = jnp.clip(last / jnp.where(change > 0.0, change, 1.0), 0.0, 1.0)
    return jnp.where(change > 0.0, (1.0 - discount) / (1.0 - discount * rho), 1.0)


def fit_physics(sums: FitSums, unit: Float[Array, "J"], discount: Discount) -> PhysicsFit:
    """Least squares with both weights between 0 and 1: physics may be worth little, never less than nothing; and that
    of `later` no larger than what actions change lasts."""
    diagonal = jnp.diagonal(sums.gram, axis1=-2, axis2=-1)
    ridge = jax.vmap(jnp.diag)(1e-4 * diagonal + 1e-6)
    gram = sums.gram + ridge

    def solve(free: int, known: Array) -> Array:
        """The first of the unknowns from `free` on, those before it being known."""
        right = sums.moment[:, free:] - jnp.einsum("jab,jb->ja", gram[:, free:, :free], known)
        return jnp.linalg.solve(gram[:, free:, free:], right[..., None])[:, 0, 0]

    later = jnp.clip(solve(0, sums.moment[:, :0]), 0.0, most_later(sums, discount))
    here = jnp.clip(solve(1, later[:, None]), 0.0, 1.0)
    level = solve(2, jnp.stack([later, here], axis=-1))
    return PhysicsFit(later, here, level, unit)


def spread(signals: Float[Array, "T E J"], ended: Bool[Array, "T E"], discount: Discount) -> Float[Array, "J"]:
    """Standard deviation of the returns, never below what one rare event is worth."""
    total, _ = discounted_tail(signals, ended, discount)
    return jnp.maximum(jnp.std(total[: max(total.shape[0] // 2, 1)], axis=(0, 1)), 0.1)


def return_scale(roll: Transition, discount: float) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and spread of the rewards' returns, over the rollout's first half, where they are hardly cut short."""
    total, _ = discounted_tail(roll.reward[..., None], roll.terminated | roll.truncated, jnp.array([discount]))
    total = total[: max(total.shape[0] // 2, 1)]
    return jnp.mean(total), jnp.maximum(jnp.std(total), 0.1)


def r2_phys(
    fit: PhysicsFit, signals: Float[Array, "T E J"], ended: Bool[Array, "T E"], parts: Parts, discount: Discount
) -> Float[Array, "J"]:
    """1 - Var[G - Q_phys] / Var[G] on the first half of the rollout, G and Q_phys cut at the same horizon."""
    total, weight = discounted_tail(signals, ended, discount)
    future = fit.later * parts.later + fit.here * parts.here + fit.level
    half = max(signals.shape[0] // 2, 1)
    error, total = (total - parts.now - weight * future)[:half], total[:half]
    return 1.0 - jnp.var(error, axis=(0, 1)) / jnp.maximum(jnp.var(total, axis=(0, 1)), 1e-8)


# --- learning -------------------------------------------------------------------------------------


def td_targets(target: Critics, fit: PhysicsFit, batch: CriticBatch, discount: Discount) -> Float[Array, "*batch J"]:
    """y = signal + gamma (1 - terminated) (Q_phys(s', a') + u Q_res'(s', a'))."""
    following = batch.next_q_phys + fit.unit * residual(target, batch.next_x)
    return batch.signals + discount * jnp.where(batch.terminated[..., None], 0.0, following)


def td_step(
    critics: Critics, target: Critics, opt: Any, adam: Any, fit: PhysicsFit, batch: CriticBatch,
    discount: Discount, rate: float,
) -> tuple[Critics, Critics, Any, dict[str, Float[Array, "J"]]]:  # fmt: skip
    """One minibatch: mean squared TD error of the sum, in units u; then the target networks follow at `rate`."""
    y = td_targets(target, fit, batch, discount)
    goal = jax.lax.stop_gradient((y - batch.q_phys) / fit.unit)

    def loss(c: Critics) -> tuple[Any, Any]:
        error = residual(c, batch.x) - goal
        return jnp.mean(jnp.sum(error**2, axis=-1)), error

    grads, error = jax.grad(loss, has_aux=True)(critics)
    measures = {
        "critic_loss": jnp.mean(error**2, axis=0),
        "explained_variance": explained_variance(y - fit.unit * error, y, axis=0),
    }
    updates, opt = adam.update(grads, opt, critics)
    critics = jax.tree.map(jnp.add, critics, updates)
    target = jax.tree.map(lambda t, c: t + rate * (c - t), target, critics)
    return critics, target, opt, measures


def batch_of(
    rows: Transition,
    next_action: HybridAction,
    spec: ActionSpec,
    physics: Physics | None,
    fit: PhysicsFit,
    discount: Discount,
) -> CriticBatch:
    """Everything of a TD minibatch that does not depend on the networks, for any number of rows [B, ...] at once."""
    signals = rows.signals
    # Both ends of the transitions in one evaluation: the closed form is compiled once.
    ends = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), rows.executed, next_action)
    parts = physics_parts(physics, signals.shape[-1], jnp.concatenate([rows.state, rows.next_state]), ends)
    q, next_q = jnp.split(q_phys(fit, parts, discount), 2)
    leads_to, next_leads_to = jnp.split(parts.successor, 2)
    return CriticBatch(
        x=critic_input(rows.state, rows.obs, encode_action(spec, *rows.executed), leads_to),
        q_phys=q,
        signals=signals,
        next_x=critic_input(rows.next_state, rows.next_obs, encode_action(spec, *next_action), next_leads_to),
        next_q_phys=next_q,
        terminated=rows.terminated,
    )


class CriticState(NamedTuple):
    critics: Critics
    target: Critics
    opt: Any
    fit: PhysicsFit
    sums: FitSums


def start(task: Task, key: Any) -> CriticState:
    config, ones = task.config, jnp.ones(task.num_signals)
    size = input_size(task.spec, task.closed_form)
    critics = init(key, size, task.spec.num_constraints, config.critic_hidden, config.cost_hidden)
    fit = PhysicsFit(0.0 * ones, 0.0 * ones, 0.0 * ones, ones)
    sums = FitSums(jnp.zeros((ones.size, 3, 3)), jnp.zeros((ones.size, 3)), jnp.zeros((ones.size, 2)))
    return CriticState(critics, critics, optax.adam(config.critic_lr).init(critics), fit, sums)


def fit_early(task: Task, state: CriticState, roll: Transition, rounds: Int[Array, ""]) -> tuple[CriticState, Metrics]:
    """The scale of the closed form comes from early data and then stays."""
    shape, discount = roll.reward.shape, task.discounts
    flat = lambda x: x.reshape(roll.reward.size, *x.shape[2:])  # noqa: E731
    rows = task.closed_form, task.num_signals, flat(roll.state), jax.tree.map(flat, roll.executed)
    parts = jax.tree.map(lambda x: x.reshape(*shape, x.shape[-1]), physics_parts(*rows))
    ended = roll.terminated | roll.truncated
    early = rounds < task.config.fit_rounds
    lasting = lasting_sums(*rows) if task.source == "closed-form" else 0.0
    fresh = fit_sums(roll.signals, ended, parts, discount, lasting)
    sums = jax.tree.map(lambda old, new: old + jnp.where(early, new, 0.0), state.sums, fresh)
    unit = jnp.where(early, spread(roll.signals, ended, discount), state.fit.unit)
    fit = fit_physics(sums, unit, discount)
    r2 = r2_phys(fit, roll.signals, ended, parts, discount)
    return state._replace(fit=fit, sums=sums), {"r2_phys": r2, "physics_later": fit.later, "physics_here": fit.here}


def learn(task: Task, state: CriticState, data: Data, actors: Any, key: Any) -> tuple[CriticState, Metrics]:
    """TD on replayed rows. The policy and the closed form do not change meanwhile: one pass for all minibatches."""
    config, spec = task.config, task.spec
    row_key, act_key = jax.random.split(key)
    count = config.critic_steps * config.critic_batch
    rows = shaped(task, replays.sample(data.replay, row_key, count))
    choose_action = lambda view, k: act(actors, spec.action, view, k, False, task.reflex)[0]  # noqa: E731
    following = jax.vmap(choose_action)(rows.next_view, jax.random.split(act_key, count))
    batch = batch_of(rows, following, spec.action, task.closed_form, state.fit, task.discounts)
    batches = jax.tree.map(lambda x: x.reshape(config.critic_steps, config.critic_batch, *x.shape[1:]), batch)
    adam = optax.adam(config.critic_lr)

    def step(carry: Any, minibatch: Any) -> Any:
        critics, target, opt = carry
        critics, target, opt, measures = td_step(
            critics, target, opt, adam, state.fit, minibatch, task.discounts, config.target_rate
        )
        return (critics, target, opt), measures

    (critics, target, opt), measures = jax.lax.scan(step, (state.critics, state.target, state.opt), batches)
    metrics = jax.tree.map(lambda m: jnp.mean(m, axis=0), measures)
    return state._replace(critics=critics, target=target, opt=opt), metrics


def shaped(task: Task, rows: Transition) -> Transition:
    """With physics="additive": r + shaping x r_phys(s, a), which moves the optimum (and is there to show that)."""
    if task.physics is None or task.config.physics != "additive":
        return rows
    lead = rows.reward.shape
    flat = lambda x: x.reshape(rows.reward.size, *x.shape[len(lead) :])  # noqa: E731
    bonus = jax.vmap(task.physics.signals)(flat(rows.state), jax.tree.map(flat, rows.executed))[:, 0]
    return rows._replace(reward=rows.reward + task.config.shaping * bonus.reshape(lead))
