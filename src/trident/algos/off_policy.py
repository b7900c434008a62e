"""MADDPG, MATD3 and FACMAC on one page: deterministic policies that climb a learned Q.

    y = r + discount (1 - terminated) min_c Q'_c(s', mu'(o') + clipped noise)        TD target; ' marks target networks
    critics:  min sum_c (Q_c(s, a) - y)^2                                            on replayed joint actions a
    policies: max E[ Q_1(s, ...) ] - penalty |mu|^2                                  every `delay` critic steps

                 critic                                  what a policy's gradient sees
    MADDPG       one Q(s, o, a) of all agents' actions   its own new action, the others' replayed ones ("own")
    MATD3        two of them, delay 2, target noise      the same
    FACMAC       sum or monotonic mix of Q_i(o_i, a_i)   everybody's new actions at once ("joint")

(Lowe et al. 2017; Ackermann et al. 2019; Peng et al. 2021.) All agents share the team's reward, so that MADDPG's N
critics would be N copies of one regression: there is one. How a policy's output becomes a hybrid action, and what of it
the critics read, is the business of `heads`: `discretised`, `relaxed` or `hybrid`. Critics regress (Q - level) / unit,
level and unit being the mean and spread of the first round's returns. Costs are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from trident import replay as replays
from trident.algos.common.action_heads import MEANT, Head, Noise, make_head
from trident.algos.common.central_critic import Body, CentralCritic, CriticInput, central_critic
from trident.algos.common.kinds import Kinds, actor_input, input_size, kinds_of, per_agent
from trident.allowed import Count, Discount, Passes, Positive, Rate, Rows, Share, Weight, Width, Widths
from trident.maths.returns import explained_variance, return_scale
from trident.nets import mixer_apply, mixer_init, mlp_apply, mlp_init
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, Physics, Transition


@dataclass(frozen=True)
class OffPolicyConfig:
    actions: Literal["hybrid", "discretised", "relaxed"] = "hybrid"
    """hybrid: Gumbel-softmax modes; discretised: parameters on a grid, too; relaxed: argmax of a continuous point."""
    levels: Count = 5
    """Values per parameter of the grid (discretised)."""
    temperature: Positive = 0.5
    """Of the Gumbel-softmax (hybrid, discretised): at 1 a sample hardly tells which mode will be done."""
    critic: Literal["central", "factored"] = "central"
    """central: Q(s, o, a); factored: one Q_i(o_i, a_i) per agent, mixed."""
    mixer: Literal["monotonic", "sum"] = "monotonic"
    """How factored critics become one value."""
    gradient: Literal["own", "joint"] = "own"
    """own: the others act as replayed; joint: all act as their policies do now."""
    twin: bool = False
    """Two critics, the lower one for targets."""
    delay: Passes = 1
    """Critic steps per policy step."""
    target_noise: Weight = 0.0
    """Standard deviation of the noise on target parameters in [-1, 1]; the grid has none."""
    target_clip: Weight = 0.5
    """Clip of that noise."""

    envs: Count = 64
    """Parallel environments."""
    steps: Count = 50
    """Steps of each environment per round."""
    replay: Rows = 64_000
    """Transitions kept for replay."""
    updates: Passes = 64
    """Critic minibatches per round of envs x steps; with the defaults every transition is replayed about 5 times
    per round, the usual ratio of these methods."""
    batch: Count = 256
    """Rows of a minibatch."""
    hidden: Widths = (128, 128)
    """Hidden layers of each policy."""
    share_actors: bool = True
    """Agents of a kind share one policy (and one Q_i, if critics are factored); otherwise each has its own."""
    agent_id: bool = False
    """Policies see which agent they act for."""
    critic_hidden: Widths = (256, 256)
    """Hidden layers of the critics."""
    critic_body: Body = "pooled"
    """Of central critics. pooled: what agents of a kind see and do is encoded alike and averaged; concatenated: side by
    side."""
    mixer_embed: Width = 32
    """Width of the monotonic mixer."""
    mixer_hidden: Width = 64
    """Hidden layer of its hypernetworks."""
    discount: Discount = 0.95
    """Discount of future rewards."""
    lr: Rate = 5e-4
    """Learning rate of the policies (Adam)."""
    critic_lr: Rate = 1e-3
    """Learning rate of the critics."""
    target_rate: Share = 0.01
    """Rate at which target networks follow, once per policy step."""
    max_grad: Positive = 10.0
    """Gradient-norm clip."""
    penalty: Weight = 1e-3
    """Weight of the mean square of the policies' outputs: keeps logits and squashed parameters out of saturation."""
    noise: Share = 0.3
    """Exploration at the start of the run: noise on parameters in [-1, 1], and the share of random modes."""
    noise_final: Share = 0.05
    """Exploration at its end; linear between."""


class Setup(NamedTuple):
    """What stays the same over a run."""

    config: OffPolicyConfig
    kinds: Kinds
    head: Head
    central: CentralCritic  # of critic=central


class Critic(NamedTuple):
    q: Any  # stacked over critics; factored: then over kinds of agents
    mixer: Any  # stacked over critics, or None


class Nets(NamedTuple):
    actors: Any  # stacked over kinds of agents
    critic: Critic


class OffPolicyState(NamedTuple):
    nets: Nets
    target: Nets
    actor_opt: Any
    critic_opt: Any
    level: Any
    unit: Any
    noise: Any
    rounds: Any


def make(config: OffPolicyConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    """`physics` is ignored: these are the vanilla baselines."""
    head = make_head(config.actions, spec.action, config.levels, config.temperature)
    kinds = kinds_of(spec, config.share_actors, config.agent_id)
    setup = Setup(config, kinds, head, central_critic(spec, config.critic_body, config.critic_hidden, head.encoded))
    actor_adam, critic_adam = _adam(config, config.lr), _adam(config, config.critic_lr)

    def init(key: Any) -> OffPolicyState:
        actor_key, critic_key = jax.random.split(key)
        sizes = [input_size(kinds, spec.obs_dim), *config.hidden, head.width]
        actors = _stack(actor_key, kinds.count, lambda k: mlp_init(k, sizes, out_scale=0.01))
        nets = Nets(actors, _critic_init(setup, spec, critic_key))
        opts = actor_adam.init(nets.actors), critic_adam.init(nets.critic)
        return OffPolicyState(nets, nets, *opts, jnp.zeros(()), jnp.ones(()), jnp.array(config.noise), jnp.int32(0))

    def act(state: OffPolicyState, view: Any, key: Any, deterministic: bool) -> Any:
        return head.decide(
            policies(kinds, state.nets.actors, view.obs), view, key, None if deterministic else state.noise
        )

    def update(state: OffPolicyState, data: Data, key: Any, fraction: Any) -> tuple[OffPolicyState, Metrics]:
        state = _set_scale(config, state, data.rollout)

        def critic_step(carry: Any, step_key: Any) -> Any:
            nets, target, opt = carry
            row_key, noise_key = jax.random.split(step_key)
            rows = replays.sample(data.replay, row_key, config.batch)
            goal = td_target(setup, target, rows, state.level, state.unit, noise_key)
            loss = lambda critic: critic_loss(setup, critic, rows, goal)  # noqa: E731
            grads, metrics = jax.grad(loss, has_aux=True)(nets.critic)
            changes, opt = critic_adam.update(grads, opt, nets.critic)
            return (nets._replace(critic=optax.apply_updates(nets.critic, changes)), target, opt), metrics

        def step(carry: Any, keys: Any) -> Any:
            """`delay` critic steps, then one policy step and a move of the targets."""
            nets, target, actor_opt, critic_opt = carry
            critic_keys, row_key, act_key = keys
            (nets, _, critic_opt), metrics = jax.lax.scan(critic_step, (nets, target, critic_opt), critic_keys)
            rows = replays.sample(data.replay, row_key, config.batch)
            loss = lambda actors: actor_loss(setup, actors, nets.critic, rows, act_key)  # noqa: E731
            value, grads = jax.value_and_grad(loss)(nets.actors)
            changes, actor_opt = actor_adam.update(grads, actor_opt, nets.actors)
            nets = nets._replace(actors=optax.apply_updates(nets.actors, changes))
            target = optax.incremental_update(nets, target, config.target_rate)
            return (nets, target, actor_opt, critic_opt), metrics | {"actor_loss": value}

        count = max(config.updates // config.delay, 1)
        critic_key, row_key, act_key = jax.random.split(key, 3)
        keys = (
            jax.random.split(critic_key, (count, config.delay)),
            jax.random.split(row_key, count),
            jax.random.split(act_key, count),
        )
        start = (state.nets, state.target, state.actor_opt, state.critic_opt)
        (nets, target, actor_opt, critic_opt), metrics = jax.lax.scan(step, start, keys)
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics |= {"value": state.level + state.unit * metrics.pop("q"), "noise": state.noise}
        noise = config.noise + (config.noise_final - config.noise) * fraction
        return OffPolicyState(
            nets, target, actor_opt, critic_opt, state.level, state.unit, noise, state.rounds + 1
        ), metrics

    return Algorithm(
        name="off-policy",
        plan=DataPlan(config.envs, config.steps, config.replay, (MEANT,)),
        init=init,
        act=act,
        update=update,
        config=config,
    )


def policies(kinds: Kinds, actors: Any, obs: Any) -> Any:
    """[..., N, O] -> outputs of every agent's network, [..., N, W]."""
    return per_agent(kinds, mlp_apply, actors, actor_input(kinds, obs), axis=obs.ndim - 2)


def q_values(setup: Setup, critic: Critic, rows: Transition, encoded: Any, alive: Any) -> Any:
    """(Q - level) / unit of every critic, [C, B], in the states `rows` stand in; the dead neither act nor count."""
    encoded = encoded * alive[..., None]
    if setup.config.critic == "central":
        x = CriticInput(rows.state, rows.obs, encoded)
        return jax.vmap(setup.central.apply, in_axes=(0, None))(critic.q, x)[..., 0]

    def mixed(q: Any, mixer: Any) -> Any:
        seen = jnp.concatenate([rows.obs, encoded], axis=-1)
        utilities = per_agent(setup.kinds, mlp_apply, q, seen, axis=seen.ndim - 2)[..., 0] * alive
        return jnp.sum(utilities, axis=-1) if mixer is None else mixer_apply(mixer, rows.state, utilities)

    return jax.vmap(mixed, in_axes=(0, None if critic.mixer is None else 0))(critic.q, critic.mixer)


def td_target(setup: Setup, target: Nets, rows: Transition, level: Any, unit: Any, key: Any) -> Any:
    """(y - level) / unit."""
    config = setup.config
    after = rows._replace(obs=rows.next_obs, state=rows.next_state)
    noise = Noise(config.target_noise, config.target_clip) if config.target_noise else None
    action = setup.head.relax(policies(setup.kinds, target.actors, rows.next_obs), rows.next_mode_mask, key, noise)
    following = level + unit * jnp.min(q_values(setup, target.critic, after, action, rows.next_alive), axis=0)
    y = rows.reward + config.discount * jnp.where(rows.terminated, 0.0, following)
    return jax.lax.stop_gradient((y - level) / unit)


def critic_loss(setup: Setup, critic: Critic, rows: Transition, goal: Any) -> tuple[Any, Metrics]:
    q = q_values(setup, critic, rows, rows.extras[MEANT], rows.alive)
    loss = jnp.mean((q - goal) ** 2, axis=-1)
    metrics = {"critic_loss": jnp.mean(loss), "q": jnp.mean(q), "explained_variance": explained_variance(q[0], goal)}
    return jnp.sum(loss), metrics


def actor_loss(setup: Setup, actors: Any, critic: Critic, rows: Transition, key: Any) -> Any:
    """-E[Q_1] of the policies' actions, one term per agent in its own context ("own") or one for all ("joint")."""
    config = setup.config
    out = policies(setup.kinds, actors, rows.obs)
    action = setup.head.relax(out, rows.mode_mask, key, None)
    first = jax.tree.map(lambda x: x[:1], critic)
    value = lambda a: q_values(setup, first, rows, a, rows.alive)[0]  # noqa: E731
    if config.gradient == "joint":
        gain = jnp.mean(value(action))
    else:
        replayed, mine = rows.extras[MEANT], jnp.eye(rows.alive.shape[-1], dtype=bool)
        each = jax.vmap(lambda me: value(jnp.where(me[:, None], action, replayed)))(mine)  # [N, B]
        gain = jnp.mean(jnp.sum(each * rows.alive.T, axis=0))
    return config.penalty * jnp.mean(out**2) - gain


def _critic_init(setup: Setup, spec: EnvSpec, key: Any) -> Critic:
    """The last layers start at 1 % scale: the first critic says `level`."""
    config, kinds, head, central = setup
    count = 2 if config.twin else 1
    q_key, mixer_key = jax.random.split(key)
    if config.critic == "central":
        return Critic(_stack(q_key, count, central.init), None)
    sizes = [spec.obs_dim + head.encoded, *config.critic_hidden, 1]
    own = lambda k: _stack(k, kinds.count, lambda j: mlp_init(j, sizes, out_scale=0.01))  # noqa: E731
    mix = lambda k: mixer_init(k, spec.state_dim, spec.num_agents, config.mixer_embed, config.mixer_hidden)  # noqa: E731
    return Critic(_stack(q_key, count, own), _stack(mixer_key, count, mix) if config.mixer == "monotonic" else None)


def _stack(key: Any, count: int, make_one: Any) -> Any:
    return jax.vmap(make_one)(jax.random.split(key, count))


def _adam(config: OffPolicyConfig, lr: float) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(config.max_grad), optax.adam(lr))


def _set_scale(config: OffPolicyConfig, state: OffPolicyState, roll: Transition) -> OffPolicyState:
    """Level and unit of the critics come from the first round and stay."""
    level, unit = return_scale(roll, config.discount)
    first = state.rounds == 0
    return state._replace(level=jnp.where(first, level, state.level), unit=jnp.where(first, unit, state.unit))
