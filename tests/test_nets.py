import jax
import jax.numpy as jnp
import numpy as np

from trident import nets
from trident.train.registry import make_env
from trident.types import Reflex


def test_stacked_actors_equal_each_actor_alone():
    make = jax.jit(lambda k: nets.actors_init(k, 3, 5, (8, 8), 4, 2, -0.5))
    params = jax.tree.map(lambda x: np.asarray(x) + np.float32(0.1), make(jax.random.key(0)))
    obs = jax.random.normal(jax.random.key(1), (6, 3, 5))
    together = jax.jit(nets.actors_apply)(params, obs)
    apply = jax.jit(nets.actor_apply)
    for agent in range(3):
        alone = apply(jax.tree.map(lambda x, i=agent: x[i], params), obs[:, agent])
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[:, agent], b, rtol=1e-5, atol=1e-6)


def test_a_network_corrects_the_reflex():
    """Logits add up, and so do the means before the squash; suggestions at a box's edge stay finite."""
    reflex = lambda o: Reflex(jnp.stack([o[0], 0.0 * o[0], o[1]]), jnp.stack([o[:2], jnp.ones(2), -o[:2]]))  # noqa: E731
    params = nets.actor_init(jax.random.key(0), 4, (8,), 3, 2, -0.5)
    obs = 0.3 * jax.random.normal(jax.random.key(1), (5, 4))
    plain, both = nets.actor_apply(params, obs), nets.actor_apply(params, obs, nets.leaning(reflex, obs))
    zero = jnp.zeros(5)
    np.testing.assert_allclose(both.logits - plain.logits, jnp.stack([obs[:, 0], zero, obs[:, 1]], -1), atol=1e-6)
    np.testing.assert_allclose(jnp.tanh(both.mean - plain.mean)[:, 0], obs[:, :2], atol=1e-5)
    np.testing.assert_allclose(jnp.tanh(both.mean - plain.mean)[:, 1], nets.REFLEX_EDGE, atol=1e-5)
    np.testing.assert_array_equal(both.log_std, plain.log_std)
    team = nets.actors_init(jax.random.key(0), 2, 4, (8,), 3, 2, -0.5)
    both_see = jnp.stack([obs, obs], 1)
    together = nets.actors_apply(team, both_see, nets.leaning(reflex, both_see))
    alone = nets.actor_apply(jax.tree.map(lambda x: x[1], team), obs, nets.leaning(reflex, obs))
    np.testing.assert_allclose(together.mean[:, 1], alone.mean, atol=1e-5)


def test_agents_start_different_but_nearly_uniform():
    first = jax.jit(lambda k: nets.actors_apply(nets.actors_init(k, 2, 5, (8,), 3, 1, -0.5), jnp.ones((1, 2, 5))))
    dist = first(jax.random.key(0))
    assert not np.allclose(dist.logits[0, 0], dist.logits[0, 1])
    assert np.abs(np.asarray(dist.logits)).max() < 0.1


def test_layer_norm_matches_its_definition():
    layer = {
        "w": jnp.eye(3),
        "b": jnp.zeros(3),
        "scale": jnp.array([1.0, 2.0, 3.0]),
        "shift": jnp.array([0.0, 0.5, 9.0]),
    }
    out = {"w": jnp.eye(3), "b": jnp.zeros(3)}
    x = np.array([1.0, 2.0, 6.0])
    normed = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    expected = np.maximum(normed * [1, 2, 3] + [0, 0.5, 9], 0)
    np.testing.assert_allclose(nets.mlp_apply([layer, out], jnp.asarray(x, jnp.float32)), expected, rtol=1e-5)


def test_actions_respect_boxes_and_masks():
    env = make_env("probe-team")
    spec = env.spec

    @jax.jit
    def many(key):
        sizes = (spec.num_agents, spec.obs_dim, (8,), spec.action.num_modes, spec.action.num_params, 1.0)
        params = nets.actors_init(key, *sizes)
        _, first = env.reset(key)
        keys = jax.random.split(key, 200)
        return first, *jax.vmap(lambda k: nets.act(params, spec.action, first.view, k, False))(keys)

    first, action, extras = many(jax.random.key(0))
    agents = np.arange(spec.num_agents)
    assert np.asarray(first.mode_mask)[agents, np.asarray(action.mode)].all()
    low, high, used = (
        t[agents, np.asarray(action.mode)] for t in (spec.action.low, spec.action.high, spec.action.used)
    )
    params_ = np.asarray(action.params)
    assert (np.where(used, (params_ >= low - 1e-5) & (params_ <= high + 1e-5), params_ == 0)).all()
    assert extras["log_prob"].shape == (200, spec.num_agents)


def test_mixer_is_monotone_in_every_utility_and_bent_by_the_state():
    params = nets.mixer_init(jax.random.key(0), state_dim=4, num_agents=3, embed=8, hidden=6)

    @jax.jit
    def slopes(state, q):
        return jax.vmap(jax.grad(lambda s, u: nets.mixer_apply(params, s, u), argnums=1))(state, q)

    state, q = jax.random.normal(jax.random.key(1), (64, 4)), 3.0 * jax.random.normal(jax.random.key(2), (64, 3))
    slope = slopes(state, q)
    assert np.all(slope > 0)
    assert np.std(slope, axis=0).min() > 1e-3
