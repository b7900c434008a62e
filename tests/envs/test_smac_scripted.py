"""Scripted policies of hybrid SMAC, and what they reach on the maps."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from trident.envs.smac import Smac
from trident.envs.smac_config import SmacConfig
from trident.eval.evaluate import evaluate, summarise


def score(name, policy, episodes):
    env = Smac(SmacConfig(map=name))
    act = lambda key, state, _: (env.scripted[policy](key, state), {})  # noqa: E731
    sums = jax.jit(lambda key: evaluate(env, act, key, episodes))(jax.random.key(0))
    return summarise(env.spec, jax.device_get(sums))


@pytest.fixture(scope="module")
def hydras():
    return {policy: score("6h_vs_8z", policy, 32) for policy in ("focus-nearest", "kite")}


def test_attack_nearest_loses_the_map_the_strength_ratio_calls_lost(hydras):
    """Strength ratio 0.33: without micromanagement there is nothing to win."""
    assert hydras["focus-nearest"]["metric/win"] == 0.0
    assert hydras["focus-nearest"]["metric/enemies_left"] > 0.5


def test_kiting_pays_where_the_enemy_fights_hand_to_hand(hydras):
    assert hydras["kite"]["metric/win"] > 0.4
    assert hydras["kite"]["metric/losses"] < hydras["focus-nearest"]["metric/losses"]
    assert hydras["kite"]["metric/offset"] > 0.2 > hydras["focus-nearest"]["metric/offset"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3s5z_vs_3s6z", "corridor", "6h_vs_8z", "MMM2", "27m_vs_30m"])
def test_attack_nearest_loses_every_hard_map(name):
    assert score(name, "focus-nearest", 64)["metric/win"] <= 0.05


@pytest.mark.slow
def test_focused_fire_beats_fire_at_the_nearest():
    nearest, weakest = (score("2s3z", policy, 128)["metric/win"] for policy in ("focus-nearest", "focus-weakest"))
    assert weakest > nearest + 3 * np.sqrt(0.5 / 128)
