"""Radio links between the air and the ground: path loss in dB, line-of-sight probability, Shannon rate.

Distances and heights in metres, carrier frequency in GHz, powers in dBm, bandwidth in MHz, rates in Mbit/s.
`d2` is the horizontal distance, `d3` the straight-line one.

Sources: 3GPP TR 38.901 V16 table 7.4.1-1 and 7.4.2-1 (ground users), 3GPP TR 36.777 annex B (aerial users),
Al-Hourani, Kandeepan, Lardner, "Optimal LAP altitude for maximum coverage", IEEE WCL 3(6), 2014.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

LIGHT = 299_792_458.0  # m/s
THERMAL_NOISE_DBM_HZ = -174.0

Dist = Float[Array, "*shape"]


class Environment(NamedTuple):
    """Al-Hourani's fit for a kind of town: P_LOS = 1 / (1 + a exp(-b (elevation - a))), excess losses in dB."""

    a: float
    b: float
    excess_los: float
    excess_nlos: float


AL_HOURANI = {
    "suburban": Environment(4.88, 0.43, 0.1, 21.0),
    "urban": Environment(9.61, 0.16, 1.0, 20.0),
    "dense-urban": Environment(12.08, 0.11, 1.6, 23.0),
    "high-rise": Environment(27.23, 0.08, 2.3, 34.0),
}


# --- parts shared by the models -------------------------------------------------------------------


def slant(d2: Dist, height: float) -> Dist:
    """Straight-line distance for a height difference."""
    return jnp.sqrt(d2 * d2 + height * height)


def elevation_deg(d2: Dist, height: float) -> Dist:
    """Elevation angle in DEGREES; the published fits are in degrees, radians are the classic mistake."""
    steep = d2 < height
    angle = arctan(jnp.where(steep, d2, height) / jnp.where(steep, height, d2))
    return jnp.degrees(jnp.where(steep, 0.5 * math.pi - angle, angle))


def arctan(x: Dist) -> Dist:
    """Of [0, 1], to 2e-8: Abramowitz and Stegun 4.4.49. The compiler's own arctan is computed one number at a time: a
    third of the closed form that critics evaluate."""
    series = (-0.3333314528, 0.1999355085, -0.1420889944, 0.1065626393, -0.0752896400, 0.0429096138, -0.0161657367)
    total, square = jnp.full_like(x, 0.0028662257), x * x
    for coefficient in reversed(series):
        total = total * square + coefficient
    return x + x * square * total


def free_space_loss(d3: Dist, carrier: float) -> Dist:
    """20 log10(4 pi f d / c)."""
    return 20.0 * jnp.log10(d3) + 20.0 * math.log10(4e9 * math.pi * carrier / LIGHT)


def expected_loss(p_los: Dist, los: Dist, nlos: Dist) -> Dist:
    """Mean loss in dB over the line-of-sight lottery."""
    return nlos + p_los * (los - nlos)


def _near_street(d2: Dist, sure: float, decay: float) -> Dist:
    """sure/d + exp(-d/decay)(1 - sure/d), and 1 within `sure`: the common shape of the 3GPP probabilities."""
    near = sure / jnp.maximum(d2, sure)
    return near + jnp.exp(-d2 / decay) * (1.0 - near)


# --- TR 38.901: ground users ----------------------------------------------------------------------


def uma_p_los(d2: Dist, h_ut: float = 1.5) -> Dist:
    """Urban macro; users above 13 m see more."""
    lift = 0.0 if h_ut <= 13.0 else ((h_ut - 13.0) / 10.0) ** 1.5
    tall = 1.0 + lift * 1.25 * (d2 / 100.0) ** 3 * jnp.exp(-d2 / 150.0)
    return jnp.where(d2 <= 18.0, 1.0, _near_street(d2, 18.0, 63.0) * tall)


def umi_p_los(d2: Dist) -> Dist:
    """Urban micro, street canyon."""
    return _near_street(d2, 18.0, 36.0)


def _breakpoint(h_bs: float, h_ut: float, carrier: float) -> float:
    """d'_BP = 4 (h_bs - h_E)(h_ut - h_E) f / c with the effective environment height h_E = 1 m."""
    return 4.0 * (h_bs - 1.0) * (h_ut - 1.0) * carrier * 1e9 / LIGHT


def _two_slope(d2: Dist, h_bs: float, h_ut: float, carrier: float, at1: float, slope: float, bend: float) -> Dist:
    d_bp = _breakpoint(h_bs, h_ut, carrier)
    log_d3 = jnp.log10(slant(d2, h_bs - h_ut))
    carrier_db = 20.0 * math.log10(carrier)
    before = at1 + slope * log_d3 + carrier_db
    after = at1 + 40.0 * log_d3 + carrier_db - bend * math.log10(d_bp**2 + (h_bs - h_ut) ** 2)
    return jnp.where(d2 <= d_bp, before, after)


def uma_los(d2: Dist, carrier: float, h_ut: float = 1.5, h_bs: float = 25.0) -> Dist:
    return _two_slope(d2, h_bs, h_ut, carrier, 28.0, 22.0, 9.0)


def uma_nlos(d2: Dist, carrier: float, h_ut: float = 1.5, h_bs: float = 25.0) -> Dist:
    log_d3 = jnp.log10(slant(d2, h_bs - h_ut))
    blocked = 13.54 + 39.08 * log_d3 + 20.0 * math.log10(carrier) - 0.6 * (h_ut - 1.5)
    return jnp.maximum(uma_los(d2, carrier, h_ut, h_bs), blocked)


def umi_los(d2: Dist, carrier: float, h_ut: float = 1.5, h_bs: float = 10.0) -> Dist:
    return _two_slope(d2, h_bs, h_ut, carrier, 32.4, 21.0, 9.5)


def umi_nlos(d2: Dist, carrier: float, h_ut: float = 1.5, h_bs: float = 10.0) -> Dist:
    log_d3 = jnp.log10(slant(d2, h_bs - h_ut))
    blocked = 22.4 + 35.3 * log_d3 + 21.3 * math.log10(carrier) - 0.3 * (h_ut - 1.5)
    return jnp.maximum(umi_los(d2, carrier, h_ut, h_bs), blocked)


# --- TR 36.777: aerial users ----------------------------------------------------------------------


def uma_av_p_los(d2: Dist, height: float) -> Dist:
    """Urban macro, 22.5 m < height."""
    if height > 100.0:
        return jnp.ones_like(d2)
    log_h = math.log10(height)
    return _near_street(d2, max(460.0 * log_h - 700.0, 18.0), 4300.0 * log_h - 3800.0)


def umi_av_p_los(d2: Dist, height: float) -> Dist:
    """Urban micro, 22.5 m < height <= 300 m."""
    log_h = math.log10(height)
    return _near_street(d2, max(294.05 * log_h - 432.94, 18.0), 233.98 * log_h - 0.95)


def rma_av_p_los(d2: Dist, height: float) -> Dist:
    """Rural macro, 10 m < height."""
    if height > 40.0:
        return jnp.ones_like(d2)
    log_h = math.log10(height)
    return _near_street(d2, max(1350.8 * log_h - 1602.0, 18.0), max(15021.0 * log_h - 16053.0, 1000.0))


def uma_av_los(d3: Dist, carrier: float) -> Dist:
    return 28.0 + 22.0 * jnp.log10(d3) + 20.0 * math.log10(carrier)


def uma_av_nlos(d3: Dist, carrier: float, height: float) -> Dist:
    slope = 46.0 - 7.0 * math.log10(height)
    return -17.5 + slope * jnp.log10(d3) + 20.0 * math.log10(40.0 * math.pi * carrier / 3.0)


def umi_av_los(d3: Dist, carrier: float, height: float) -> Dist:
    slope = 22.25 - 0.5 * math.log10(height)
    fitted = 30.9 + slope * jnp.log10(d3) + 20.0 * math.log10(carrier)
    return jnp.maximum(free_space_loss(d3, carrier), fitted)


def umi_av_nlos(d3: Dist, carrier: float, height: float) -> Dist:
    slope = 43.2 - 7.6 * math.log10(height)
    fitted = 32.4 + slope * jnp.log10(d3) + 20.0 * math.log10(carrier)
    return jnp.maximum(umi_av_los(d3, carrier, height), fitted)


def rma_av_los(d3: Dist, carrier: float, height: float) -> Dist:
    slope = max(23.9 - 1.8 * math.log10(height), 20.0)
    return slope * jnp.log10(d3) + 20.0 * math.log10(40.0 * math.pi * carrier / 3.0)


def rma_av_nlos(d3: Dist, carrier: float, height: float) -> Dist:
    slope = 35.0 - 5.3 * math.log10(height)
    fitted = -12.0 + slope * jnp.log10(d3) + 20.0 * math.log10(40.0 * math.pi * carrier / 3.0)
    return jnp.maximum(rma_av_los(d3, carrier, height), fitted)


# --- Al-Hourani: low-altitude platforms -----------------------------------------------------------


def al_hourani_p_los(elevation: Dist, town: Environment) -> Dist:
    """`elevation` in degrees."""
    return 1.0 / (1.0 + town.a * jnp.exp(-town.b * (elevation - town.a)))


def al_hourani_loss(d2: Dist, height: float, carrier: float, town: Environment) -> Dist:
    """Free-space loss plus the expected excess loss at this elevation."""
    p_los = al_hourani_p_los(elevation_deg(d2, height), town)
    excess = town.excess_nlos + p_los * (town.excess_los - town.excess_nlos)
    return free_space_loss(slant(d2, height), carrier) + excess


# --- by name --------------------------------------------------------------------------------------

CHANNELS = (*AL_HOURANI, "uma-av", "umi-av", "rma-av")


def air_to_ground_loss(channel: str, d2: Dist, altitude: float, ground: float, carrier: float) -> Dist:
    """Expected loss between an aircraft at `altitude` and a ground terminal at height `ground`, by channel name."""
    if channel in AL_HOURANI:
        return al_hourani_loss(d2, altitude - ground, carrier, AL_HOURANI[channel])
    d3 = slant(d2, altitude - ground)
    if channel == "uma-av":
        los, nlos = uma_av_los(d3, carrier), uma_av_nlos(d3, carrier, altitude)
        return expected_loss(uma_av_p_los(d2, altitude), los, nlos)
    if channel == "umi-av":
        los, nlos = umi_av_los(d3, carrier, altitude), umi_av_nlos(d3, carrier, altitude)
        return expected_loss(umi_av_p_los(d2, altitude), los, nlos)
    if channel == "rma-av":
        los, nlos = rma_av_los(d3, carrier, altitude), rma_av_nlos(d3, carrier, altitude)
        return expected_loss(rma_av_p_los(d2, altitude), los, nlos)
    raise ValueError(f"unknown channel {channel!r}; known: {', '.join(CHANNELS)}")


def watt_to_dbm(watt: float) -> float:
    return 10.0 * math.log10(watt) + 30.0


def noise_dbm(bandwidth: float, noise_figure: float) -> float:
    """Thermal noise over `bandwidth` MHz seen by a receiver with `noise_figure` dB."""
    return THERMAL_NOISE_DBM_HZ + noise_figure + 10.0 * math.log10(bandwidth * 1e6)


def spectral_efficiency(power: float, loss: Dist, noise: float) -> Dist:
    """log2(1 + SNR) in bit/s/Hz; `power` and `noise` in dBm, `loss` in dB."""
    return jnp.log2(1.0 + jnp.exp((power - noise - loss) * (math.log(10.0) / 10.0)))


def shannon_rate(bandwidth: float, power: float, loss: Dist, noise: float) -> Dist:
    """Bandwidth (MHz) times spectral efficiency: Mbit/s."""
    return bandwidth * spectral_efficiency(power, loss, noise)
