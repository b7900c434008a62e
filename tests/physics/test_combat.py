"""Hits, kills and strengths against numbers worked by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.smac.config import MAPS, make_roster
from trident.physics.combat import (
    UNITS,
    absorb,
    expected_loss,
    hit_damage,
    shots_to_kill,
    strength,
    time_to_kill,
    time_to_range,
)

STEPS_TO_KILL = {
    ("marine", "marine"): 12,
    ("marauder", "marauder"): 18,
    ("stalker", "stalker"): 34,
    ("stalker", "zealot"): 45,
    ("zealot", "stalker"): 24,
    ("zealot", "zealot"): 24,
    ("zealot", "zergling"): 5,
    ("zergling", "zealot"): 47,
    ("hydralisk", "zealot"): 21,
    ("zealot", "hydralisk"): 10,
}


@pytest.mark.parametrize(("pair", "steps"), STEPS_TO_KILL.items())
def test_time_to_kill_in_steps_of_half_a_second(pair, steps):
    assert round(time_to_kill(*(UNITS[name] for name in pair)) / 0.5) == steps


def test_dps():
    known = {"marine": 6.97, "marauder": 6.67, "stalker": 6.95, "zealot": 13.33, "hydralisk": 14.55, "zergling": 7.18}
    for name, dps in known.items():
        assert UNITS[name].dps == pytest.approx(dps, abs=0.006)


def test_bonus_counts_on_armoured_units_only_and_the_ground_cannot_hit_air():
    marauder, stalker = UNITS["marauder"], UNITS["stalker"]
    assert hit_damage(marauder, UNITS["marine"]) == 10
    assert hit_damage(marauder, stalker) == 20
    assert hit_damage(stalker, marauder) == 18
    assert hit_damage(UNITS["marine"], UNITS["medivac"]) == 6
    assert hit_damage(marauder, UNITS["medivac"]) == 0
    with pytest.raises(ValueError, match="cannot hurt"):
        shots_to_kill(marauder, UNITS["medivac"])


def test_absorb_by_hand():
    """A stalker (80/80/1) hit by stalkers (13 + 5): the shield knows no armour, the split hit and the rest do."""
    cases = [  # health, shield, armor, damage in all, hits -> health, shield
        (80, 80, 1, 18, 1, 80, 62),
        (80, 8, 1, 18, 1, 71, 0),
        (71, 0, 1, 18, 1, 54, 0),
        (80, 20, 1, 36, 2, 65, 0),  # 18 into the shield, then 2 and 16 - 1 = 15
        (80, 50, 1, 16, 2, 80, 34),  # a zealot's two blows
        (80, 10, 1, 16, 2, 75, 0),  # 8; then 2 and 6 - 1 = 5
        (10, 0, 7, 5, 1, 9.5, 0),  # armour lets half a point through
        (6, 0, 1, 10, 1, 0, 0),
        (30, 5, 1, 0, 0, 30, 5),
    ]
    health, shield, armor, damage, hits, after, left = map(jnp.array, zip(*[map(float, c) for c in cases], strict=True))
    got = absorb(health, shield, armor, damage, hits)
    np.testing.assert_allclose(got[0], after, atol=1e-5)
    np.testing.assert_allclose(got[1], left, atol=1e-5)


def test_absorb_equals_hits_one_by_one():
    rng = np.random.default_rng(0)
    health, shield = rng.uniform(1, 100, 400), rng.uniform(0, 80, 400) * (rng.random(400) < 0.7)
    armor, each, hits = rng.integers(0, 3, 400), rng.integers(3, 20, 400), rng.integers(0, 7, 400)
    got = absorb(*(jnp.asarray(a, jnp.float32) for a in (health, shield, armor, each * hits, hits)))
    for k in range(400):
        h, s = health[k], shield[k]
        for _ in range(hits[k]):
            rest = each[k] - s
            s = max(s - each[k], 0.0)
            h -= max(rest - armor[k], 0.5) if rest > 0 else 0.0
        assert float(got[0][k]) == pytest.approx(max(h, 0.0), abs=2e-3)
        assert float(got[1][k]) == pytest.approx(s, abs=2e-3)


def test_expected_loss_is_exact_far_from_the_shields_edge():
    args = [jnp.array(a) for a in ([80.0, 80.0, 5.0], [80.0, 0.0, 0.0], [1.0, 1.0, 1.0], [18.0] * 3, [1.0] * 3)]
    health, shield = expected_loss(*args)
    np.testing.assert_allclose(health, [0.0, 17.0, 5.0], atol=1e-5)
    np.testing.assert_allclose(shield, [18.0, 0.0, 0.0], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "ratio"),
    {"3s5z_vs_3s6z": 0.77, "corridor": 0.50, "6h_vs_8z": 0.33, "MMM2": 0.63, "27m_vs_30m": 0.81, "8m": 1.0}.items(),
)
def test_strength_ratio_of_the_maps(name, ratio):
    roster = make_roster(MAPS[name].allies, MAPS[name].enemies)
    dps, pool, a = jnp.asarray(roster.dps), jnp.asarray(roster.pool), roster.allies
    assert float(strength(dps[:a], pool[:a]) / strength(dps[a:], pool[a:])) == pytest.approx(ratio, abs=0.006)


def test_time_to_range():
    got = time_to_range(jnp.array([9.0, 3.0]), jnp.array([5.0, 5.0]), jnp.array([2.0, 2.0]))
    np.testing.assert_allclose(got, [2.0, 0.0])
