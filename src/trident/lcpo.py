"""LCPO: agents improve one after another, each by a trust-region step under the round's cost budgets.

    J_k      measured cost rate of the last rounds (the critics give gradients only)
    budget_k = alpha (d_k - J_k - xi_k)     what all agents and passes together may add to surrogate cost k, or, while
                                            J_k is too high, must take off it; one budget per round
    agent i  theta_i <- argmax L_0 subject to L_k <= what is left of budget_k, KL <= delta    (maths.constrained_update)

L_j are the surrogates of `trident.surrogate`, each agent's evaluated with the agents before it already updated. Two
things keep promise and outcome together: states in which limits were violated are rare, and are looked at more often
than they occur; and the share of past promises that came true is measured, and the demand raised accordingly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from trident import critics as pirc
from trident import replay as replays
from trident.critics import CriticState
from trident.maths import hybrid
from trident.maths.constrained_update import UpdateInfo, UpdateRule, constrained_update
from trident.maths.discrete_gradient import default_estimator
from trident.maths.fisher import fisher_product
from trident.maths.returns import gae
from trident.nets import act, actor_apply, actors_apply
from trident.recipe import Task, TridentConfig, round_budget, temperature, training_limits, trust_region
from trident.surrogate import Scene, act_with_noise, choose, through_advantages, through_critics
from trident.types import Data, Metrics, Transition, encode_params


class Gain(NamedTuple):
    """How much of a predicted change of cost was realised so far; [K] each. See `contraction`."""

    cross: Any  # moving sum of realised x predicted
    square: Any  # moving sum of predicted^2
    cost: Any  # moving mean of the measured costs
    predicted: Any  # change that the last round's updates predicted


class PolicyState(NamedTuple):
    actors: Any  # stacked over agents
    gain: Gain
    multiplier: Any  # [K], of safety="lagrangian"


class Report(NamedTuple):
    """What one agent's update did."""

    agent: Any
    info: UpdateInfo
    agreement: Any  # [1 + K] of the gradients of two halves of the batch


GAIN_PRIOR = 1e-4
"""Weight of the belief that predictions come true, in squared units of cost per step."""


def start(task: Task, actors: Any) -> PolicyState:
    zeros = jnp.zeros(task.spec.num_constraints)
    gain = Gain(zeros + GAIN_PRIOR, zeros + GAIN_PRIOR, zeros, zeros)
    return PolicyState(actors, gain, zeros)


def contraction(config: TridentConfig, gain: Gain, cost: Any, first: Any) -> tuple[Gain, Any]:
    """The moving mean of the costs, and the share of predicted changes that was realised: sum(realised x predicted) /
    sum(predicted^2), fading with 0.9.

    A round sees parts of few episodes, so that its costs jump; what they are is better known over a few rounds. A
    surrogate values a change as if every later state stayed as it is now; where feedback would have mended things
    anyway it promises several times too much, and a contraction that is only promised is none.
    """
    smooth = jnp.where(first, cost, config.smooth * gain.cost + (1.0 - config.smooth) * cost)
    realised = jnp.where(first, 0.0, cost - gain.cost)
    cross = 0.9 * gain.cross + realised * gain.predicted
    square = 0.9 * gain.square + gain.predicted**2
    share = jnp.clip(cross / square, 0.25, 1.0) if config.calibrate else jnp.ones_like(cost)
    return gain._replace(cross=cross, square=square, cost=smooth), share


def learn(
    task: Task, state: PolicyState, critic: CriticState, data: Data, key: Any, fraction: Any, rounds: Any
) -> tuple[PolicyState, Metrics]:
    """U passes over the agents."""
    config, spec, roll = task.config, task.spec, data.rollout
    key, advantage_key = jax.random.split(key)
    advantage = advantages(task, state.actors, critic, roll, advantage_key)
    gain, realised = contraction(config, state.gain, jnp.mean(roll.cost, axis=(0, 1)), rounds == 0)
    excess = gain.cost - training_limits(config, spec)
    budget = round_budget(config, excess, realised)
    multiplier = jnp.maximum(state.multiplier + config.multiplier_rate * excess / jnp.asarray(spec.limits), 0.0)
    tau = temperature(config, fraction, rounds)
    delta = trust_region(config, fraction) / config.updates

    def one_pass(carry: Any, pass_key: Any) -> Any:
        scene_key, order_key = jax.random.split(pass_key)
        scene = _scene(task, data, advantage, scene_key)
        order = jnp.arange(spec.num_agents)
        if config.agent_order == "random":
            order = jax.random.permutation(order_key, order)
        before, left = carry[0], (budget - carry[1]) / spec.num_agents

        def one_agent(carry: Any, agent: Any) -> Any:
            actors, spent = carry
            update = AgentUpdate(task, critic, scene, tau, delta, agent, multiplier)
            if config.agent_order == "simultaneous":
                new, report = update.run(before, left)
            else:
                new, report = update.run(actors, budget - spent)
            actors = jax.tree.map(lambda full, one: full.at[agent].set(one), actors, new)
            return (actors, spent + report.info.change[1:]), report

        return jax.lax.scan(one_agent, carry, order)

    start = (state.actors, jnp.zeros(spec.num_constraints))
    (actors, spent), report = jax.lax.scan(one_pass, start, jax.random.split(key, config.updates))
    metrics = _measures(task, roll, report) | {
        "budget_asked": budget,
        "budget_spent": spent,
        "realised": realised,
        "temperature": tau,
        "log_std": jnp.mean(actors["log_std"]),
    }
    if config.safety == "lagrangian":
        metrics["multiplier"] = multiplier
    return PolicyState(actors, gain._replace(predicted=spent), multiplier), metrics


def _measures(task: Task, roll: Transition, report: Report) -> Metrics:
    info = report.info
    kl = jnp.zeros(task.spec.num_agents).at[report.agent].add(info.kl)
    edge = jnp.abs(encode_params(task.spec.action, *roll.action)) > 0.98
    return {
        "kl": jnp.mean(kl),
        **{f"kl/agent{i}": kl[i] for i in range(task.spec.num_agents)},
        "trust_region": jnp.mean(info.kind == 1, dtype=jnp.float32),
        "recovery": jnp.mean(info.kind == 2, dtype=jnp.float32),
        "rejected": jnp.mean(info.kind == 0, dtype=jnp.float32),
        "share_granted": jnp.mean(info.share),
        "surrogate_gain": jnp.sum(info.change[..., 0]),
        "step_fraction": jnp.mean(info.fraction),
        "gradient_agreement": jnp.mean(report.agreement, axis=(0, 1)),
        "box_edge": jnp.mean(jnp.any(edge, axis=-1), dtype=jnp.float32),
    }


def _scene(task: Task, data: Data, advantage: Any, key: Any) -> Scene:
    """States with fresh noise: of this round if it matters what was done in them, else from the replay.

    Replayed states come twice, with opposite noise. With one draw each, a network that can tell the states apart leans
    against (or along) every single draw: that lowers the costs of the batch and of nothing else. Opposite draws leave
    only what holds for both.
    """
    row_key, gumbel_key, noise_key = jax.random.split(key, 3)
    config, action = task.config, task.spec.action
    if config.source == "pathwise":
        half, weights = max(config.policy_batch // 2, 1), attend(config, data.replay.data.cost, data)
        rows, weight = replays.sample_by_weight(data.replay, row_key, half, weights)
        rows, weight = jax.tree.map(lambda x: jnp.concatenate([x, x]), (rows, 0.5 * weight))
        raw = jnp.zeros((*rows.alive.shape, action.num_params))
        done = (rows.executed.mode, raw, jnp.zeros(rows.alive.shape), jnp.zeros((weight.size, task.num_signals)))
    else:
        roll, total = data.rollout, data.rollout.reward.size
        pick = jax.random.permutation(row_key, total)[: min(config.policy_batch, total)]
        flat = lambda x: x.reshape(total, *x.shape[2:])[pick]  # noqa: E731
        rows = jax.tree.map(flat, roll)
        weight = jnp.full(pick.size, 1.0 / pick.size)
        done = (rows.action.mode, rows.extras["raw"], rows.extras["log_prob"], flat(advantage))
    gumbel = jax.random.gumbel(gumbel_key, rows.mode_mask.shape)
    noise = jax.random.normal(noise_key, (*rows.alive.shape, action.num_params))
    if config.source == "pathwise":
        noise = noise.at[noise.shape[0] // 2 :].set(-noise[: noise.shape[0] // 2])
    return Scene(rows.state, rows.obs, rows.mode_mask, rows.alive, weight, gumbel, noise, *done)


def attend(config: TridentConfig, cost: Float[Array, "C K"], data: Data) -> Float[Array, "C"]:
    """Weights with which states are drawn: 1, and more where some cost was paid, so that those make up `attention` of
    a batch (but nobody is drawn more than 20 times as often as the others)."""
    written = jnp.arange(cost.shape[0]) < data.replay.size
    violated = jnp.any(cost > 0, axis=-1) & written
    bad, all_ = jnp.sum(violated), jnp.maximum(jnp.sum(written), 1)
    share = config.attention / (1.0 - config.attention)
    boost = jnp.clip(share * (all_ - bad) / jnp.maximum(bad, 1), 1.0, 20.0)
    return jnp.where(violated, boost, 1.0)


class AgentUpdate(NamedTuple):
    """One agent's constrained step, given what the agents before it have become."""

    task: Task
    critic: CriticState
    scene: Scene
    tau: Any
    delta: Any  # trust region of this update
    agent: Any
    multiplier: Any

    def run(self, actors: Any, budget: Float[Array, "K"]) -> tuple[Any, Report]:
        """New parameters of the agent, and what was done."""
        config, scene, agent = self.task.config, self.scene, self.agent
        used = jnp.asarray(self.task.spec.action.used)[agent]
        mask, weight = scene.mode_mask[:, agent], scene.weight * scene.alive[:, agent]
        weight = weight / jnp.maximum(jnp.sum(weight), 1e-8)
        theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[agent], actors))
        dist = lambda t: actor_apply(unravel(t), scene.obs[:, agent])  # noqa: E731
        halves, change = self._surrogates(actors, theta, unravel, weight)
        rule = UpdateRule(self.delta, config.cg_steps, config.damping, recovery=config.recovery)
        few = slice(0, config.fisher_batch)
        product = fisher_product(
            lambda t: actor_apply(unravel(t), scene.obs[few, agent]), theta, mask[few], used,
            weight[few] / jnp.maximum(jnp.sum(weight[few]), 1e-8),
        )  # fmt: skip
        if config.metric == "euclidean":
            stretch = 2.0 * self.delta / config.step_length**2
            product = lambda v: stretch * v  # noqa: E731
            rule = rule._replace(slack=float("inf"))
        new, info = constrained_update(
            rule, theta, self._priced(halves[0] + halves[1]), lambda t: self._priced(change(t)), product,
            dist, mask, used, weight, budget,
        )  # fmt: skip
        return unravel(new), Report(agent, info, _cosine(*halves))

    def _priced(self, rows: Float[Array, "J *D"]) -> Float[Array, "J *D"]:
        """With multipliers, the objective pays for the costs."""
        if self.task.config.safety != "lagrangian":
            return rows
        return rows.at[0].add(-jnp.tensordot(self.multiplier, rows[1:], axes=1))

    def _surrogates(self, actors: Any, theta: Any, unravel: Any, weight: Any) -> tuple[Any, Any]:
        """Gradients of two halves of the batch [2, J, D], and the change of the surrogates as a function of theta."""
        config, spec, scene, agent = self.task.config, self.task.spec, self.scene, self.agent
        used, mask = jnp.asarray(spec.action.used)[agent], scene.mode_mask[:, agent]
        name = default_estimator(spec.action.num_modes) if config.estimator == "auto" else config.estimator
        everyone = actors_apply(actors, scene.obs)
        view = through_critics(
            self.critic.critics, self.critic.fit, self.task.closed_form, spec.action, self.task.discounts, scene,
            act_with_noise(spec.action, everyone, scene), agent, self.task.num_signals,
        )  # fmt: skip
        log_prob = hybrid.log_prob(everyone, scene.mode_mask, jnp.asarray(spec.action.used), scene.mode, scene.raw)

        def policy(t: Any) -> Any:
            return choose(name, self.tau, config.tau_start, config.kappa, used, agent, scene, unravel(t))

        def rest(t: Any) -> Any:
            """What does not pass through the critics, [B, J]: the score part and the entropy."""
            bonus = config.entropy * hybrid.entropy(actor_apply(unravel(t), scene.obs[:, agent]), mask, used)
            rows = jnp.zeros_like(scene.advantage).at[:, 0].set(bonus)
            if config.source != "pathwise":
                rows += through_advantages(used, scene, agent, log_prob, unravel(t))
            return rows

        choice, pull = jax.vjp(policy, theta)
        values, slopes = view.slope(choice)
        if config.source == "score":
            values, slopes = jax.tree.map(jnp.zeros_like, (values, slopes))
        rest_now, pull_rest = jax.vjp(rest, theta)

        def gradient(signal: Any, rows: Any) -> Any:
            """Of surrogate `signal`, over rows weighted by `rows`."""
            one = jax.tree.map(lambda x: x[signal] * rows.reshape(-1, *(1,) * (x.ndim - 2)), slopes)
            return pull(one)[0] + pull_rest(jnp.zeros_like(rest_now).at[:, signal].set(rows))[0]

        odd = jnp.arange(weight.shape[0]) % 2
        both = jax.vmap(jax.vmap(gradient, in_axes=(0, None)), in_axes=(None, 0))
        halves = both(jnp.arange(self.task.num_signals), weight * jnp.stack([odd, 1 - odd]))
        current = weight @ (values + rest_now)

        def change(t: Any) -> Any:
            rows = rest(t)
            if config.source != "score":
                rows += view.value(policy(t))
            return weight @ rows - current

        return halves, change


def _cosine(first: Float[Array, "J D"], second: Float[Array, "J D"]) -> Float[Array, "J"]:
    """Agreement of the gradients of two halves of the batch: 1 without noise, about 0 when there is nothing else."""
    norms = jnp.linalg.norm(first, axis=-1) * jnp.linalg.norm(second, axis=-1)
    return jnp.sum(first * second, axis=-1) / jnp.maximum(norms, 1e-20)


def advantages(task: Task, actors: Any, critic: CriticState, roll: Transition, key: Any) -> Float[Array, "T E J"]:
    """W of the score part: GAE, less what the pathwise part already knows if it takes part too."""
    config, spec = task.config, task.spec
    if config.source == "pathwise":
        return jnp.zeros((*roll.reward.shape, task.num_signals))
    roll = pirc.shaped(task, roll)
    flat = lambda x: x.reshape(roll.reward.size, *x.shape[2:])  # noqa: E731
    place, view, next_place, next_view, action = jax.tree.map(
        flat, (roll.state, roll.view, roll.next_state, roll.next_view, roll.executed)
    )

    def q(place: Any, obs: Any, action: Any) -> Any:
        parts = pirc.physics_parts(task.closed_form, task.num_signals, place, action)
        x = pirc.critic_input(place, obs, pirc.encode_action(spec.action, *action), parts.successor)
        return pirc.q_phys(critic.fit, parts, task.discounts) + critic.fit.unit * pirc.residual(critic.critics, x)

    def v(place: Any, view: Any, key: Any) -> Any:
        """Mean over sampled joint actions."""
        sample = lambda w, k: act(actors, spec.action, w, k, False)[0]  # noqa: E731
        keys = jax.random.split(key, (4, place.shape[0]))
        return jnp.mean(jax.lax.map(lambda k: q(place, view.obs, jax.vmap(sample)(view, k)), keys), axis=0)

    grid = lambda x: x.reshape(*roll.reward.shape, task.num_signals)  # noqa: E731
    now_key, next_key = jax.random.split(key)
    value, next_value = grid(v(place, view, now_key)), grid(v(next_place, next_view, next_key))
    ended = roll.terminated | roll.truncated
    advantage = gae(
        roll.signals, value, next_value, roll.terminated, ended, task.discounts, config.gae_lambda
    )  # fmt: skip
    if config.source == "both":
        advantage -= grid(q(place, view.obs, action)) - value
    return advantage - jnp.mean(advantage, axis=(0, 1))
