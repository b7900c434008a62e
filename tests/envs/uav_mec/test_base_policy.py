"""The base policy of `uav-mec`: physics for one UAV that knows only its own observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.uav_mec.base_policy import lean, speed_within
from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import velocity_of
from trident.envs.uav_mec.physics import min_power_speed
from trident.physics import propulsion
from trident.training.registry import ENVS


@pytest.mark.parametrize("name", ["uav-mec", "uav-mec-velocity", "uav-mec-polar", "uav-mec-n8"])
def test_base_policy_has_the_direction_and_the_mode_of_nominal(name):
    """Each UAV by itself suggests what the physics of the global state takes for granted of the whole fleet, unless it
    hears one that is full."""
    env = ENVS[name].make()

    @jax.jit
    def episode(key):
        def slot(carry, key):
            state, _ = carry
            alone, fleet = (env.scripted[policy](key, state) for policy in ("base-policy", "nominal"))
            after, now = env.step(key, state, alone)
            load = state.link.sum(1)
            heard = jnp.linalg.norm(state.uav[:, None] - state.uav[None], axis=-1) <= 2.0 * env.config.sight
            crowded = (heard & (load == env.config.capacity)[None]).any(1) & (load < env.config.capacity)
            return (after, now), (alone, fleet, crowded, now.metrics["ev"])

        return jax.lax.scan(slot, env.reset(key), jax.random.split(key, 60))[1]

    alone, fleet, crowded, violations = episode(jax.random.key(1))
    assert len(np.unique(fleet.mode)) > 1
    same = np.asarray(alone.mode) == np.asarray(fleet.mode)
    assert same.mean() > 0.99  # two modes may cost the same but for rounding
    mine, its = (np.asarray(velocity_of(env.config, a.params))[same] for a in (alone, fleet))
    least = min_power_speed(env.config)
    speed = np.linalg.norm(mine, axis=-1)
    assert (speed > least - 0.1).mean() > 0.995  # within centimetres of its goal a UAV has no direction, and slows down
    assert speed.min() > 0.5 * least
    assert speed.max() > least + 3.0  # some are far from their users, and hurry
    turned = np.abs(mine / speed[:, None] - its / np.linalg.norm(its, axis=-1)[:, None]).max(-1)
    drawn = np.asarray(crowded)[same]
    assert (turned[~drawn] < 0.01).mean() > 0.98  # the centre is where the UAV is, or a link was read back wrong
    assert 0.05 < drawn.mean() < 0.95
    assert (turned[drawn] > 0.01).mean() > 0.5  # of eight UAVs, only the nearest three are listed
    relays = np.asarray(fleet.mode) > 0
    np.testing.assert_allclose(np.asarray(alone.params)[same & relays][:, -1], 1.0)
    assert violations.mean() == 0.0


def test_an_idle_uav_leans_half_way_to_the_nearest_full_one():
    c = UavMecConfig()
    near, far, half_empty = ([x / (2 * c.sight), 0.0, load, 1.0] for x, load in ((100, 1.0), (-200, 1.0), (20, 0.5)))
    goal, fleet = jnp.array([[0.0, 40.0]]), jnp.array([half_empty, near, far])

    def aim(load, fleet):
        return np.asarray(lean(c, jnp.array([load]), goal, fleet))

    np.testing.assert_allclose(aim(0.0, fleet), [[50.0, 20.0]], rtol=1e-5)
    np.testing.assert_allclose(aim(0.5 * c.capacity, fleet), [[25.0, 30.0]], rtol=1e-5)
    for unmoved in (aim(float(c.capacity), fleet), aim(0.0, fleet[:1]), aim(0.0, fleet[1:] * jnp.array([1, 1, 1, 0]))):
        np.testing.assert_allclose(unmoved, goal)


def test_speed_within_an_energy_inverts_the_propulsion():
    config = UavMecConfig()
    least = min_power_speed(config)
    energy = jnp.array([0.0, 40.0, 55.0, 60.2, 100.0, 1e3])
    speed = np.asarray(speed_within(config, energy))
    np.testing.assert_allclose(speed[:2], least)  # not even that is enough
    spent = config.slot * np.asarray(propulsion.propulsion_power(jnp.asarray(speed), propulsion.ROTORS[config.rotor]))
    step = (config.max_speed - least) / 32
    more = config.slot * np.asarray(
        propulsion.propulsion_power(jnp.asarray(speed + step), propulsion.ROTORS[config.rotor])
    )
    assert (spent[2:] <= np.asarray(energy)[2:] + 1e-3).all()
    assert (more[2:5] > np.asarray(energy)[2:5]).all()
    np.testing.assert_allclose(speed[-1], config.max_speed, rtol=1e-6)
