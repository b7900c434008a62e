"""The adapter to the real game, against protocol messages built by hand."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.smac_config import SmacConfig
from trident.envs.smac_sc2 import ENEMY_KINDS as KINDS
from trident.envs.smac_sc2 import Command, Game, Sc2Smac, ally_kinds, commands, muster, read_units, to_message
from trident.types import HybridAction

CONFIG = SmacConfig(map="2s3z", safe=True)


def unit(tag, kind, x, y, health, shield=0.0, cooldown=0.0, energy=0.0):
    return SimpleNamespace(
        tag=tag, unit_type=kind, pos=SimpleNamespace(x=x, y=y), health=health, shield=shield, weapon_cooldown=cooldown,
        energy=energy,
    )  # fmt: skip


def armies():
    """As the game lists them: in no order. Allied types are the map's own, 1970 (stalker) and 1971 (zealot)."""
    ours = [
        unit(11, 1971, 9.0, 15.0, 100, 50), unit(12, 1970, 8.0, 16.0, 80, 80, cooldown=5.0),
        unit(13, 1971, 9.0, 17.0, 100, 50), unit(14, 1970, 7.5, 16.0, 80, 80), unit(15, 1971, 10.0, 16.0, 100, 50),
    ]  # fmt: skip
    theirs = [
        unit(20 + k, kind, 13.0 + k, 16.0, 80 if kind == 74 else 100, 50) for k, kind in enumerate((73, 74, 73, 74, 73))
    ]
    return ours, theirs


@pytest.fixture
def scene():
    ours, theirs = armies()
    tags = muster(CONFIG, True, ours, ally_kinds(CONFIG, (m.unit_type for m in ours)))
    tags += muster(CONFIG, False, theirs, KINDS)
    return tags, read_units(CONFIG, tags, [*ours, *theirs], None)


def test_units_are_mustered_in_the_rosters_order(scene):
    tags, units = scene
    assert tags == [14, 12, 11, 13, 15, 21, 23, 20, 22, 24]
    np.testing.assert_allclose(units.x[:5], [7.5, 8.0, 9.0, 9.0, 10.0])
    np.testing.assert_allclose(units.cooldown[:2], [0.0, 5.0])
    with pytest.raises(ValueError, match="needs"):
        muster(CONFIG, False, armies()[1][1:], KINDS)


def test_the_fallen_and_the_hit(scene):
    tags, before = scene
    ours, theirs = armies()
    ours[0].shield = 30.0
    after = read_units(CONFIG, tags, [*ours, *theirs[:-1]], before)
    assert after.health[9] == 0
    assert after.x[9] == before.x[9]
    assert after.calm[2] == 0
    assert after.calm[3] > 1e4


def test_commands(scene):
    tags, units = scene
    mode = jnp.array([2, 6, 6, 1, 5], jnp.int32)
    params = jnp.array([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    got = commands(CONFIG, tags, units, HybridAction(mode, params))
    assert got == [
        Command(16, 14, point=(8.5, 18.0)),  # north, and one to the east
        Command(16, 12, point=(7.0, 16.0)),  # cooling down: reposition, then the attack
        Command(23, 12, target=21, queued=True),
        Command(23, 11, target=21),  # ready: fires first
        Command(4, 13),
        Command(16, 15, point=(8.0, 16.0)),  # west, no offset: plain SMAC
    ]
    dead = units._replace(health=units.health.at[:4].set(0.0))
    assert [c.tag for c in commands(CONFIG, tags, dead, HybridAction(mode, params))] == [15]


def test_messages_have_the_protocols_names():
    make = lambda **fields: fields  # noqa: E731
    raw = SimpleNamespace(ActionRaw=make, ActionRawUnitCommand=make)
    protocol = raw, SimpleNamespace(Point2D=make), SimpleNamespace(Action=make)
    order = to_message(Command(16, 7, point=(1.0, 2.0)), *protocol)["action_raw"]["unit_command"]
    assert order == {
        "ability_id": 16, "unit_tags": [7], "queue_command": False, "target_world_space_pos": {"x": 1.0, "y": 2.0}
    }  # fmt: skip
    order = to_message(Command(23, 7, target=9, queued=True), *protocol)["action_raw"]["unit_command"]
    assert order == {"ability_id": 23, "unit_tags": [7], "queue_command": True, "target_unit_tag": 9}


def test_an_episode_has_the_environments_words():
    """A recorded game of two steps: an enemy zealot loses 20, then everybody falls."""
    ours, theirs = armies()
    hurt = [unit(20, 73, 13.0, 16.0, 100, 30), *theirs[1:]]
    frames, sent = iter([(ours, hurt), (ours, [])]), []

    def advance(orders):
        sent.append(orders)
        return next(frames)

    env = Sc2Smac(Game(lambda: (ours, theirs), advance), CONFIG)
    state, first = env.reset()
    assert first.obs.shape == (5, env.spec.obs_dim)
    assert first.state.shape == (env.spec.state_dim,)
    assert first.mode_mask[4, 6 + 2]  # zealot 20, three grid units away
    stop = HybridAction(np.ones(5, np.int32), np.zeros((5, 2), np.float32))
    state, out = env.step(state, stop)
    scale = 20.0 / (2 * 160 + 3 * 150 + 50 + 200)
    assert out.reward == pytest.approx(20 * scale, rel=1e-5)
    assert not out.terminated
    state, out = env.step(state, stop)
    assert out.terminated
    assert out.metrics["win"] == 1
    assert [c.ability for c in sent[0]] == [4] * 5
