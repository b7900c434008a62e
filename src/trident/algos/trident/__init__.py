"""TRIDENT on one page: SHA + PIRC + LCPO, to be held beside the paper's Algorithm 1.

line of Algorithm 1                                   here
1     actors theta_i, residual critic, cost critics   init
3-6   sample a_i^d, a_i^c; execute; push to B         the loop (train.loop), through `act`
4     Jacobians at tau and tau_0 (STGC)               surrogate.choose, by name in maths.discrete_gradient
8-9   TD on phi_res and psi_k                         critics.learn
10-15 agents one after another                        lcpo.learn
11    advantages of the reward and of the costs       surrogate.through_critics, surrogate.ratios
12-14 trust-region step or recovery                   maths.constrained_update
16    annealing of tau                                recipe.temperature

symbol                                                setting (TridentConfig) or name
d_k                                                   EnvSpec.limits, times `tighten`
delta_TR                                              `trust_region`, shared by the U = `updates` passes of a round
alpha_k, xi_k                                         `alpha` (of slack), `alpha_back` (of excess), `slack`
tau_0, tau_min, beta                                  `tau_start`, `tau_min`, 0.9995 of `anneal` = paper
gamma                                                 `discount`, `cost_discount`, `immediate_discount`
phi_res, psi_k, Q_phys                                critics.Critics.reward, .cost, closed_form.q_phys
V_c_k                                                 mean cost of the rollouts, or `feasible` = critic
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trident import replay as replays
from trident.algos.common.actor import act, actors_init
from trident.algos.common.behaviour_cloning import imitate
from trident.algos.trident import critics as pirc
from trident.algos.trident import lcpo
from trident.algos.trident.config import Problem, TridentConfig, anneal_log_std
from trident.errors import TridentError
from trident.maths.discrete_gradient import ESTIMATORS
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, Physics, Transition

__all__ = ["TridentConfig", "make"]


class TridentState(NamedTuple):
    policy: lcpo.PolicyState
    critic: pirc.CriticState
    rounds: Any


def make(config: TridentConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    if config.replay < 1:
        raise TridentError("trident learns from replayed transitions: --algo.replay must be at least 1")
    if config.estimator not in ("auto", *ESTIMATORS):
        raise TridentError(f"unknown estimator {config.estimator!r}: there are auto, {', '.join(ESTIMATORS)}")
    for name in ("updates", "backtracks"):
        if getattr(config, name) < 1:
            raise TridentError(f"--algo.{name} must be at least 1")
    if config.tau_min <= 0.0 or config.kappa <= 1.0:
        raise TridentError("--algo.tau-min must be above 0 and --algo.kappa above 1: temperatures are divided by")
    for name in ("alpha", "alpha_back", "slack"):
        each = getattr(config, name)
        if isinstance(each, tuple) and len(each) != spec.num_constraints:
            option = name.replace("_", "-")
            raise TridentError(
                f"--algo.{option} takes one number, or one for each of {spec.num_constraints} constraints"
            )
    if config.precondition and config.damping <= 0.0:
        raise TridentError("--algo.damping must be above 0: a unit that never fires would be divided by it")
    if not 0.0 <= config.violation_fraction < 1.0:
        raise TridentError("--algo.attention is a share: at least 0, and below 1")
    task, remember = Problem(config, spec, physics), (pirc.KNOWN,)
    annotate = partial(pirc.annotate, task)

    def init(key: Any) -> TridentState:
        actor_key, critic_key = jax.random.split(key)
        actors = actors_init(
            actor_key, spec.num_agents, spec.obs_dim, config.hidden,
            spec.action.num_modes, spec.action.num_params, task.noise[0], config.conditional,
        )  # fmt: skip
        return TridentState(lcpo.start(task, actors), pirc.start(task, critic_key), jnp.int32(0))

    def update(state: TridentState, data: Data, key: Any, fraction: Any) -> tuple[TridentState, Metrics]:
        critic_key, policy_key = jax.random.split(key)
        critic, learned = pirc.learn(task, state.critic, data, state.policy.actors, critic_key, state.rounds)
        policy, moved = lcpo.learn(task, state.policy, critic, data, policy_key, fraction, state.rounds)
        policy = policy._replace(actors=anneal_log_std(task, policy.actors, fraction))
        return TridentState(policy, critic, state.rounds + 1), learned | moved

    def prepare(state: TridentState, roll: Transition, key: Any) -> tuple[TridentState, Metrics]:
        """Warm start: actors imitate the rollout's policy, critics learn its values."""
        actor_key, critic_key = jax.random.split(key)
        actors, imitated = imitate(
            state.policy.actors, spec.action, roll, actor_key, config.warm_steps, 512, 1e-3,
            min(config.warm_log_std, task.noise[0]), task.base_policy,
        )  # fmt: skip
        patient = task._replace(config=replace(config, critic_steps=config.warm_steps // 2))
        roll = roll._replace(extras=annotate(roll))
        whole = replays.Replay(replays.block_of(roll, remember), jnp.int32(roll.reward.size))
        critic, learned = pirc.learn(patient, state.critic, Data(roll, whole), actors, critic_key, state.rounds)
        gain = state.policy.gain._replace(warm_started=jnp.bool_(True))
        policy = state.policy._replace(actors=actors, gain=gain)
        return TridentState(policy, critic, jnp.int32(config.fit_rounds)), imitated | learned

    return Algorithm(
        name="trident",
        plan=DataPlan(config.envs, config.steps, config.replay, remember),
        init=init,
        act=lambda state, view, key, deterministic: act(
            state.policy.actors, spec.action, view, key, deterministic, task.base_policy
        ),
        update=update,
        annotate=annotate,
        prepare=prepare,
        sampled=spec.num_constraints > 0,
        config=config,
    )
