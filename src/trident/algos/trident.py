"""TRIDENT on one page: SHA + PIRC + LCPO, to be held beside the paper's Algorithm 1.

    line of Algorithm 1                                   here
    1     actors theta_i, residual critic, cost critics   init
    3-6   sample a_i^d, a_i^c; execute; push to B         the loop, through `act`
    4     Jacobians at tau and tau_0 (STGC)               surrogate.choose, by name in maths.discrete_gradient
    8-9   TD on phi_res and psi_k                         _learn_critics
    10-15 agents one after another                        _learn_policies
    11    advantages of the reward and of the costs       surrogate.through_critics (pathwise), _advantages (score)
    12-14 trust-region step or recovery                   maths.constrained_update
    16    annealing of tau                                temperature

Where the default differs from the print, the printed variant has a name: estimator="stgc-paper", budget="paper",
recovery="paper", agent_order="fixed", anneal="paper". docs/trident.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from trident import critics as pirc
from trident import replay as replays
from trident.maths import hybrid
from trident.maths.constrained_update import UpdateRule, constrained_update
from trident.maths.discrete_gradient import default_estimator
from trident.nets import act, actor_apply, actors_apply, actors_init
from trident.surrogate import Scene, act_with_noise, choose, through_critics
from trident.types import Algorithm, Data, DataPlan, EnvSpec, HybridAction, Metrics, Physics, Transition


@dataclass(frozen=True)
class TridentConfig:
    envs: int = 64
    """Parallel environments."""
    steps: int = 50
    """Steps of each environment per round."""
    replay: int = 64_000
    """Transitions kept for the critics."""
    discount: float = 0.95
    """Discount of rewards and costs."""

    hidden: tuple[int, ...] = (256, 256)
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

    critic_hidden: tuple[int, ...] = (512, 512, 512)
    """Hidden layers of the reward critic."""
    cost_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of each cost critic."""
    physics: Literal["residual", "additive", "none"] = "residual"
    """residual: frozen closed form + learned rest; additive: reward shaping (ablation); none."""
    cost_physics: bool = True
    """Give the cost critics the closed form too."""
    shaping: float = 0.5
    """Weight of the closed form in the reward when physics is additive."""
    critic_steps: int = 32
    """Critic minibatches per round."""
    critic_batch: int = 256
    """Rows of a critic minibatch."""
    critic_lr: float = 1e-3
    """Learning rate of the critics."""
    target_rate: float = 0.01
    """Rate at which target networks follow."""

    updates: int = 4
    """Passes over the agents per round (U)."""
    policy_batch: int = 1024
    """States of a policy update, drawn from this round's rollout."""
    trust_region: float = 0.04
    """KL of an agent's policy per round (delta), shared equally by the passes."""
    alpha: float = 0.2
    """Share of the slack that a round may spend, or of the excess that it must give back."""
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
    cg_steps: int = 10
    """Conjugate-gradient steps."""
    damping: float = 0.01
    """Added to the Fisher matrix's diagonal."""


class TridentState(NamedTuple):
    actors: Any  # stacked over agents
    critics: pirc.Critics
    target: pirc.Critics
    opt: Any
    fit: pirc.PhysicsFit
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
        fit = pirc.PhysicsFit(0.0 * ones, 0.0 * ones, ones)
        return TridentState(actors, critics, critics, adam.init(critics), fit, jnp.int32(0))

    def update(state: TridentState, data: Data, key: Any, fraction: Any) -> tuple[TridentState, Metrics]:
        critic_key, policy_key = jax.random.split(key)
        state, physics_metrics = _fit_physics_once(config, closed, spec, state, data.rollout)
        state, critic_metrics = _learn_critics(config, closed, spec, adam, state, data, critic_key)
        state, policy_metrics = _learn_policies(config, closed, spec, state, data.rollout, policy_key, fraction)
        state = state._replace(rounds=state.rounds + 1)
        return state, physics_metrics | critic_metrics | policy_metrics

    return Algorithm(
        name="trident",
        plan=DataPlan(config.envs, config.steps, config.replay),
        init=init,
        act=lambda state, view, key, deterministic: act(state.actors, spec.action, view, key, deterministic),
        update=update,
        config=config,
    )


# --- PIRC -----------------------------------------------------------------------------------------


def _closed_form(config: TridentConfig, spec: EnvSpec, physics: Physics | None) -> Physics | None:
    """The physics the critics may use: none of it, the reward's, or the costs' as well."""
    if physics is None or config.physics != "residual":
        return None
    keep = jnp.array([1.0] + [float(config.cost_physics)] * spec.num_constraints)
    return Physics(lambda s, a: keep * physics.signals(s, a), physics.predict, physics.nominal)


def _fit_physics_once(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, state: TridentState, roll: Transition
) -> tuple[TridentState, Metrics]:
    """The scale of the closed form comes from the first round's data and stays."""
    parts = lambda s, a: pirc.physics_parts(physics, 1 + spec.num_constraints, s, a)  # noqa: E731
    now, later = jax.vmap(jax.vmap(parts))(roll.state, roll.executed)
    ended = roll.terminated | roll.truncated
    fitted = pirc.fit_physics(roll.signals, ended, now, later, config.discount)
    fit = jax.tree.map(lambda new, old: jnp.where(state.rounds == 0, new, old), fitted, state.fit)
    r2 = pirc.r2_phys(fit, roll.signals, ended, now, later, config.discount)
    return state._replace(fit=fit), {"r2_phys": r2, "physics_scale": fit.scale}


def _learn_critics(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, adam: Any, state: TridentState, data: Data, key: Any
) -> tuple[TridentState, Metrics]:
    """TD on replayed rows. The policy and the closed form do not change meanwhile: one pass for all minibatches."""
    row_key, act_key = jax.random.split(key)
    count = config.critic_steps * config.critic_batch
    rows = replays.sample(data.replay, row_key, count)
    choose_action = lambda view, k: act(state.actors, spec.action, view, k, False)[0]  # noqa: E731
    following = jax.vmap(choose_action)(rows.next_view, jax.random.split(act_key, count))
    batch = pirc.batch_of(rows, following, spec.action, physics, state.fit, config.discount)
    batches = jax.tree.map(lambda x: x.reshape(config.critic_steps, config.critic_batch, *x.shape[1:]), batch)

    def step(carry: Any, minibatch: Any) -> Any:
        critics, target, opt, error = pirc.td_step(
            *carry, adam, state.fit, minibatch, config.discount, config.target_rate
        )
        return (critics, target, opt), error

    (critics, target, opt), errors = jax.lax.scan(step, (state.critics, state.target, state.opt), batches)
    metrics = {"critic_loss": jnp.mean(errors, axis=0)}
    return state._replace(critics=critics, target=target, opt=opt), metrics


# --- LCPO -----------------------------------------------------------------------------------------


def temperature(config: TridentConfig, fraction: Any, rounds: Any) -> Any:
    if config.anneal == "paper":
        return jnp.maximum(config.tau_min, config.tau_start * 0.9995**rounds)
    share = jnp.minimum(fraction / 0.6, 1.0)
    return config.tau_start * (config.tau_min / config.tau_start) ** share


def training_limits(config: TridentConfig, spec: EnvSpec) -> Any:
    return config.tighten * jnp.asarray(spec.limits) - config.slack


def round_budget(config: TridentConfig, excess: Any) -> Any:
    """What the surrogate costs of the whole round may change by, all agents and passes together (negative: must)."""
    return -excess * (config.alpha if config.budget == "lyapunov" else 1.0)


def _learn_policies(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, state: TridentState, roll: Transition,
    key: Any, fraction: Any,
) -> tuple[TridentState, Metrics]:  # fmt: skip
    excess = jnp.mean(roll.cost, axis=(0, 1)) - training_limits(config, spec)
    budget = round_budget(config, excess)
    tau = temperature(config, fraction, state.rounds)

    def one_pass(carry: Any, pass_key: Any) -> Any:
        actors, spent = carry
        scene_key, order_key = jax.random.split(pass_key)
        scene = _scene(config, spec, roll, scene_key)
        order = jnp.arange(spec.num_agents)
        if config.agent_order == "random":
            order = jax.random.permutation(order_key, order)

        def one_agent(carry: Any, agent: Any) -> Any:
            actors, spent = carry
            actors, info = _update_agent(config, physics, spec, state, scene, actors, agent, budget - spent, tau)
            return (actors, spent + info.change[1:]), info

        return jax.lax.scan(one_agent, (actors, spent), order)

    start = (state.actors, jnp.zeros(spec.num_constraints))
    (actors, spent), info = jax.lax.scan(one_pass, start, jax.random.split(key, config.updates))
    metrics = {
        "kl": jnp.mean(jnp.sum(info.kl, axis=0)),
        "trust_region": jnp.mean(info.kind == 1, dtype=jnp.float32),
        "recovery": jnp.mean(info.kind == 2, dtype=jnp.float32),
        "rejected": jnp.mean(info.kind == 0, dtype=jnp.float32),
        "budget_asked": budget,
        "budget_spent": spent,
        "share_granted": jnp.mean(info.share),
        "surrogate_gain": jnp.sum(info.change[..., 0]),
        "step_fraction": jnp.mean(info.fraction),
        "temperature": tau,
    }
    return state._replace(actors=actors), metrics


def _scene(config: TridentConfig, spec: EnvSpec, roll: Transition, key: Any) -> Scene:
    """States of this round, with fresh noise."""
    row_key, gumbel_key, noise_key = jax.random.split(key, 3)
    total = roll.reward.size
    flat = lambda x: x.reshape(total, *x.shape[2:])  # noqa: E731
    rows = jax.random.permutation(row_key, total)[: min(config.policy_batch, total)]
    state, obs, mask, alive = (flat(x)[rows] for x in (roll.state, roll.obs, roll.mode_mask, roll.alive))
    gumbel = jax.random.gumbel(gumbel_key, mask.shape)
    noise = jax.random.normal(noise_key, (*alive.shape, spec.action.num_params))
    return Scene(state, obs, mask, alive, gumbel, noise)


def _update_agent(
    config: TridentConfig, physics: Physics | None, spec: EnvSpec, state: TridentState, scene: Scene,
    actors: Any, agent: Any, budget: Any, tau: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """One agent's constrained step, given what the agents before it have become."""
    name = default_estimator(spec.action.num_modes) if config.estimator == "auto" else config.estimator
    used = jnp.asarray(spec.action.used)[agent]
    mask, weight = scene.mode_mask[:, agent], scene.alive[:, agent].astype(jnp.float32)
    weight = weight / jnp.maximum(jnp.sum(weight), 1.0)
    joint = act_with_noise(spec.action, actors_apply(actors, scene.obs), scene)
    view = through_critics(
        state.critics, state.fit, physics, spec.action, config.discount, scene, joint, agent, 1 + spec.num_constraints
    )
    theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[agent], actors))
    policy = lambda t: choose(name, tau, config.tau_start, config.kappa, used, agent, scene, unravel(t))  # noqa: E731
    dist = lambda t: actor_apply(unravel(t), scene.obs[:, agent])  # noqa: E731

    def bonus(t: Any) -> Any:
        return config.entropy * jnp.sum(weight * hybrid.entropy(dist(t), mask, used))

    choice, pull = jax.vjp(policy, theta)
    values, slopes = view.slope(choice)
    weighted = jax.tree.map(lambda s: s * weight.reshape(1, -1, *(1,) * (s.ndim - 2)), slopes)
    gradients = jax.vmap(lambda c: pull(c)[0])(weighted)
    gradients = gradients.at[0].add(jax.grad(bonus)(theta))
    current = (weight @ values).at[0].add(bonus(theta))

    def surrogates(t: Any) -> Any:
        return (weight @ view.value(policy(t))).at[0].add(bonus(t)) - current

    rule = UpdateRule(
        delta=config.trust_region / config.updates, cg_steps=config.cg_steps, damping=config.damping,
        recovery=config.recovery,
    )  # fmt: skip
    theta, info = constrained_update(rule, theta, gradients, surrogates, dist, mask, used, weight, budget)
    actors = jax.tree.map(lambda full, one: full.at[agent].set(one), actors, unravel(theta))
    return actors, info


__all__ = ["HybridAction", "TridentConfig", "TridentState", "make", "temperature"]
