"""Published spot values of the radio models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from trident.physics import channel as ch


def at(*values):
    return jnp.asarray(values, jnp.float32)


@pytest.mark.parametrize(
    ("town", "degrees"), [("suburban", 20.34), ("urban", 42.44), ("dense-urban", 54.62), ("high-rise", 75.52)]
)
def test_best_elevation_is_the_published_one(town, degrees):
    """At a fixed loss the reach is R = d cos(theta), so log10 R = log10 cos(theta) - excess(theta) / 20 + constant.

    Al-Hourani et al. publish the elevation that maximises it.
    """
    env = ch.AL_HOURANI[town]

    def lost_reach(theta):
        p = float(ch.al_hourani_p_los(at(theta), env)[0])
        excess = p * env.excess_los + (1 - p) * env.excess_nlos
        return excess / 20 - np.log10(np.cos(np.radians(theta)))

    best = minimize_scalar(lost_reach, bounds=(5.0, 85.0), method="bounded", options={"xatol": 1e-3}).x
    assert best == pytest.approx(degrees, abs=0.06)


def test_elevation_is_the_angle_and_so_is_its_slope():
    distance = np.concatenate([[0.0, 100.0], np.geomspace(1e-3, 1e4, 400)])
    got = ch.elevation_deg(at(*distance), 100.0)
    np.testing.assert_allclose(got, np.degrees(np.arctan2(100.0, distance)), rtol=1e-6)
    slope = jax.vmap(jax.grad(lambda d: ch.elevation_deg(d, 100.0)))(at(*distance[2:]))
    np.testing.assert_allclose(slope, np.degrees(-100.0 / (100.0**2 + distance[2:] ** 2)), rtol=2e-5)


@pytest.mark.parametrize(("loss", "radius"), [(92.0, 185.0), (95.0, 210.0), (100.0, 261.0)])
def test_coverage_radius(loss, radius):
    def excess(r):
        return float(ch.al_hourani_loss(at(r), 100.0, 2.0, ch.AL_HOURANI["urban"])[0]) - loss

    assert brentq(excess, 20.0, 600.0) == pytest.approx(radius, abs=1.0)


def test_uplink_spectral_efficiency():
    """A 20 dBm user on 5 MHz, noise figure 7 dB, urban."""
    noise = ch.noise_dbm(5.0, 7.0)
    assert noise == pytest.approx(-100.01, abs=0.01)
    for height, d2, expected in [
        (100.0, (0.0, 100.0, 150.0, 200.0, 300.0), (13.5, 12.3, 10.7, 8.7, 5.8)),
        (60.0, (0.0, 100.0, 150.0, 200.0, 300.0), (14.9, 11.5, 8.4, 6.6, 4.7)),
    ]:
        loss = ch.al_hourani_loss(at(*d2), height, 2.0, ch.AL_HOURANI["urban"])
        np.testing.assert_allclose(ch.spectral_efficiency(20.0, loss, noise), expected, atol=0.06)


def test_shannon_rate_by_hand():
    assert float(ch.shannon_rate(10.0, 30.0, at(100.0), -70.0)[0]) == pytest.approx(10.0, rel=1e-5)  # SNR 1
    assert ch.watt_to_dbm(0.2) == pytest.approx(23.01, abs=0.01)


def test_free_space_loss():
    assert float(ch.free_space_loss(at(1000.0), 2.0)[0]) == pytest.approx(32.45 + 20 * np.log10(2000.0), abs=0.01)


def test_aerial_line_of_sight_spot_values():
    assert float(ch.uma_av_p_los(at(200.0), 50.0)[0]) == pytest.approx(0.967, abs=5e-4)
    assert float(ch.uma_av_p_los(at(2000.0), 150.0)[0]) == 1.0
    assert float(ch.rma_av_p_los(at(2000.0), 50.0)[0]) == 1.0
    for p in (ch.uma_av_p_los, ch.umi_av_p_los, ch.rma_av_p_los):
        close, far = np.asarray(p(at(5.0, 900.0), 30.0))
        assert close == 1.0
        assert 0.0 < far < 1.0


def test_ground_line_of_sight():
    """Beyond 18 m: 18/d + exp(-d/c)(1 - 18/d), by hand at 100 m."""
    np.testing.assert_allclose(ch.umi_p_los(at(10.0, 100.0)), [1.0, 0.18 + 0.82 * np.exp(-100 / 36)], rtol=1e-5)
    np.testing.assert_allclose(ch.uma_p_los(at(10.0, 100.0)), [1.0, 0.18 + 0.82 * np.exp(-100 / 63)], rtol=1e-5)
    assert float(ch.uma_p_los(at(100.0), 20.0)[0]) > float(ch.uma_p_los(at(100.0), 1.5)[0])


def test_ground_losses_by_hand():
    """100 m, 2 GHz, user at 1.5 m. The macro breakpoint is 4 * 24 * 0.5 * 2e9 / c = 320 m, the micro one 120 m."""
    d_uma, d_umi = np.hypot(100.0, 23.5), np.hypot(100.0, 8.5)
    f = 20 * np.log10(2.0)
    assert float(ch.uma_los(at(100.0), 2.0)[0]) == pytest.approx(28 + 22 * np.log10(d_uma) + f, abs=1e-3)
    assert float(ch.uma_nlos(at(100.0), 2.0)[0]) == pytest.approx(13.54 + 39.08 * np.log10(d_uma) + f, abs=1e-3)
    assert float(ch.umi_los(at(100.0), 2.0)[0]) == pytest.approx(32.4 + 21 * np.log10(d_umi) + f, abs=1e-3)
    expected = 22.4 + 35.3 * np.log10(d_umi) + 21.3 * np.log10(2.0)
    assert float(ch.umi_nlos(at(100.0), 2.0)[0]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("model", "d_bp"), [(ch.uma_los, 320.2), (ch.umi_los, 120.1)])
def test_two_gradients_meet_at_the_breakpoint(model, d_bp):
    before, after, far, farther = np.asarray(model(at(d_bp - 0.5, d_bp + 0.5, 10 * d_bp, 100 * d_bp), 2.0))
    assert after - before == pytest.approx(0.0, abs=0.15)
    assert farther - far == pytest.approx(40.0, abs=0.05)


def test_aerial_losses_by_hand():
    d3, h = 500.0, 60.0
    lh, ld, wave = np.log10(h), np.log10(d3), 20 * np.log10(40 * np.pi * 2.0 / 3)
    f = 20 * np.log10(2.0)
    cases = [
        (ch.uma_av_los(at(d3), 2.0), 28 + 22 * ld + f),
        (ch.uma_av_nlos(at(d3), 2.0, h), -17.5 + (46 - 7 * lh) * ld + wave),
        (ch.umi_av_los(at(d3), 2.0, h), 30.9 + (22.25 - 0.5 * lh) * ld + f),
        (ch.umi_av_nlos(at(d3), 2.0, h), 32.4 + (43.2 - 7.6 * lh) * ld + f),
        (ch.rma_av_los(at(d3), 2.0, h), max(23.9 - 1.8 * lh, 20) * ld + wave),
        (ch.rma_av_nlos(at(d3), 2.0, h), max(max(23.9 - 1.8 * lh, 20) * ld, -12 + (35 - 5.3 * lh) * ld) + wave),
    ]
    for got, expected in cases:
        assert float(got[0]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", ch.CHANNELS)
def test_by_name_loss_grows_with_distance_and_lies_above_free_space(name):
    d2 = jnp.linspace(1.0, 800.0, 60)
    loss = ch.air_to_ground_loss(name, d2, 100.0, 10.0, 2.0)
    assert (jnp.diff(loss) > 0).all()
    # the 3GPP forms are fits: just below the mast they undercut free space by half a decibel
    assert (loss >= ch.free_space_loss(ch.slant(d2, 90.0), 2.0) - 0.6).all()


def test_expected_loss_is_the_mixture():
    loss = ch.expected_loss(at(0.25), at(100.0), at(120.0))
    assert float(loss[0]) == pytest.approx(115.0)


def test_unknown_channel():
    with pytest.raises(ValueError, match="unknown channel 'sea'"):
        ch.air_to_ground_loss("sea", at(1.0), 100.0, 10.0, 2.0)
