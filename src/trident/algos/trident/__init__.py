"""TRIDENT on one page: SHA + PIRC + LCPO, to be held beside the paper's Algorithm 1.

line of Algorithm 1                                   here
1     actors theta_i, residual critic, cost critics   init
3-6   sample a_i^d, a_i^c; execute; push to B         the loop (training.loop), through `act`
4     Jacobians at tau and tau_0 (STGC)               surrogate.choose, by name in maths.discrete_gradient
8-9   TD on phi_res and psi_k                         critics.learn
10-15 kinds of agents one after another               lcpo.learn
11    advantages of the reward and of the costs       surrogate.pathwise, surrogate.score
12-14 trust-region step or recovery                   lcpo.kind_step, maths.trust_region
16    annealing of tau                                problem.temperature

symbol                                                setting (TridentConfig) or name
d_k                                                   EnvSpec.limits, times `safety.tighten`
delta_TR                                              `step.trust_region`, shared by the U = `step.updates` passes
alpha_k, xi_k                                         `safety.alpha` (of slack), `.alpha_back` (of excess), `.slack`
tau_0, tau_min, beta                                  `actor.tau_start`, `.tau_min`, 0.9995 of `as_printed`
gamma                                                 `data.discount`, `data.cost_discount`
phi_res, psi_k, Q_phys                                critics.Critics.reward, .cost, physics_value.q_phys
V_c_k                                                 mean cost of the rollouts; the critics' own with `as_printed`
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trident import replay as replays
from trident.algos.common.actor import act, actors_init
from trident.algos.common.behaviour_cloning import WARM_LOG_STD, WARM_LR, WARM_ROWS, imitate
from trident.algos.common.kinds import input_size
from trident.algos.trident import critics as pirc
from trident.algos.trident import lcpo
from trident.algos.trident.config import TridentConfig, check
from trident.algos.trident.problem import Problem, anneal_log_std
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, Physics, Transition

__all__ = ["TridentConfig", "make"]


class TridentState(NamedTuple):
    policy: lcpo.PolicyState
    critic: pirc.CriticState
    rounds: Any


def make(config: TridentConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    check(config, spec)
    problem, remember = Problem(config, spec, physics), (pirc.KNOWN,)
    annotate, kinds = partial(pirc.annotate, problem), problem.kinds

    def init(key: Any) -> TridentState:
        actor_key, critic_key = jax.random.split(key)
        actors = actors_init(
            actor_key, kinds.count, input_size(kinds, spec.obs_dim), config.actor.hidden,
            spec.action.num_modes, spec.action.num_params, config.actor.log_std, config.actor.conditional,
        )  # fmt: skip
        return TridentState(lcpo.start(problem, actors), pirc.start(problem, critic_key), jnp.int32(0))

    def update(state: TridentState, data: Data, key: Any, fraction: Any) -> tuple[TridentState, Metrics]:
        critic_key, policy_key = jax.random.split(key)
        critic, learned = pirc.learn(problem, state.critic, data, state.policy.actors, critic_key, state.rounds)
        policy, moved = lcpo.learn(problem, state.policy, critic, data, policy_key, fraction, state.rounds)
        policy = policy._replace(actors=anneal_log_std(config, policy.actors, fraction))
        return TridentState(policy, critic, state.rounds + 1), learned | moved

    def prepare(state: TridentState, roll: Transition, key: Any) -> tuple[TridentState, Metrics]:
        """Warm start: actors imitate the rollout's policy, critics learn its values."""
        actor_key, critic_key = jax.random.split(key)
        actors, imitated = imitate(
            state.policy.actors, spec.action, roll, actor_key, config.actor.warm_steps, WARM_ROWS, WARM_LR,
            min(WARM_LOG_STD, config.actor.log_std), problem.base_policy, kinds,
        )  # fmt: skip
        longer = replace(config.critic, minibatches=config.actor.warm_steps // 2)
        patient = problem._replace(config=replace(config, critic=longer))
        roll = roll._replace(extras=annotate(roll))
        whole = replays.Replay(replays.block_of(roll, remember), jnp.int32(roll.reward.size))
        critic, learned = pirc.learn(patient, state.critic, Data(roll, whole), actors, critic_key, state.rounds)
        policy = state.policy._replace(actors=actors)
        return TridentState(policy, critic, jnp.int32(pirc.FIT_ROUNDS)), imitated | learned

    return Algorithm(
        name="trident",
        plan=DataPlan(config.data.envs, config.data.steps, config.data.replay, remember),
        init=init,
        act=lambda state, view, key, deterministic: act(
            state.policy.actors, spec.action, view, key, deterministic, problem.base_policy, kinds
        ),
        update=update,
        annotate=annotate,
        expect=lambda state, moments: pirc.expect(problem, state.critic, moments),
        prepare=prepare,
        # A mixture of modes may be best within limits, noise on parameters is not.
        sampled=spec.num_constraints > 0 and spec.action.num_modes > 1,
        config=config,
    )
