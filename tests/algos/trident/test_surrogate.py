"""The surrogate's hand-arranged gradients equal automatic differentiation; the exact estimator equals enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident import physics_value
from trident.algos.common import actor
from trident.algos.common.central_critic import CriticInput, central_critic
from trident.algos.common.inputs import encode_action
from trident.algos.common.kinds import kinds_of
from trident.algos.trident import critics as pirc
from trident.algos.trident.surrogate import (
    PolicyBatch,
    RatioRows,
    RolloutBatch,
    act_with_noise,
    choose,
    drifts,
    through_critics,
)
from trident.envs.probes.chain import ChainConfig, probe_chain
from trident.maths import hybrid

ENV = probe_chain(ChainConfig(agents=3, modes=3, params=2, constraints=2))
SPEC = ENV.spec
J = 1 + SPEC.num_constraints
AGENT, B = 1, 6
DISCOUNT = jnp.array([0.9, 0.8, 0.7])
KINDS = kinds_of(SPEC)


def make_scene(key):
    _, first = ENV.reset(key)
    keys = jax.random.split(key, 3)
    tile = lambda x: jnp.broadcast_to(x, (B, *x.shape))  # noqa: E731
    shape = (B, SPEC.num_agents)
    obs = tile(first.obs) + 0.3 * jax.random.normal(keys[0], (*shape, SPEC.obs_dim))
    return PolicyBatch(
        tile(first.state), obs, tile(first.mode_mask), tile(first.alive), jnp.full(B, 1.0 / B),
        jax.random.gumbel(keys[1], (*shape, SPEC.action.num_modes)),
        jax.random.normal(keys[2], (*shape, SPEC.action.num_params)),
    )  # fmt: skip


def bodies(body):
    width = SPEC.action.num_modes + SPEC.action.num_params
    return pirc.Bodies(*(central_critic(SPEC, body, h, width) for h in ((16,), (8,))))


def make_world(key, physics, body="pooled"):
    sizes = (SPEC.num_agents, SPEC.obs_dim, (8,), SPEC.action.num_modes, SPEC.action.num_params, -0.5)
    actors = jax.tree.map(lambda x: 3.0 * x, actor.actors_init(key, *sizes))
    nets_ = jax.tree.map(lambda x: 3.0 * x, pirc.init(key, bodies(body), SPEC.num_constraints))
    fit = physics_value.PhysicsFit(
        jnp.array([0.5, 0.3, 0.7]), jnp.array([0.4, 0.2, 0.1]), jnp.array([0.1, 0.2, 0.3]), jnp.array([2.0, 1.0, 0.5])
    )
    scene = make_scene(key)
    joint = act_with_noise(SPEC.action, actor.actors_apply(actors, scene.obs), scene)
    view = through_critics(bodies(body), nets_, fit, physics, SPEC.action, DISCOUNT, scene, joint, jnp.int32(AGENT), J)
    return actors, nets_, fit, scene, joint, view


@pytest.mark.parametrize("physics", [ENV.physics, None], ids=["physics", "none"])
@pytest.mark.parametrize("estimator", ["exact", "stgc"])
def test_gradients_equal_automatic_differentiation(estimator, physics):
    used = jnp.asarray(SPEC.action.used)[AGENT]

    @jax.jit
    def both(key):
        actors, _, _, scene, _, view = make_world(key, physics)
        actor = jax.tree.map(lambda x: x[AGENT], actors)
        choice = choose(estimator, 0.5, used, KINDS, AGENT, scene, actor)
        value, action_grads = view.action_grad(choice)
        direct = jax.jacrev(lambda c: jnp.sum(view.value(c), axis=0))(choice)  # rows are independent
        return value, view.value(choice), action_grads, direct

    value, value_again, action_grads, direct = both(jax.random.key(1))
    np.testing.assert_allclose(value, value_again, rtol=1e-5, atol=1e-5)
    for mine, auto in zip(action_grads, direct, strict=True):
        np.testing.assert_allclose(mine, auto, rtol=2e-4, atol=2e-5)
        assert np.abs(np.asarray(auto)).max() > 1e-3


def test_exact_surrogate_equals_enumeration_over_modes():
    """sum_m pi(m) Q(s, (m, x_m), a_-i), each Q evaluated one mode at a time through the plain critic functions."""
    used = jnp.asarray(SPEC.action.used)[AGENT]

    @jax.jit
    def surrogate(key):
        actors, _, _, scene, _, view = make_world(key, ENV.physics)
        actor = jax.tree.map(lambda x: x[AGENT], actors)
        return view.value(choose("exact", 0.5, used, KINDS, AGENT, scene, actor))

    @jax.jit
    def enumeration(key):
        actors, nets_, fit, scene, _, _ = make_world(key, ENV.physics)
        dist = actor.actors_apply(actors, scene.obs)
        probs = hybrid.mode_probs(dist.logits, scene.mode_mask)[:, AGENT]
        total = 0.0
        for mode in range(SPEC.action.num_modes):
            forced = scene._replace(
                mode_mask=scene.mode_mask.at[:, AGENT].set(jnp.arange(SPEC.action.num_modes) == mode)
            )
            mine = act_with_noise(SPEC.action, dist, forced)
            action = mine.action
            parts = physics_value.physics_parts(ENV.physics, J, scene.state, action, current=False)
            x = CriticInput(scene.state, scene.obs, encode_action(SPEC.action, *action))
            q = physics_value.q_phys(fit, parts, DISCOUNT) + fit.unit * pirc.residual(bodies("pooled"), nets_, x)
            total += probs[:, mode, None] * q
        return total

    np.testing.assert_allclose(surrogate(jax.random.key(2)), enumeration(jax.random.key(2)), rtol=1e-4, atol=1e-4)


def test_ratios_are_those_of_the_agent_and_of_all_others():
    used = jnp.asarray(SPEC.action.used)

    @jax.jit
    def both(key):
        actors, _, _, scene, _, _ = make_world(key, None)
        shape = scene.alive.shape
        mode, raw = jnp.zeros(shape, jnp.int32), jnp.zeros((*shape, SPEC.action.num_params))
        log_prob = hybrid.log_prob(actor.actors_apply(actors, scene.obs), scene.mode_mask, used, mode, raw)
        old = log_prob - 0.1 * (1.0 + jnp.arange(SPEC.num_agents))  # every agent has become likelier since
        taken = RolloutBatch(scene.obs, scene.mode_mask, scene.alive, mode, raw, old, jnp.ones((B, J)))
        mine = RatioRows.of(KINDS, taken, jnp.array([AGENT]))
        mine = mine.ratio(jax.tree.map(lambda x: x[AGENT], actors), used[AGENT], slice(None))
        return mine, drifts(KINDS, used, taken, actors)

    mine, drift = both(jax.random.key(3))
    np.testing.assert_allclose(mine, np.exp(0.2), rtol=1e-4)
    np.testing.assert_allclose(drift, [[0.1, 0.2, 0.3]] * B, rtol=1e-3)
