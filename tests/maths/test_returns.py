"""GAE against hand-worked numbers, its definition as a double loop, and the estimators it reduces to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.maths import returns

T, E, SIGNALS = 7, 3, 2


@pytest.fixture(scope="module")
def trajectory():
    rng = np.random.default_rng(0)
    signals, values, final = rng.normal(size=(3, T, E, SIGNALS)).astype(np.float32)
    terminated = np.zeros((T, E), bool)
    truncated = np.zeros((T, E), bool)
    terminated[2, 0] = truncated[4, 1] = True
    ended = terminated | truncated
    # inside an episode the next value is the value of the next row; where the rows part, that of the final state
    apart = np.concatenate([ended[:-1], np.ones((1, E), bool)])[..., None]
    next_values = np.where(apart, final, np.roll(values, -1, axis=0))
    return tuple(jnp.asarray(x) for x in (signals, values, next_values, terminated, ended))


gae = jax.jit(returns.gae)


def test_hand_worked_truncation_and_termination():
    # two steps, r = 1, V = 10, V' = 20, discount 1/2, lam 1/2
    ones = jnp.ones((2,))
    args = (ones, 10.0 * ones, 20.0 * ones)
    no, last, first = jnp.array([False, False]), jnp.array([False, True]), jnp.array([True, False])
    # delta = 1 + 10 - 10 = 1 each; A_1 = 1, A_0 = 1 + 1/4
    np.testing.assert_allclose(gae(*args, no, no, 0.5, 0.5), [1.25, 1.0])
    # truncated at the end: still bootstraps
    np.testing.assert_allclose(gae(*args, no, last, 0.5, 0.5), [1.25, 1.0])
    # terminated at the end: delta_1 = 1 - 10 = -9; A_0 = 1 - 9/4
    np.testing.assert_allclose(gae(*args, last, last, 0.5, 0.5), [-1.25, -9.0])
    # truncated after the first step: the trace is cut, the bootstrap stays
    np.testing.assert_allclose(gae(*args, no, first, 0.5, 0.5), [1.0, 1.0])
    # terminated after the first step: neither
    np.testing.assert_allclose(gae(*args, first, first, 0.5, 0.5), [-9.0, 1.0])


def test_matches_the_sum_over_td_errors_of_each_episode(trajectory):
    signals, values, next_values, terminated, ended = (np.asarray(x, np.float64) for x in trajectory)
    discount, lam = 0.9, 0.7
    delta = signals + discount * (1.0 - terminated[..., None]) * next_values - values
    want = np.zeros_like(delta)
    for t in range(T):
        for e in range(E):
            for s in range(t, T):
                want[t, e] += (discount * lam) ** (s - t) * delta[s, e]
                if ended[s, e]:
                    break
    np.testing.assert_allclose(gae(*trajectory, discount, lam), want, rtol=1e-5, atol=1e-5)


def test_lambda_one_is_the_discounted_return_and_lambda_zero_the_td_error(trajectory):
    signals, values, next_values, terminated, ended = trajectory
    full = gae(*trajectory, 0.9, 1.0) + values
    want = np.zeros((T, E, SIGNALS))
    follow = np.asarray(next_values[-1])
    for t in reversed(range(T)):
        boot = np.where(ended[t][:, None], next_values[t], follow)
        follow = want[t] = np.asarray(signals[t]) + 0.9 * np.where(terminated[t][:, None], 0.0, boot)
    np.testing.assert_allclose(full, want, rtol=1e-5, atol=1e-5)
    one_step = gae(*trajectory, 0.9, 0.0) + values
    np.testing.assert_allclose(one_step, returns.td_target(signals, next_values, terminated, 0.9), rtol=1e-6, atol=1e-6)


def test_true_values_have_no_advantage():
    # reward 1 for ever: V = 1 / (1 - discount), and a time limit must not change that
    ended = jnp.array([False, True, False, False])
    value = jnp.full((4,), 10.0)
    got = gae(jnp.ones(4), value, value, jnp.zeros(4, bool), ended, 0.9, 0.95)
    np.testing.assert_allclose(got, np.zeros(4), atol=1e-5)


def test_signals_may_have_their_own_discount(trajectory):
    both = returns.gae(*trajectory, jnp.array([0.9, 0.5]), 0.95)
    np.testing.assert_allclose(both[..., 1], gae(*trajectory, 0.5, 0.95)[..., 1], rtol=1e-6, atol=1e-6)


def test_explained_variance():
    target = jnp.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0], [4.0, 2.0]])
    offset = target + jnp.array([5.0, 1.0])
    np.testing.assert_allclose(returns.explained_variance(offset, target, axis=0), [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(returns.explained_variance(jnp.zeros(4), target[:, 0]), 0.0, atol=1e-6)
    # residual is half the target's deviation: a quarter of the variance is left
    np.testing.assert_allclose(returns.explained_variance(0.5 * target[:, 0], target[:, 0]), 0.75, rtol=1e-6)
