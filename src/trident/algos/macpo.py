"""MACPO on hybrid actions on one page (Gu et al. 2021): constrained trust-region steps, agents one after another.

Agent i_m, in random order, with M = prod_{j<m} pi_new / pi_old of the agents before it, solves

    max E[r_i M A_0]   subject to   J_k + E[r_i M A_k] <= d_k  (k = 1..K),    E[KL(old || new)] <= delta

by one natural step (maths.constrained_update): all cases of the linearised problem are solved exactly. Where no point
of the trust region satisfies the constraints it does what the official code does, a pure cost-descent step to the edge
of the trust region. Other than there, that step is also tried where a constraint is violated and the line search finds
nothing on the way that should satisfy it; if both searches fail, or if nothing is violated, the policy stays as it was.
The KL is that of the hybrid policy, KL(modes) + E_modes[KL(parameters)].

J_k is the mean cost per step of the policy that is being updated, measured in this round's rollout: it is neither stale
nor zero in the first round. A_k is a discounted advantage, so that E[A_k] is the change of the mean cost per step.
E[M A_k] is what the agents before i_m have already spent; the official code lets each agent spend the whole slack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from trident.algos.common import on_policy
from trident.algos.common.actor import act, actors_init
from trident.algos.common.behaviour_cloning import WARM_LOG_STD, WARM_LR, WARM_ROWS, WARM_STEPS, imitate
from trident.algos.common.central_critic import Body, central_critic
from trident.algos.common.kinds import first_of_kind, input_size, kinds_of
from trident.algos.common.on_policy import AgentBatch, Values, too_many_minibatches
from trident.allowed import Count, Discount, LogStd, Passes, Positive, Rate, Share, TrustRegion, Weight, Widths
from trident.maths.fisher import fisher_product
from trident.maths.spread import over_devices
from trident.maths.trust_region import RECOVERY, REJECTED, UpdateInfo, UpdateRule, constrained_update
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, PerCost, Physics, Transition


@dataclass(frozen=True)
class MACPOConfig:
    envs: Count = 64
    """Parallel environments."""
    steps: Count = 50
    """Steps of each environment per round."""
    hidden: Widths = (128, 128)
    """Hidden layers of each agent's actor."""
    critic_hidden: Widths = (256, 256)
    """Hidden layers of each signal's value network."""
    critic_body: Body = "pooled"
    """pooled: what agents of a kind see is encoded alike and averaged; concatenated: side by side."""
    discount: Discount = 0.95
    """Discount of future rewards."""
    cost_discount: Discount = 0.95
    """Discount of future costs."""
    gae_lambda: Share = 0.95
    """Decay of the advantage estimator's traces."""
    trust_region: TrustRegion = 0.02
    """KL of an agent's policy per round (delta); official values are 0.0065 to 0.016 with half as much data."""
    cg_steps: Passes = 10
    """Conjugate-gradient steps."""
    damping: Weight = 0.1
    """Added to the Fisher matrix's diagonal."""
    backtracks: Passes = 10
    """Shorter steps that are tried, each 0.7 times the one before."""
    fisher_batch: Count = 512
    """States of the Fisher matrix."""
    critic_lr: Rate = 1e-3
    """Learning rate of the value networks (Adam)."""
    epochs: Passes = 5
    """Passes of the value networks over a round's data."""
    minibatches: Count = 4
    """Minibatches per pass."""
    max_grad: Positive = 10.0
    """Gradient-norm clip of the value networks."""
    log_std: LogStd = -0.7
    """Initial log standard deviation before the squash."""
    base_policy: bool = False
    """Actors correct the base policy of the environment's physics, if it has one, as TRIDENT's do."""
    share_actors: bool = True
    """Agents of a kind share one actor, and move together; otherwise each has its own."""
    agent_id: bool = False
    """Actors see which agent they act for."""

    def faults(self) -> Iterator[str]:
        return too_many_minibatches(self.minibatches, self.envs * self.steps)


class MACPOState(NamedTuple):
    actors: Any  # stacked over kinds of agents
    critic: Values


def make(config: MACPOConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    """Of `physics` nothing is used but, on demand, its base policy: this is a vanilla baseline."""
    base_policy = physics.base_policy if config.base_policy and physics is not None else None
    kinds = kinds_of(spec, config.share_actors, config.agent_id)
    central = central_critic(spec, config.critic_body, config.critic_hidden)
    used = first_of_kind(kinds, jnp.asarray(spec.action.used))
    adam = on_policy.adam(config.max_grad)

    def init(key: Any) -> MACPOState:
        actor_key, critic_key = jax.random.split(key)
        actors = actors_init(
            actor_key, kinds.count, input_size(kinds, spec.obs_dim), config.hidden,
            spec.action.num_modes, spec.action.num_params, config.log_std,
        )  # fmt: skip
        return MACPOState(actors, on_policy.values_init(critic_key, adam, central, spec.num_constraints))

    def update(state: MACPOState, data: Data, key: Any, fraction: Any) -> tuple[MACPOState, Metrics]:
        del fraction  # nothing is annealed
        roll = data.rollout
        order_key, fisher_key, critic_key = jax.random.split(key, 3)
        values = on_policy.initialise_baseline(state.critic, roll, config.discount, config.cost_discount)
        advantages, targets, metrics = on_policy.advantages(
            central, values, roll, config.discount, config.cost_discount, config.gae_lambda
        )
        flat = advantages.reshape(-1, advantages.shape[-1])
        flat = flat - jnp.mean(flat, axis=0)
        budget = jnp.asarray(spec.limits) - jnp.mean(roll.cost, axis=(0, 1))
        batch = over_devices(on_policy.agent_batches(roll, base_policy, kinds), axis=1)
        few = jax.random.permutation(fisher_key, batch.alive.shape[1])[: config.fisher_batch]

        def step(carry: Any, agent: Any) -> Any:
            actors, factor = carry
            actor, mine, use = jax.tree.map(lambda x: x[agent], (actors, batch, used))
            actor, info = update_agent(config, actor, mine, use, flat, factor, budget, few)
            actors = jax.tree.map(lambda full, one: full.at[agent].set(one), actors, actor)
            return (actors, factor * on_policy.joint_ratio(on_policy.ratio(actor, mine, use), len(factor))), info

        order = jax.random.permutation(order_key, kinds.count)
        (actors, _), info = jax.lax.scan(step, (state.actors, jnp.ones(flat.shape[0])), order)
        rows = on_policy.minibatch_rows(critic_key, config.epochs, config.minibatches, flat.shape[0])
        critic = on_policy.fit_values(central, values, adam, roll, targets, rows, config.critic_lr)
        metrics |= {
            "kl": jnp.mean(info.kl),
            "recovery": jnp.mean(info.kind == RECOVERY, dtype=jnp.float32),
            "rejected": jnp.mean(info.kind == REJECTED, dtype=jnp.float32),
            "budget_asked": PerCost(budget),
            "budget_spent": PerCost(jnp.sum(info.change[:, 1:], axis=0)),
            "step_fraction": jnp.mean(info.fraction),
            "multiplier": PerCost(jnp.mean(info.multiplier, axis=0)),
        }
        return MACPOState(actors, critic), metrics

    def prepare(state: MACPOState, roll: Transition, key: Any) -> tuple[MACPOState, Metrics]:
        """Warm start: actors imitate the rollout's policy, values are its own."""
        actor_key, critic_key = jax.random.split(key)
        actors, imitated = imitate(
            state.actors, spec.action, roll, actor_key, WARM_STEPS, WARM_ROWS, WARM_LR,
            min(WARM_LOG_STD, config.log_std), base_policy, kinds,
        )  # fmt: skip
        values, _ = on_policy.fit_ahead(
            central, state.critic, adam, roll, config.discount, config.cost_discount, config.gae_lambda, critic_key,
            config.critic_lr,
        )  # fmt: skip
        return state._replace(actors=actors, critic=values), imitated

    return Algorithm(
        name="macpo",
        plan=DataPlan(config.envs, config.steps),
        init=init,
        act=lambda state, view, key, deterministic: act(
            state.actors, spec.action, view, key, deterministic, base_policy, kinds
        ),
        update=update,
        expect=lambda state, moments: on_policy.expect(
            central, state.critic, moments, config.discount, config.cost_discount
        ),
        prepare=prepare,
        config=config,
    )


def update_agent(
    config: MACPOConfig, actor: Any, batch: AgentBatch, used: Any, advantages: Any, factor: Any, budget: Any, few: Any
) -> tuple[Any, UpdateInfo]:
    """One step of the agents of a kind, who move together. `advantages` [B, J], mean zero; `budget` d - J of the whole
    team; `few` rows of the Fisher matrix. The dead carry no weight in the surrogates of their kind."""
    theta, unravel = ravel_pytree(actor)
    alive = batch.alive.astype(jnp.float32)
    weight = alive / jnp.maximum(jnp.sum(alive), 1.0)

    def surrogates(t: Any) -> Any:
        """Change of the reward and of the costs per step, [J]."""
        change = factor * (on_policy.joint_ratio(on_policy.ratio(unravel(t), batch, used), len(factor)) - 1.0)
        return jnp.mean(change[:, None] * advantages, axis=0)

    spent = jnp.mean(factor[:, None] * advantages, axis=0)[1:]
    product = fisher_product(
        lambda t: on_policy.policy(unravel(t), batch, few), theta, batch.mode_mask[few], used,
        weight[few] / jnp.maximum(jnp.sum(weight[few]), 1e-8),
    )  # fmt: skip
    rule = UpdateRule(
        delta=config.trust_region, cg_steps=config.cg_steps, damping=config.damping, backtracks=config.backtracks,
        demands="whole", recovery="descent",
    )  # fmt: skip
    dist = lambda t: on_policy.policy(unravel(t), batch)  # noqa: E731
    gradients = jax.jacrev(surrogates)(theta)
    theta, info = constrained_update(
        rule, theta, gradients, surrogates, product, dist, batch.mode_mask, used, weight, budget - spent
    )
    return unravel(theta), info
