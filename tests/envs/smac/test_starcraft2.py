"""The adapter to the real game, against protocol messages built by hand."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.smac.config import SmacConfig
from trident.envs.smac.starcraft2 import ENEMY_KINDS as KINDS
from trident.envs.smac.starcraft2 import (
    Command,
    Game,
    Sc2Smac,
    ally_kinds,
    commands,
    from_smac,
    muster,
    read_units,
    to_message,
)
from trident.types import HybridAction

CONFIG = SmacConfig(map="2s3z", safe=True)


def unit(tag, kind, x, y, health, shield=0.0, cooldown=0.0, energy=0.0):
    return SimpleNamespace(
        owner=1 if kind > 1000 else 2,
        tag=tag,
        unit_type=kind,
        pos=SimpleNamespace(x=x, y=y),
        health=health,
        shield=shield,
        weapon_cooldown=cooldown,
        energy=energy,
    )


def armies():
    """As the game lists them: in no order. Allied types are the map's own, 1970 (stalker) and 1971 (zealot)."""
    ours = [
        unit(11, 1971, 9.0, 15.0, 100, 50),
        unit(12, 1970, 8.0, 16.0, 80, 80, cooldown=5.0),
        unit(13, 1971, 9.0, 17.0, 100, 50),
        unit(14, 1970, 7.5, 16.0, 80, 80),
        unit(15, 1971, 10.0, 16.0, 100, 50),
    ]
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
    assert commands(CONFIG, tags, units, HybridAction(mode, 3.0 * params)) == got  # beyond the box is its edge


def test_messages_have_the_protocols_names():
    def make(**fields):
        return fields

    raw = SimpleNamespace(ActionRaw=make, ActionRawUnitCommand=make)
    protocol = raw, SimpleNamespace(Point2D=make), SimpleNamespace(Action=make)
    order = to_message(Command(16, 7, point=(1.0, 2.0)), *protocol)["action_raw"]["unit_command"]
    assert order == {
        "ability_id": 16,
        "unit_tags": [7],
        "queue_command": False,
        "target_world_space_pos": {"x": 1.0, "y": 2.0},
    }
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
    assert first.reward == first.metrics["crowding"] == 0
    assert first.obs.shape == (5, env.spec.obs_dim)
    assert first.state.shape == (env.spec.state_dim,)
    assert first.mode_mask[4, 6 + 2]  # zealot 20, three grid units away
    stop = HybridAction(np.ones(5, np.int32), np.ones((5, 2), np.float32))  # stop does not read its offset
    state, out = env.step(state, stop)
    scale = 20.0 / (2 * 160 + 3 * 150 + 50 + 200)
    assert out.reward == pytest.approx(20 * scale, rel=1e-5)
    assert not out.terminated
    assert out.metrics["offset"] == 0
    state, out = env.step(state, stop)
    assert out.terminated
    assert out.metrics["win"] == 1
    assert [c.ability for c in sent[0]] == [4] * 5


# --- the smac package -----------------------------------------------------------------------------


class Controller:
    """Of a game that answers with prepared frames, and notes what it is asked for."""

    def __init__(self, frames):
        self.frames, self.asked = iter(frames), []

    def actions(self, request):
        self.asked.append(("actions", request["actions"]))

    def step(self, loops):
        self.asked.append(("step", loops))

    def observe(self):
        ours, theirs = next(self.frames)
        rocks = SimpleNamespace(owner=16, tag=99)
        return SimpleNamespace(observation=SimpleNamespace(raw_data=SimpleNamespace(units=[*theirs, rocks, *ours])))


class StarCraft2Env:
    """What `from_smac` needs of the package's class, with its rules: the first `reset` launches, later ones kill."""

    def __init__(self, frames):
        self._episode_count, self._controller, self._obs = 0, None, None
        self.frames, self.launched, self.agents, self.enemies = frames, 0, {}, {}

    def reset(self):
        if self._episode_count == 0:
            self.launched += 1
            self._controller = Controller(self.frames)
        else:
            alive = [m.tag for m in (*self.agents.values(), *self.enemies.values()) if m.health > 0]
            self._controller.asked.append(("kill", alive))
        self._obs = self._controller.observe()
        units = self._obs.observation.raw_data.units
        self.agents, self.enemies = ({m.tag: m for m in units if m.owner == side} for side in (1, 2))

    def update_units(self):
        seen = {m.tag for m in self._obs.observation.raw_data.units}
        for m in (*self.agents.values(), *self.enemies.values()):
            m.health = m.health if m.tag in seen else 0


@pytest.fixture
def protocol(monkeypatch):
    """The protocol's modules, with messages that are dictionaries."""

    def make(**fields):
        return fields

    names = {"raw": ["ActionRaw", "ActionRawUnitCommand"], "common": ["Point2D"], "sc2api": ["Action", "RequestAction"]}
    for name in ("s2clientprotocol", *(f"s2clientprotocol.{part}_pb2" for part in names)):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for part, messages in names.items():
        for message in messages:
            setattr(sys.modules[f"s2clientprotocol.{part}_pb2"], message, make)


def test_the_packages_controller_is_sent_commands_and_runs_eight_loops(protocol):
    ours, theirs = armies()
    package = StarCraft2Env([(ours, theirs), (ours, theirs[1:]), armies(), armies()])
    env = Sc2Smac(from_smac(package), CONFIG)
    state, _ = env.reset()
    move = HybridAction(np.array([1, 2, 1, 1, 1], np.int32), np.array([[0, 0], [1, 0], *[[0, 0]] * 3], np.float32))
    state, out = env.step(state, move)
    (what, sent), advanced = package._controller.asked
    assert (what, advanced) == ("actions", ("step", 8))
    orders = [message["action_raw"]["unit_command"] for message in sent]
    assert [order["ability_id"] for order in orders] == [4, 16, 4, 4, 4]
    assert orders[1]["target_world_space_pos"] == {"x": 9.0, "y": 18.0}
    assert out.alive.all()
    assert out.metrics["offset"] == pytest.approx(1 / 5)
    assert int((np.asarray(state.units.health) > 0).sum()) == 9
    # Another battle, in the same game: the living are killed, the fallen are not.
    env.reset()
    env.reset()
    kills = [tags for what, tags in package._controller.asked if what == "kill"]
    assert package.launched == 1
    assert 20 not in kills[0]
    assert len(kills[0]) == 9
