"""TRIDENT on one page: SHA + PIRC + LCPO, to be held beside the paper's Algorithm 1.

    line of Algorithm 1                                   here
    1     actors theta_i, residual critic, cost critics   init
    3-6   sample a_i^d, a_i^c; execute; push to B         the loop, through `act`
    4     Jacobians at tau and tau_0 (STGC)               surrogate.choose, by name in maths.discrete_gradient
    8-9   TD on phi_res and psi_k                         _learn_critics
    10-15 agents one after another                        _learn_policies
    11    advantages of the reward and of the costs       surrogate.through_critics, surrogate.through_advantages
    12-14 trust-region step or recovery                   maths.constrained_update
    16    annealing of tau                                temperature

Where the default differs from the print, the printed variant has a name: estimator="stgc-paper", budget="paper",
recovery="paper", agent_order="fixed", anneal="paper". docs/trident.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from trident import critics as pirc
from trident import replay as replays
from trident.imitate import imitate
from trident.maths import hybrid
from trident.maths.constrained_update import UpdateRule, constrained_update
from trident.maths.discrete_gradient import default_estimator
from trident.maths.fisher import fisher_product
from trident.maths.returns import gae
from trident.nets import act, actor_apply, actors_apply, actors_init
from trident.surrogate import Scene, act_with_noise, choose, through_advantages, through_critics
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, Physics, Transition, encode_params


@dataclass(frozen=True)
class TridentConfig:
    envs: int = 64
    """Parallel environments."""
    steps: int = 50
    """Steps of each environment per round."""
    replay: int = 64_000
    """Transitions kept for the critics."""
    discount: float = 0.95
    """Discount of rewards."""
    cost_discount: float = 0.8
    """Discount of costs."""
    immediate_discount: float = 0.5
    """Discount of costs that are declared to fall in the same step: a long horizon would drown what an action does at
    once in what the critic believes of later."""

    hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of each agent's actor."""
    log_std: float = -0.7
    """Initial log standard deviation before the squash."""
    estimator: str = "auto"
    """Discrete gradient: auto (exact up to 4 modes, stgc above), gs, st, stgc, stgc-paper, romberg, exact."""
    tau_start: float = 1.0
    """Temperature at the start of the run; also the fixed reference tau_0 of stgc-paper."""
    tau_min: float = 0.1
    """Temperature after annealing."""
    kappa: float = 2.0
    """Ratio of the two temperatures of ratio-locked stgc."""
    anneal: Literal["fraction", "paper"] = "fraction"
    """fraction: geometric over the first 60 % of the run; paper: times 0.9995 per round."""

    critic_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward critic."""
    cost_hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of each cost critic."""
    physics: Literal["residual", "none"] = "residual"
    """residual: frozen closed form + learned rest; none: a plain critic."""
    cost_physics: bool = True
    """Give the cost critics the closed form too."""
    fit_rounds: int = 8
    """The closed form's scale is fitted anew in the first rounds, then frozen: what follows an action depends on
    the policy, and the first one is random."""
    critic_steps: int = 32
    """Critic minibatches per round."""
    critic_batch: int = 256
    """Rows of a critic minibatch."""
    critic_lr: float = 1e-3
    """Learning rate of the critics."""
    target_rate: float = 0.01
    """Rate at which target networks follow."""

    source: Literal["pathwise", "score", "both"] = "pathwise"
    """Ascent direction: pathwise through the critics; score: likelihood ratio times GAE; both: pathwise plus the score
    of what the critics leave unexplained, which removes their bias at the price of variance."""
    gae_lambda: float = 0.95
    """Decay of the advantage estimator's traces (score, both)."""
    updates: int = 2
    """Passes over the agents per round (U)."""
    policy_batch: int = 512
    """States of a policy update, drawn from this round's rollout."""
    trust_region: float = 0.04
    """KL of an agent's policy per round (delta), shared equally by the passes."""
    alpha: float = 0.2
    """Share of the slack that a round may spend."""
    alpha_back: float = 0.5
    """Share of the excess that a round must give back, as far as the trust region can."""
    calibrate: bool = True
    """Ask the surrogate for as much more as its predictions have fallen short of the costs measured later."""
    slack: float = 0.0
    """xi: subtracted from the limits, in units of cost per step."""
    tighten: float = 0.5
    """Training limits as a share of the declared ones: an optimiser spends what it is given."""
    budget: Literal["lyapunov", "paper"] = "lyapunov"
    """lyapunov: alpha (d - J - xi); paper: d - J, as printed."""
    recovery: Literal["natural", "paper", "none"] = "natural"
    """What to do when the constrained step is impossible."""
    agent_order: Literal["random", "fixed"] = "random"
    """Order in which the agents are updated."""
    entropy: float = 0.0
    """Weight of the policy's entropy in the reward surrogate."""
    warm_steps: int = 1500
    """Imitation minibatches of a safe start (--warm-start), and half as many for the critics."""
    warm_log_std: float = -1.6
    """Log standard deviation after a safe start: exploration that a feasible policy survives."""
    fisher_batch: int = 256
    """States of the Fisher matrix, the first of the policy batch."""
    cg_steps: int = 8
    """Conjugate-gradient steps."""
    damping: float = 0.01
    """Added to the Fisher matrix's diagonal."""

    def discounts(self, spec: EnvSpec) -> Any:
        """Of the reward and of every cost, [1 + K]."""
        costs = [self.immediate_discount if c.immediate else self.cost_discount for c in spec.constraints]
        return jnp.array([self.discount, *costs])


class Gain(NamedTuple):
    """How much of a predicted change of cost was realised so far; [K] each. See `_contraction`."""

    cross: Any  # moving sum of realised x predicted
    square: Any  # moving sum of predicted^2
    cost: Any  # mean cost of the last round
    predicted: Any  # change that the last round's updates predicted


class TridentState(NamedTuple):
    actors: Any  # stacked over agents
    critics: pirc.Critics
    target: pirc.Critics
    opt: Any
    fit: pirc.PhysicsFit
    sums: pirc.FitSums
    gain: Gain
    rounds: Any


def make(config: TridentConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    adam = optax.adam(config.critic_lr)
    closed = _closed_form(config, spec, physics)

    def init(key: Any) -> TridentState:
        actor_key, critic_key = jax.random.split(key)
        actors = actors_init(
            actor_key, spec.num_agents, spec.obs_dim, config.hidden,
            spec.action.num_modes, spec.action.num_params, config.log_std,
        )  # fmt: skip
        encoded = spec.num_agents * (spec.action.num_modes + spec.action.num_params)
        size = spec.state_dim + spec.num_agents * spec.obs_dim + encoded
        critics = pirc.init(critic_key, size, spec.num_constraints, config.critic_hidden, config.cost_hidden)
        ones = jnp.ones(1 + spec.num_constraints)
        fit = pirc.PhysicsFit(0.0 * ones, 0.0 * ones, 0.0 * ones, ones)
        sums = pirc.FitSums(jnp.zeros((ones.size, 3, 3)), jnp.zeros((ones.size, 3)))
        zeros = jnp.zeros(spec.num_constraints)
        gain = Gain(zeros + GAIN_PRIOR, zeros + GAIN_PRIOR, zeros, zeros)
        return TridentState(actors, critics, critics, adam.init(critics), fit, sums, gain, jnp.int32(0))

    def update(state: TridentState, data: Data, key: Any, fraction: Any) -> tuple[TridentState, Metrics]:
        critic_key, policy_key = jax.random.split(key)
        state, physics_metrics = _fit_physics(config, closed, spec, state, data.rollout)
        state, critic_metrics = _learn_critics(config, closed, spec, adam, state, data, critic_key)
        state, policy_metrics = _learn_policies(config, closed, spec, state, data.rollout, policy_key, fraction)
        state = state._replace(rounds=state.rounds + 1)
        return state, physics_metrics | critic_metrics | policy_metrics

    def prepare(state: TridentState, roll: Transition, key: Any) -> tuple[TridentState, Metrics]:
        actor_key, critic_key = jax.random.split(key)
        actors, metrics = imitate(
            state.actors, spec.action, roll, actor_key, config.warm_steps, 512, 1e-3, config.warm_log_std
        )
        state, _ = _fit_physics(config, closed, spec, state._replace(actors=actors), roll)
        whole = replays.Replay(replays.block_of(roll), jnp.int32(roll.reward.size))
        state, critic_metrics = _learn_critics(
            replace(config, critic_steps=config.warm_steps // 2),
            closed,
            spec,
            adam,
            state,
            Data(roll, whole),
            critic_key,
        )
        return state._replace(rounds=jnp.int32(config.fit_rounds)), metrics | critic_metrics

    return Algorithm(
        name="trident",
        plan=DataPlan(config.envs, config.steps, config.replay),
        init=init,
        act=lambda state, view, key, deterministic: act(state.actors, spec.action, view, key, deterministic),
        update=update,
        prepare=prepare,
        config=config,
    )


# --- PIRC -----------------------------------------------------------------------------------------


def _closed_form(config: TridentConfig, spec: EnvSpec, physics: Physics | None) -> Physics | None:
    """The physics the critics may use: none of it, the reward's, or the costs' as well."""
    if physics is None or config.physics != "residual":
        return None
    keep = jnp.array([1.0] + [float(config.cost_physics)] * spec.num_constraints)
    return Physics(lambda s, a: keep * physics.signals(s, a), physics.predict, physics.nominal)


def _fit_physics(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, state: TridentState, roll: Transition
) -> tuple[TridentState, Metrics]:
    """The scale of the closed form comes from early data and then stays."""
    shape = roll.reward.shape
    flat = lambda x: x.reshape(roll.reward.size, *x.shape[2:])  # noqa: E731
    parts = pirc.physics_parts(physics, 1 + spec.num_constraints, flat(roll.state), jax.tree.map(flat, roll.executed))
    parts = jax.tree.map(lambda x: x.reshape(*shape, -1), parts)
    ended = roll.terminated | roll.truncated
    early = state.rounds < config.fit_rounds
    fresh = pirc.fit_sums(roll.signals, ended, parts, config.discounts(spec))
    sums = jax.tree.map(lambda old, new: old + jnp.where(early, new, 0.0), state.sums, fresh)
    unit = jnp.where(early, pirc.spread(roll.signals, ended, config.discounts(spec)), state.fit.unit)
    fit = pirc.fit_physics(sums, unit)
    r2 = pirc.r2_phys(fit, roll.signals, ended, parts, config.discounts(spec))
    metrics = {"r2_phys": r2, "physics_later": fit.later, "physics_here": fit.here}
    return state._replace(fit=fit, sums=sums), metrics


def _learn_critics(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, adam: Any, state: TridentState, data: Data, key: Any
) -> tuple[TridentState, Metrics]:
    """TD on replayed rows. The policy and the closed form do not change meanwhile: one pass for all minibatches."""
    row_key, act_key = jax.random.split(key)
    count = config.critic_steps * config.critic_batch
    rows = replays.sample(data.replay, row_key, count)
    choose_action = lambda view, k: act(state.actors, spec.action, view, k, False)[0]  # noqa: E731
    following = jax.vmap(choose_action)(rows.next_view, jax.random.split(act_key, count))
    batch = pirc.batch_of(rows, following, spec.action, physics, state.fit, config.discounts(spec))
    batches = jax.tree.map(lambda x: x.reshape(config.critic_steps, config.critic_batch, *x.shape[1:]), batch)

    def step(carry: Any, minibatch: Any) -> Any:
        critics, target, opt = carry
        critics, target, opt, measures = pirc.td_step(
            critics, target, opt, adam, state.fit, minibatch, config.discounts(spec), config.target_rate
        )
        return (critics, target, opt), measures

    (critics, target, opt), measures = jax.lax.scan(step, (state.critics, state.target, state.opt), batches)
    metrics = jax.tree.map(lambda m: jnp.mean(m, axis=0), measures)
    return state._replace(critics=critics, target=target, opt=opt), metrics


# --- LCPO -----------------------------------------------------------------------------------------


def temperature(config: TridentConfig, fraction: Any, rounds: Any) -> Any:
    if config.anneal == "paper":
        return jnp.maximum(config.tau_min, config.tau_start * 0.9995**rounds)
    share = jnp.minimum(fraction / 0.6, 1.0)
    return config.tau_start * (config.tau_min / config.tau_start) ** share


def training_limits(config: TridentConfig, spec: EnvSpec) -> Any:
    return config.tighten * jnp.asarray(spec.limits) - config.slack


def round_budget(config: TridentConfig, excess: Any, realised: Any = 1.0) -> Any:
    """What the surrogate costs of the whole round may change by, all agents and passes together (negative: must)."""
    if config.budget == "paper":
        return -excess
    return -excess * jnp.where(excess > 0, config.alpha_back / realised, config.alpha)


GAIN_PRIOR = 1e-4
"""Weight of the belief that predictions come true, in squared units of cost per step."""


def _contraction(config: TridentConfig, gain: Gain, cost: Any, first: Any) -> tuple[Gain, Any]:
    """The share of predicted changes that was realised: sum(realised x predicted) / sum(predicted^2), fading with 0.9.

    A surrogate values a change as if every later state stayed as it is now; where feedback would have mended things
    anyway it promises several times too much, and a contraction that is only promised is none.
    """
    realised = jnp.where(first, 0.0, cost - gain.cost)
    cross = 0.9 * gain.cross + realised * gain.predicted
    square = 0.9 * gain.square + gain.predicted**2
    share = jnp.clip(cross / square, 0.05, 1.0) if config.calibrate else jnp.ones_like(cost)
    return gain._replace(cross=cross, square=square, cost=cost), share


def _learn_policies(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, state: TridentState, roll: Transition,
    key: Any, fraction: Any,
) -> tuple[TridentState, Metrics]:  # fmt: skip
    key, advantage_key = jax.random.split(key)
    advantage = _advantages(config, physics, spec, state, roll, advantage_key)
    cost = jnp.mean(roll.cost, axis=(0, 1))
    gain, realised = _contraction(config, state.gain, cost, state.rounds == 0)
    budget = round_budget(config, cost - training_limits(config, spec), realised)
    tau = temperature(config, fraction, state.rounds)

    def one_pass(carry: Any, pass_key: Any) -> Any:
        actors, spent = carry
        scene_key, order_key = jax.random.split(pass_key)
        scene = _scene(config, spec, roll, advantage, scene_key)
        order = jnp.arange(spec.num_agents)
        if config.agent_order == "random":
            order = jax.random.permutation(order_key, order)

        def one_agent(carry: Any, agent: Any) -> Any:
            actors, spent = carry
            actors, (info, agreement) = _update_agent(
                config, physics, spec, state, scene, actors, agent, budget - spent, tau
            )
            return (actors, spent + info.change[1:]), (info, agreement, agent)

        return jax.lax.scan(one_agent, (actors, spent), order)

    start = (state.actors, jnp.zeros(spec.num_constraints))
    (actors, spent), (info, agreement, agents) = jax.lax.scan(one_pass, start, jax.random.split(key, config.updates))
    kl = jnp.zeros(spec.num_agents).at[agents].add(info.kl)
    edge = jnp.abs(encode_params(spec.action, *roll.action)) > 0.98
    metrics = {
        "kl": jnp.mean(kl),
        **{f"kl/agent{i}": kl[i] for i in range(spec.num_agents)},
        "trust_region": jnp.mean(info.kind == 1, dtype=jnp.float32),
        "recovery": jnp.mean(info.kind == 2, dtype=jnp.float32),
        "rejected": jnp.mean(info.kind == 0, dtype=jnp.float32),
        "budget_asked": budget,
        "budget_spent": spent,
        "realised": realised,
        "share_granted": jnp.mean(info.share),
        "surrogate_gain": jnp.sum(info.change[..., 0]),
        "step_fraction": jnp.mean(info.fraction),
        "temperature": tau,
        "gradient_agreement": jnp.mean(agreement),
        "box_edge": jnp.mean(jnp.any(edge, axis=-1), dtype=jnp.float32),
    }
    return state._replace(actors=actors, gain=gain._replace(predicted=spent)), metrics


def _advantages(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, state: TridentState, roll: Transition, key: Any
) -> Any:
    """W [T, E, J] of the score part: GAE, less what the pathwise part already knows if it takes part too."""
    num_signals = 1 + spec.num_constraints
    if config.source == "pathwise":
        return jnp.zeros((*roll.reward.shape, num_signals))

    flat = lambda x: x.reshape(roll.reward.size, *x.shape[2:])  # noqa: E731
    place, view, next_place, next_view, action = jax.tree.map(
        flat, (roll.state, roll.view, roll.next_state, roll.next_view, roll.executed)
    )

    def q(place: Any, obs: Any, action: Any) -> Any:
        x = pirc.critic_input(place, obs, pirc.encode_action(spec.action, *action))
        parts = pirc.physics_parts(physics, num_signals, place, action)
        return pirc.q_phys(state.fit, parts, config.discounts(spec)) + state.fit.unit * pirc.residual(state.critics, x)

    def v(place: Any, view: Any, key: Any) -> Any:
        """Mean over sampled joint actions."""
        sample = lambda w, k: act(state.actors, spec.action, w, k, False)[0]  # noqa: E731
        keys = jax.random.split(key, (4, place.shape[0]))
        return jnp.mean(jax.lax.map(lambda k: q(place, view.obs, jax.vmap(sample)(view, k)), keys), axis=0)

    grid = lambda x: x.reshape(*roll.reward.shape, num_signals)  # noqa: E731
    now_key, next_key = jax.random.split(key)
    value, next_value = grid(v(place, view, now_key)), grid(v(next_place, next_view, next_key))
    ended = roll.terminated | roll.truncated
    advantage = gae(
        roll.signals,
        value,
        next_value,
        roll.terminated,
        ended,
        config.discounts(spec),
        config.gae_lambda,
    )
    if config.source == "both":
        advantage -= grid(q(place, view.obs, action)) - value
    return advantage - jnp.mean(advantage, axis=(0, 1))


def _scene(config: TridentConfig, spec: EnvSpec, roll: Transition, advantage: Any, key: Any) -> Scene:
    """States of this round, with fresh noise."""
    row_key, gumbel_key, noise_key = jax.random.split(key, 3)
    total = roll.reward.size
    flat = lambda x: x.reshape(total, *x.shape[2:])  # noqa: E731
    rows = jax.random.permutation(row_key, total)[: min(config.policy_batch, total)]
    state, obs, mask, alive = (flat(x)[rows] for x in (roll.state, roll.obs, roll.mode_mask, roll.alive))
    gumbel = jax.random.gumbel(gumbel_key, mask.shape)
    noise = jax.random.normal(noise_key, (*alive.shape, spec.action.num_params))
    done = (flat(x)[rows] for x in (roll.action.mode, roll.extras["raw"], roll.extras["log_prob"], advantage))
    return Scene(state, obs, mask, alive, gumbel, noise, *done)


def _update_agent(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, state: TridentState, scene: Scene,
    actors: Any, agent: Any, budget: Any, tau: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """One agent's constrained step, given what the agents before it have become."""
    name = default_estimator(spec.action.num_modes) if config.estimator == "auto" else config.estimator
    used = jnp.asarray(spec.action.used)[agent]
    mask, weight = scene.mode_mask[:, agent], scene.alive[:, agent].astype(jnp.float32)
    weight = weight / jnp.maximum(jnp.sum(weight), 1.0)
    everyone = actors_apply(actors, scene.obs)
    view = through_critics(
        state.critics, state.fit, physics, spec.action, config.discounts(spec), scene,
        act_with_noise(spec.action, everyone, scene), agent, 1 + spec.num_constraints,
    )  # fmt: skip
    log_prob = hybrid.log_prob(everyone, scene.mode_mask, jnp.asarray(spec.action.used), scene.mode, scene.raw)
    theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[agent], actors))
    policy = lambda t: choose(name, tau, config.tau_start, config.kappa, used, agent, scene, unravel(t))  # noqa: E731
    dist = lambda t: actor_apply(unravel(t), scene.obs[:, agent])  # noqa: E731

    def rest(t: Any) -> Any:
        """What does not pass through the critics, [B, J]: the score part and the entropy."""
        bonus = config.entropy * hybrid.entropy(dist(t), mask, used)
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

    gradients = jax.vmap(gradient, in_axes=(0, None))(jnp.arange(1 + spec.num_constraints), weight)
    odd = jnp.arange(weight.shape[0]) % 2
    halves = jax.vmap(gradient, in_axes=(None, 0))(0, weight * jnp.stack([odd, 1 - odd]))
    current = weight @ (values + rest_now)

    def surrogates(t: Any) -> Any:
        rows = rest(t)
        if config.source != "score":
            rows += view.value(policy(t))
        return weight @ rows - current

    rule = UpdateRule(
        delta=config.trust_region / config.updates, cg_steps=config.cg_steps, damping=config.damping,
        recovery=config.recovery,
    )  # fmt: skip
    few = slice(0, config.fisher_batch)
    product = fisher_product(
        lambda t: actor_apply(unravel(t), scene.obs[few, agent]), theta, mask[few], used,
        weight[few] / jnp.maximum(jnp.sum(weight[few]), 1e-8),
    )  # fmt: skip
    theta, info = constrained_update(rule, theta, gradients, surrogates, product, dist, mask, used, weight, budget)
    actors = jax.tree.map(lambda full, one: full.at[agent].set(one), actors, unravel(theta))
    return actors, (info, _cosine(*halves))


def _cosine(a: Any, b: Any) -> Any:
    """Agreement of the gradients of two halves of the batch: 1 without noise, about 0 when there is nothing else."""
    return a @ b / jnp.maximum(jnp.linalg.norm(a) * jnp.linalg.norm(b), 1e-12)
