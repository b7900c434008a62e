"""The reflex of SMAC: what one soldier suggests to itself from its own observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.smac import Smac
from trident.envs.smac_config import SmacConfig
from trident.envs.smac_rules import FIRST_TARGET, NO_OP

EAST = 4


def chosen(env, units):
    """The mode that every ally prefers."""
    obs, _, mask = env._look(units, jnp.int32(0))
    suggested = jax.vmap(env.physics.reflex)(obs)
    mode = np.asarray(suggested.preference.argmax(-1))
    assert np.take_along_axis(np.asarray(mask), mode[:, None], 1).all()
    assert not np.asarray(suggested.unit).any()
    return mode


@pytest.fixture(scope="module")
def marines():
    env = Smac(SmacConfig("3m"))
    return env, env.reset(jax.random.key(0))[0].units


def put(units, x, y, **condition):
    return units._replace(x=jnp.array(x), y=jnp.array(y), **condition)


def test_whom_nobody_is_in_sight_of_walks_to_the_enemy(marines):
    env, units = marines
    far = put(units, [3.0, 3.0, 3.0, 29.0, 29.0, 29.0], [16.0, 14.0, 18.0, 16.0, 14.0, 18.0])
    assert (chosen(env, far) == EAST).all()


def test_the_target_that_dies_the_soonest(marines):
    """Enemies 0 and 1 in weapon's reach, 1 wounded; 2 weaker still, but too far to be chosen."""
    env, units = marines
    health = units.health.at[4].set(20.0).at[5].set(1.0)
    near = put(units, [10.0, 10.0, 10.0, 13.0, 13.0, 18.5], [16.0, 15.0, 17.0, 16.0, 15.0, 16.0], health=health)
    assert (chosen(env, near) == FIRST_TARGET + 1).all()
    # A march counts: enemy 0 is fresh but in reach, enemy 1 is as fresh and must be approached.
    apart = put(units, [10.0, 10.0, 10.0, 13.0, 15.9, 18.5], [16.0, 16.5, 15.5, 16.0, 16.0, 16.0])
    assert (chosen(env, apart) == FIRST_TARGET).all()


def test_the_dead_do_nothing(marines):
    env, units = marines
    assert chosen(env, units._replace(health=units.health.at[1].set(0.0)))[1] == NO_OP


def test_healers_heal_the_most_wounded():
    env = Smac(SmacConfig("MMM2"))
    units = env.reset(jax.random.key(0))[0].units
    healer = int(np.flatnonzero(env.config.roster.heals)[0])
    health = units.health.at[4].multiply(0.5).at[6].multiply(0.2)
    mode = chosen(env, units._replace(health=health))
    assert mode[healer] == FIRST_TARGET + 6
