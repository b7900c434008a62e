"""Zeng, Xu and Zhang's propulsion power at published speeds."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from trident.physics.propulsion import ROTORS, propulsion_power

SPEEDS = jnp.array([0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0])
TABLE = {
    "zeng": [168.5, 143.6, 126.0, 138.5, 178.3, 249.0, 356.0],
    "light": [138.1, 112.0, 97.7, 111.9, 152.1, 222.5, 329.0],
}


@pytest.mark.parametrize("name", list(TABLE))
def test_power_table(name):
    np.testing.assert_allclose(propulsion_power(SPEEDS, ROTORS[name]), TABLE[name], rtol=2e-3)


def test_design_gives_the_published_constants():
    zeng = ROTORS["zeng"]
    assert zeng.blade == pytest.approx(79.86, abs=0.05)
    assert zeng.induced == pytest.approx(88.63, abs=0.05)
    assert zeng.induced_velocity == pytest.approx(4.03, abs=0.01)


@pytest.mark.parametrize(
    ("name", "best_speed", "least", "range_speed"), [("light", 9.7, 97.7, 16.9), ("zeng", 10.2, 126.0, 18.3)]
)
def test_thrifty_and_far_reaching_speeds(name, best_speed, least, range_speed):
    v = jnp.linspace(0.05, 30.0, 3000)
    power = propulsion_power(v, ROTORS[name])
    assert float(v[power.argmin()]) == pytest.approx(best_speed, abs=0.1)
    assert float(power.min()) == pytest.approx(least, abs=0.15)
    assert float(v[(power / v).argmin()]) == pytest.approx(range_speed, abs=0.1)


def test_high_speed_keeps_its_digits():
    """In float32 the textbook form sqrt(1 + r^2) - r of the induced part cancels; compare with float64."""
    rotor = ROTORS["light"]
    v = np.array([60.0, 150.0])
    r = v**2 / (2 * rotor.induced_velocity**2)
    exact = rotor.induced * np.sqrt(np.sqrt(1 + r * r) - r)
    drag = 0.5 * rotor.drag_ratio * rotor.air_density * rotor.solidity * rotor.disc_area * v**3
    rest = rotor.blade * (1 + 3 * v**2 / rotor.tip_speed**2) + drag
    np.testing.assert_allclose(propulsion_power(jnp.asarray(v, jnp.float32), rotor), rest + exact, rtol=1e-6)
