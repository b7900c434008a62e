"""The hybrid distribution against scipy, quadrature and Monte Carlo, over arbitrary modes, parameters and masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from trident.maths import hybrid
from trident.maths.hybrid import HybridDist


def random_case(seed, num_modes, num_params, batch=(), spread=2.0):
    """(dist, another dist, mask with at least one allowed mode, used), float64 numpy inside."""
    rng = np.random.default_rng(seed)

    def dist():
        return HybridDist(
            jnp.asarray(spread * rng.normal(size=(*batch, num_modes))),
            jnp.asarray(rng.normal(size=(*batch, num_modes, num_params))),
            jnp.asarray(rng.uniform(-1.0, 0.5, size=(*batch, num_modes, num_params))),
        )

    mask = rng.random((*batch, num_modes)) < 0.7
    first = rng.integers(num_modes, size=batch)
    mask = mask | (np.arange(num_modes) == np.asarray(first)[..., None])
    used = rng.random((*batch, num_modes, num_params)) < 0.7
    return dist(), dist(), jnp.asarray(mask), jnp.asarray(used)


def oracle_probs(logits, mask):
    weights = np.where(mask, np.exp(np.asarray(logits) - np.max(np.asarray(logits)[np.asarray(mask)])), 0.0)
    return weights / weights.sum()


# (modes, parameters) with 24 random cases each, compiled once per shape
SHAPES = [(1, 2), (3, 0), (4, 3)]
CASES = 24


def oracle(old, new, mask, used, mode, raw):
    """log_prob, entropy and kl of one case, by the definitions, in numpy."""
    p, q = oracle_probs(old.logits, mask), oracle_probs(new.logits, mask)
    log_prob, entropy, kl = np.log(p[mode]), 0.0, 0.0
    for m in np.flatnonzero(mask):
        entropy -= p[m] * np.log(p[m])
        kl += p[m] * np.log(p[m] / q[m])
        for j in np.flatnonzero(used[m]):
            mu, sigma = old.mean[m, j], np.exp(old.log_std[m, j])
            nu, omega = new.mean[m, j], np.exp(new.log_std[m, j])
            entropy += p[m] * 0.5 * np.log(2.0 * np.pi * np.e * sigma**2)
            kl += p[m] * (np.log(omega / sigma) + (sigma**2 + (mu - nu) ** 2) / (2 * omega**2) - 0.5)
            if m == mode:
                log_prob -= 0.5 * ((raw[j] - mu) / sigma) ** 2 + np.log(sigma) + 0.5 * np.log(2.0 * np.pi)
    return log_prob, entropy, kl


@pytest.mark.parametrize(("num_modes", "num_params"), SHAPES)
def test_log_prob_entropy_and_kl_match_their_definitions(num_modes, num_params):
    with jax.enable_x64(True):
        old, new, mask, used = random_case(num_modes, num_modes, num_params, batch=(CASES,))

        @jax.jit
        def compute(key, old, new, mask, used):
            mode, raw = hybrid.sample(key, old, mask, used)
            log_prob = hybrid.log_prob(old, mask, used, mode, raw)
            return mode, raw, (log_prob, hybrid.entropy(old, mask, used), hybrid.kl(old, new, mask, used))

        mode, raw, got = jax.tree.map(np.asarray, compute(jax.random.key(0), old, new, mask, used))
    old, new, mask, used = jax.tree.map(np.asarray, (old, new, mask, used))
    for i in range(CASES):
        case = jax.tree.map(lambda x, i=i: x[i], (old, new, mask, used, mode, raw))
        assert mask[i, mode[i]]
        assert np.all(raw[i][~used[i, mode[i]]] == 0.0)
        np.testing.assert_allclose([g[i] for g in got], oracle(*case), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("num_modes", "num_params"), SHAPES[1:])
def test_masked_modes_and_unused_parameters_have_no_effect_and_no_gradient(num_modes, num_params):
    old, new, mask, used = random_case(num_params, num_modes, num_params, batch=(CASES,))

    @jax.jit
    def value_and_grad(dist):
        mode, raw = hybrid.sample(jax.random.key(1), old, mask, used)
        args = (mask, used)

        def everything(d):
            density = hybrid.log_prob(d, *args, mode, raw) + hybrid.entropy(d, *args)
            return jnp.sum(density + hybrid.kl(d, new, *args) + hybrid.kl(new, d, *args))

        return jax.value_and_grad(everything)(dist)

    poisoned = HybridDist(
        jnp.where(mask, old.logits, jnp.nan),
        jnp.where(used, old.mean, jnp.nan),
        jnp.where(used, old.log_std, jnp.nan),
    )
    value, grad = value_and_grad(poisoned)
    assert float(value) == float(value_and_grad(old)[0])
    assert all(np.all(np.isfinite(g)) for g in grad)
    assert np.all(np.asarray(grad.logits)[~np.asarray(mask)] == 0.0)
    assert np.all(np.asarray(grad.mean)[~np.asarray(used)] == 0.0)
    assert np.all(np.asarray(grad.log_std)[~np.asarray(used)] == 0.0)
    assert np.all(np.asarray(hybrid.mode_probs(old.logits, mask))[~np.asarray(mask)] == 0.0)


@pytest.fixture(scope="module")
def drawn():
    """200,000 draws from one distribution with a forbidden mode and an unused parameter."""
    old, new, _, _ = random_case(3, 4, 2, spread=1.0)
    mask = jnp.array([True, True, False, True])
    used = jnp.array([[True, True], [True, False], [True, True], [False, False]])
    keys = jax.random.split(jax.random.key(0), 200_000)
    mode, raw = jax.jit(jax.vmap(lambda key: hybrid.sample(key, old, mask, used)))(keys)
    log_prob = jax.jit(jax.vmap(hybrid.log_prob, (None, None, None, 0, 0)))
    return old, new, mask, used, mode, raw, log_prob


def test_sample_frequencies_and_moments(drawn):
    old, _, mask, used, mode, raw, _ = drawn
    frequency = np.bincount(np.asarray(mode), minlength=4) / mode.size
    np.testing.assert_allclose(frequency, oracle_probs(old.logits, mask), atol=4e-3)
    assert frequency[2] == 0.0
    for m in (0, 1):
        rows = np.asarray(raw)[np.asarray(mode) == m]
        np.testing.assert_allclose(rows.mean(0), np.where(used[m], old.mean[m], 0.0), atol=0.03)
        np.testing.assert_allclose(rows.std(0), np.where(used[m], np.exp(old.log_std[m]), 0.0), atol=0.03)


def test_entropy_and_kl_are_the_monte_carlo_means(drawn):
    old, new, mask, used, mode, raw, log_prob = drawn
    of_old, of_new = (np.asarray(log_prob(d, mask, used, mode, raw), np.float64) for d in (old, new))
    error = 5.0 * np.std(of_old - of_new) / np.sqrt(mode.size)
    assert abs(np.mean(of_old - of_new) - float(hybrid.kl(old, new, mask, used))) < error
    assert abs(-np.mean(of_old) - float(hybrid.entropy(old, mask, used))) < 5.0 * np.std(of_old) / np.sqrt(mode.size)
    # importance weights of the joint ratio average to one; a ratio of one dimension only would not be a density
    np.testing.assert_allclose(np.mean(np.exp(of_new - of_old)), 1.0, atol=0.1)


def test_kl_is_weighted_by_the_old_policy_and_directed():
    mask, used = jnp.ones(2, bool), jnp.ones((2, 1), bool)
    rare = HybridDist(jnp.array([0.0, -60.0]), jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    moved = rare._replace(mean=jnp.array([[0.0], [5.0]]))
    assert float(hybrid.kl(rare, moved, mask, used)) < 1e-12  # the mode that moved is never taken
    sharp = HybridDist(jnp.array([3.0, 0.0]), jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    assert float(hybrid.kl(sharp, rare, mask, used)) > 10.0 * float(hybrid.kl(rare, sharp, mask, used))


def test_joint_ratio_is_the_product_over_dimensions():
    old, new, mask, used = random_case(1, 3, 3, batch=(10,))

    @jax.jit
    def compute(key):
        mode, raw = hybrid.sample(key, old, mask, used)
        ratio = hybrid.log_prob(new, mask, used, mode, raw) - hybrid.log_prob(old, mask, used, mode, raw)
        return mode, raw, jnp.exp(ratio)

    mode, raw, joint = jax.tree.map(np.asarray, compute(jax.random.key(1)))
    product = np.ones(10)
    for dist, sign in ((new, 1.0), (old, -1.0)):
        dist = jax.tree.map(np.asarray, dist)
        for i, m in enumerate(mode):
            product[i] *= oracle_probs(dist.logits[i], mask[i])[m] ** sign
            for j in np.flatnonzero(np.asarray(used)[i, m]):
                law = stats.norm(dist.mean[i, m, j], np.exp(dist.log_std[i, m, j]))
                product[i] *= law.pdf(raw[i, j]) ** sign
    np.testing.assert_allclose(joint, product, rtol=2e-4)


def test_box_density_integrates_to_the_mode_probability():
    with jax.enable_x64(True):
        dist = HybridDist(
            jnp.array([0.3, -0.2, 5.0]),
            jnp.array([[0.4, -0.6], [0.1, 9.0], [0.0, 0.0]]),
            jnp.array([[-0.4, 0.1], [-0.2, 0.0], [0.0, 0.0]]),
        )
        mask = jnp.array([True, True, False])
        used = jnp.array([[True, True], [True, False], [True, True]])
        low = np.array([[0.0, -3.0], [2.0, 0.0], [0.0, 0.0]])
        high = np.array([[0.5, 5.0], [12.0, 0.0], [1.0, 1.0]])
        nodes, weights = np.polynomial.legendre.leggauss(200)
        u, v = np.meshgrid(nodes, nodes, indexing="ij")

        def density(m, unit):
            raw = jnp.arctanh(unit)
            mode = jnp.full(unit.shape[:-1], m)
            batched = jax.tree.map(lambda x: jnp.broadcast_to(x, (*unit.shape[:-1], *x.shape)), dist)
            box_density = jax.jit(lambda d, m, r: jnp.exp(hybrid.log_prob_box(d, mask, used, m, r, low, high)))
            return box_density(batched, mode, raw)

        both = density(0, jnp.stack([u, v], -1)) * (0.5 * 0.5) * (8.0 * 0.5)
        one = density(1, jnp.stack([nodes, np.zeros_like(nodes)], -1)) * (10.0 * 0.5)
        p = oracle_probs(dist.logits, mask)
        np.testing.assert_allclose(weights @ both @ weights, p[0], rtol=1e-5)
        np.testing.assert_allclose(weights @ one, p[1], rtol=1e-5)


def test_box_density_is_finite_where_tanh_saturates():
    dist = HybridDist(jnp.zeros(1), jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    mask, used, low, high = jnp.ones(1, bool), jnp.ones((1, 1), bool), np.zeros((1, 1)), np.full((1, 1), 2.0)
    for x in (-30.0, 30.0):
        raw = jnp.array([x])
        args = (mask, used, jnp.array(0), raw, low, high)
        value, grad = jax.jit(jax.value_and_grad(lambda d, args=args: hybrid.log_prob_box(d, *args)))(dist)
        # 1 - tanh(x)^2 -> 4 exp(-2|x|)
        want = stats.norm.logpdf(x) - (np.log(4.0) - 2.0 * abs(x))
        np.testing.assert_allclose(value, want, rtol=1e-6)
        assert all(np.all(np.isfinite(g)) for g in grad)


@pytest.mark.parametrize("scale", [1e3, 1e30])
def test_extreme_logits_have_finite_gradients(scale):
    mask, used = jnp.array([True, True, True, False]), jnp.ones((4, 2), bool)
    dist = HybridDist(scale * jnp.array([1.0, -1.0, 0.0, 2.0]), jnp.zeros((4, 2)), jnp.zeros((4, 2)))
    flat = dist._replace(logits=jnp.zeros(4))

    def everything(d):
        worst = hybrid.log_prob(d, mask, used, jnp.array(1), jnp.ones(2))
        return worst + hybrid.entropy(d, mask, used) + hybrid.kl(d, flat, mask, used) + hybrid.kl(flat, d, mask, used)

    value, grad = jax.jit(jax.value_and_grad(everything))(dist)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(g)) for g in grad)


def test_most_likely_skips_masked_modes_and_unused_parameters():
    dist = HybridDist(jnp.array([1.0, 9.0, 2.0]), jnp.arange(6.0).reshape(3, 2) + 1.0, jnp.zeros((3, 2)))
    mode, raw = hybrid.most_likely(
        dist, jnp.array([True, False, True]), jnp.array([[True, True]] * 2 + [[False, True]])
    )
    assert int(mode) == 2
    np.testing.assert_array_equal(raw, [0.0, 6.0])


def test_small_kl_survives_float32():
    """A trust region of 1e-6 must be visible in single precision."""
    mask, used = jnp.ones(1, bool), jnp.ones((1, 1), bool)
    old = HybridDist(jnp.zeros(1), jnp.zeros((1, 1)), jnp.full((1, 1), -0.5))
    new = old._replace(mean=jnp.full((1, 1), 1e-3))
    want = 0.5 * (1e-3 / np.exp(-0.5)) ** 2
    np.testing.assert_allclose(hybrid.kl(old, new, mask, used), want, rtol=1e-4)


def test_batch_of_seeds_environments_and_agents_is_the_loop_over_them():
    old, new, mask, used = random_case(5, 3, 2, batch=(2, 2, 2))
    shared = used[0, 0]  # [N, M, P], as an environment declares it
    batched = jax.jit(jax.vmap(lambda a, b, m: hybrid.kl(a, b, m, shared)))(old, new, mask)
    single = jax.jit(hybrid.kl)
    for i in np.ndindex(2, 2, 2):
        one = single(*(jax.tree.map(lambda x, i=i: x[i], d) for d in (old, new)), mask[i], shared[i[-1]])
        np.testing.assert_allclose(batched[i], one, rtol=2e-5, atol=1e-6)
