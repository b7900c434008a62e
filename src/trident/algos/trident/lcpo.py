"""LCPO: agents improve one after another, each by a trust-region step under the round's cost budgets.

    J_k      measured cost rate of the last rounds (the critics give gradients only)
    budget_k = alpha (d_k - J_k - xi_k)     what all agents and passes together may add to surrogate cost k, or, while
                                            J_k is too high, must take off it; one budget per round
    agent i  theta_i <- argmax L_0 subject to L_k <= what is left of budget_k, KL <= delta    (maths.trust_region)

L_j are the surrogates of `surrogate`, each agent's evaluated with the agents before it already updated. Two
things keep promise and outcome together: states in which limits were violated are rare, and are looked at more often
than they occur; and the share of past promises that came true is measured, and the demand raised accordingly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from trident import physics_value
from trident import replay as replays
from trident.algos.common import inputs
from trident.algos.common.actor import act, actor_by_parts, base_offset
from trident.algos.common.kfac import Seen, kronecker_inverse
from trident.algos.trident import critics as pirc
from trident.algos.trident.config import (
    Problem,
    TridentConfig,
    round_budget,
    temperature,
    training_limits,
    trust_region,
)
from trident.algos.trident.critics import CriticState
from trident.algos.trident.surrogate import (
    Choice,
    RolloutBatch,
    Scene,
    act_with_noise,
    choose,
    policies,
    policy,
    ratios,
    through_critics,
)
from trident.maths.discrete_gradient import default_estimator
from trident.maths.fisher import fisher_product
from trident.maths.gradient_filter import shrink_to_signal
from trident.maths.returns import gae
from trident.maths.trust_region import UpdateInfo, UpdateRule, constrained_update
from trident.types import Data, Metrics, Transition, encode_params


class CostTracker(NamedTuple):
    """How much of a predicted change of cost was realised so far; [K] each. See `contraction`."""

    cross: Any  # moving sum of realised x predicted
    square: Any  # moving sum of predicted^2
    cost: Any  # moving mean of the measured costs
    predicted: Any  # change that the updates so far predicted against that mean
    known: Any  # bool, not [K]: whether a cost has been measured yet
    warm_started: Any  # bool, not [K]: whether the run began with one


class PolicyState(NamedTuple):
    actors: Any  # stacked over agents
    gain: CostTracker
    multiplier: Any  # [K], of safety="lagrangian"


class Report(NamedTuple):
    """What one agent's update did."""

    agent: Any
    info: UpdateInfo
    share: Any  # [2, 1 + K] of the gradients that is believed, through the mode and through the parameters


GAIN_PRIOR = 1e-4
"""Weight of the belief that predictions come true, in squared units of cost per step."""


def start(task: Problem, actors: Any) -> PolicyState:
    zeros = jnp.zeros(task.spec.num_constraints)
    gain = CostTracker(zeros + GAIN_PRIOR, zeros + GAIN_PRIOR, zeros, zeros, jnp.bool_(False), jnp.bool_(False))
    return PolicyState(actors, gain, zeros)


def memory(config: TridentConfig, gain: CostTracker) -> Any:
    """Share of the past in the moving mean."""
    return jnp.where(gain.warm_started, config.warm_smooth, config.smooth)


def contraction(config: TridentConfig, gain: CostTracker, cost: Any) -> tuple[CostTracker, Any]:
    """The moving mean of the costs, and the share of predicted changes that was realised: sum(realised x predicted) /
    sum(predicted^2), fading with 0.9.

    A round sees parts of few episodes, so that its costs jump; what they are is better known over a few rounds. A
    surrogate values a change as if every later state stayed as it is now; where feedback would have mended things
    anyway it promises several times too much, and a contraction that is only promised is none.
    """
    smooth = memory(config, gain)
    mean = jnp.where(gain.known, smooth * gain.cost + (1.0 - smooth) * cost, cost)
    realised = jnp.where(gain.known, cost - gain.cost, 0.0)
    cross = 0.9 * gain.cross + realised * gain.predicted
    square = 0.9 * gain.square + gain.predicted**2
    share = jnp.clip(cross / square, 0.25, 1.0) if config.calibrate else jnp.ones_like(cost)
    return gain._replace(cross=cross, square=square, cost=mean, known=jnp.bool_(True)), share


def promise(config: TridentConfig, gain: CostTracker, change: Any) -> CostTracker:
    """Remember the change that a round's updates predict. A moving mean lags behind: against it, a new cost shows the
    last round's change, `smooth` of that of the round before, and so on."""
    return gain._replace(predicted=change + memory(config, gain) * gain.predicted)


def learn(
    task: Problem, state: PolicyState, critic: CriticState, data: Data, key: Any, fraction: Any, rounds: Any
) -> tuple[PolicyState, Metrics]:
    """U passes over the agents."""
    config, spec, roll = task.config, task.spec, data.rollout
    taken, trust = rollout_batch(task, state.actors, critic, roll)
    cost = jnp.mean(roll.cost, axis=(0, 1))
    if config.feasible == "critic":
        cost = critic_cost_estimate(task, state.actors, critic, roll)
    gain, realised = contraction(config, state.gain, cost)
    excess = gain.cost - training_limits(config, spec)
    budget = round_budget(config, excess, realised)
    multiplier = jnp.maximum(
        state.multiplier + config.multiplier_rate * excess / jnp.maximum(jnp.asarray(spec.limits), 1e-3), 0.0
    )
    tau = temperature(config, fraction, rounds)
    delta = trust_region(task, fraction) / config.updates

    def one_pass(carry: Any, pass_key: Any) -> Any:
        scene_key, order_key, inner_key = jax.random.split(pass_key, 3)
        order = jnp.arange(spec.num_agents)
        if config.agent_order == "random":
            order = jax.random.permutation(order_key, order)
        before, left = carry[0], (budget - carry[1]) / spec.num_agents

        def one_agent(carry: Any, agent: Any) -> Any:
            actors, spent = carry
            scene = _scene(task, data, agent, jax.random.fold_in(scene_key, agent))
            own_key = jax.random.fold_in(inner_key, agent)
            update = AgentUpdate(task, critic, scene, taken, trust, tau, delta, agent, multiplier, own_key)
            if config.agent_order == "simultaneous":
                new, report = update.run(before, left)
            else:
                new, report = update.run(actors, budget - spent if config.share_budget else budget)
            actors = jax.tree.map(lambda full, one: full.at[agent].set(one), actors, new)
            return (actors, spent + report.info.change[1:]), report

        return jax.lax.scan(one_agent, carry, order)

    start = (state.actors, jnp.zeros(spec.num_constraints))
    (actors, spent), report = jax.lax.scan(one_pass, start, jax.random.split(key, config.updates))
    metrics = _measures(task, roll, report) | {
        "budget_asked": budget,
        "budget_granted": jnp.where(budget < 0, jnp.sum(jnp.minimum(report.info.granted, 0.0), axis=(0, 1)), budget),
        "budget_spent": spent,
        "realised": realised,
        "temperature": tau,
    }
    if spec.action.num_params:
        metrics["log_std"] = jnp.mean(actors["log_std"])
    if task.source == "weighed":
        metrics["trust"] = trust
    if config.safety == "lagrangian":
        metrics["multiplier"] = multiplier
    return PolicyState(actors, promise(config, gain, spent), multiplier), metrics


def _measures(task: Problem, roll: Transition, report: Report) -> Metrics:
    info = report.info
    kl = jnp.zeros(task.spec.num_agents).at[report.agent].add(info.kl)
    edge = jnp.abs(encode_params(task.spec.action, *roll.action)) > 0.98
    mode, params = jnp.mean(report.share, axis=(0, 1))
    return {
        "kl": jnp.mean(kl),
        **{f"kl/agent{i}": kl[i] for i in range(task.spec.num_agents)},
        "trust_region": jnp.mean(info.kind == 1, dtype=jnp.float32),
        "recovery": jnp.mean(info.kind == 2, dtype=jnp.float32),
        "rejected": jnp.mean(info.kind == 0, dtype=jnp.float32),
        "share_granted": jnp.mean(info.share),
        "surrogate_gain": jnp.sum(info.change[..., 0]),
        "step_fraction": jnp.mean(info.fraction),
        "signal/mode": mode,
        "signal/params": params,
        "saturation": jnp.sum(jnp.any(edge, axis=-1) & roll.alive) / jnp.maximum(jnp.sum(roll.alive), 1),
    }


def _scene(task: Problem, data: Data, agent: Any, key: Any) -> Scene:
    """Replayed states in which to judge one agent, each twice, with fresh and opposite noise.

    With one draw each, a network that can tell the states apart leans against (or along) every single draw: that
    lowers the costs of the batch and of nothing else. Opposite draws leave only what holds for both.
    """
    row_key, gumbel_key, noise_key = jax.random.split(key, 3)
    count = 2 * max(task.config.policy_batch // 4, 1)  # even: each half of the batch has both draws of its states
    rows, weight = replays.sample_by_weight(data.replay, row_key, count, violation_weights(task.config, data, agent))
    noise = jax.random.normal(noise_key, (*rows.alive.shape, task.spec.action.num_params))
    twice = lambda x: jnp.concatenate([x, x])  # noqa: E731
    state, obs, mask, alive, weight = map(twice, (rows.state, rows.obs, rows.mode_mask, rows.alive, 0.5 * weight))
    gumbel, base = jax.random.gumbel(gumbel_key, mask.shape), base_offset(task.base_policy, rows.obs)
    return Scene(state, obs, mask, alive, weight, gumbel, jnp.concatenate([noise, -noise]), jax.tree.map(twice, base))


def violation_weights(config: TridentConfig, data: Data, agent: Any) -> Float[Array, "C"]:
    """Weights with which states are drawn: 1, and more where the agent had a part in some cost, so that those make up
    `violation_fraction` of a batch (but nobody is drawn more than 20 times as often as the others)."""
    rows = data.replay.data
    written = jnp.arange(rows.cost.shape[0]) < data.replay.size
    at_fault = rows.cost > 0 if rows.cost_attribution is None else rows.cost_attribution[:, agent]
    violated = jnp.any(at_fault, axis=-1) & written
    bad, all_ = jnp.sum(violated), jnp.maximum(jnp.sum(written), 1)
    share = config.violation_fraction / (1.0 - config.violation_fraction)
    boost = jnp.clip(share * (all_ - bad) / jnp.maximum(bad, 1), 1.0, 20.0)
    return jnp.where(violated, boost, 1.0)


class AgentUpdate(NamedTuple):
    """One agent's constrained step, given what the agents before it have become."""

    task: Problem
    critic: CriticState
    scene: Scene
    taken: RolloutBatch | None  # what was done in this round; None if only the critics are asked
    trust: Any  # weight of the critics' gradients beside the advantages
    tau: Any
    delta: Any  # trust region of this update
    agent: Any
    multiplier: Any
    key: Any

    def run(self, actors: Any, budget: Float[Array, "K"]) -> tuple[Any, Report]:
        """New parameters of the agent, and what was done."""
        config, source, scene, agent = self.task.config, self.task.source, self.scene, self.agent
        used = jnp.asarray(self.task.spec.action.used)[agent]
        mask, weight = scene.mode_mask[:, agent], scene.weight * scene.alive[:, agent]
        weight = weight / jnp.maximum(jnp.sum(weight), 1e-8)
        theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[agent], actors))
        dist = lambda t: policy(unravel(t), scene, agent)  # noqa: E731
        halves, change = self._through_critics(actors, theta, unravel, weight)
        direction, gain = self._through_advantages(actors, theta, unravel)

        def surrogates(t: Any) -> Any:
            changes = change(t)
            if source == "score":
                changes = changes.at[0].set(gain(t))
            if source in ("both", "weighed"):
                changes = changes.at[0].multiply(self.trust).at[0].add(gain(t))
            return self._priced(changes)

        rule = UpdateRule(self.delta, config.cg_steps, config.damping, config.backtracks, recovery=config.recovery)
        if config.safety == "paper":
            rule = rule._replace(demands="none", divergence="new-old")
        product, precondition = self._fisher(theta, unravel, mask, used, weight)
        if config.metric == "euclidean":
            rule = rule._replace(slack=float("inf"))
        filtered, share = shrink_to_signal(halves)
        gradients = filtered if config.filter else jnp.sum(halves, axis=(0, 1))
        if direction is not None:  # as long as the critics' gradient, so that a price means the same for both
            rise = product(direction)
            rise *= jnp.linalg.norm(gradients[0]) / jnp.maximum(jnp.linalg.norm(rise), 1e-10)
            action_grads = 0.0 if source == "score" else self.trust * gradients[0]
            gradients = gradients.at[0].set(action_grads + rise)
        gradients = self._priced(gradients)
        new, info = constrained_update(
            rule, theta, gradients, surrogates, product, dist, mask, used, weight, budget, precondition
        )
        return unravel(new), Report(agent, info, share)

    def _fisher(self, theta: Any, unravel: Any, mask: Any, used: Any, weight: Any) -> tuple[Any, Any]:
        """Multiplication with the metric of the trust region, and with about its inverse."""
        config, scene, agent, same = self.task.config, self.scene, self.agent, lambda v: v
        if config.metric == "euclidean":
            stretch = 2.0 * self.delta / config.step_length**2
            return lambda v: stretch * v, same
        few = slice(0, config.fisher_batch)
        mask, weight = mask[few], weight[few] / jnp.maximum(jnp.sum(weight[few]), 1e-8)
        obs, base = jax.tree.map(lambda x: x[few, agent], (scene.obs, scene.base_offset))
        product = fisher_product(lambda t: actor_by_parts(unravel(t), obs, base), theta, mask, used, weight)
        if not config.precondition:
            return product, same
        _, key = jax.random.split(self.key)
        inverse = kronecker_inverse(key, unravel(theta), Seen(obs, mask, base, weight), used, config.damping)
        return product, lambda v: ravel_pytree(inverse(unravel(v)))[0]

    def _priced(self, rows: Float[Array, "J *D"]) -> Float[Array, "J *D"]:
        """With multipliers, the objective pays for the costs."""
        if self.task.config.safety != "lagrangian":
            return rows
        return rows.at[0].add(-jnp.tensordot(self.multiplier, rows[1:], axes=1))

    def _through_critics(self, actors: Any, theta: Any, unravel: Any, weight: Any) -> tuple[Any, Any]:
        """Gradients of two halves of the batch, through the mode and through the parameters, [2, 2, J, D]; and the
        change of the surrogates as a function of theta."""
        config, spec, scene, agent = self.task.config, self.task.spec, self.scene, self.agent
        name = default_estimator(spec.action.num_modes) if config.estimator == "auto" else config.estimator
        everyone = act_with_noise(spec.action, policies(actors, scene), scene)
        fit = self.critic.fit
        if self.task.source == "closed-form":
            fit = fit._replace(unit=fit.unit.at[0].set(0.0))
        view = through_critics(
            self.critic.critics, fit, self.task.closed_form, spec.action, self.task.discounts, scene,
            everyone, agent, self.task.num_signals,
        )  # fmt: skip
        used = jnp.asarray(spec.action.used)[agent]
        estimator = (name, self.tau, config.tau_start, config.kappa)
        chosen = lambda t: choose(*estimator, used, agent, scene, unravel(t))  # noqa: E731
        values, action_grads = view.action_grad(chosen(theta))

        def gradient(half: Scene, rows: Any, action_grads: Choice) -> Any:
            """Of all surrogates over half of the rows: through the mode, and through the parameters."""
            _, pull = jax.vjp(lambda t: choose(*estimator, used, agent, half, unravel(t)), theta)
            action_grads = jax.tree.map(lambda x: x * rows.reshape(1, -1, *(1,) * (x.ndim - 2)), action_grads)
            nothing = jax.tree.map(jnp.zeros_like, action_grads)
            paths = [action_grads._replace(unit=nothing.unit), nothing._replace(unit=action_grads.unit)]
            one_by_one = lambda s: jax.lax.map(lambda each: pull(each)[0], s)  # noqa: E731  (faster than all at once)
            return jax.lax.map(one_by_one, jax.tree.map(lambda *x: jnp.stack(x), *paths))

        split = lambda x: jnp.moveaxis(x.reshape(x.shape[0] // 2, 2, *x.shape[1:]), 1, 0)  # noqa: E731
        apart = jax.tree.map(jax.vmap(split, out_axes=1), action_grads)
        halves = jax.vmap(gradient)(jax.tree.map(split, scene), split(weight), apart)
        current = weight @ values
        return halves, lambda t: weight @ view.value(chosen(t)) - current

    def _through_advantages(self, actors: Any, theta: Any, unravel: Any) -> tuple[Any, Any]:
        """Where a few clipped steps on this round's advantages lead (as a direction), and the surrogate's gain."""
        if self.taken is None:
            return None, None
        config, rows = self.task.config, self.taken
        used = jnp.asarray(self.task.spec.action.used)
        mine, others = ratios(used, rows, actors, self.agent)
        advantage = rows.advantage * others
        weight = rows.alive[:, self.agent] / jnp.maximum(jnp.sum(rows.alive[:, self.agent]), 1.0)
        adam = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(config.inner_lr, eps=1e-5))

        def loss(t: Any, pick: Any) -> Any:
            some = jax.tree.map(lambda x: x[pick], rows)
            ratio = mine(unravel(t), some)
            clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
            worst = jnp.minimum(ratio * advantage[pick], clipped * advantage[pick])
            return -jnp.sum(weight[pick] * worst) * config.inner_minibatches

        def step(carry: Any, pick: Any) -> Any:
            t, opt = carry
            updates, opt = adam.update(jax.grad(loss)(t, pick), opt, t)
            return (t + updates, opt), None

        total = advantage.shape[0]
        key, _ = jax.random.split(self.key)
        keys = jax.random.split(key, config.inner_epochs)
        size = total // config.inner_minibatches
        picks = jax.vmap(lambda k: jax.random.permutation(k, total))(keys)[:, : size * config.inner_minibatches]
        (there, _), _ = jax.lax.scan(step, (theta, adam.init(theta)), picks.reshape(-1, size))
        gain = lambda t: jnp.sum(weight * (mine(unravel(t), rows) - 1.0) * advantage)  # noqa: E731
        return there - theta, gain


def _values(
    task: Problem, critic: CriticState, place: Any, view: Any, here: Float[Array, "B J"], action: Any
) -> Float[Array, "B J"]:
    """Q of an action; `here` is what no action changes of the closed form, and is known of every transition."""
    parts = physics_value.physics_parts(task.closed_form, task.num_signals, place, action, here=False)
    parts = parts._replace(here=here)
    x = inputs.q_input(place, view.obs, inputs.encode_action(task.spec.action, *action))
    return physics_value.q_phys(critic.fit, parts, task.discounts) + critic.fit.unit * pirc.residual(critic.critics, x)


def mode_action(task: Problem, actors: Any, view: Any) -> Any:
    """What the policy would most likely do: a baseline without the noise of a drawn action."""
    return jax.vmap(lambda w: act(actors, task.spec.action, w, None, True, task.base_policy)[0])(view)


def critic_cost_estimate(task: Problem, actors: Any, critic: CriticState, roll: Transition) -> Float[Array, "K"]:
    """(1 - gamma) V_c(s0), over the states in which episodes begin (over all, if none does in this round)."""
    start = (roll.state, roll.view, roll.extras[pirc.KNOWN].parts.here)
    place, view, here = jax.tree.map(lambda x: x.reshape(roll.reward.size, *x.shape[2:]), start)
    values = _values(task, critic, place, view, here, mode_action(task, actors, view))
    cost = ((1.0 - task.discounts) * values)[:, 1:]
    first = jnp.concatenate([jnp.zeros_like(roll.terminated[:1]), (roll.terminated | roll.truncated)[:-1]]).reshape(-1)
    weight = jnp.where(first.any(), first, True)
    return weight @ cost / jnp.sum(weight)


def rollout_batch(task: Problem, actors: Any, critic: CriticState, roll: Transition) -> tuple[RolloutBatch | None, Any]:
    """What was done in this round, with the reward's advantage: GAE upon the critic, normalised. And how far
    the critics' gradients are to be trusted beside it."""
    config = task.config
    if task.source in ("pathwise", "closed-form"):
        return None, 1.0
    roll = pirc.shaped(task, roll)
    flat = lambda x: x.reshape(roll.reward.size, *x.shape[2:])  # noqa: E731

    known = roll.extras[pirc.KNOWN]
    before = (roll.state, roll.view, known.parts.here)
    after = (roll.next_state, roll.next_view, known.next_here)
    ends = jax.tree.map(lambda a, b: jnp.stack([flat(a), flat(b)]), before, after)  # through one compiled body

    def value(end: Any) -> Any:
        place, view, here = end
        return _values(task, critic, place, view, here, mode_action(task, actors, view))[:, 0]

    values = jax.lax.map(value, ends)
    now, then = values.reshape(2, *roll.reward.shape)
    ended = roll.terminated | roll.truncated
    advantage = gae(roll.reward, now, then, roll.terminated, ended, config.discount, config.gae_lambda)
    advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
    mode, raw, log_prob = roll.action.mode, roll.extras["raw"], roll.extras["log_prob"]
    obs, mask, alive, mode, raw, log_prob = map(flat, (roll.obs, roll.mode_mask, roll.alive, mode, raw, log_prob))
    taken = RolloutBatch(
        obs, mask, alive, mode, raw, log_prob, advantage.reshape(-1), base_offset(task.base_policy, obs)
    )
    if task.source != "weighed":
        return taken, 1.0
    done = _values(task, critic, *jax.tree.map(flat, (*before, roll.executed)))[:, 0]
    return taken, agreement(done - values[0], taken.advantage)


def agreement(believed: Float[Array, "B"], measured: Float[Array, "B"]) -> Float[Array, ""]:
    """Correlation, 0 where it is negative: what share of the measured advantages the critics' own would have told."""
    believed, measured = believed - jnp.mean(believed), measured - jnp.mean(measured)
    lengths = jnp.linalg.norm(believed) * jnp.linalg.norm(measured)
    return jnp.maximum(jnp.vdot(believed, measured) / jnp.maximum(lengths, 1e-8), 0.0)
