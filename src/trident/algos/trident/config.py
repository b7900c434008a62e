"""What TRIDENT's three parts are set to, in five groups: --algo.safety.alpha, --algo.step.trust-region, ...

Defaults are those of a policy that is learned from scratch; around a base policy the preset sets four of them
otherwise (`training.presets.RESIDUAL`). Where a default differs from the paper's print, `as_printed` and the preset
`trident-paper` have the printed variant; docs/algorithm.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.algos.common.central_critic import Body
from trident.allowed import (
    Clip,
    Count,
    Discount,
    Fraction,
    Length,
    LogStd,
    Passes,
    Range,
    Rate,
    Rows,
    Share,
    TrustRegion,
    Weight,
    Widths,
)
from trident.errors import TridentError
from trident.types import EnvSpec

Estimator = Literal["auto", "gs", "st", "stgc", "stgc-paper", "romberg", "exact", "relax"]
PerConstraint = Annotated[tuple[Share, ...], Length(1, 64)]
Source = Literal["pathwise", "score", "both", "closed-form"]


@dataclass(frozen=True)
class DataConfig:
    """What is collected, kept and discounted."""

    envs: Count = 64
    """Parallel environments."""
    steps: Count = 50
    """Steps of each environment per round."""
    replay: Rows = 64_000
    """Transitions kept, for the critics and for the states in which policies are improved."""
    discount: Discount = 0.95
    """Discount of rewards."""
    cost_discount: Discount = 0.8
    """Discount of costs; of costs that are declared immediate it is 0."""


@dataclass(frozen=True)
class ActorConfig:
    """SHA: hybrid policies and how gradients pass through their modes."""

    hidden: Widths = (128, 128)
    """Hidden layers of each actor."""
    share_actors: bool = True
    """Agents of a kind share one actor, and move together by one step; otherwise each has its own."""
    agent_id: bool = False
    """Actors see which agent they act for."""
    conditional: bool = True
    """Parameters depend on the mode they go with; otherwise all modes share one Gaussian."""
    base_policy: bool = True
    """Residual policy: actors learn corrections to the base policy of the environment's physics, if it has one. A run
    then begins with a sensible policy, mostly within its limits. The preset `trident-scratch` learns without one."""
    log_std: LogStd = -0.7
    """Initial log standard deviation before the squash."""
    log_std_final: LogStd = -1.8
    """Upper bound of the log standard deviation at the end of the run: the bound falls linearly over the run, so that
    the policy which was kept within its limits while it explored becomes the one that is evaluated."""
    estimator: Estimator = "auto"
    """Discrete gradient: auto (exact up to 4 modes, stgc above), gs, st, stgc, stgc-paper, romberg, exact, relax."""
    tau_start: Annotated[float, Range(above=0.0, most=10.0)] = 1.0
    """tau_0: temperature of the relaxed modes at the start of a run, and the fixed reference of stgc-paper."""
    tau_min: Annotated[float, Range(above=0.0, most=1.0)] = 0.1
    """Temperature after annealing."""
    warm_steps: Passes = 1500
    """Behaviour-cloning minibatches of a warm start (--warm-start), and half as many for the critics."""


@dataclass(frozen=True)
class CriticConfig:
    """PIRC: a closed form of the physics plus learned residuals."""

    reward_hidden: Widths = (256, 256)
    """Hidden layers of the reward critic."""
    cost_hidden: Widths = (128, 128)
    """Hidden layers of each cost critic."""
    body: Body = "pooled"
    """pooled: what agents of a kind see and do is encoded alike and averaged; concatenated: side by side."""
    physics: Literal["residual", "additive", "none"] = "residual"
    """residual: frozen closed form + learned residual; additive: plain critics of a reward shaped by the closed form;
    none: plain critics."""
    cost_physics: bool = True
    """Give the cost critics the closed form too."""
    horizon: Literal["fitted", "one-step"] = "fitted"
    """fitted: the closed form values what follows an action, by weights from early data; one-step: it is this step's
    reward and costs alone, unscaled, as printed."""
    minibatches: Count = 64
    """Critic minibatches per round."""
    batch: Count = 256
    """Rows of a critic minibatch."""
    lr: Rate = 1e-3
    """Learning rate of the critics."""
    target_rate: Share = 0.03
    """Rate at which target networks follow."""


@dataclass(frozen=True)
class StepConfig:
    """LCPO: where the direction of a step comes from, and how long it may be."""

    source: Source = "both"
    """Where the reward's ascent direction comes from. pathwise: the critics' gradients; score: one pass, a few clipped
    updates on the advantages of this round (GAE upon the critic); both: that pass, then those on the critics;
    closed-form: the gradients of the critics' closed form alone."""
    gae_lambda: Share = 0.95
    """Decay of the advantage estimator's traces (score, both; so the next four)."""
    clip: Clip = 0.2
    """Clip range of the probability ratio in the inner steps."""
    inner_epochs: Passes = 4
    """Inner passes over a round's data."""
    advantage_lr: Rate = 5e-4
    """Learning rate of the inner steps (Adam); it falls with the trust region."""
    updates: Passes = 4
    """Passes over the kinds of agents per round (U)."""
    policy_batch: Count = 1024
    """Rows of a policy update: replayed states, each with two opposite draws of noise, spread over the kind's
    members."""
    filter: bool = True
    """Follow only what two halves of the batch agree on (Wiener filter)."""
    violation_fraction: Fraction = 0.5
    """Fraction of the replayed states in which some limit was violated (importance-weighted). Violations are rare: a
    plain batch holds a few of them, and a step along its gradient would mend those and no others."""
    agent_order: Literal["random", "fixed", "simultaneous"] = "random"
    """Kinds of agents one after another, in this order; simultaneous: all against the others' old policies."""
    trust_region: TrustRegion = 0.06
    """KL of a policy per round (delta), the mean over a kind's members, shared equally by the passes."""
    trust_region_final: Share = 0.25
    """Fraction of it that is left at the end of the run. Steps are as long as the trust region allows, however noisy
    their direction: a run whose steps never shorten ends in their noise."""
    metric: Literal["kl", "euclidean"] = "kl"
    """What the trust region measures; euclidean is a step of fixed length, its KL unchecked."""
    fisher_batch: Count = 512
    """States of the Fisher matrix, the first of the policy batch. Few are not enough for an accurate solution: it would
    go far where those few say nothing."""
    cg_steps: Passes = 2
    """Conjugate-gradient steps."""
    precondition: bool = True
    """Precondition them layer by layer (K-FAC): two steps then do what ten do without."""
    damping: Weight = 0.01
    """Added to the Fisher matrix's diagonal."""
    backtracks: Passes = 8
    """Lengths of a step that the line search tries, each 0.7 of the last, before it gives the step up."""


@dataclass(frozen=True)
class SafetyConfig:
    """LCPO: what a round may do to the costs."""

    method: Literal["lyapunov", "lagrangian", "none"] = "lyapunov"
    """lyapunov: a round's costs may change by alpha (d - J - xi); lagrangian: no budget, but Lagrange multipliers in
    the objective; none: limits are only reported."""
    alpha: Share | PerConstraint = 0.2
    """Fraction of the slack that a round may spend; one number for every constraint, or one each."""
    alpha_back: Share | PerConstraint = 0.3
    """Fraction of the excess that a round must give back, as far as the trust region can; likewise."""
    slack: Weight | Annotated[tuple[Weight, ...], Length(1, 64)] = 0.0
    """xi: subtracted from the limits, in units of cost per step; likewise."""
    tighten: Annotated[float, Range(above=0.0, most=10.0, usual=(0.0, 1.0))] = 0.5
    """Training limits as a fraction of the declared ones: an optimiser spends what it is given."""
    smooth: Fraction = 0.6
    """Weight of the past in the moving mean of the measured costs: one round sees parts of few episodes. A warm start
    sets 0.85: costs do not fall from far above their limits then, where a long mean would lag."""
    recovery: Literal["natural", "none"] = "natural"
    """What to do when the constrained step is impossible: a natural step that lowers the violated costs, or nothing."""


@dataclass(frozen=True)
class TridentConfig:
    data: DataConfig = field(default_factory=DataConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    step: StepConfig = field(default_factory=StepConfig)
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    as_printed: bool = False
    """The paper's rules to the letter: temperature times 0.9995 per round; agents in a fixed order, each of
    which may spend the whole budget d - J, J = (1 - gamma) V_c of the critics; while anything is
    violated a plain gradient step on the costs; KL(new || old)."""

    def discounts(self, spec: EnvSpec) -> Float[Array, "J"]:
        """Of the reward and of every cost, [1 + K]. Immediate costs fall in the step of their action."""
        costs = [0.0 if c.immediate else self.data.cost_discount for c in spec.constraints]
        return jnp.array([self.data.discount, *costs])


def check(config: TridentConfig, spec: EnvSpec) -> None:
    """A TridentError for values that cannot work together, or not in this environment."""
    step, safety = config.step, config.safety
    wrong = {
        "--algo.step.damping must be above 0: a unit that never fires would be divided by it": (
            step.precondition and step.damping <= 0.0
        ),
    }
    for name in ("alpha", "alpha_back", "slack"):
        each, option = getattr(safety, name), name.replace("_", "-")
        message = f"--algo.safety.{option} takes one number, or one for each of {spec.num_constraints} constraints"
        wrong[message] = isinstance(each, tuple) and len(each) != spec.num_constraints
    for message, applies in wrong.items():
        if applies:
            raise TridentError(message)
