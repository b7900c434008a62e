"""Fisher products against the Hessian of the mean KL by automatic differentiation, and conjugate gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from trident.maths import fisher, hybrid
from trident.maths.hybrid import HybridDist

BATCH, OBS, HIDDEN, MODES, PARAMS = 6, 3, 4, 3, 2


def policy(params, obs):
    h = jnp.tanh(obs @ params["in"])
    mean = (h @ params["mean"]).reshape(*obs.shape[:-1], MODES, PARAMS)
    log_std = jnp.broadcast_to(params["log_std"], mean.shape) + 0.3 * mean**2
    return HybridDist(h @ params["logits"], mean, log_std)


def setting(seed=0):
    rng = np.random.default_rng(seed)
    params = {
        "in": rng.normal(size=(OBS, HIDDEN)),
        "logits": rng.normal(size=(HIDDEN, MODES)),
        "mean": rng.normal(size=(HIDDEN, MODES * PARAMS)),
        "log_std": rng.uniform(-1.0, 0.0, size=(MODES, PARAMS)),
    }
    obs = rng.normal(size=(BATCH, OBS))
    mask = rng.random((BATCH, MODES)) < 0.7
    mask[:, 1] = True
    used = np.array([[True, True], [True, False], [False, False]])
    weight = np.array([0.0, 1.0, 2.0, 1.0, 1.0, 0.0])
    return jax.tree.map(jnp.asarray, (params, obs, mask, used, weight / weight.sum()))


@pytest.fixture(scope="module")
def matrices():
    """(matrix of the product, Hessian of the mean KL), in double precision."""
    with jax.enable_x64(True):
        params, obs, mask, used, weight = setting()
        flat, unravel = ravel_pytree(params)
        old = policy(params, obs)

        def mean_kl(theta):
            return jnp.sum(weight * hybrid.kl(old, policy(unravel(theta), obs), mask, used))

        @jax.jit
        def matrix(params):
            product = fisher.fisher_product(lambda p: policy(p, obs), params, mask, used, weight)
            return jax.vmap(lambda e: ravel_pytree(product(unravel(e)))[0])(jnp.eye(flat.size))

        return np.asarray(matrix(params)), np.asarray(jax.jit(jax.hessian(mean_kl))(flat))


def test_product_is_the_hessian_of_the_mean_kl(matrices):
    product, hessian = matrices
    assert np.max(np.abs(hessian)) > 0.1
    np.testing.assert_allclose(product, hessian, rtol=1e-9, atol=1e-11)


def test_product_is_symmetric_and_positive_semidefinite(matrices):
    product, _ = matrices
    np.testing.assert_allclose(product, product.T, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(product)
    assert eigenvalues[0] > -1e-10
    assert eigenvalues[-1] > 0.1


def test_conjugate_gradient_solves_all_right_hand_sides(matrices):
    product, _ = matrices
    rng = np.random.default_rng(1)
    b = rng.normal(size=(3, len(product)))
    b[1] = 0.0
    damping = 0.05
    with jax.enable_x64(True):
        a = jnp.asarray(product)
        x, few = (
            np.asarray(fisher.conjugate_gradient(lambda v: a @ v, jnp.asarray(b), iters, damping)) for iters in (200, 6)
        )
    want = np.linalg.solve(product + damping * np.eye(len(product)), b.T).T
    np.testing.assert_allclose(x, want, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(x[1], 0.0)
    # a truncated solve is a lower bound of b'x, and close already
    gain, best = np.sum(b * few, axis=1), np.sum(b * want, axis=1)
    assert np.all(gain <= best + 1e-12)
    assert np.all(gain[[0, 2]] > 0.7 * best[[0, 2]])


def test_single_precision_pytrees_and_seeds():
    """The whole chain under jit and vmap over seeds, with parameters as a pytree and 1 + K right-hand sides."""
    _, obs, mask, used, weight = setting()
    obs, weight = obs.astype(jnp.float32), weight.astype(jnp.float32)
    stacked = jax.tree.map(lambda *a: jnp.stack(a).astype(jnp.float32), *(setting(s)[0] for s in (0, 1)))

    @jax.jit
    @jax.vmap
    def naturals(params):
        product = fisher.fisher_product(lambda p: policy(p, obs), params, mask, used, weight)
        rhs = jax.tree.map(lambda a: jnp.stack([a, 0.0 * a, jnp.cos(a)]), params)
        x = fisher.conjugate_gradient(product, rhs, 60, 0.1)
        back = jax.vmap(product)(x)
        return x, jax.tree.map(lambda f, s, b: f + 0.1 * s - b, back, x, rhs)

    x, residual = naturals(stacked)
    for leaf, gap in zip(jax.tree.leaves(x), jax.tree.leaves(residual), strict=True):
        assert leaf.dtype == jnp.float32
        assert np.all(np.isfinite(leaf))
        assert np.all(np.asarray(leaf)[:, 1] == 0.0)
        assert np.max(np.abs(gap)) < 2e-3
