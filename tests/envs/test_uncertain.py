"""What the benchmarks are uncertain of: as declared, as worked by hand, and nothing else changes."""

from __future__ import annotations

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs import intersection, smac, uav_mec
from trident.envs.intersection.dynamics import pedals
from trident.envs.randomised import with_errors
from trident.envs.uav_mec import dynamics
from trident.envs.uav_mec.config import UavMecConfig
from trident.physics import propulsion

BENCHMARKS = (uav_mec.UavMec, intersection.Intersection, smac.Smac)


def errors(**given):
    return {name.replace("_", "-"): jnp.array(np.atleast_1d(value), jnp.float32) for name, value in given.items()}


@pytest.mark.parametrize("kind", BENCHMARKS)
def test_what_a_benchmark_declares_is_used_somewhere_in_it(kind):
    assert kind.uncertain
    package = inspect.getmodule(kind).__name__.rpartition(".")[0]
    source = "".join(
        inspect.getsource(__import__(f"{package}.{part}", fromlist=["x"])) for part in ("config", "dynamics", "env")
        if not (part == "dynamics" and kind is smac.Smac)
    )  # fmt: skip
    for name in kind.uncertain:
        assert source.count(f'"{name}"') >= 2, name


def test_a_config_with_errors_is_the_same_config():
    config = UavMecConfig()
    other = with_errors(config, errors(mass=0.1))
    assert (other, repr(other), hash(other)) == (config, repr(config), hash(config))
    assert config.errors == {}


def test_uav_mec_by_hand():
    plain = UavMecConfig()
    config = with_errors(plain, errors(wind=(0.1, -0.2), mass=0.2, channel=-0.1))
    place, velocity = jnp.array([[300.0, 300.0]]), jnp.array([[10.0, 0.0]])
    moved = dynamics.fly(config, place, velocity)
    assert moved[0].tolist() == pytest.approx([300 + 0.5 * (10 + 3), 300 - 0.5 * 6])
    hover = propulsion.propulsion_power(jnp.float32(0.0), dynamics.rotor_of(config))
    assert hover == pytest.approx(59.03 + 79.07 * 1.2**1.5, rel=1e-5), "blades do not feel the weight, the air does"
    distance = jnp.array([50.0, 200.0])
    for rate in (dynamics.uplink_rate, dynamics.backhaul_efficiency):
        assert np.allclose(rate(config, distance), 0.9 * rate(plain, distance))


def test_intersection_and_smac_by_hand():
    config = intersection.IntersectionConfig()
    asked = jnp.array([[1.0, 2.0, 0.0]])
    assert pedals(config, asked) == -1.0
    assert pedals(with_errors(config, errors(brakes=-0.5, engine=0.1)), asked)[0] == pytest.approx(1.1 - 1.0)
    config = smac.SmacConfig()
    assert config.fielded is config.roster
    roster = with_errors(config, errors(enemy_damage=0.5, speed=-0.1)).fielded
    assert np.allclose(roster.damage[:3], config.roster.damage[:3])
    assert np.allclose(roster.damage[3:], 1.5 * config.roster.damage[3:])
    assert np.allclose(roster.speed[:3], 0.9 * config.roster.speed[:3])
    assert np.allclose(roster.speed[3:], config.roster.speed[3:])


def test_a_step_of_smac_is_half_a_second():
    assert smac.Smac().spec.step_seconds == 0.5
