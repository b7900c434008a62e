"""The base policy of SMAC: what one soldier suggests to itself from its own observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.geometry import square_to_disc
from trident.envs.smac.actions import FIRST_TARGET, NO_OP
from trident.envs.smac.config import Map, SmacConfig
from trident.envs.smac.env import Smac

EAST, WEST = 4, 5


def suggested(env, units):
    """The mode that every ally prefers, and its offset as two numbers in the disc."""
    obs, _, mask = env._look(units, jnp.int32(0))
    base_policy = jax.vmap(env.physics.base_policy)(obs)
    mode = np.asarray(base_policy.preference.argmax(-1))
    assert np.take_along_axis(np.asarray(mask), mode[:, None], 1).all()
    return mode, np.asarray(square_to_disc(base_policy.unit[np.arange(len(mode)), mode]))


def chosen(env, units):
    """The same, of who has no reason to back off."""
    mode, offset = suggested(env, units)
    assert not offset.any()
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


def test_who_outranges_the_nearest_enemy_backs_off_while_the_weapon_cools_down():
    """Hydralisks at x = 16; a zealot comes from the east, the others are out of sight."""
    env = Smac(SmacConfig("6h_vs_8z"))
    units, a = env.reset(jax.random.key(0))[0].units, env.config.roster.allies

    def near(distance, cooldown):
        x = jnp.full(units.x.shape, 31.0).at[:a].set(16.0).at[a].set(16.0 + distance)
        y = jnp.full(units.y.shape, 31.0).at[:a].set(14.0).at[a].set(14.0)
        return units._replace(x=x, y=y, cooldown=units.cooldown.at[:a].set(cooldown))

    mode, offset = suggested(env, near(3.0, 12.0))  # not ready within the step: walk
    assert (mode == WEST).all()
    np.testing.assert_allclose(offset, [[-1.0, 0.0]] * a, atol=0.01)
    mode, offset = suggested(env, near(3.0, 2.0))  # ready soon: attack, and drift until then
    assert (mode == FIRST_TARGET).all()
    np.testing.assert_allclose(offset, [[-1.0, 0.0]] * a, atol=0.01)
    assert (chosen(env, near(5.5, 12.0)) == FIRST_TARGET).all()  # far enough away: stand


def test_near_equals_are_not_run_from():
    """A marauder outranges a marine by less than a marine walks between two shots."""
    env = Smac(SmacConfig("MMM2"))
    units, roster = env.reset(jax.random.key(0))[0].units, env.config.roster
    a = roster.allies
    x = jnp.linspace(4.0, 8.0, len(units.x)).at[a:].set(10.0)
    close = units._replace(x=x, y=jnp.full_like(units.y, 16.0), cooldown=jnp.full_like(units.cooldown, 12.0))
    others = np.array([i >= a and t.name != "marine" for i, t in enumerate(roster.types)])
    assert (~others[a:]).any()
    chosen(env, close._replace(health=jnp.where(others, 0.0, close.health)))


def test_the_unarmed_are_no_reason_to_stand():
    """A hydralisk backs off from a zealot though a medivac, whose beam reaches nearly as far as it shoots, is near."""
    env = Smac(SmacConfig(Map((("hydralisk", 1),), (("zealot", 1), ("medivac", 1)), 60)))
    units = env.reset(jax.random.key(0))[0].units
    near = put(units, [16.0, 18.0, 19.0], [16.0, 16.0, 17.0], cooldown=jnp.full(3, 12.0))
    mode, offset = suggested(env, near)
    assert mode[0] == WEST
    assert offset[0][0] < -0.9


def test_hand_to_hand_the_nearest_though_another_is_weaker():
    env = Smac(SmacConfig("corridor"))
    units, a = env.reset(jax.random.key(0))[0].units, env.config.roster.allies
    x = jnp.full(units.x.shape, 25.0).at[:a].set(20.0).at[a:].set(24.5).at[a].set(22.0)
    health = units.health.at[a + 1].set(1.0)
    mode = chosen(env, units._replace(x=x, y=jnp.full_like(units.y, 16.0), health=health))
    assert (mode == FIRST_TARGET).all()


def test_nobody_backs_off_while_another_in_sight_reaches_as_far():
    """A stalker with a zealot upon it stands as long as an enemy stalker sees it."""
    env = Smac(SmacConfig("2s3z"))
    units, roster = env.reset(jax.random.key(0))[0].units, env.config.roster
    a = roster.allies
    ours = next(i for i in range(a) if roster.types[i].name == "stalker")
    theirs = {
        kind: next(i for i in range(a, roster.size) if roster.types[i].name == kind) for kind in ("stalker", "zealot")
    }
    alone = np.isin(np.arange(roster.size), [ours, *theirs.values()])
    x = units.x.at[ours].set(10.0).at[theirs["zealot"]].set(11.5).at[theirs["stalker"]].set(15.0)
    near = units._replace(
        x=x,
        y=jnp.full_like(units.y, 16.0),
        cooldown=jnp.full_like(units.cooldown, 12.0),
        health=jnp.where(alone, units.health, 0.0),
    )
    assert chosen(env, near)[ours] >= FIRST_TARGET
    mode, offset = suggested(env, near._replace(health=near.health.at[theirs["stalker"]].set(0.0)))
    assert mode[ours] == WEST
    assert offset[ours][0] < -0.9
