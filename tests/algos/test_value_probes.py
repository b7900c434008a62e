"""Critics against values known on paper: an episode that ends, one that is only cut, and a reward that comes later.

Whatever is done there, the values are the same: a learner's critic is asked about the actions of its own policy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.learning import train

from trident import physics_value
from trident.algos import macpo, madac, off_policy, ppo, qmix, trident
from trident.algos.common import inputs, on_policy
from trident.algos.common.action_heads import grid_mask, hybrid_head, make_grid, make_head
from trident.algos.common.central_critic import CriticInput, central_critic, state_input
from trident.algos.common.kinds import kinds_of
from trident.algos.trident import critics as pirc
from trident.algos.trident.config import TridentConfig
from trident.algos.trident.problem import Problem
from trident.fields import change
from trident.simulation.rollout import rollout, start

DISCOUNT = 0.8
ON_POLICY = {
    "envs": 16, "steps": 16, "hidden": (8,), "critic_hidden": (32, 32), "discount": DISCOUNT,
    "cost_discount": DISCOUNT, "critic_lr": 3e-3,
}  # fmt: skip
OFF_POLICY = {
    "envs": 16, "steps": 16, "hidden": (8,), "replay": 2048, "updates": 64, "batch": 64, "discount": DISCOUNT,
    "target_rate": 0.05,
}  # fmt: skip


def of_on_policy(config, env, state, rows):
    values = state.critic
    x, net = state_input(rows), central_critic(env.spec, config.critic_body, config.critic_hidden)
    costs = jax.vmap(lambda v: on_policy.predict(net, v, x), out_axes=-1)(values.cost)
    return jnp.concatenate([on_policy.predict(net, values.reward, x)[:, None], costs], axis=-1)


def of_off_policy(config, env, state, rows):
    kinds, head = kinds_of(env.spec), make_head(config.actions, env.spec.action, config.levels, config.temperature)
    action = head.relax(
        off_policy.policies(kinds, state.nets.actors, rows.obs), rows.mode_mask, jax.random.key(0), None
    )
    central = central_critic(env.spec, config.critic_body, config.critic_hidden, head.encoded)
    setup = off_policy.Setup(config, kinds, head, central)
    q = off_policy.q_values(setup, state.nets.critic, rows, action, rows.alive)
    return (state.level + state.unit * q[0])[:, None]


def of_qmix(config, env, state, rows):
    kinds, allowed = kinds_of(env.spec), grid_mask(make_grid(env.spec.action, config.levels), rows.mode_mask)
    cell = qmix.best_cell(qmix.utilities(kinds, state.nets, rows.obs), allowed)
    return (state.level + state.unit * qmix.total(kinds, state.nets, rows.state, rows.obs, cell, rows.alive))[:, None]


def of_madac(config, env, state, rows):
    kinds, head = kinds_of(env.spec), hybrid_head(env.spec.action, config.temperature)
    action = head.relax(
        madac.outputs(kinds, state.actors.task, rows.obs, None), rows.mode_mask, jax.random.key(0), None
    )
    central = central_critic(env.spec, config.critic_body, config.critic_hidden, head.encoded)
    q = madac.twins(central, state.critics.reward, rows, action, rows.alive)
    return (state.level + state.unit * jnp.min(q, 0))[:, None]


def of_trident(config, env, state, rows):
    task = Problem(config, env.spec, env.physics)
    parts = physics_value.physics_parts(task.closed_form, task.num_signals, rows.state, rows.executed)
    encoded = inputs.encode_action(env.spec.action, *rows.executed)
    x = CriticInput(rows.state, rows.obs, encoded)
    fit = state.critic.fit
    return physics_value.q_phys(fit, parts, task.discounts) + fit.unit * pirc.residual(
        pirc.bodies(task), state.critic.critics, x
    )


TRIDENT = {
    "envs": 16, "steps": 16, "hidden": (8,), "reward_hidden": (32, 32), "discount": DISCOUNT,
    "cost_discount": DISCOUNT, "lr": 3e-3, "cost_hidden": (32, 32), "replay": 2048, "minibatches": 32,
    "batch": 64, "policy_batch": 64, "cg_steps": 2, "warm_steps": 50, "target_rate": 0.05,
}  # fmt: skip
LEARNERS = {
    "mappo-lag": (ppo.make, ppo.LagrangianConfig(order="simultaneous", **ON_POLICY), of_on_policy),
    "macpo": (macpo.make, macpo.MACPOConfig(cg_steps=2, **ON_POLICY), of_on_policy),
    "matd3": (
        off_policy.make,
        off_policy.OffPolicyConfig(twin=True, delay=2, target_noise=0.2, critic_hidden=(32, 32), **OFF_POLICY),
        of_off_policy,
    ),
    "facmac": (
        off_policy.make,
        off_policy.OffPolicyConfig(critic="factored", gradient="joint", critic_hidden=(32, 32), **OFF_POLICY),
        of_off_policy,
    ),
    "qmix": (qmix.make, qmix.QMIXConfig(lr=1e-3, **OFF_POLICY), of_qmix),
    "madac": (madac.make, madac.MADACConfig(critic_hidden=(32, 32), alpha=0.0, **OFF_POLICY), of_madac),
    "trident": (trident.make, change(TridentConfig(), TRIDENT), of_trident),
}  # fmt: skip


@pytest.mark.learning
@pytest.mark.parametrize("probe", ["probe-value", "probe-value-truncated", "probe-discount"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_critics_learn_the_values_known_on_paper(learner, probe):
    make, config, value_of = LEARNERS[learner]
    env, _, states, _ = train(probe, make, config, 60, seeds=1)
    algorithm = make(config, env.spec, env.physics)
    state = jax.tree.map(lambda x: x[0], states)

    @jax.jit
    def measured(key):
        policy = lambda k, _, t: algorithm.act(state, t.view, k, False)  # noqa: E731
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout(env, policy, key, start(env, key, 8), 6)[1])
        return rows.state, value_of(config, env, state, rows)

    x, value = measured(jax.random.key(5))
    truth = jax.vmap(lambda s: env.value(s, DISCOUNT))(x)[:, : value.shape[1]]
    np.testing.assert_allclose(value, truth, atol=0.05 * max(1.0, float(np.abs(truth).max())))
