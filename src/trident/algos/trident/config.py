"""What TRIDENT's three parts are set to, and the schedules that follow from it.

Where a default differs from the paper's print, the printed variant has a name: estimator="stgc-paper",
safety="paper", recovery="paper", agent_order="fixed", anneal="paper" and others; the preset `trident-paper` sets them
all. docs/trident.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.errors import TridentError
from trident.physics_value import OneStep
from trident.types import BasePolicy, EnvSpec, Physics

Source = Literal["pathwise", "score", "both", "weighed", "closed-form"]


@dataclass(frozen=True)
class TridentConfig:
    envs: int = 64
    """Parallel environments."""
    steps: int = 50
    """Steps of each environment per round."""
    replay: int = 64_000
    """Transitions kept, for the critics and for the states in which policies are judged."""
    discount: float = 0.95
    """Discount of rewards."""
    cost_discount: float = 0.8
    """Discount of costs."""
    immediate_discount: float = 0.0
    """Discount of costs that are declared to fall in the same step."""

    hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of each agent's actor."""
    conditional: bool = True
    """Parameters depend on the mode they go with; otherwise all modes share one Gaussian."""
    base_policy: bool = True
    """Actors learn corrections to the base policy that the environment's physics has for an observation, if it has one;
    a
    run then begins with a policy that is sensible, and mostly within its limits."""
    log_std: float = -0.7
    """Initial log standard deviation before the squash (with a base policy: `reflex_log_std`)."""
    log_std_final: float = -1.8
    """Upper bound of the log standard deviation at the end of the run: the bound falls linearly over the run, so that
    the policy which was kept within its limits while it explored becomes the one that is flown."""
    reflex_log_std: float = -3.0
    """The same two around a base policy, which needs no search by large noise and would be ruined by it."""
    reflex_log_std_final: float = -3.5
    """Bound at the end of the run around a base policy."""
    estimator: str = "auto"
    """Discrete gradient: auto (exact up to 4 modes, stgc above), gs, st, stgc, stgc-paper, romberg, exact, relax."""
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
    physics: Literal["residual", "additive", "none"] = "residual"
    """residual: frozen closed form + learned rest; additive: plain critics of r + shaping x r_phys; none: plain
    critics."""
    shaping: float = 0.5
    """Weight of the closed form in the reward of physics=additive."""
    cost_physics: bool = True
    """Give the cost critics the closed form too."""
    horizon: Literal["fitted", "one-step"] = "fitted"
    """fitted: the closed form values what follows an action, by weights from early data; one-step: it is this step's
    reward and costs alone, unscaled, as printed."""
    fit_rounds: int = 8
    """The closed form's scale is fitted anew in the first rounds, then frozen: what follows an action depends on
    the policy, and the first one is random."""
    critic_steps: int = 64
    """Critic minibatches per round."""
    critic_batch: int = 256
    """Rows of a critic minibatch."""
    critic_lr: float = 1e-3
    """Learning rate of the critics."""
    target_rate: float = 0.03
    """Rate at which target networks follow."""

    source: Source = "both"
    """Where the reward's ascent direction comes from. pathwise: the critics' gradients; score: a few clipped steps on
    the advantages of this round (GAE upon the critic); both: the sum of the two; weighed: the same, but the gradients
    count as much as the critics' own advantages of what was done correlate with those; closed-form: the gradients of
    the critics' closed form alone. Costs are always pathwise."""
    reflex_source: Source = "closed-form"
    """The same around a base policy, where `source` has no say. With little noise a residual has nothing to learn
    gradients in
    the action from, advantages are faint, and ascent would follow the errors of both."""
    gae_lambda: float = 0.95
    """Decay of the advantage estimator's traces (score, both, weighed; so the next four)."""
    clip: float = 0.2
    """Clip range of the probability ratio in the inner steps."""
    inner_epochs: int = 4
    """Inner passes over a round's data."""
    inner_minibatches: int = 4
    """Minibatches of an inner pass."""
    inner_lr: float = 5e-4
    """Learning rate of the inner steps; only their direction is used."""
    updates: int = 2
    """Passes over the agents per round (U)."""
    policy_batch: int = 512
    """Rows of a policy update: replayed states, each with two opposite draws of noise."""
    filter: bool = True
    """Follow only what two halves of the batch agree on."""
    violation_fraction: float = 0.5
    """Share of the replayed states in which some limit was violated (weighted accordingly). Violations are rare: a
    plain batch holds a few of them, and a step along its gradient would mend those and no others."""
    agent_order: Literal["random", "fixed", "simultaneous"] = "random"
    """Agents one after another, in this order; simultaneous: all against the others' old policies."""

    trust_region: float = 0.06
    """KL of an agent's policy per round (delta), shared equally by the passes."""
    reflex_trust_region: float = 0.003
    """The same around a base policy: a good policy is lost by long steps sooner than it is bettered."""
    trust_region_final: float = 0.25
    """Share of it that is left at the end of the run. Steps are as long as the trust region allows, however noisy their
    direction: a run whose steps never shorten ends in their noise."""
    metric: Literal["kl", "euclidean"] = "kl"
    """What the trust region measures; euclidean (squared length of the step, in units of `step_length`) is none."""
    step_length: float = 0.03
    """Length of a step whose size is not measured by the KL."""
    fisher_batch: int = 512
    """States of the Fisher matrix, the first of the policy batch. Few are not enough for an accurate solution: it would
    go far where those few say nothing."""
    cg_steps: int = 2
    """Conjugate-gradient steps."""
    precondition: bool = True
    """Precondition them layer by layer (K-FAC): two steps then do what ten do without."""
    damping: float = 0.01
    """Added to the Fisher matrix's diagonal."""
    backtracks: int = 8
    """Lengths of a step that the line search tries, each 0.7 of the last, before it gives the step up."""

    safety: Literal["lyapunov", "paper", "lagrangian", "none"] = "lyapunov"
    """lyapunov: a round's costs may change by alpha (d - J - xi); paper: by d - J, as printed; lagrangian: no budget,
    but multipliers in the objective; none: limits are only reported."""
    alpha: float | tuple[float, ...] = 0.2
    """Share of the slack that a round may spend; one number for every constraint, or one each."""
    alpha_back: float | tuple[float, ...] = 0.3
    """Share of the excess that a round must give back, as far as the trust region can; likewise."""
    share_budget: bool = True
    """An agent may spend what those before it have left of the round's budget; otherwise each may spend it all, as
    printed."""
    feasible: Literal["measured", "critic"] = "measured"
    """What a round's costs are taken for: the mean costs measured in the rollouts; critic: (1 - gamma) V_c in the first
    states of episodes, as printed."""
    calibrate: bool = True
    """Ask the surrogate for as much more as its predictions have fallen short of the costs measured later."""
    smooth: float = 0.6
    """Share of the past in the moving mean of the measured costs: one round sees parts of few episodes."""
    slack: float | tuple[float, ...] = 0.0
    """xi: subtracted from the limits, in units of cost per step; likewise."""
    tighten: float = 0.5
    """Training limits as a share of the declared ones: an optimiser spends what it is given."""
    multiplier_rate: float = 0.05
    """Growth of a multiplier per round and per limit of excess (safety=lagrangian)."""
    recovery: Literal["natural", "paper", "none"] = "natural"
    """What to do when the constrained step is impossible."""

    warm_steps: int = 1500
    """Imitation minibatches of a warm start (--warm-start), and half as many for the critics."""
    warm_log_std: float = -1.6
    """Log standard deviation after a warm start: exploration that a feasible policy survives."""
    warm_smooth: float = 0.85
    """`smooth` after a warm start. Costs do not fall from far above their limits then, where a long mean would lag and
    have budgets overshoot; what is left of their changes is mostly noise, which a short one would have them chase."""

    def discounts(self, spec: EnvSpec) -> Float[Array, "J"]:
        """Of the reward and of every cost, [1 + K]."""
        costs = [self.immediate_discount if c.immediate else self.cost_discount for c in spec.constraints]
        return jnp.array([self.discount, *costs])


class Problem(NamedTuple):
    """A recipe and what it is used on."""

    config: TridentConfig
    spec: EnvSpec
    physics: Physics | None

    @property
    def closed_form(self) -> Physics | None:
        """The physics the critics are built on: none of it, the reward's, or the costs' as well."""
        if self.physics is None or self.config.physics != "residual":
            return None
        physics, signals, bulk = self.physics, self.physics.signals, self.physics.bulk
        if not self.config.cost_physics:
            alone = lambda of_all: lambda s, a: of_all(s, a).at[..., 1:].set(0.0)  # noqa: E731
            signals = alone(signals)
            bulk = bulk and replace(bulk, signals=alone(bulk.signals))
        kind = OneStep if self.config.horizon == "one-step" else Physics
        return kind(signals, physics.predict, physics.nominal, bulk=bulk)

    @property
    def base_policy(self) -> BasePolicy | None:
        """What the actors correct."""
        return self.physics.base_policy if self.physics is not None and self.config.base_policy else None

    @property
    def source(self) -> Source:
        """Of the reward's direction; a closed form is needed to go by it alone."""
        c = self.config
        around = self.base_policy is not None and (self.closed_form is not None or c.reflex_source != "closed-form")
        source = c.reflex_source if around else c.source
        if source == "closed-form" and self.closed_form is None:
            raise TridentError("source closed-form needs an environment with physics, and physics residual")
        return source

    @property
    def noise(self) -> tuple[float, float]:
        """Log standard deviation of the policy at the start, and its bound at the end of the run."""
        c = self.config
        return (c.log_std, c.log_std_final) if self.base_policy is None else (c.reflex_log_std, c.reflex_log_std_final)

    @property
    def num_signals(self) -> int:
        """The reward and the costs."""
        return 1 + self.spec.num_constraints

    @property
    def discounts(self) -> Float[Array, "J"]:
        return self.config.discounts(self.spec)


def temperature(config: TridentConfig, fraction: Any, rounds: Any) -> Any:
    if config.anneal == "paper":
        return jnp.maximum(config.tau_min, config.tau_start * 0.9995**rounds)
    share = jnp.minimum(fraction / 0.6, 1.0)
    return config.tau_start * (config.tau_min / config.tau_start) ** share


def trust_region(task: Problem, fraction: Any) -> Any:
    delta = task.config.trust_region if task.base_policy is None else task.config.reflex_trust_region
    return delta * (1.0 - (1.0 - task.config.trust_region_final) * fraction)


def anneal_log_std(task: Problem, actors: Any, fraction: Any) -> Any:
    """Less exploration as the run goes on; about a hundredth per round, far inside the trust region."""
    start, final = task.noise
    bound = start + jnp.minimum(final - start, 0.0) * fraction
    return actors | {"log_std": jnp.minimum(actors["log_std"], bound)}


def training_limits(config: TridentConfig, spec: EnvSpec) -> Float[Array, "K"]:
    return config.tighten * jnp.asarray(spec.limits) - jnp.asarray(config.slack)


UNLIMITED = 1e6


def round_budget(config: TridentConfig, excess: Any, realised: Any = 1.0) -> Any:
    """What the surrogate costs of the whole round may change by, all agents and passes together (negative: must)."""
    if config.safety in ("lagrangian", "none"):
        return jnp.full_like(excess, UNLIMITED)
    if config.safety == "paper":
        return -excess
    return -excess * jnp.where(excess > 0, jnp.asarray(config.alpha_back) / realised, jnp.asarray(config.alpha))
