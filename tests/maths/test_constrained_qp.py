"""The Gram-space solvers against an interior-point cone solver in explicit x space, and against closed forms."""

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls

from trident.maths import constrained_qp as cs

OPTIONS = clarabel.DefaultSettings()
OPTIONS.verbose = False


def cone_solve(cost, rows, bounds, ball, radius, quadratic=0.0):
    """min quadratic/2 |x|^2 + cost'x  s.t. rows x <= bounds, |x[ball]| <= radius (if ball is not None)."""
    n, count = len(cost), len(bounds)
    blocks, right, cones = [rows], [bounds], [clarabel.NonnegativeConeT(count)]
    if ball is not None:
        blocks += [np.zeros((1, n)), -np.eye(n)[ball]]
        right += [[radius], np.zeros(len(ball))]
        cones.append(clarabel.SecondOrderConeT(1 + len(ball)))
    hessian = sparse.csc_matrix(quadratic * np.eye(n))
    a, b = sparse.csc_matrix(np.concatenate(blocks)), np.concatenate(right)
    answer = clarabel.DefaultSolver(hessian, np.asarray(cost), a, b, cones, OPTIONS).solve()
    return str(answer.status), np.array(answer.x)


def instance(rng, k, kind):
    """Explicit vectors in R^9 with H = I (any H is a change of basis), budgets, delta. `kind` adds degeneracies."""
    v = rng.normal(size=(1 + k, 9)) * 10.0 ** rng.uniform(-3, 2, size=(1 + k, 1))
    if kind == "correlated":
        v[1:] = np.linalg.norm(v[1:], axis=1, keepdims=True) * (rng.normal(size=9) + 0.3 * rng.normal(size=(k, 9)))
    if kind == "parallel" and k > 1:
        v[2] = rng.choice([-2.0, 0.5]) * v[1]
    if kind == "zero":
        v[rng.integers(1 + k)] = 0.0
    if kind == "span":
        v[0] = rng.normal(size=k) @ v[1:]
    delta = 10.0 ** rng.uniform(-4, -1)
    reach = np.sqrt(2 * delta) * np.linalg.norm(v[1:], axis=1)
    reach = np.where(reach > 0, reach, 1e-3)
    return v, rng.uniform(-0.9, 0.7, size=k) * reach, delta


KINDS = ("generic", "correlated", "parallel", "zero", "span")
PER_KIND = 80


@pytest.fixture(scope="module", params=[2, 6, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 3, 4, 5))])
def problems(request):
    rng = np.random.default_rng(request.param)
    cases = [instance(rng, request.param, kind) for kind in KINDS for _ in range(PER_KIND)]
    v, c, delta = (np.stack(x) for x in zip(*cases, strict=True))
    return v, c, delta, np.einsum("aip,ajp->aij", v, v)


solve = jax.jit(jax.vmap(cs.constrained_step))
clip = jax.jit(jax.vmap(cs.joint_clip, (0, 0, 0, None)))
recover = jax.jit(jax.vmap(cs.recovery))


def min_norm2(gram_bb, budgets):
    """min { x'Hx : b_k'x <= c_k }: 0 if all budgets are >= 0, inf if they contradict each other."""
    gram_bb = cs._finite_or_zero(gram_bb)
    unit, scale = cs._correlation(jnp.pad(gram_bb, ((1, 0), (1, 0))))
    hopeless = jnp.any((scale[1:] == 0) & (budgets < 0)) | jnp.any(jnp.isnan(budgets))
    bounds = jnp.where(scale[1:] > 0, budgets * scale[1:], jnp.inf)
    largest = jnp.max(-bounds, initial=0.0)
    largest = jnp.where(largest > 0, largest, 1.0)
    bounds = jnp.clip(bounds / largest, -1.0, 1.0 / jnp.finfo(gram_bb.dtype).eps)
    f = cs._faces(unit, bounds[:, None])
    length = f.yy[:, 0, 0]
    allowed = -cs._tolerance(gram_bb.dtype) * (1.0 + jnp.abs(bounds) + jnp.sqrt(jnp.maximum(length, 0.0))[:, None])
    valid = f.usable & jnp.all(f.slack[:, :, 0] >= allowed, axis=1)
    least = jnp.min(jnp.where(valid, jnp.maximum(length, 0.0), jnp.inf))
    return jnp.where(hopeless | jnp.isinf(least), jnp.inf, largest * (largest * least))


shortest = jax.jit(jax.vmap(min_norm2))
priced = jax.jit(jax.vmap(cs.multipliers))
solve_one, recover_one = jax.jit(cs.constrained_step), jax.jit(cs.recovery)


def oracle_step(v, c, delta):
    """(feasible, best objective) with unit-sized data; feasible is None when too close to call."""
    radius, norms = np.sqrt(2 * delta), np.linalg.norm(v, axis=1)
    unit = v / np.where(norms > 0, norms, 1.0)[:, None]
    bounds = np.where(norms[1:] > 0, c / (radius * np.where(norms[1:] > 0, norms[1:], 1.0)), np.sign(c))
    status, x = cone_solve(-unit[0], unit[1:], bounds, np.arange(9), 1.0)
    if status == "PrimalInfeasible":
        return False, None
    _, nearest = cone_solve(np.zeros(9), unit[1:], bounds, None, 0.0, quadratic=1.0)
    slim = abs(nearest @ nearest - 1.0) < 1e-3
    return (None if slim or status != "Solved" else True), (unit[0] @ x) * norms[0] * radius


def test_matches_the_cone_solver(problems):
    v, c, delta, gram = problems
    with jax.enable_x64(True):
        step = jax.tree.map(np.asarray, solve(jnp.asarray(gram), jnp.asarray(c), jnp.asarray(delta)))
    single = jax.tree.map(np.asarray, solve(*(jnp.asarray(a, jnp.float32) for a in (gram, c, delta))))
    decided = empty = 0
    for i in range(len(c)):
        feasible, best = oracle_step(v[i], c[i], delta[i])
        if feasible is None:
            continue
        decided += 1
        empty += not feasible
        assert bool(step.feasible[i]) == bool(single.feasible[i]) == feasible, i
        reach = np.sqrt(2 * delta[i]) * np.linalg.norm(v[i], axis=1)
        # where g is within the tolerance of the constraints' span, up to sqrt(tolerance) of the gain is forgone
        for answer, tol, gap in ((step, 1e-6, 3e-5), (single, 1e-3, 1e-2)):
            x = answer.weights[i].astype(np.float64) @ v[i]
            assert np.all(np.isfinite(x))
            if not feasible:
                assert np.all(x == 0.0)
                continue
            assert np.all(v[i, 1:] @ x <= c[i] + tol * reach[1:]), (i, tol)
            assert x @ x <= 2 * delta[i] * (1 + tol), (i, tol)
            assert abs(v[i, 0] @ x - best) <= gap * reach[0] + 1e-12, (i, tol, v[i, 0] @ x, best)
            np.testing.assert_allclose(answer.change[i], v[i] @ x, atol=tol * reach.max() + 1e-12)
            np.testing.assert_allclose(answer.size[i], 0.5 * x @ x, atol=tol * delta[i])
    assert decided > 0.9 * len(c)
    assert 0 < empty < decided


def scaled(v, c, delta):
    """Unit gradients and budgets in radii; demands with a vanishing gradient dropped."""
    norms = np.linalg.norm(v[1:], axis=1)
    alive = norms > 0
    unit = v[1:] / np.where(alive, norms, 1.0)[:, None]
    return unit, np.where(alive, c / np.where(alive, norms, 1.0) / np.sqrt(2 * delta), np.maximum(c, 0.0)), alive


def test_joint_clip_is_the_largest_common_share(problems):
    v, c, delta, gram = problems
    margin, harsh = 0.1, 2.5 * c - 0.3 * np.abs(c)
    with jax.enable_x64(True):
        args = tuple(jnp.asarray(a) for a in (gram[:, 1:, 1:], harsh, delta))
        share, budgets = (np.asarray(a) for a in clip(*args, margin))
    single = np.asarray(clip(*(jnp.asarray(a, jnp.float32) for a in args), margin)[0])
    partly = 0
    for i in range(0, len(c), 2):
        unit, bounds, alive = scaled(v[i], harsh[i], delta[i])
        demand = np.minimum(bounds, 0.0)
        rows = np.block([[unit, -demand[:, None]], [np.zeros((1, 9)), np.ones((1, 1))]])
        right = np.append(np.maximum(bounds, 0.0), 1.0)
        status, x = cone_solve(np.append(np.zeros(9), -1.0), rows, right, np.arange(9), 1.0 - margin)
        assert status == "Solved"
        assert abs(share[i] - x[-1]) < 1e-5, (i, share[i], x[-1])
        assert abs(single[i] - x[-1]) < 2e-3, (i, single[i], x[-1])
        partly += 0.01 < x[-1] < 0.99
        want = np.where(harsh[i] < 0, share[i] * harsh[i], harsh[i])
        np.testing.assert_allclose(budgets[i], np.where(alive, want, np.maximum(harsh[i], 0.0)), rtol=1e-12)
    assert partly > 20
    with jax.enable_x64(True):
        assert np.all(solve(jnp.asarray(gram), jnp.asarray(budgets), jnp.asarray(delta)).feasible)


def test_min_norm_matches_the_quadratic_program(problems):
    v, c, delta, gram = problems
    with jax.enable_x64(True):
        got = np.asarray(shortest(jnp.asarray(gram[:, 1:, 1:]), jnp.asarray(c)))
    for i in range(0, len(c), 4):
        unit, bounds, alive = scaled(v[i], c[i], delta[i])
        status, x = cone_solve(np.zeros(9), unit, bounds, None, 0.0, quadratic=1.0)
        if np.any(~alive & (c[i] < 0)) or status == "PrimalInfeasible":
            assert got[i] == np.inf
        else:
            np.testing.assert_allclose(got[i] / (2 * delta[i]), x @ x, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(shortest(jnp.asarray(gram[:, 1:, 1:], jnp.float32), jnp.abs(c)), 0.0)


def test_prices_are_the_non_negative_least_squares(problems):
    """By the remainder they leave: where gradients are parallel, prices themselves are not unique."""
    v, c, delta, gram = problems
    with jax.enable_x64(True):
        got = np.asarray(priced(jnp.asarray(gram), jnp.asarray(c), jnp.asarray(delta)))
    norms = np.linalg.norm(v, axis=2)
    assert (got >= 0).all()
    assert (got[norms[:, 1:] == 0] == 0).all()
    for i in range(len(c)):
        size = np.where(norms[i] > 0, norms[i], 1.0)
        _, least = nnls((v[i, 1:] / size[1:, None]).T, v[i, 0] / size[0])
        remainder = np.linalg.norm(v[i, 0] - got[i] @ v[i, 1:]) / size[0]
        np.testing.assert_allclose(remainder, least, atol=1e-5)


def test_prices_at_an_optimum_are_its_multipliers_and_a_far_limit_has_none():
    """g = 3 b_1 + 0.5 b_2, both limits reached; then the second is too far off to be reached within the region."""
    b = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
    v = np.concatenate([[3.0 * b[0] + 0.5 * b[1]], b])
    price = jax.jit(cs.multipliers)
    np.testing.assert_allclose(price(v @ v.T, jnp.zeros(2), 0.01), [3.0, 0.5], rtol=1e-4)
    np.testing.assert_allclose(price(v @ v.T, jnp.array([0.0, 0.2]), 0.01), [3.3, 0.0], rtol=1e-4)


def test_recovery_lowers_the_violated_and_keeps_the_satisfied(problems):
    v, c, delta, gram = problems
    harsh = np.where(c < 0, 2.0 * c, c)
    with jax.enable_x64(True):
        step = jax.tree.map(np.asarray, recover(*(jnp.asarray(a) for a in (gram, harsh, delta))))
    full = stopped = 0
    for i in range(0, len(c), 2):
        unit, bounds, alive = scaled(v[i], harsh[i], delta[i])
        violated = (c[i] < 0) & alive
        x = step.weights[i] @ v[i] / np.sqrt(2 * delta[i])
        assert step.feasible[i]
        assert x @ x <= 1 + 1e-6
        assert np.all(unit @ x <= np.maximum(bounds, 0.0) + 1e-6)
        if not violated.any():
            assert np.all(x == 0.0)
            continue
        aim = -unit[violated].sum(axis=0)
        _, best = cone_solve(-aim, unit, np.maximum(bounds, 0.0), np.arange(9), 1.0)
        left = unit[violated] @ x - bounds[violated]
        if np.all(left < 1e-6):  # every target met, the last one exactly
            stopped += 1
            assert np.max(left) > -1e-6
        else:  # otherwise nothing within the trust region and the other budgets lowers them further
            full += 1
            assert abs(aim @ x - aim @ best) < 1e-4 * np.linalg.norm(aim) + 1e-6, i
    assert full > 10
    assert stopped > 10


def cpo_dual(q, r, s, c, delta):
    """Closed-form step (1/lam) H^-1 (g - nu b) of the single-constraint problem, by its dual; c > 0 is violation."""
    if s <= 1e-12 or (c < 0 and c * c / s > 2 * delta):
        return np.sqrt(2 * delta / q), 0.0
    a, b = q - r * r / s, 2 * delta - c * c / s

    def active(lam):
        return -0.5 * (a / lam + b * lam) + r * c / s

    def inactive(lam):
        return -0.5 * (q / lam + 2 * delta * lam)

    # nu = max(0, (lam c + r) / s) splits the axis of lam at -r / c
    edge = -r / c
    free, bound = np.sqrt(q / (2 * delta)), np.sqrt(a / b)
    low, high = (edge, np.inf) if c > 0 else (0.0, edge)
    low, high = max(low, 0.0), max(high, 1e-12)
    lam_a = np.clip(bound, low, high)
    lam_b = max(free, high) if c < 0 else min(max(free, 1e-12), max(low, 1e-12))
    lam = lam_a if active(lam_a) >= inactive(lam_b) else lam_b
    return 1.0 / lam, max(0.0, (lam * c + r) / s) / lam


@pytest.mark.parametrize(
    ("case", "gram", "budget"),
    [
        ("no constraint gradient", [[4.0, 0.0], [0.0, 0.0]], 0.1),
        ("trust region wholly feasible", [[4.0, 1.0], [1.0, 2.0]], 5.0),
        ("boundary cuts the trust region", [[4.0, 2.5], [2.5, 2.0]], 0.05),
        ("safe, and the step stays inside", [[4.0, -1.0], [-1.0, 2.0]], 0.05),
        ("violated, but recoverable", [[4.0, 1.0], [1.0, 2.0]], -0.1),
        ("infeasible", [[4.0, 1.0], [1.0, 2.0]], -0.5),
    ],
)
def test_single_constraint_cases(case, gram, budget):
    delta = 0.02
    with jax.enable_x64(True):
        step = jax.tree.map(np.asarray, solve_one(jnp.array(gram), jnp.array([budget]), delta))
        back = jax.tree.map(np.asarray, recover_one(jnp.array(gram), jnp.array([budget]), delta))
    if case == "infeasible":
        assert not step.feasible
        np.testing.assert_array_equal(step.weights, 0.0)
        # the classical recovery -sqrt(2 delta / s) H^-1 b
        np.testing.assert_allclose(back.weights, [0.0, -np.sqrt(2 * delta / gram[1][1])], rtol=1e-9)
        return
    on_g, on_b = cpo_dual(gram[0][0], gram[0][1], gram[1][1], -budget, delta)
    np.testing.assert_allclose(step.weights, [on_g, -on_b], rtol=1e-7, atol=1e-9)
    assert step.feasible
    np.testing.assert_allclose(step.size, delta, rtol=1e-9)


def test_without_constraints_it_is_the_natural_gradient_step():
    step = solve_one(jnp.array([[9.0]]), jnp.zeros(0), 0.02)
    np.testing.assert_allclose(step.weights, [np.sqrt(0.04) / 3.0], rtol=1e-6)
    assert bool(step.feasible)
    back = recover_one(jnp.array([[9.0]]), jnp.zeros(0), 0.02)
    np.testing.assert_array_equal(back.weights, 0.0)
    assert float(jax.jit(cs.joint_clip)(jnp.zeros((0, 0)), jnp.zeros(0), 0.02, 0.1)[0]) == 1.0
    assert float(jax.jit(min_norm2)(jnp.zeros((0, 0)), jnp.zeros(0))) == 0.0


def test_vanished_objective_takes_the_shortest_feasible_step():
    gram = jnp.array([[0.0, 0.0], [0.0, 2.0]])
    np.testing.assert_allclose(solve_one(gram, jnp.array([-0.1]), 0.02).weights, [0.0, -0.05], rtol=1e-5)
    np.testing.assert_array_equal(solve_one(gram, jnp.array([0.1]), 0.02).weights, 0.0)


SCALES = [1.0, 1e-12, 1e-30, 1e12]


@pytest.mark.parametrize("poison", [None, np.nan, np.inf, -np.inf])
def test_single_precision_never_returns_a_nan(poison):
    rng, count = np.random.default_rng(9), len(KINDS) * PER_KIND  # the shape compiled above for two constraints
    v = rng.normal(size=(count, 3, 5)) * rng.choice(np.sqrt(SCALES), size=(count, 3, 1))
    v[:50, 2] = v[:50, 1]
    v[50:100, 1] = 0.0
    v[100:150, 0] = -v[100:150, 1]
    v[150:200, 2] = -v[150:200, 1]
    gram = np.einsum("aip,ajp->aij", v, v)
    budgets = rng.normal(size=(count, 2)) * rng.choice([0.0, 1e-20, 1e-3, 1e10], size=(count, 2))
    if poison is not None:
        gram[::2, 1, 2] = poison
        budgets[1::2, 0] = poison
    gram, budgets, delta = (jnp.asarray(a, jnp.float32) for a in (gram, budgets, np.full(count, 0.01)))
    for step in (solve(gram, budgets, delta), recover(gram, budgets, delta)):
        assert np.all(np.isfinite(step.weights))
        assert np.all(np.isfinite(step.size))
        assert np.all(step.size <= 0.01 * (1 + 1e-2))
    share, _ = clip(gram[:, 1:, 1:], budgets, delta, 0.1)
    assert np.all((share >= 0.0) & (share <= 1.0))
    assert not np.any(np.isnan(shortest(gram[:, 1:, 1:], budgets)))


def test_scale_of_a_constraint_does_not_matter():
    """Multiplying a constraint's gradient and budget leaves x unchanged, at any magnitude float32 can hold."""
    rng = np.random.default_rng(2)
    v, c, delta = rng.normal(size=(3, 5)), np.array([-0.02, 0.03]), 0.01
    steps = []
    for factor in (1.0, 1e-9, 1e6):
        w = v * np.array([1.0, factor, 1.0])[:, None]
        step = solve_one(jnp.asarray(w @ w.T, jnp.float32), jnp.asarray(c * [factor, 1.0], jnp.float32), delta)
        steps.append(np.asarray(step.weights, np.float64) @ w)
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(steps[2], steps[0], rtol=1e-3, atol=1e-5)


def test_single_clip_asks_no_more_than_a_gradient_can_give():
    gram = jnp.diag(jnp.array([4.0, 0.0, 1.0]))
    got = cs.single_clip(gram, jnp.array([-9.0, -9.0, 0.3]), 0.02, 0.5)
    np.testing.assert_allclose(got, [-0.5 * np.sqrt(0.04 * 4.0), 0.0, 0.3], rtol=1e-6)
