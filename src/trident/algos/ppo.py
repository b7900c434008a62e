"""MAPPO and HAPPO on hybrid actions: the PPO family on one page.

Both maximise the clipped surrogate  E[min(r_i A, clip(r_i, 1-eps, 1+eps) A)]  with the joint ratio of mode and
parameters r_i, a central value V(s) and GAE. MAPPO (Yu et al. 2022) updates all agents at once with the same
advantage; HAPPO (Kuba et al. 2022) updates them one after another in random order, and agent i_m sees
M A  with  M = prod_{j<m} pi_new / pi_old  of the agents before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from trident.maths import hybrid
from trident.maths.returns import explained_variance, gae
from trident.nets import act, actor_apply, actors_init, mlp_apply, mlp_init
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, Physics, Transition


@dataclass(frozen=True)
class PPOConfig:
    order: Literal["simultaneous", "sequential"] = "sequential"
    """simultaneous: MAPPO; sequential: HAPPO."""
    envs: int = 64
    """Parallel environments."""
    steps: int = 50
    """Steps of each environment per round."""
    hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of each agent's actor."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the central value network."""
    discount: float = 0.95
    """Discount of future rewards."""
    gae_lambda: float = 0.95
    """Decay of the advantage estimator's traces."""
    lr: float = 5e-4
    """Learning rate of the actors (Adam), falling linearly to `lr_final` of itself over the run."""
    critic_lr: float = 1e-3
    """Learning rate of the value network."""
    lr_final: float = 0.2
    """Share of the learning rates that is left at the end of the run."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    epochs: int = 5
    """Passes over a round's data."""
    minibatches: int = 4
    """Minibatches per pass."""
    entropy: float = 0.001
    """Weight of the policy's entropy."""
    max_grad: float = 10.0
    """Gradient-norm clip."""
    log_std: float = -0.7
    """Initial log standard deviation before the squash."""


class PPOState(NamedTuple):
    actors: Any  # stacked over agents
    critic: Any
    actor_opt: Any
    critic_opt: Any
    value_stats: Any  # mean, variance of returns and rounds seen: the critic predicts normalised values


class AgentBatch(NamedTuple):
    """One agent's samples, [B, ...]."""

    obs: Any
    mode_mask: Any
    alive: Any
    mode: Any
    raw: Any
    log_prob: Any
    advantage: Any


def make(config: PPOConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    """`physics` is ignored: these are the vanilla rivals."""
    used = jnp.asarray(spec.action.used)
    actor_adam, critic_adam = _adam(config), _adam(config)

    def init(key: Any) -> PPOState:
        actor_key, critic_key = jax.random.split(key)
        actors = actors_init(
            actor_key, spec.num_agents, spec.obs_dim, config.hidden,
            spec.action.num_modes, spec.action.num_params, config.log_std,
        )  # fmt: skip
        size = spec.state_dim + spec.num_agents * spec.obs_dim
        critic = mlp_init(critic_key, [size, *config.critic_hidden, 1])
        return PPOState(
            actors,
            critic,
            jax.vmap(actor_adam.init)(actors),
            critic_adam.init(critic),
            (jnp.zeros(()), jnp.ones(()), jnp.zeros(())),
        )

    def update(state: PPOState, data: Data, key: Any, fraction: Any) -> tuple[PPOState, Metrics]:
        roll = data.rollout
        decay = 1.0 - (1.0 - config.lr_final) * fraction
        actor_key, critic_key = jax.random.split(key)
        advantage, target, metrics = _advantage(config, state, roll)
        batch = _agent_batches(roll, advantage)
        train = _simultaneous if config.order == "simultaneous" else _sequential
        actors, actor_opt, losses = train(config, actor_adam, state, batch, used, actor_key, config.lr * decay)
        stats, critic = _track(state.value_stats, state.critic, target)
        rescaled = state._replace(critic=critic, value_stats=stats)
        critic, critic_opt = _fit_critic(
            config, critic_adam, rescaled, _critic_input(roll), target, critic_key, config.critic_lr * decay
        )
        new_log_prob = jax.vmap(_log_prob)(actors, batch, used)
        kl = jnp.mean((batch.log_prob - new_log_prob) * batch.alive, axis=-1)  # [N], of the samples taken
        metrics |= {"kl": jnp.mean(kl), "kl_max": jnp.max(kl)} | losses
        return PPOState(actors, critic, actor_opt, critic_opt, stats), metrics

    return Algorithm(
        name="ppo",
        plan=DataPlan(config.envs, config.steps),
        init=init,
        act=lambda state, view, key, deterministic: act(state.actors, spec.action, view, key, deterministic),
        update=update,
        config=config,
    )


def _adam(config: PPOConfig) -> optax.GradientTransformation:
    """Without its step size: the caller scales, so that the rate may fall over the run."""
    return optax.chain(optax.clip_by_global_norm(config.max_grad), optax.scale_by_adam(eps=1e-5))


def _critic_input(roll: Transition) -> Any:
    return jnp.concatenate([roll.state, roll.obs.reshape(*roll.obs.shape[:-2], -1)], axis=-1)


def _advantage(config: PPOConfig, state: PPOState, roll: Transition) -> tuple[Any, Any, Metrics]:
    mean, var, _ = state.value_stats
    following = roll._replace(obs=roll.next_obs, state=roll.next_state)
    value, next_value = (
        mlp_apply(state.critic, _critic_input(r))[..., 0] * jnp.sqrt(var) + mean for r in (roll, following)
    )
    ended = roll.terminated | roll.truncated
    advantage = gae(roll.reward, value, next_value, roll.terminated, ended, config.discount, config.gae_lambda)
    target = advantage + value
    metrics = {"explained_variance": explained_variance(value, target), "value": jnp.mean(value)}
    return (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8), target, metrics


def _agent_batches(roll: Transition, advantage: Any) -> AgentBatch:
    """[T, E, N, ...] -> stacked over agents, [N, T * E, ...]."""

    def by_agent(x: Any) -> Any:
        return jnp.moveaxis(x.reshape(roll.reward.size, *x.shape[2:]), 1, 0)

    num_agents = roll.alive.shape[-1]
    shared = jnp.broadcast_to(advantage.reshape(1, -1), (num_agents, advantage.size))
    done = roll.action.mode, roll.extras["raw"], roll.extras["log_prob"]
    seen = AgentBatch(roll.obs, roll.mode_mask, roll.alive, *done, advantage=roll.alive)
    return jax.tree.map(by_agent, seen)._replace(advantage=shared)


def _log_prob(actor: Any, batch: AgentBatch, used: Any) -> Any:
    dist = actor_apply(actor, batch.obs)
    return hybrid.log_prob(dist, batch.mode_mask, used, batch.mode, batch.raw)


def surrogate(config: PPOConfig, actor: Any, batch: AgentBatch, used: Any) -> Any:
    """The clipped surrogate plus entropy, of one agent on one minibatch; the dead carry no weight."""
    dist = actor_apply(actor, batch.obs)
    log_prob = hybrid.log_prob(dist, batch.mode_mask, used, batch.mode, batch.raw)
    ratio = jnp.exp(log_prob - batch.log_prob)
    clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    gain = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    gain += config.entropy * hybrid.entropy(dist, batch.mode_mask, used)
    weight = batch.alive / jnp.maximum(jnp.sum(batch.alive), 1.0)
    return jnp.sum(gain * weight)


def _train_agent(
    config: PPOConfig, adam: Any, actor: Any, opt: Any, batch: AgentBatch, used: Any, key: Any, lr: Any
) -> tuple[Any, Any, Any]:
    """Epochs of minibatch ascent for one agent."""
    grad = jax.value_and_grad(lambda a, b: -surrogate(config, a, b, used))

    def step(carry: Any, rows: Any) -> Any:
        actor, opt = carry
        loss, direction = grad(actor, jax.tree.map(lambda x: x[rows], batch))
        direction, opt = adam.update(direction, opt, actor)
        return (optax.apply_updates(actor, jax.tree.map(lambda d: -lr * d, direction)), opt), loss

    rows = _minibatch_rows(key, config, batch.alive.shape[0])
    (actor, opt), losses = jax.lax.scan(step, (actor, opt), rows)
    return actor, opt, jnp.mean(losses)


def _minibatch_rows(key: Any, config: PPOConfig, size: int) -> Any:
    """Every sample once per epoch (up to the remainder of the division): [epochs * minibatches, rows]."""
    keys = jax.random.split(key, config.epochs)
    order = jax.vmap(lambda k: jax.random.permutation(k, size))(keys)
    rows = size // config.minibatches
    return order[:, : rows * config.minibatches].reshape(-1, rows)


def _simultaneous(
    config: PPOConfig, adam: Any, state: PPOState, batch: AgentBatch, used: Any, key: Any, lr: Any
) -> Any:
    keys = jax.random.split(key, used.shape[0])
    actors, opt, loss = jax.vmap(lambda a, o, b, u, k: _train_agent(config, adam, a, o, b, u, k, lr))(
        state.actors, state.actor_opt, batch, used, keys
    )
    return actors, opt, {"actor_loss": jnp.mean(loss)}


def _sequential(config: PPOConfig, adam: Any, state: PPOState, batch: AgentBatch, used: Any, key: Any, lr: Any) -> Any:
    order_key, *_ = keys = jax.random.split(key, used.shape[0] + 1)
    order = jax.random.permutation(order_key, used.shape[0])

    def step(carry: Any, at: Any) -> Any:
        actors, opts, factor = carry
        agent, agent_key = at
        actor, opt, mine, use = jax.tree.map(lambda x: x[agent], (actors, opts, batch, used))
        mine = mine._replace(advantage=mine.advantage * factor)
        actor, opt, loss = _train_agent(config, adam, actor, opt, mine, use, agent_key, lr)
        ratio = jnp.exp(_log_prob(actor, mine, use) - mine.log_prob)
        factor = factor * jnp.where(mine.alive, ratio, 1.0)
        actors, opts = jax.tree.map(lambda full, one: full.at[agent].set(one), (actors, opts), (actor, opt))
        return (actors, opts, factor), loss

    start = (state.actors, state.actor_opt, jnp.ones(batch.alive.shape[1]))
    (actors, opts, factor), losses = jax.lax.scan(step, start, (order, jnp.stack(keys[1:])))
    return actors, opts, {"actor_loss": jnp.mean(losses), "factor_max": jnp.max(factor)}


def _fit_critic(
    config: PPOConfig, adam: Any, state: PPOState, inputs: Any, target: Any, key: Any, lr: Any
) -> tuple[Any, Any]:
    """Huber regression on normalised returns."""
    mean, var, _ = state.value_stats
    x, y = inputs.reshape(-1, inputs.shape[-1]), ((target - mean) / jnp.sqrt(var)).reshape(-1)

    def loss(critic: Any, rows: Any) -> Any:
        return jnp.mean(optax.huber_loss(mlp_apply(critic, x[rows])[..., 0], y[rows], delta=10.0))

    def step(carry: Any, rows: Any) -> Any:
        critic, opt = carry
        direction, opt = adam.update(jax.grad(loss)(critic, rows), opt, critic)
        return (optax.apply_updates(critic, jax.tree.map(lambda d: -lr * d, direction)), opt), None

    (critic, opt), _ = jax.lax.scan(step, (state.critic, state.critic_opt), _minibatch_rows(key, config, x.shape[0]))
    return critic, opt


def _track(stats: Any, critic: Any, target: Any, rate: float = 0.1) -> tuple[Any, Any]:
    """Moving mean and variance of the returns; rescaling the output layer keeps predictions from jumping (PopArt)."""
    mean, var, count = stats
    weight = jnp.maximum(rate, 1.0 / (count + 1.0))
    new_mean = mean + weight * (jnp.mean(target) - mean)
    new_var = jnp.maximum((1 - weight) * var + weight * jnp.mean((target - new_mean) ** 2), 1e-6)
    shrink = jnp.sqrt(var / new_var)
    out = critic[-1]
    out = {"w": out["w"] * shrink, "b": out["b"] * shrink + (mean - new_mean) / jnp.sqrt(new_var)}
    return (new_mean, new_var, count + 1.0), [*critic[:-1], out]
