"""What on-policy learners share: values of the signals, advantages, and samples sorted by kind of agent.

Each signal, reward or cost, has its own value network, its own optimiser and its own normaliser (PopArt): rescaling the
reward changes nothing in what is learned about costs. Costs are stacked over K.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from trident.algos.common.actor import BaseOffset, actor_apply, base_offset
from trident.algos.common.central_critic import CentralCritic, CriticInput, state_input
from trident.algos.common.kinds import Kinds, actor_input, by_kind, real_members
from trident.maths import hybrid
from trident.maths.hybrid import HybridDist
from trident.maths.returns import explained_variance, gae
from trident.maths.spread import over_devices
from trident.types import BasePolicy, Expectation, Metrics, Moments, PerSignal, Transition


class Value(NamedTuple):
    """V(s) of one signal. The network predicts (V - mean) / sqrt(variance)."""

    net: Any
    opt: Any
    stats: Any  # mean, variance of the returns, and rounds seen


class Values(NamedTuple):
    reward: Value
    cost: Value | None  # stacked over K; None without constraints


class AgentBatch(NamedTuple):
    """Samples of the agents of one kind [n B, ...], member by member, or of all kinds [G, n B, ...]."""

    obs: Float[Array, "*batch O"]
    mode_mask: Bool[Array, "*batch M"]
    alive: Bool[Array, "*batch"]
    mode: Int[Array, "*batch"]
    raw: Float[Array, "*batch P"]
    log_prob: Float[Array, "*batch"]
    base_offset: BaseOffset | None = None  # what a base policy adds to the policy in these samples


def adam(max_grad: float) -> optax.GradientTransformation:
    """Without its step size: the caller scales, so that the rate may fall over the run."""
    return optax.chain(optax.clip_by_global_norm(max_grad), optax.scale_by_adam(eps=1e-5))


def descend(params: Any, direction: Any, lr: Any) -> Any:
    return optax.apply_updates(params, jax.tree.map(lambda d: -lr * d, direction))


# --- values ---------------------------------------------------------------------------------------


def values_init(key: Any, optimiser: optax.GradientTransformation, critic: CentralCritic, num_costs: int) -> Values:
    def one(k: Any) -> Value:
        net = critic.init(k)  # the first value is the level alone
        return Value(net, optimiser.init(net), (jnp.zeros(()), jnp.ones(()), jnp.zeros(())))

    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(num_costs))
    return Values(one(key), jax.vmap(one)(keys) if num_costs else None)


def predict(critic: CentralCritic, value: Value, x: CriticInput) -> Float[Array, "*batch"]:
    mean, var, _ = value.stats
    return critic.apply(value.net, x)[..., 0] * jnp.sqrt(var) + mean


def expect(
    critic: CentralCritic, values: Values, moments: Moments, discount: float, cost_discount: float
) -> Expectation:
    """What the value networks say, whatever is done."""
    x = state_input(moments)
    reward = predict(critic, values.reward, x)[..., None]
    if values.cost is None:
        return Expectation({"critics": reward}, jnp.array([discount]))
    costs = jax.vmap(lambda value: predict(critic, value, x), out_axes=-1)(values.cost)
    discounts = jnp.array([discount] + [cost_discount] * costs.shape[-1])
    return Expectation({"critics": jnp.concatenate([reward, costs], axis=-1)}, discounts)


def initialise_baseline(values: Values, roll: Transition, discount: float, cost_discount: float) -> Values:
    """Before the first round every value is the mean signal, for ever: from zero the level would have to creep in by
    bootstrapping, through many rounds in which nothing else can be seen."""

    def one(value: Value, signal: Any, gamma: float) -> Value:
        mean, var, count = value.stats
        return value._replace(stats=(jnp.where(count == 0, jnp.mean(signal) / (1.0 - gamma), mean), var, count))

    cost = values.cost
    return Values(
        one(values.reward, roll.reward, discount),
        None if cost is None else jax.vmap(one, in_axes=(0, -1, None))(cost, roll.cost, cost_discount),
    )


def advantages(
    critic: CentralCritic, values: Values, roll: Transition, discount: float, cost_discount: float, lam: float
) -> tuple[Float[Array, "T E J"], Float[Array, "T E J"], Metrics]:
    """(GAE, lambda-returns, metrics) of the reward and, if they have values, of the costs, in the signals' units."""
    inputs = state_input(roll), state_input(roll._replace(obs=roll.next_obs, state=roll.next_state))
    ended = roll.terminated | roll.truncated

    def one(value: Value, signal: Any, gamma: float) -> tuple[Any, Any, Any, Any]:
        now, following = (predict(critic, value, x) for x in inputs)
        advantage = gae(signal, now, following, roll.terminated, ended, gamma, lam)
        target = advantage + now
        return advantage, target, explained_variance(now, target), jnp.mean(now)

    advantage, target, explained, mean = one(values.reward, roll.reward, discount)
    advantage, target = advantage[..., None], target[..., None]
    if values.cost is not None:
        costs = jax.vmap(one, in_axes=(0, -1, None), out_axes=(-1, -1, 0, 0))(values.cost, roll.cost, cost_discount)
        advantage, target = (jnp.concatenate(p, axis=-1) for p in ((advantage, costs[0]), (target, costs[1])))
        explained, mean = PerSignal(jnp.append(explained, costs[2])), PerSignal(jnp.append(mean, costs[3]))
    return advantage, target, {"explained_variance": explained, "value": mean}


FIT_AHEAD, FIT_BATCHES = 16, 16
"""Fits of the values before the first round, each to the returns by the last, and minibatches of each."""


def fit_ahead(
    critic: CentralCritic,
    values: Values,
    optimiser: optax.GradientTransformation,
    roll: Transition,
    discount: float,
    cost_discount: float,
    lam: float,
    key: Any,
    lr: float,
) -> tuple[Values, Float[Array, "J"]]:
    """A warm start of the values: those of the policy that played the rollout, counted as one round of data; and how
    widely its advantages spread."""
    batches = min(FIT_BATCHES, roll.reward.size)

    def fit(values: Values, fit_key: Any) -> tuple[Values, Any]:
        found, targets, _ = advantages(critic, values, roll, discount, cost_discount, lam)
        rows = minibatch_rows(fit_key, 1, batches, roll.reward.size)
        return fit_values(critic, values, optimiser, roll, targets, rows, lr), jnp.std(found, axis=(0, 1))

    values = initialise_baseline(values, roll, discount, cost_discount)
    values, spreads = jax.lax.scan(fit, values, jax.random.split(key, FIT_AHEAD))
    once = lambda v: v._replace(stats=(*v.stats[:2], jnp.ones_like(v.stats[2])))  # noqa: E731
    return Values(once(values.reward), None if values.cost is None else once(values.cost)), spreads[-1]


def fit_values(
    critic: CentralCritic,
    values: Values,
    optimiser: optax.GradientTransformation,
    roll: Transition,
    targets: Float[Array, "T E J"],
    rows: Int[Array, "S B"],
    lr: Any,
) -> Values:
    """Huber regression on each signal's normalised returns, over S minibatches of rows."""
    x = jax.tree.map(lambda x: x.reshape(roll.reward.size, *x.shape[2:]), state_input(roll))
    flat = targets.reshape(-1, targets.shape[-1])

    def one(value: Value, target: Any) -> Value:
        return _fit(critic, value, optimiser, x, target, rows, lr)

    cost = values.cost
    return Values(
        one(values.reward, flat[:, 0]), None if cost is None else jax.vmap(one, in_axes=(0, -1))(cost, flat[:, 1:])
    )


def _fit(critic: CentralCritic, value: Value, optimiser: Any, x: CriticInput, target: Any, rows: Any, lr: Any) -> Value:
    stats, net = _track(value.stats, value.net, target)
    y = (target - stats[0]) / jnp.sqrt(stats[1])

    def loss(net: Any, some: Any) -> Any:
        told = critic.apply(net, jax.tree.map(lambda x: x[some], x))[..., 0]
        return jnp.mean(optax.huber_loss(told, y[some], delta=10.0))

    def step(carry: Any, some: Any) -> Any:
        net, opt = carry
        direction, opt = optimiser.update(jax.grad(loss)(net, some), opt, net)
        return (descend(net, direction, lr), opt), None

    (net, opt), _ = jax.lax.scan(step, (net, value.opt), rows)
    return Value(net, opt, stats)


def _track(stats: Any, net: Any, target: Any, rate: float = 0.1) -> tuple[Any, Any]:
    """Moving mean and variance of the returns; rescaling the output layer keeps predictions from jumping (PopArt)."""
    mean, var, count = stats
    weight = jnp.maximum(rate, 1.0 / (count + 1.0))
    new_mean = mean + weight * (jnp.mean(target) - mean)
    new_var = jnp.maximum((1 - weight) * var + weight * jnp.mean((target - new_mean) ** 2), 1e-6)
    shrink = jnp.sqrt(var / new_var)
    out = net.trunk[-1]
    out = {"w": out["w"] * shrink, "b": out["b"] * shrink + (mean - new_mean) / jnp.sqrt(new_var)}
    return (new_mean, new_var, count + 1.0), net._replace(trunk=[*net.trunk[:-1], out])


# --- samples --------------------------------------------------------------------------------------


def agent_batches(roll: Transition, base_policy: BasePolicy | None = None, kinds: Kinds | None = None) -> AgentBatch:
    """[T, E, N, ...] -> stacked over kinds, [G, n T E, ...]; a kind with fewer members than n repeats them as dead."""

    def sort(x: Any) -> Any:
        return by_kind(kinds, jnp.moveaxis(x.reshape(roll.reward.size, *x.shape[2:]), 1, 0))

    done = roll.action.mode, roll.extras["raw"], roll.extras["log_prob"]
    obs, base = actor_input(kinds, roll.obs), base_offset(base_policy, roll.obs)
    batch = jax.tree.map(sort, AgentBatch(obs, roll.mode_mask, roll.alive, *done, base))
    if kinds is None or kinds.separate:
        return batch
    return batch._replace(alive=batch.alive & np.repeat(real_members(kinds), roll.reward.size, axis=1))


def joint_ratio(ratio: Float[Array, "R"], samples: int) -> Float[Array, "B"]:
    """Of all members of a kind together, in each of the team's samples."""
    return ratio if len(ratio) == samples else jnp.prod(ratio.reshape(-1, samples), axis=0)


def policy(actor: Any, batch: AgentBatch, rows: Any = slice(None)) -> HybridDist:
    """The actor's distributions in (some of) the samples."""
    return actor_apply(actor, *jax.tree.map(lambda x: x[rows], (batch.obs, batch.base_offset)))


def log_prob(actor: Any, batch: AgentBatch, used: Bool[Array, "M P"]) -> Float[Array, "B"]:
    return hybrid.log_prob(policy(actor, batch), batch.mode_mask, used, batch.mode, batch.raw)


def ratio(actor: Any, batch: AgentBatch, used: Bool[Array, "M P"]) -> Float[Array, "B"]:
    """pi_actor / pi_old of mode and parameters together; 1 for the dead, whose actions nobody took."""
    return jnp.where(batch.alive, jnp.exp(log_prob(actor, batch, used) - batch.log_prob), 1.0)


def too_many_minibatches(minibatches: int, rows: int) -> Iterator[str]:
    if minibatches > rows:
        yield f"--minibatches must be at most {rows:,}, the rows of a round (envs x steps), not {minibatches:,}"


def minibatch_rows(key: Any, epochs: int, minibatches: int, size: int) -> Int[Array, "S B"]:
    """Every sample once per epoch (up to the remainder of the division)."""
    keys = jax.random.split(key, epochs)
    order = jax.vmap(lambda k: jax.random.permutation(k, size))(keys)
    rows = size // minibatches
    return over_devices(order[:, : rows * minibatches].reshape(-1, rows), axis=1)
