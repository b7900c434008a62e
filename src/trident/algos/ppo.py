"""The PPO family on hybrid actions on one page: MAPPO, HAPPO, and both with Lagrange multipliers.

All maximise the clipped surrogate  E[min(r_i A, clip(r_i, 1-eps, 1+eps) A)]  with the joint ratio of mode and
parameters r_i, a central value V(s) and GAE. MAPPO (Yu et al. 2022) updates all agents at once with the same
advantage; HAPPO (Kuba et al. 2022) updates them one after another in random order, and agent i_m sees
M A  with  M = prod_{j<m} pi_new / pi_old  of the agents before it.

With multipliers (MAPPO-Lagrangian, Gu et al. 2021) every cost has a value network and a normaliser of its own, and

    A = A_0 - sum_k lambda_k A_k,     lambda_k from the costs measured in this round's rollout (maths.lagrange)

in the signals' own units, normalised only as a whole: normalising each cost advantage, as public code does, takes from
lambda its meaning as a price. Published rates (1e-7 to 5e-4) leave the multiplier where it started; ours crosses the
exchange rate of reward and cost, the ratio of their advantages' spreads, in ten rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from trident.algos.common import on_policy
from trident.algos.common.actor import act, actors_init
from trident.algos.common.behaviour_cloning import WARM_LOG_STD, WARM_LR, WARM_ROWS, WARM_STEPS, imitate
from trident.algos.common.central_critic import Body, central_critic
from trident.algos.common.kinds import first_of_kind, input_size, kinds_of
from trident.algos.common.on_policy import AgentBatch, Values, too_many_minibatches
from trident.allowed import Clip, Count, Discount, LogStd, Passes, Positive, Rate, Share, Weight, Widths
from trident.maths import hybrid
from trident.maths.lagrange import Multipliers, multipliers_init, multipliers_step
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, PerCost, Physics, Transition


@dataclass(frozen=True)
class PPOConfig:
    order: Literal["simultaneous", "sequential"] = "sequential"
    """simultaneous: MAPPO; sequential: HAPPO."""
    envs: Count = 64
    """Parallel environments."""
    steps: Count = 50
    """Steps of each environment per round."""
    hidden: Widths = (128, 128)
    """Hidden layers of each agent's actor."""
    critic_hidden: Widths = (256, 256)
    """Hidden layers of the central value network."""
    critic_body: Body = "pooled"
    """pooled: what agents of a kind see is encoded alike and averaged; concatenated: side by side."""
    discount: Discount = 0.95
    """Discount of future rewards."""
    gae_lambda: Share = 0.95
    """Decay of the advantage estimator's traces."""
    lr: Rate = 5e-4
    """Learning rate of the actors (Adam), falling linearly to `lr_final` of itself over the run."""
    critic_lr: Rate = 1e-3
    """Learning rate of the value network."""
    lr_final: Share = 0.2
    """Share of the learning rates that is left at the end of the run."""
    clip: Clip = 0.2
    """Clip range of the probability ratio."""
    epochs: Passes = 5
    """Passes over a round's data."""
    minibatches: Count = 4
    """Minibatches per pass."""
    entropy: Weight = 0.001
    """Weight of the policy's entropy."""
    max_grad: Positive = 10.0
    """Gradient-norm clip."""
    log_std: LogStd = -0.7
    """Initial log standard deviation before the squash."""
    base_policy: bool = False
    """Actors correct the base policy of the environment's physics, if it has one, as TRIDENT's do."""
    share_actors: bool = True
    """Agents of a kind share one actor; otherwise each has its own."""
    agent_id: bool = False
    """Actors see which agent they act for."""

    def faults(self) -> Iterator[str]:
        return too_many_minibatches(self.minibatches, self.envs * self.steps)


@dataclass(frozen=True)
class LagrangianConfig(PPOConfig):
    cost_discount: Discount = 0.95
    """Discount of future costs."""
    multiplier: Weight = 0.0
    """Every multiplier at the start, in units of the exchange rate."""
    rate: Weight = 0.1
    """Integral gain: the most a multiplier moves per round, in the same units."""
    proportional: Weight = 0.0
    """Proportional gain; with `derivative` it makes the multipliers' control PID."""
    derivative: Weight = 0.0
    """Gain on rises of the excess."""


SPREAD_ROUNDS = 8
"""Rounds in which the exchange rate is measured: in the first one a rare cost may not occur at all."""


class PPOState(NamedTuple):
    actors: Any  # stacked over kinds of agents
    actor_opt: Any
    critic: Values
    multipliers: Multipliers  # of no constraints, unless the method has them
    spread: Any  # [1 + K] of the advantages of the reward and the costs, over the first rounds


def make(config: PPOConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    """Of `physics` nothing is used but, on demand, its base policy: these are the vanilla baselines."""
    base_policy = physics.base_policy if config.base_policy and physics is not None else None
    kinds = kinds_of(spec, config.share_actors, config.agent_id)
    central = central_critic(spec, config.critic_body, config.critic_hidden)
    used = first_of_kind(kinds, jnp.asarray(spec.action.used))
    adam = on_policy.adam(config.max_grad)
    num_costs = spec.num_constraints if isinstance(config, LagrangianConfig) else 0

    cost_discount = config.cost_discount if isinstance(config, LagrangianConfig) else config.discount

    def init(key: Any) -> PPOState:
        actor_key, critic_key = jax.random.split(key)
        actors = actors_init(
            actor_key, kinds.count, input_size(kinds, spec.obs_dim), config.hidden,
            spec.action.num_modes, spec.action.num_params, config.log_std,
        )  # fmt: skip
        values = on_policy.values_init(critic_key, adam, central, num_costs)
        start = config.multiplier if isinstance(config, LagrangianConfig) else 0.0
        multipliers = multipliers_init(num_costs, start)
        return PPOState(actors, jax.vmap(adam.init)(actors), values, multipliers, jnp.zeros(1 + num_costs))

    def update(state: PPOState, data: Data, key: Any, fraction: Any) -> tuple[PPOState, Metrics]:
        roll = data.rollout
        decay = 1.0 - (1.0 - config.lr_final) * fraction
        actor_key, critic_key = jax.random.split(key)
        values = on_policy.initialise_baseline(state.critic, roll, config.discount, cost_discount)
        advantages, targets, metrics = on_policy.advantages(
            central, values, roll, config.discount, cost_discount, config.gae_lambda
        )
        advantage = advantages[..., 0]
        if isinstance(config, LagrangianConfig) and num_costs:
            state = _raise_multipliers(config, spec, state, roll.cost, advantages)
            multiplier = scale_ratio(state.spread) * state.multipliers.value
            advantage -= advantages[..., 1:] @ multiplier
            metrics |= {"multiplier": PerCost(multiplier)}
        advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
        batch = on_policy.agent_batches(roll, base_policy, kinds)
        train = _simultaneous if config.order == "simultaneous" else _sequential
        actors, actor_opt, losses = train(
            config, adam, state, batch, advantage.reshape(-1), used, actor_key, config.lr * decay
        )
        rows = on_policy.minibatch_rows(critic_key, config.epochs, config.minibatches, roll.reward.size)
        critic = on_policy.fit_values(central, values, adam, roll, targets, rows, config.critic_lr * decay)
        new_log_prob = jax.vmap(on_policy.log_prob)(actors, batch, used)
        kl = jnp.mean((batch.log_prob - new_log_prob) * batch.alive, axis=-1)  # [G], of the samples taken
        metrics |= {"kl": jnp.mean(kl), "kl_max": jnp.max(kl)} | losses
        return PPOState(actors, actor_opt, critic, state.multipliers, state.spread), metrics

    def prepare(state: PPOState, roll: Transition, key: Any) -> tuple[PPOState, Metrics]:
        """Warm start: actors imitate the rollout's policy, values are its own."""
        actor_key, critic_key = jax.random.split(key)
        actors, imitated = imitate(
            state.actors, spec.action, roll, actor_key, WARM_STEPS, WARM_ROWS, WARM_LR,
            min(WARM_LOG_STD, config.log_std), base_policy, kinds,
        )  # fmt: skip
        values, spread = on_policy.fit_ahead(
            central, state.critic, adam, roll, config.discount, cost_discount, config.gae_lambda, critic_key,
            config.critic_lr,
        )  # fmt: skip
        return state._replace(actors=actors, critic=values, spread=spread), imitated

    return Algorithm(
        name="ppo",
        plan=DataPlan(config.envs, config.steps),
        init=init,
        act=lambda state, view, key, deterministic: act(
            state.actors, spec.action, view, key, deterministic, base_policy, kinds
        ),
        update=update,
        expect=lambda state, moments: on_policy.expect(central, state.critic, moments, config.discount, cost_discount),
        prepare=prepare,
        config=config,
    )


def _raise_multipliers(
    config: LagrangianConfig, spec: EnvSpec, state: PPOState, cost: Any, advantages: Any
) -> PPOState:
    """Multipliers for the policy that was just measured; spreads are the mean of the first rounds', and then stay."""
    gains = (config.proportional, config.rate, config.derivative)
    multipliers = multipliers_step(state.multipliers, jnp.mean(cost, axis=(0, 1)), jnp.asarray(spec.limits), gains)
    rounds = state.critic.reward.stats[2]
    weight = jnp.where(rounds < SPREAD_ROUNDS, 1.0 / (rounds + 1.0), 0.0)
    spread = state.spread + weight * (jnp.std(advantages, axis=(0, 1)) - state.spread)
    return state._replace(multipliers=multipliers, spread=spread)


def scale_ratio(spread: Any) -> Any:
    """[K] rewards for a cost, so that both weigh the same in the advantages."""
    return spread[0] / jnp.maximum(spread[1:], 1e-3)


def surrogate(config: PPOConfig, actor: Any, batch: AgentBatch, advantage: Any, used: Any) -> Any:
    """The clipped surrogate plus entropy, of one agent on one minibatch; the dead carry no weight."""
    dist = on_policy.policy(actor, batch)
    log_prob = hybrid.log_prob(dist, batch.mode_mask, used, batch.mode, batch.raw)
    ratio = jnp.exp(log_prob - batch.log_prob)
    clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    gain = jnp.minimum(ratio * advantage, clipped * advantage)
    gain += config.entropy * hybrid.entropy(dist, batch.mode_mask, used)
    weight = batch.alive / jnp.maximum(jnp.sum(batch.alive), 1.0)
    return jnp.sum(gain * weight)


def _train_agent(
    config: PPOConfig, adam: Any, actor: Any, opt: Any, batch: AgentBatch, advantage: Any, used: Any, key: Any, lr: Any
) -> tuple[Any, Any, Any]:
    """Epochs of minibatch ascent for the agents of one kind; they share the advantage of every sample."""
    if len(batch.alive) > len(advantage):
        advantage = jnp.tile(advantage, len(batch.alive) // len(advantage))
    grad = jax.value_and_grad(lambda a, b, w: -surrogate(config, a, b, w, used))

    def step(carry: Any, rows: Any) -> Any:
        actor, opt = carry
        loss, direction = grad(actor, *jax.tree.map(lambda x: x[rows], (batch, advantage)))
        direction, opt = adam.update(direction, opt, actor)
        return (on_policy.descend(actor, direction, lr), opt), loss

    rows = on_policy.minibatch_rows(key, config.epochs, config.minibatches, advantage.size)
    (actor, opt), losses = jax.lax.scan(step, (actor, opt), rows)
    return actor, opt, jnp.mean(losses)


def _simultaneous(
    config: PPOConfig, adam: Any, state: PPOState, batch: AgentBatch, advantage: Any, used: Any, key: Any, lr: Any
) -> Any:
    keys = jax.random.split(key, used.shape[0])
    actors, opt, loss = jax.vmap(lambda a, o, b, u, k: _train_agent(config, adam, a, o, b, advantage, u, k, lr))(
        state.actors, state.actor_opt, batch, used, keys
    )
    return actors, opt, {"actor_loss": jnp.mean(loss)}


def _sequential(
    config: PPOConfig, adam: Any, state: PPOState, batch: AgentBatch, advantage: Any, used: Any, key: Any, lr: Any
) -> Any:
    order_key, *_ = keys = jax.random.split(key, used.shape[0] + 1)
    order = jax.random.permutation(order_key, used.shape[0])

    def step(carry: Any, at: Any) -> Any:
        actors, opts, factor = carry
        agent, agent_key = at
        actor, opt, mine, use = jax.tree.map(lambda x: x[agent], (actors, opts, batch, used))
        actor, opt, loss = _train_agent(config, adam, actor, opt, mine, advantage * factor, use, agent_key, lr)
        factor = factor * on_policy.joint_ratio(on_policy.ratio(actor, mine, use), len(factor))
        actors, opts = jax.tree.map(lambda full, one: full.at[agent].set(one), (actors, opts), (actor, opt))
        return (actors, opts, factor), loss

    start = (state.actors, state.actor_opt, jnp.ones(len(advantage)))
    (actors, opts, factor), losses = jax.lax.scan(step, start, (order, jnp.stack(keys[1:])))
    return actors, opts, {"actor_loss": jnp.mean(losses), "factor_max": jnp.max(factor)}
