"""The comparison of estimators on shared draws, with biases that are known."""

import numpy as np

from trident.verify import actor_critic
from trident.verify.claim import CORRECTED, FAILS, verdict


def group_means(bias, spread, seed):
    """[groups, 40] of an estimator of ones, off by `bias` in every place."""
    return 1.0 + bias + spread * np.random.default_rng(seed).normal(size=(12, 40))


def test_squared_biases_are_corrected_for_the_sampling_error_and_not_cut_off():
    true = np.ones(40)
    found = [actor_critic.squared_bias(group_means(0.0, 0.5, seed), true) for seed in range(200)]
    assert min(found) < 0 < max(found)
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(len(found))
    assert abs(actor_critic.squared_bias(group_means(0.2, 0.05, 0), true) - 0.04) < 0.01


def judged(ratio):
    """With a bias of plain Gumbel-Softmax that differs from flight to flight, and ours in a fixed ratio to it."""
    plain = np.array([[0.1], [0.2], [0.3], [0.4], [0.2]]) ** 2
    data = {"taus": [0.2], "squared": {"gs": plain, "stgc-paper": 9.0 * plain, "stgc": ratio**2 * plain}}
    found = actor_critic.over_plain(data, "stgc", 0.2)
    np.testing.assert_allclose(found, ratio, rtol=1e-9)  # pairs: the differences between flights cancel
    return verdict(actor_critic.CLAIMS[0].judge(data))


def test_half_as_much_bias_again_is_too_much():
    assert judged(1.0) == CORRECTED
    assert judged(1.5) == FAILS


def test_even_draws_choose_modes_with_the_softmax_probabilities():
    gumbels = actor_critic.even_gumbels([0], 2, 3)
    logits = np.array([0.7, -0.3, 0.1])
    p = np.exp(logits) / np.exp(logits).sum()
    chosen = np.argmax(logits + gumbels, axis=-1)
    shares = np.stack([np.mean(chosen == k, axis=1) for k in range(3)], axis=-1)  # [groups, states, modes]
    np.testing.assert_allclose(shares, np.broadcast_to(p, shares.shape), atol=0.02)
