import jax
import jax.numpy as jnp
import numpy as np

from trident import nets


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


def test_mixer_is_monotone_in_every_utility_and_bent_by_the_state():
    params = nets.mixer_init(jax.random.key(0), state_dim=4, num_agents=3, embed=8, hidden=6)

    @jax.jit
    def slopes(state, q):
        return jax.vmap(jax.grad(lambda s, u: nets.mixer_apply(params, s, u), argnums=1))(state, q)

    state, q = jax.random.normal(jax.random.key(1), (64, 4)), 3.0 * jax.random.normal(jax.random.key(2), (64, 3))
    slope = slopes(state, q)
    assert np.all(slope > 0)
    assert np.std(slope, axis=0).min() > 1e-3
