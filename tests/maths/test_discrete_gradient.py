"""Bias of every estimator by exact quadrature, its value, its masks.

For two modes only the difference L of the two Gumbels matters, and L is logistic. The integrand is analytic in a
strip of half-width pi tau, so an equidistant rule with step tau / 2 is exact to about exp(-4 pi^2). A hard forward
pass puts a jump at L = -logit: half-way between two nodes, and a finer step.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths import discrete_gradient as dg

LOGIT = 0.7
OBJECTIVES = {
    "linear": lambda p: p,
    "square": lambda p: p**2,
    "cube": lambda p: p**3,
    "sine": lambda p: jnp.sin(3.0 * p),
}


@cache
def gradient_at_nodes(name):
    """d surrogate / d first logit, [nodes, objectives]."""

    def surrogates(logit, difference, tau, kappa):
        logits, gumbel = jnp.stack([logit, 0.0 * logit]), jnp.stack([difference, 0.0 * difference])

        def of(h):
            args = (logits, jnp.ones(2, bool), gumbel, tau)
            return dg.discrete_surrogate(name, lambda x: h(x[0]), *args, kappa=kappa)

        return jnp.stack([of(h) for h in OBJECTIVES.values()])

    return jax.jit(jax.vmap(jax.jacfwd(surrogates), (None, 0, None, None)))


@cache
def biases(name, tau, kappa=2.0):
    """{objective: E[estimator] - d/dlogit E[h(hard sample)]}."""
    step = tau / (40.0 if name in dg.HARD_FORWARD else 2.0)
    count = int(40.0 / step)
    nodes = -LOGIT + (np.arange(-count, count) + 0.5) * step
    density = 0.25 / np.cosh(0.5 * nodes) ** 2
    with jax.enable_x64(True):
        inputs = (jnp.float64(LOGIT), jnp.asarray(nodes), jnp.float64(tau), jnp.float64(kappa))
        expected = step * density @ np.asarray(gradient_at_nodes(name)(*inputs))
    p = 1.0 / (1.0 + np.exp(-LOGIT))
    exact = [float(h(1.0) - h(0.0)) * p * (1.0 - p) for h in OBJECTIVES.values()]
    return dict(zip(OBJECTIVES, expected - exact, strict=True))


def orders(name, tau=0.025):
    """log2 of the bias ratio when the temperature is halved."""
    coarse, fine = biases(name, tau), biases(name, tau / 2.0)
    return {h: np.log2(abs(coarse[h] / fine[h])) for h in OBJECTIVES}


# (objective, tau, plain Gumbel-Softmax, Richardson with reference tau0 = 1, ratio-locked): worked out independently
TABLE = [
    ("linear", 0.1, -1.2e-3, 5.7e-3, 2.3e-3),
    ("linear", 0.025, -7.5e-5, 1.5e-3, 1.5e-4),
    ("square", 0.1, 6.1e-3, 1.1e-2, 3.3e-3),
    ("square", 0.025, 1.8e-3, 2.9e-3, 1.7e-4),
    ("sine", 0.1, -2.5e-2, -1.8e-2, -3.2e-3),
    ("sine", 0.025, -6.4e-3, -4.3e-3, -5.1e-5),
]


@pytest.mark.parametrize(("objective", "tau", "plain", "fixed", "locked"), TABLE)
def test_bias_table(objective, tau, plain, fixed, locked):
    # the reference temperature 1, applied to the objective, is the ratio 1 / tau
    got = [biases("gs", tau), biases("stgc", tau, kappa=1.0 / tau), biases("stgc", tau)]
    np.testing.assert_allclose([b[objective] for b in got], [plain, fixed, locked], rtol=0.05)


def test_bias_orders():
    plain, locked, romberg = orders("gs"), orders("stgc"), orders("romberg", tau=0.0125)
    assert abs(plain["linear"] - 2.0) < 0.02
    assert abs(romberg["linear"] - 4.0) < 0.1
    for h in ("square", "cube", "sine"):
        assert abs(plain[h] - 1.0) < 0.05, h
        assert locked[h] > 2.0, h
        assert romberg[h] > 2.8, h
    assert abs(locked["linear"] - 2.0) < 0.02
    # the remainder of Richardson is -kappa tau^2: in the linear case twice the bias of plain Gumbel-Softmax
    assert abs(biases("stgc", 0.025)["linear"] / biases("gs", 0.025)["linear"] + 2.0) < 0.01
    for h in OBJECTIVES:
        assert abs(biases("romberg", 0.025)[h]) < 1.5 * abs(biases("stgc", 0.025)[h]), h


def test_fixed_reference_is_first_order_even_when_the_objective_is_linear():
    assert abs(orders("stgc-paper")["linear"] - 1.0) < 0.05
    assert abs(biases("stgc-paper", 0.025)["linear"]) > 10.0 * abs(biases("gs", 0.025)["linear"])


@pytest.mark.parametrize("name", dg.HARD_FORWARD)
def test_hard_forward_bias_does_not_vanish_on_a_cubic(name):
    coarse, fine = biases(name, 0.025), biases(name, 0.0125)
    assert 0.10 < fine["cube"] < 0.12
    assert abs(coarse["cube"] - fine["cube"]) < 0.01
    assert abs(fine["square"]) < 0.5 * abs(coarse["square"]) + 1e-4  # a quadratic escapes
    assert abs(fine["cube"]) > 50.0 * abs(biases("gs", 0.0125)["cube"])


def test_exact_is_the_enumeration():
    logits, gumbel, mask = jnp.array([0.3, -1.0, 2.0, 0.5]), jnp.zeros(4), jnp.array([True, True, False, True])
    table = jnp.array([1.0, -2.0, 100.0, 0.7])

    def marginal(logits, table):
        p = jnp.exp(logits) * mask
        return jnp.sum(p / jnp.sum(p) * table)

    def surrogate(logits, table):
        # a table look-up bent away from the corners: only the corners may count
        def h(x):
            return x @ table + 50.0 * jnp.sum(x * (1.0 - x))

        return dg.discrete_surrogate("exact", h, logits, mask, gumbel, 0.5)

    got, want = (jax.jit(jax.value_and_grad(f, (0, 1)))(logits, table) for f in (surrogate, marginal))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)


@pytest.fixture(scope="module")
def many_modes():
    rng = np.random.default_rng(0)
    batch, modes = 64, 6
    logits, gumbel = (
        jnp.asarray(rng.normal(size=(batch, modes)), jnp.float32),
        jax.random.gumbel(jax.random.key(0), (batch, modes)),
    )
    mask = jnp.asarray(rng.random((batch, modes)) < 0.5).at[:, 2].set(True)
    return logits, mask, gumbel


@pytest.mark.parametrize("name", [n for n in dg.ESTIMATORS if n != "exact"])
def test_value_is_the_hard_sample_and_masked_modes_are_silent(name, many_modes):
    logits, mask, gumbel = many_modes
    slopes = jnp.arange(6.0) - 2.0

    def objective(x, scale):
        return jnp.sin(scale * x @ slopes)

    def surrogate(logits, mask, gumbel, tau, scale):
        return dg.discrete_surrogate(name, lambda x: objective(x, scale), logits, mask, gumbel, tau)

    run = jax.jit(jax.vmap(jax.value_and_grad(surrogate, (0, 4)), (0, 0, 0, None, None)))
    chosen = np.argmax(np.where(mask, logits + gumbel, -np.inf), axis=-1)
    for tau in (1e-3, 0.3, 1.0):  # at tau = tau0 = 1 the printed weight would be infinite
        value, (grad, scale_grad) = run(logits, mask, gumbel, tau, 0.7)
        np.testing.assert_array_equal(value, objective(jax.nn.one_hot(chosen, 6), 0.7))
        assert np.all(np.asarray(grad)[~np.asarray(mask)] == 0.0)
        assert np.all(np.isfinite(grad))
        assert np.all(np.isfinite(scale_grad))
        assert np.any(np.asarray(scale_grad) != 0.0)


@pytest.mark.parametrize("name", ["exact", "stgc", "stgc-paper"])
def test_relaxations_are_the_surrogate_in_one_batched_pass(name, many_modes):
    logits, mask, gumbel = many_modes
    slopes = jnp.arange(6.0) - 2.0

    def objective(x):
        return jnp.sin(x @ slopes)

    def batched(logits):
        weights, samples = dg.relaxations(name, logits, mask, gumbel, 0.4)
        return jnp.sum(weights * objective(samples)), (weights, samples)

    def looped(logits):
        each = jax.vmap(lambda l, m, g: dg.discrete_surrogate(name, objective, l, m, g, 0.4))
        return jnp.sum(each(logits, mask, gumbel))

    grad, (weights, samples) = jax.jit(jax.grad(batched, has_aux=True))(logits)
    np.testing.assert_allclose(grad, jax.jit(jax.grad(looped))(logits), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.sum(weights, axis=0), 1.0, rtol=1e-5)
    dead = ~np.asarray(mask)
    silent = np.asarray(samples) * (np.asarray(weights)[..., None] if name == "exact" else 1.0)
    assert np.all(silent[:, dead] == 0.0)
    np.testing.assert_allclose(np.sum(samples, axis=-1), 1.0, rtol=1e-5)


def test_default_and_unknown_names():
    assert [dg.default_estimator(m) for m in (1, 4, 5, 30)] == ["exact", "exact", "stgc", "stgc"]
    with pytest.raises(ValueError, match="romberg"):
        dg.relaxations("gumbel", jnp.zeros(2), jnp.ones(2, bool), jnp.zeros(2), 1.0)
