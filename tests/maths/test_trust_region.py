"""One agent's constrained update on a policy without observations, where everything can be computed by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths import hybrid
from trident.maths.fisher import fisher_product
from trident.maths.hybrid import HybridDist
from trident.maths.trust_region import RECOVERY, REJECTED, TRUST_REGION, UpdateRule, constrained_update

B, M, P = 4, 2, 1
MASK, USED, WEIGHT = jnp.ones((B, M), bool), jnp.ones((M, P), bool), jnp.full(B, 1.0 / B)
RULE = UpdateRule(delta=0.01, damping=1e-6)


def dist(theta):
    """theta = (logits [2], means [2]); unit standard deviation."""

    def tile(x):
        return jnp.broadcast_to(x, (B, *x.shape))

    return HybridDist(tile(theta[:2]), tile(theta[2:, None]), jnp.zeros((B, M, P)))


def fisher(theta):
    return fisher_product(dist, theta, MASK, USED, WEIGHT)


def linear(directions):
    """Surrogates that are exactly linear in theta."""
    return lambda start: lambda theta: jnp.asarray(directions) @ (theta - start)


@partial(jax.jit, static_argnums=(0,))
def update(rule, directions, budget, bend=0.0):
    theta = jnp.array([0.2, -0.1, 0.3, 0.0])
    change = linear(directions)(theta)

    def bent(t):
        return change(t) + bend * jnp.sum((t - theta) ** 2)

    new, info = constrained_update(rule, theta, directions, bent, fisher(theta), dist, MASK, USED, WEIGHT, budget)
    kl = jnp.sum(WEIGHT * hybrid.kl(dist(theta), dist(new), MASK, USED))
    return theta, new, info, kl


G = [0.0, 0.0, 1.0, 1.0]


def test_without_constraints_the_step_fills_the_trust_region():
    _, _, info, kl = update(RULE, jnp.array([G]), jnp.zeros(0))
    assert info.kind == TRUST_REGION
    assert info.fraction == 1.0
    np.testing.assert_allclose(kl, RULE.delta, rtol=0.05)
    np.testing.assert_allclose(info.kl, kl, rtol=1e-5)


def test_budget_is_spent_exactly_when_it_binds():
    _, _, info, _ = update(RULE, jnp.array([G, [0.0, 0.0, 1.0, 0.0]]), jnp.array([0.01]))
    np.testing.assert_allclose(info.change[1], 0.01, rtol=1e-3)
    assert info.change[0] > 0.01  # the other mean is free


def test_first_update_of_an_unsafe_policy_already_asks_for_a_decrease():
    _, _, info, _ = update(RULE, jnp.array([G, G]), jnp.array([-0.02]))
    assert info.kind == TRUST_REGION
    np.testing.assert_allclose(info.change[1], -0.02, rtol=0.02)


def test_impossible_demands_are_clipped_together():
    _, _, info, kl = update(RULE, jnp.array([G, [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]), jnp.array([-1.0, -1.0]))
    assert 0.0 < info.granted_fraction < 1.0
    assert (info.change[1:] < 0).all()
    assert kl <= RULE.slack * RULE.delta


def test_failed_line_search_restores_the_old_bits():
    theta, new, info, _ = update(RULE, jnp.array([G]), jnp.zeros(0), bend=-1e6)
    assert info.kind == REJECTED
    np.testing.assert_array_equal(theta, new)
    assert info.kl == 0.0
    np.testing.assert_array_equal(info.change, 0.0)


@pytest.mark.parametrize(("how", "kind"), [("natural", RECOVERY), ("none", REJECTED), ("paper", RECOVERY)])
def test_recovery_when_the_constrained_step_cannot_be_taken(how, kind):
    """The reward's direction makes the violated cost explode, whatever the step's length: only the pure way back is
    left. It lowers the violated cost and keeps the satisfied one within its budget."""
    rule = RULE._replace(recovery=how)
    theta = jnp.array([0.2, -0.1, 0.3, 0.0])
    directions = jnp.array([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0], [1.0, 0.0, -1.0, 0.0]])

    def change(t):
        return directions @ (t - theta) + jnp.array([0.0, 1e7, 0.0]) * (t[3] - theta[3]) ** 2

    go = jax.jit(
        lambda: constrained_update(rule, theta, directions, change, fisher(theta), dist, MASK, USED, WEIGHT, BUDGET)
    )
    new, info = go()
    assert info.kind == kind
    if how == "none":
        np.testing.assert_array_equal(new, theta)
    if how == "natural":
        assert info.change[1] < -1e-3
        assert info.change[2] <= BUDGET[1] + 1e-5
        assert info.kl <= RULE.slack * RULE.delta
    if how == "paper":  # the printed step: plain gradient of the violated cost, whatever it does to the other
        np.testing.assert_allclose(new - theta, -rule.recovery_rate * directions[1], atol=1e-6)


BUDGET = jnp.array([-0.05, 0.01])


def test_nan_in_a_gradient_leaves_the_parameters_alone_and_is_seen():
    theta, new, info, _ = update(RULE, jnp.array([[jnp.nan, 0.0, 1.0, 1.0], G]), jnp.array([0.1]))
    np.testing.assert_array_equal(theta, new)
    assert info.kind == REJECTED
    assert np.isnan(info.change).all()


def test_the_share_granted_is_of_what_was_asked():
    """One cost: a hundred times what the trust region can give, of which it must leave a margin to the reward."""
    theta, _, info, _ = update(RULE, jnp.array([G, UP]), jnp.array([-100.0 * reach([0.2, -0.1], UP)]))
    np.testing.assert_allclose(info.granted_fraction, (1.0 - RULE.margin) / 100.0, rtol=0.01)
    np.testing.assert_allclose(info.granted, info.granted_fraction * -100.0 * reach(theta, UP), rtol=0.01)
    assert update(RULE, jnp.array([G, UP]), jnp.array([9.0]))[2].granted_fraction == 1.0


def test_as_printed_whatever_is_violated_is_recovered_from():
    printed = RULE._replace(demands="none", recovery="paper")
    theta, new, info, _ = update(printed, jnp.array([G, UP, ACROSS]), jnp.array([-1e-4, 1.0]))
    assert info.kind == RECOVERY
    np.testing.assert_allclose(new - theta, -RULE.recovery_rate * jnp.array(UP), atol=1e-7)
    assert update(printed, jnp.array([G, UP]), jnp.array([1e-4]))[2].kind == TRUST_REGION


def test_the_printed_divergence_is_measured_from_the_new_policy():
    theta, new, info, kl = update(RULE._replace(divergence="new-old"), jnp.array([[1.0, -1.0, 1.0, 0.0]]), jnp.zeros(0))
    np.testing.assert_allclose(info.kl, hybrid.kl(dist(new), dist(theta), MASK, USED)[0], rtol=1e-4)
    assert abs(info.kl - kl) > 1e-5


CPO = RULE._replace(demands="whole", recovery="descent")
UP, ACROSS = [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]


def reach(theta, direction):
    """sqrt(2 delta b'H^-1 b): the most the trust region can change a linear signal by. H of the means is p(m)."""
    p = np.exp(theta[:2]) / np.exp(theta[:2]).sum()
    return np.sqrt(2 * RULE.delta * np.sum(np.square(direction[2:]) / p))


@pytest.mark.parametrize(
    ("budget", "case"),
    [(9.0, "the region is all safe"), (0.3, "the limit cuts it"), (-0.3, "a safe part is left"), (-3.0, "none is")],
)
def test_every_case_of_cpo(budget, case):
    """One reward and one cost that pulls halfway against it; budgets in shares of what the trust region can give."""
    cost = [0.0, 0.0, 1.0, 0.5]
    theta = np.array([0.2, -0.1, 0.3, 0.0], np.float32)
    most = reach(theta, cost)
    theta, new, info, kl = update(CPO, jnp.array([UP, cost]), jnp.array([budget * most], jnp.float32))
    assert kl <= RULE.slack * RULE.delta
    if budget == 9.0:  # the plain trust-region step
        np.testing.assert_allclose(info.change[0], reach(theta, np.array(UP)), rtol=0.03)
    elif budget > -1:
        np.testing.assert_allclose(info.change[1], budget * most * info.fraction, rtol=0.02)
    else:  # pure descent of the cost to the edge of the trust region, whatever it does to the reward
        p = np.exp(theta[:2]) / np.exp(theta[:2]).sum()
        way = np.array([0.0, 0.0, cost[2] / p[0], cost[3] / p[1]])
        longest = np.sqrt(2 * RULE.delta / (way @ cost)) * way
        np.testing.assert_allclose(new - theta, -longest, rtol=0.01, atol=1e-4)
        np.testing.assert_allclose(info.change[1], -most, rtol=0.03)
    assert info.kind == (RECOVERY if budget == -3.0 else TRUST_REGION)


def test_cpo_recovery_lowers_every_violated_cost_and_spares_no_reward():
    _, _, info, _ = update(CPO, jnp.array([[0.0, 0.0, 1.0, 1.0], UP, ACROSS]), jnp.array([-9.0, -9.0]))
    assert info.kind == RECOVERY
    assert (info.change < 0).all()


def test_cpo_does_not_ask_for_what_no_gradient_can_change():
    _, _, info, _ = update(CPO, jnp.array([UP, [0.0] * 4]), jnp.array([-1.0]))
    assert info.kind == TRUST_REGION
    assert info.change[0] > 0
