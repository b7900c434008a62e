"""MADAC on hybrid actions on one page (Li & Azizan 2024): a safety actor, a task actor, state-wise constraints.

The environment's margins say how safe a step was, h = min(0, min_k margin_k). Beside the twin critics of the reward
there are twin critics of the worst that lies ahead, and beside each agent's task policy pi a safety policy u that keeps
away from it:

    Q_h(s, a) <- gamma_h min(h, Q_h'(s', u'(s')))  <= 0                      (terminated: gamma_h h)
    safety policies   max Q_h(s, u) - beta |u - pi|^2
    task policies     where Q_h(s, u(s)) >= -region, the states that can still be kept safe:
                          min -Q(s, a) - alpha H(pi) + [lambda - rho c]_+^2 / (2 rho),    c = Q_h(s, a) + region
                      elsewhere: regress to the safety action
    lambda_i <- lambda_i + 0.2 / rho (mean [lambda_i - rho c]_+ - lambda_i)   in [0, lambda_max]

Adapted to hybrid actions, which the method does not know: both policies choose a mode by Gumbel-softmax and have
parameters for each (heads.hybrid_head); regressing to the safety action is cross-entropy for the mode and squares for
the parameters of the safe mode; the entropy is that of mode and parameters together, but the parameters' share moves
only the parameters: a density's entropy falls without bound as it sharpens, and through the logits it would pay for
modes that have few parameters. As in the official code, in the first `warmup` rounds actions are drawn evenly and the
policies rest (without it a team settles for whichever modes its untrained parameters happen to suit), and a running
average of the task policies is what is evaluated. Further differences from the official code: one-step targets instead
of five; all agents at once instead of one after another; the constraint is the region's own edge instead of zero, so
that multipliers can also fall; the margin of the state itself is not replayed, so the region is judged by Q_h alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from trident import replay as replays
from trident.algos.common.action_heads import MEANT, Head, hybrid_head
from trident.algos.common.actor import actors_apply, actors_init
from trident.algos.common.central_critic import Body, CentralCritic, CriticInput, central_critic
from trident.algos.common.kinds import Kinds, input_size, kinds_of
from trident.allowed import Count, Discount, LogStd, Passes, Positive, Rate, Rounds, Rows, Share, Weight, Widths
from trident.maths import hybrid
from trident.maths.returns import return_scale
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, Physics, Transition


@dataclass(frozen=True)
class MADACConfig:
    envs: Count = 64
    """Parallel environments."""
    steps: Count = 50
    """Steps of each environment per round."""
    replay: Rows = 64_000
    """Transitions kept for replay."""
    updates: Passes = 64
    """Critic minibatches per round."""
    warmup: Rounds = 3
    """Rounds at the start in which actions are drawn evenly and only the critics learn."""
    delay: Passes = 2
    """Critic steps per step of the policies."""
    batch: Count = 256
    """Rows of a minibatch."""
    hidden: Widths = (128, 128)
    """Hidden layers of the policies."""
    share_actors: bool = True
    """Agents of a kind share their two policies; otherwise each has its own."""
    agent_id: bool = False
    """Policies see which agent they act for."""
    critic_hidden: Widths = (256, 256)
    """Hidden layers of the critics."""
    critic_body: Body = "pooled"
    """pooled: what agents of a kind see and do is encoded alike and averaged; concatenated: side by side."""
    discount: Discount = 0.95
    """Discount of future rewards."""
    safety_discount: Discount = 0.9
    """gamma_h, discount of the worst margin ahead."""
    lr: Rate = 1e-3
    """Learning rate of the policies (Adam)."""
    critic_lr: Rate = 1e-3
    """Learning rate of the critics."""
    target_rate: Share = 0.01
    """Rate at which target networks follow, and with them the averaged policy; once per step of the policies."""
    max_grad: Positive = 10.0
    """Gradient-norm clip."""
    temperature: Positive = 0.5
    """Of the Gumbel-softmax."""
    alpha: Weight = 0.01
    """Weight of the entropy, in units of the returns' spread."""
    log_std: LogStd = -0.7
    """Initial log standard deviation before the squash."""
    region: Weight = 0.5
    """How far below zero, in units of the margins, the worst ahead may be in states that count as safe."""
    rho: Positive = 10.0
    """Penalty of the augmented Lagrangian."""
    multiplier_rate: Weight = 0.2
    """Rate of the multipliers."""
    multiplier_max: Weight = 1500.0
    """Bound of the multipliers."""
    proximity: Weight = 0.01
    """beta, weight of the safety action's distance from the task policy's."""


class Critics(NamedTuple):
    reward: Any  # stacked over twins
    safety: Any  # stacked over twins


class Actors(NamedTuple):
    task: Any  # stacked over kinds of agents
    safety: Any  # likewise


class MADACState(NamedTuple):
    actors: Actors
    average: Any  # of the task actors
    critics: Critics
    target: tuple[Actors, Critics]
    actor_opt: Any
    critic_opt: Any
    multipliers: Any  # [N]
    level: Any
    unit: Any
    rounds: Any


def make(config: MADACConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    """`physics` is ignored: this is a vanilla baseline."""
    head = hybrid_head(spec.action, config.temperature)
    kinds = kinds_of(spec, config.share_actors, config.agent_id)
    central = central_critic(spec, config.critic_body, config.critic_hidden, head.encoded)
    chain = lambda lr: optax.chain(optax.clip_by_global_norm(config.max_grad), optax.adam(lr))  # noqa: E731
    actor_adam, critic_adam = chain(config.lr), chain(config.critic_lr)

    def init(key: Any) -> MADACState:
        keys = jax.random.split(key, 3)
        seen, modes = input_size(kinds, spec.obs_dim), spec.action.num_modes
        sizes = seen, config.hidden, modes, spec.action.num_params, config.log_std
        actors = Actors(*(actors_init(k, kinds.count, *sizes) for k in keys[:2]))
        critics = Critics(*(jax.vmap(central.init)(jax.random.split(k)) for k in jax.random.split(keys[2])))
        opts = actor_adam.init(actors), critic_adam.init(critics)
        zeros = jnp.zeros(spec.num_agents), jnp.zeros(()), jnp.ones(()), jnp.int32(0)
        return MADACState(actors, actors.task, critics, (actors, critics), *opts, *zeros)

    def act(state: MADACState, view: Any, key: Any, deterministic: bool) -> Any:
        noise_key, head_key = jax.random.split(key)
        if deterministic:
            return head.decide(outputs(kinds, state.average, view.obs, None), view, head_key, None)
        meant = outputs(kinds, state.actors.task, view.obs, noise_key)
        meant = jnp.where(state.rounds < config.warmup, even(spec, noise_key), meant)
        return head.decide(meant, view, head_key, 0.0)

    def update(state: MADACState, data: Data, key: Any, fraction: Any) -> tuple[MADACState, Metrics]:
        del fraction  # nothing is annealed
        level, unit = return_scale(data.rollout, config.discount)
        first = state.rounds == 0
        level, unit = jnp.where(first, level, state.level), jnp.where(first, unit, state.unit)

        def critic_step(carry: Any, step_key: Any) -> Any:
            critics, opt, target = carry
            row_key, act_key = jax.random.split(step_key)
            rows = replays.sample(data.replay, row_key, config.batch)
            goals = td_targets(config, kinds, head, central, target, rows, level, unit, act_key)
            grads, metrics = jax.grad(critic_loss, has_aux=True)(critics, central, rows, goals)
            changes, opt = critic_adam.update(grads, opt, critics)
            return (optax.apply_updates(critics, changes), opt, target), metrics

        def step(carry: Any, keys: Any) -> Any:
            """`delay` critic steps, then one of both policies and of the multipliers."""
            actors, average, critics, target, actor_opt, critic_opt, multipliers = carry
            critic_keys, row_key, act_key = keys
            (critics, critic_opt, _), seen = jax.lax.scan(critic_step, (critics, critic_opt, target), critic_keys)
            rows = replays.sample(data.replay, row_key, config.batch)
            loss = lambda a: actor_loss(config, spec, kinds, head, central, a, critics, rows, multipliers, act_key)  # noqa: E731
            grads, (priced, metrics) = jax.grad(loss, has_aux=True)(actors)
            changes, opt = actor_adam.update(grads, actor_opt, actors)
            moved, rest = (optax.apply_updates(actors, changes), opt, priced), (actors, actor_opt, multipliers)
            hold = lambda old, new: jnp.where(state.rounds < config.warmup, old, new)  # noqa: E731
            actors, actor_opt, multipliers = jax.tree.map(hold, rest, moved)
            target = optax.incremental_update((actors, critics), target, config.target_rate)
            average = optax.incremental_update(actors.task, average, config.target_rate)
            return (actors, average, critics, target, actor_opt, critic_opt, multipliers), seen | metrics

        count = max(config.updates // config.delay, 1)
        shapes = ((count, config.delay), (count,), (count,))
        keys = tuple(jax.random.split(k, s) for k, s in zip(jax.random.split(key, 3), shapes, strict=True))
        start = (*state[:4], state.actor_opt, state.critic_opt, state.multipliers)
        end, metrics = jax.lax.scan(step, start, keys)
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics |= {"value": level + unit * metrics.pop("q"), "multiplier": jnp.mean(end[6])}
        return MADACState(*end, level, unit, state.rounds + 1), metrics

    return Algorithm(
        name="madac",
        plan=DataPlan(config.envs, config.steps, config.replay, (MEANT,)),
        init=init,
        act=act,
        update=update,
        config=config,
    )


def outputs(kinds: Kinds, actors: Any, obs: Any, key: Any) -> Any:
    """What the head reads: logits and, for each mode, parameters before the squash; sampled, or (no key) the means."""
    dist = actors_apply(actors, obs, kinds=kinds)
    raw = dist.mean if key is None else _sample(dist, key)
    return jnp.concatenate([dist.logits, raw.reshape(*raw.shape[:-2], -1)], axis=-1)


def even(spec: EnvSpec, key: Any) -> Any:
    """Outputs that say nothing, [N, W]: equal logits, and parameters that the squash spreads evenly over the box."""
    shape = spec.num_agents, spec.action.num_modes * spec.action.num_params
    raw = jnp.arctanh(jax.random.uniform(key, shape, minval=-0.999, maxval=0.999))
    return jnp.concatenate([jnp.zeros((spec.num_agents, spec.action.num_modes)), raw], axis=-1)


def worst(margin: Any) -> Any:
    """h = min(0, min_k margin_k); 0 without constraints."""
    return jnp.min(margin, axis=-1, initial=0.0)


def twins(central: CentralCritic, nets: Any, rows: Transition, action: Any, alive: Any) -> Any:
    """Both critics' values, [2, B]; the dead do nothing."""
    x = CriticInput(rows.state, rows.obs, action * alive[..., None])
    return jax.vmap(central.apply, in_axes=(0, None))(nets, x)[..., 0]


def td_targets(
    config: MADACConfig,
    kinds: Kinds,
    head: Head,
    central: CentralCritic,
    target: Any,
    rows: Transition,
    level: Any,
    unit: Any,
    key: Any,
) -> Any:
    """((y - level) / unit, y_h), [2, B]."""
    (actors, critics), keys = target, jax.random.split(key, 3)
    after = rows._replace(obs=rows.next_obs, state=rows.next_state)
    task = head.relax(outputs(kinds, actors.task, rows.next_obs, keys[0]), rows.next_mode_mask, keys[1], None)
    safe = head.relax(outputs(kinds, actors.safety, rows.next_obs, None), rows.next_mode_mask, keys[2], None)
    following = level + unit * jnp.min(twins(central, critics.reward, after, task, rows.next_alive), axis=0)
    y = rows.reward + config.discount * jnp.where(rows.terminated, 0.0, following)
    ahead = jnp.min(twins(central, critics.safety, after, safe, rows.next_alive), axis=0)
    ahead = jnp.where(rows.terminated, 0.0, ahead)
    y_h = config.safety_discount * jnp.minimum(worst(rows.margin), ahead)
    return jax.lax.stop_gradient(((y - level) / unit, y_h))


def critic_loss(critics: Critics, central: CentralCritic, rows: Transition, goals: Any) -> tuple[Any, Metrics]:
    q, q_h = (twins(central, net, rows, rows.extras[MEANT], rows.alive) for net in critics)
    losses = [jnp.mean((value - goal) ** 2) for value, goal in zip((q, q_h), goals, strict=True)]
    return sum(losses), {"critic_loss": losses[0], "safety_loss": losses[1], "q": jnp.mean(q)}


def actor_loss(
    config: MADACConfig, spec: EnvSpec, kinds: Kinds, head: Head, central: CentralCritic, actors: Actors,
    critics: Critics, rows: Transition, multipliers: Any, key: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """(loss of all policies, (new multipliers [N], metrics))"""
    noise_key, task_key, safe_key = jax.random.split(key, 3)
    value = lambda nets, action: jnp.min(twins(central, nets, rows, action, rows.alive), axis=0)  # noqa: E731
    task = head.relax(outputs(kinds, actors.task, rows.obs, noise_key), rows.mode_mask, task_key, None)
    safe = head.relax(outputs(kinds, actors.safety, rows.obs, None), rows.mode_mask, safe_key, None)
    frozen = jax.lax.stop_gradient

    ahead = value(critics.safety, safe)
    near = jnp.sum(((safe - frozen(task)) * rows.alive[..., None]) ** 2, axis=(-2, -1))
    safety_loss = jnp.mean(config.proximity * near - ahead)

    inside = frozen(ahead >= -config.region)
    c = value(critics.safety, task) + config.region
    pressure = jnp.maximum(multipliers - config.rho * c[:, None], 0.0)  # [B, N]
    price = jnp.mean(jnp.where(rows.alive, pressure**2, 0.0), axis=-1) / (2.0 * config.rho)
    bonus = jnp.sum(entropy(spec, kinds, actors.task, rows, noise_key) * rows.alive, axis=-1)
    climb = price - value(critics.reward, task) - config.alpha * bonus
    back = jnp.sum(distance(spec, kinds, actors.task, rows, frozen(safe)) * rows.alive, axis=-1)
    task_loss = jnp.mean(jnp.where(inside, climb, back))

    weight = (inside[:, None] & rows.alive).astype(jnp.float32)
    mean = jnp.sum(weight * pressure, axis=0) / jnp.maximum(jnp.sum(weight, axis=0), 1.0)
    step = jnp.where(jnp.any(weight > 0, axis=0), config.multiplier_rate / config.rho * (mean - multipliers), 0.0)
    after = frozen(jnp.clip(multipliers + step, 0.0, config.multiplier_max))
    return task_loss + safety_loss, (after, {"inside": jnp.mean(inside), "worst_ahead": jnp.mean(ahead)})


def entropy(spec: EnvSpec, kinds: Kinds, actors: Any, rows: Transition, key: Any) -> Any:
    """H of mode and squashed parameters, [B, N]: H(mode) + sum_m p(m) (H(raw | m) + E[log |d tanh|]); no gradient leads
    from the parameters' share to the logits."""
    dist, used = actors_apply(actors, rows.obs, kinds=kinds), jnp.asarray(spec.action.used)
    raw = jnp.abs(_sample(dist, key))
    log_slope = 2.0 * (jnp.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    p = jax.lax.stop_gradient(hybrid.mode_probs(dist.logits, rows.mode_mask))
    of_params = jnp.where(used, dist.log_std + 0.5 + hybrid.HALF_LOG_2PI + log_slope, 0.0)
    of_modes = hybrid.entropy(dist, rows.mode_mask, jnp.zeros_like(used))
    return of_modes + jnp.sum(p * jnp.sum(of_params, axis=-1), axis=-1)


def distance(spec: EnvSpec, kinds: Kinds, actors: Any, rows: Transition, safe: Any) -> Any:
    """Of the task policies from the safety action, [B, N]: -log p(its mode) and squares of that mode's parameters."""
    modes = spec.action.num_modes
    dist, used = actors_apply(actors, rows.obs, kinds=kinds), jnp.asarray(spec.action.used)
    onehot = jax.nn.one_hot(jnp.argmax(safe[..., :modes], axis=-1), modes)
    log_p = hybrid.mode_log_probs(dist.logits, rows.mode_mask)
    gap = jnp.where(used, jnp.tanh(dist.mean) - safe[..., None, modes:], 0.0)
    return jnp.sum(jnp.where(onehot > 0, jnp.sum(gap**2, axis=-1) - log_p, 0.0), axis=-1)


def _sample(dist: hybrid.HybridDist, key: Any) -> Any:
    return dist.mean + jnp.exp(dist.log_std) * jax.random.normal(key, dist.mean.shape)
