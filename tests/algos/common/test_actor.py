import jax
import jax.numpy as jnp
import numpy as np

from trident.algos.common import actor
from trident.training.registry import make_env
from trident.types import BaseAction


def test_stacked_actors_equal_each_actor_alone():
    make = jax.jit(lambda k: actor.actors_init(k, 3, 5, (8, 8), 4, 2, -0.5))
    params = jax.tree.map(lambda x: np.asarray(x) + np.float32(0.1), make(jax.random.key(0)))
    obs = jax.random.normal(jax.random.key(1), (6, 3, 5))
    together = jax.jit(actor.actors_apply)(params, obs)
    apply = jax.jit(actor.actor_apply)
    for agent in range(3):
        alone = apply(jax.tree.map(lambda x, i=agent: x[i], params), obs[:, agent])
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[:, agent], b, rtol=1e-5, atol=1e-6)


def test_a_network_corrects_the_base_policy():
    """Logits add up, and so do the means before the squash; suggestions at a box's edge stay finite."""
    base_policy = lambda o: BaseAction(jnp.stack([o[0], 0.0 * o[0], o[1]]), jnp.stack([o[:2], jnp.ones(2), -o[:2]]))  # noqa: E731
    params = actor.actor_init(jax.random.key(0), 4, (8,), 3, 2, -0.5)
    obs = 0.3 * jax.random.normal(jax.random.key(1), (5, 4))
    plain, both = actor.actor_apply(params, obs), actor.actor_apply(params, obs, actor.base_offset(base_policy, obs))
    zero = jnp.zeros(5)
    np.testing.assert_allclose(both.logits - plain.logits, jnp.stack([obs[:, 0], zero, obs[:, 1]], -1), atol=1e-6)
    np.testing.assert_allclose(jnp.tanh(both.mean - plain.mean)[:, 0], obs[:, :2], atol=1e-5)
    np.testing.assert_allclose(jnp.tanh(both.mean - plain.mean)[:, 1], actor.BASE_EDGE, atol=1e-5)
    np.testing.assert_array_equal(both.log_std, plain.log_std)
    team = actor.actors_init(jax.random.key(0), 2, 4, (8,), 3, 2, -0.5)
    both_see = jnp.stack([obs, obs], 1)
    together = actor.actors_apply(team, both_see, actor.base_offset(base_policy, both_see))
    alone = actor.actor_apply(jax.tree.map(lambda x: x[1], team), obs, actor.base_offset(base_policy, obs))
    np.testing.assert_allclose(together.mean[:, 1], alone.mean, atol=1e-5)


def test_agents_start_different_but_nearly_uniform():
    first = jax.jit(lambda k: actor.actors_apply(actor.actors_init(k, 2, 5, (8,), 3, 1, -0.5), jnp.ones((1, 2, 5))))
    dist = first(jax.random.key(0))
    assert not np.allclose(dist.logits[0, 0], dist.logits[0, 1])
    assert np.abs(np.asarray(dist.logits)).max() < 0.1


def test_actions_respect_boxes_and_masks():
    env = make_env("probe-team")
    spec = env.spec

    @jax.jit
    def many(key):
        sizes = (spec.num_agents, spec.obs_dim, (8,), spec.action.num_modes, spec.action.num_params, 1.0)
        params = actor.actors_init(key, *sizes)
        _, first = env.reset(key)
        keys = jax.random.split(key, 200)
        return first, *jax.vmap(lambda k: actor.act(params, spec.action, first.view, k, False))(keys)

    first, action, extras = many(jax.random.key(0))
    agents = np.arange(spec.num_agents)
    assert np.asarray(first.mode_mask)[agents, np.asarray(action.mode)].all()
    low, high, used = (
        t[agents, np.asarray(action.mode)] for t in (spec.action.low, spec.action.high, spec.action.used)
    )
    params_ = np.asarray(action.params)
    assert (np.where(used, (params_ >= low - 1e-5) & (params_ <= high + 1e-5), params_ == 0)).all()
    assert extras["log_prob"].shape == (200, spec.num_agents)
