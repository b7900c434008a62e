"""The preconditioner: its parts against their definitions, and what it is for, fewer conjugate-gradient steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from trident.algos.common import kfac
from trident.algos.common.actor import actor_apply, actor_init
from trident.algos.common.kfac import Seen, kronecker_inverse, rough_inverse
from trident.maths import fisher, hybrid
from trident.nets import mlp_apply, mlp_inputs

USED = jnp.array([[True, True], [True, False], [False, False]])
DAMPING = 0.01


def setting(rows=64, hidden=(8, 8), scale=1.0, seed=0):
    """A trained-looking actor (its last layer is not small) and states in which one mode is sometimes forbidden."""
    keys = jax.random.split(jax.random.key(seed), 4)
    actor = actor_init(keys[0], 5, hidden, 3, 2, -0.5)
    last = actor["trunk"][-1]
    actor["trunk"][-1] = last | {"w": last["w"] * 100.0 * scale}
    mask = jnp.ones((rows, 3), bool).at[:, 2].set(jax.random.bernoulli(keys[1], 0.5, (rows,)))
    weight = jax.random.uniform(keys[2], (rows,)).at[: rows // 4].set(0.0)
    return actor, Seen(jax.random.normal(keys[3], (rows, 5)), mask, None, weight / weight.sum())


def test_inputs_are_what_the_weights_multiply():
    actor, seen = setting()
    layers = actor["trunk"]
    inputs = mlp_inputs(layers, seen.obs)
    assert [x.shape[-1] for x in inputs] == [layer["w"].shape[0] for layer in layers]
    np.testing.assert_allclose(
        inputs[-1] @ layers[-1]["w"] + layers[-1]["b"], mlp_apply(layers, seen.obs), rtol=1e-5, atol=1e-6
    )


def test_the_score_of_a_weight_is_its_input_times_the_score_of_its_bias():
    actor, seen = setting(rows=6)
    key = jax.random.key(3)
    score = kfac._scores(key, actor, seen, USED)
    inputs = mlp_inputs(actor["trunk"], seen.obs)
    mode, raw = hybrid.sample(key, actor_apply(actor, seen.obs), seen.mode_mask, USED)

    def log_prob(a, b):
        return hybrid.log_prob(actor_apply(a, seen.obs[b]), seen.mode_mask[b], USED, mode[b], raw[b])

    for row in range(6):
        want = jax.grad(log_prob)(actor, row)
        for layer, a, s in zip(want["trunk"], inputs, score["trunk"], strict=True):
            np.testing.assert_allclose(layer["w"], np.outer(a[row], s["b"][row]), rtol=1e-4, atol=1e-5)
            for name in set(layer) - {"w"}:
                np.testing.assert_allclose(layer[name], s[name][row], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(want["log_std"], score["log_std"][row], rtol=1e-4, atol=1e-5)


def test_squared_scores_are_the_fisher_matrix_on_average():
    """Over many draws in one state: the mean of score x score' is F, here its diagonal and the last layer's block."""
    actor, seen = setting(rows=1)
    count = 40_000
    many = jax.tree.map(lambda x: jnp.repeat(x, count, axis=0), seen)
    score = jax.jit(lambda k: kfac._scores(k, actor, many, USED))(jax.random.key(1))
    flat, unravel = ravel_pytree(actor)
    product = fisher.fisher_product(lambda a: actor_apply(a, seen.obs), actor, seen.mode_mask, USED, jnp.ones(1))
    exact = jax.jit(jax.vmap(lambda v: ravel_pytree(product(unravel(v)))[0]))(jnp.eye(flat.size))
    diagonal = unravel(jnp.diagonal(exact))
    np.testing.assert_allclose(jnp.mean(score["log_std"] ** 2, 0), diagonal["log_std"], rtol=0.05, atol=0.01)
    for got, want in zip(score["trunk"], diagonal["trunk"], strict=True):
        for name in set(want) - {"w"}:
            scale = jnp.max(want[name])
            np.testing.assert_allclose(jnp.mean(got[name] ** 2, 0) / scale, want[name] / scale, atol=0.03)


@pytest.mark.parametrize("doublings", [1, 4, 30])
def test_rough_inverse_by_eigenvalues(doublings):
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=(40, 12))
        m = x.T @ x / 40 + 0.01 * np.eye(12)
        values, vectors = np.linalg.eigh(m)
        c = 1.0 / np.abs(m).sum(-1).max()
        want = vectors @ np.diag((1.0 - (1.0 - c * values) ** 2**doublings) / values) @ vectors.T
        got = np.asarray(rough_inverse(jnp.asarray(m), doublings))
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)
    assert np.linalg.eigvalsh(got).min() > 0
    if doublings == 30:
        np.testing.assert_allclose(got, np.linalg.inv(m), rtol=1e-8, atol=1e-8)


def test_nothing_leaves_the_compiled_program():
    """Factorisations call LAPACK; three seeds side by side then waited for each other for ever (jaxlib 0.10.1)."""
    actor, seen = setting(rows=4)
    solve = lambda k: kronecker_inverse(k, actor, seen, USED, DAMPING)(actor)  # noqa: E731
    program = str(jax.make_jaxpr(jax.vmap(solve))(jax.random.split(jax.random.key(0), 3)))
    assert "dot_general" in program
    assert not [word for word in ("cholesky", "triangular_solve", "lu[", "eigh", "svd", "qr[") if word in program]


def test_states_of_no_weight_do_not_count():
    actor, seen = setting()
    v = jax.tree.map(jnp.ones_like, actor)
    other = seen._replace(obs=seen.obs.at[: len(seen.obs) // 4].set(7.0))
    solve = jax.jit(lambda s: kronecker_inverse(jax.random.key(0), actor, s, USED, DAMPING)(v))
    for a, b in zip(jax.tree.leaves(solve(seen)), jax.tree.leaves(solve(other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize(("scale", "few"), [(0.01, 2), (0.3, 3)])
def test_two_or_three_preconditioned_steps_beat_ten_plain_ones(scale, few):
    """For the policy gradient of a fresh policy and of a trained-looking one, by the distance from the exact solution
    in the matrix's own norm; and both ways lead to that solution."""
    actor, seen = setting(rows=512, hidden=(128, 128), scale=scale)
    flat, unravel = ravel_pytree(actor)
    mode, raw = hybrid.sample(jax.random.key(9), actor_apply(actor, seen.obs), seen.mode_mask, USED)
    advantage = jnp.sin(seen.obs[:, 0]) * raw[:, 0] + jnp.cos(seen.obs[:, 1]) * (mode == 1)
    policy = lambda t: actor_apply(unravel(t), seen.obs)  # noqa: E731

    @jax.jit
    def distances():
        product = fisher.fisher_product(policy, flat, seen.mode_mask, USED, seen.weight)
        gain = lambda t: (seen.weight * advantage) @ hybrid.log_prob(policy(t), seen.mode_mask, USED, mode, raw)  # noqa: E731
        inverse = kronecker_inverse(jax.random.key(2), actor, seen, USED, DAMPING)
        precondition = lambda v: ravel_pytree(inverse(unravel(v)))[0]  # noqa: E731
        rhs, same = jax.grad(gain)(flat)[None], lambda v: v
        solve = lambda n, m: fisher.conjugate_gradient(product, rhs, n, DAMPING, m)[0]  # noqa: E731
        norm = lambda v: jnp.sqrt(v @ (product(v) + DAMPING * v))  # noqa: E731
        star = solve(150, precondition)
        return [norm(x - star) / norm(star) for x in (solve(few, precondition), solve(10, same), solve(400, same))]

    preconditioned, ten, converged = map(float, distances())
    assert preconditioned < 0.9 * ten
    assert converged < 0.02


def test_an_exact_preconditioner_needs_one_step_and_zero_stays_zero():
    m = np.diag([1.0, 10.0, 100.0]).astype(np.float32)
    inverse = jnp.asarray(np.linalg.inv(m + 0.5 * np.eye(3)).astype(np.float32))
    rhs = jnp.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    for steps in (1, 5):
        x = fisher.conjugate_gradient(lambda v: jnp.asarray(m) @ v, rhs, steps, 0.5, lambda v: inverse @ v)
        np.testing.assert_allclose(x, rhs @ inverse, rtol=1e-5)
    np.testing.assert_array_equal(x[1], 0.0)


def test_a_single_mode_without_parameters_has_nothing_to_solve():
    actor = actor_init(jax.random.key(0), 5, (8,), 1, 0, -0.5)
    seen = Seen(jnp.ones((4, 5)), jnp.ones((4, 1), bool), None, jnp.full(4, 0.25))
    solve = kronecker_inverse(jax.random.key(0), actor, seen, jnp.zeros((1, 0), bool), DAMPING)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(solve(jax.tree.map(jnp.ones_like, actor))))
