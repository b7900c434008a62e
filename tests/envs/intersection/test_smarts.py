"""The SMARTS adapter against recordings of real SMARTS (benchmarks/smarts/record.py), without SMARTS."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.lanes import read_lanes

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.dynamics import CRASHED, FINISHED
from trident.envs.intersection.env import Intersection
from trident.envs.intersection.roads import EXIT_TURN, LANE_OF, PATHS, lane_shapes, roads
from trident.envs.intersection.smarts import road_map
from trident.envs.intersection.smarts.bridge import BRAKE, DRAG, DRIVE, STEER, Readings, wheel_and_pedals
from trident.envs.intersection.smarts.env import SmartsIntersection
from trident.errors import TridentError
from trident.simulation import batch

DATA = Path(__file__).parent / "data"
CONFIG = IntersectionConfig()
NAMES = ("south", "east", "north", "west")


class Playback:
    """A road that answers as SMARTS once did, and checks that it is asked the same."""

    def __init__(self, tape: Mapping[str, np.ndarray]):
        self.tape, self.t, self.entered, self.left = tape, 0, [], []

    def restart(self) -> None:
        self.t = 0

    def enter(self, vehicle: int, *where: float) -> None:
        self.entered.append((self.t, vehicle, *where))

    def leave(self, vehicle: int) -> None:
        self.left.append((self.t, vehicle))

    def advance(self, pedals: Mapping[int, tuple[float, float, float]]) -> Readings:
        asked = self.tape["pedals"][self.t]
        assert sorted(pedals) == np.flatnonzero(self.tape["x"][self.t]).tolist()
        for i, triple in pedals.items():
            assert np.allclose(triple, asked[i], atol=2e-3), (self.t, i)
        seen = Readings(*(self.tape[name][self.t] for name in Readings._fields))
        self.t += 1
        return seen

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def env() -> SmartsIntersection:
    return SmartsIntersection(CONFIG, road=lambda config: Playback({}))


@pytest.fixture(scope="module")
def played(env) -> dict[str, Any]:
    """Each recorded episode, played again: tape, road, states and time steps after every step."""
    found = {}
    for name in ("aim", "aggressive"):
        with np.load(DATA / f"smarts_{name}.npz") as tape:
            road = env._road = Playback(dict(tape))
        out = batch.reset(env, int(road.tape["seed"]))
        states, steps = [], []
        while not (out.terminated or out.truncated):
            out = batch.step(env, batch.as_numpy(env.scripted[name](jax.random.key(0), env.env_state)))
            states.append(env.env_state)
            steps.append(out)
        found[name] = (road.tape, road, batch.stack(states), batch.stack(steps))
    env.close()
    return found


@pytest.mark.parametrize("name", ["aim", "aggressive"])
def test_the_adapter_asks_smarts_what_it_asked_when_recorded(played, name):
    tape, road, states, steps = played[name]
    assert road.t == len(tape["x"]) == len(states.clock)
    assert np.allclose(road.entered, tape["entered"], atol=1e-3)
    assert np.array_equal(road.left, tape["left"])
    assert np.allclose(steps.obs[::40], tape["obs"], atol=5e-3)


def test_outcomes_are_those_smarts_had(played):
    tape, _, states, steps = played["aim"]
    assert not tape["touching"].any()
    assert (states.phase[-1] == FINISHED).all()
    assert steps.metrics["collisions"].sum() == 0
    assert 40 < steps.reward.sum() < 50
    tape, _, states, steps = played["aggressive"]
    touched = tape["touching"].any((0, 2))
    assert 0 < touched.sum() < 8
    assert np.array_equal(states.phase[-1] == CRASHED, touched)
    assert steps.metrics["collisions"].sum() == 100 * touched.sum()
    bad = steps.cost[:, 0] > 0
    assert np.array_equal(bad, tape["touching"].any((1, 2)))
    assert np.array_equal(bad, steps.margin[:, 0] < 0)


@pytest.mark.parametrize("name", ["aim", "aggressive"])
def test_places_are_where_the_map_of_smarts_has_them(played, name):
    """SMARTS' own map projects every vehicle on its nearest lane; so do we, by closed form."""
    tape, _, states, _ = played[name]
    inside, begin = roads(CONFIG).inside, road_map.middle(CONFIG) - CONFIG.half_box
    seen = 0
    for t, i in np.argwhere(tape["x"] != 0):
        lane = str(tape["lane"][t, i])
        arm, at = i % 4, jax.tree.map(lambda x, t=t, i=i: x[t, i] if x.ndim > 1 else x[t], states)
        path = int(np.where(at.lane == 0, min(at.movement, 1), max(at.movement, 1) + 1))
        middle = at.s + 0.5 * CONFIG.wheelbase * np.cos(at.error)
        left = at.e + 0.5 * CONFIG.wheelbase * np.sin(at.error)
        right_lane = 1 - LANE_OF[path]
        if middle < -0.5:
            other = int(lane[-1]) - right_lane  # in the middle of a lane change the nearest lane is another
            assert lane.startswith(f"{NAMES[arm]}-in_")
            assert np.isclose(middle + begin, tape["along"][t, i], atol=0.02)
            assert np.isclose(left, tape["beside"][t, i] + 3.2 * other, atol=0.02)
            seen += 1
        elif at.s > inside[path]:  # the whole vehicle is on the straight
            assert lane == f"{NAMES[(EXIT_TURN[path] + arm + 2) % 4]}-out_{right_lane}"
            assert np.isclose(middle - inside[path], tape["along"][t, i], atol=0.05)
            assert np.isclose(left, tape["beside"][t, i], atol=0.05)
            seen += 1
    assert seen > 500


def test_neighbours_are_seen_where_smarts_has_them(played):
    """The first neighbour's place and motion in the own frame, from the raw readings alone."""
    tape, _, states, steps = played["aim"]
    for t in range(60, 160, 7):
        there = states.phase[t] == 1
        x, y = tape["x"][t].astype(float), tape["y"][t].astype(float)
        forward = tape["heading"][t] + 0.5 * np.pi
        v = tape["speed"][t] * np.stack([np.cos(forward), np.sin(forward)])
        for i in np.flatnonzero(there):
            others = [j for j in np.flatnonzero(there & (tape["x"][t] != 0)) if j != i]
            if tape["x"][t, i] == 0 or not others or (there & (tape["x"][t] == 0)).any():
                continue  # somebody has just come, and was not on the tape yet
            j = min(others, key=lambda j, i=i: np.hypot(x[j] - x[i], y[j] - y[i]))
            c, s = np.cos(forward[i]), np.sin(forward[i])
            turn = np.array([[c, s], [-s, c]])
            place, motion = turn @ [x[j] - x[i], y[j] - y[i]], turn @ (v[:, j] - v[:, i])
            assert np.allclose(steps.obs[t, i, 19:23], [*place / 50.0, *motion / 13.0], atol=2e-3)


def test_the_built_map_is_our_road():
    lanes = read_lanes(DATA / "map.net.xml", CONFIG)
    names = ("left", "straight-left-lane", "straight-right-lane", "right")
    ours = lane_shapes(CONFIG, spacing=0.25)
    checked = 0
    for arm in range(4):
        for path in range(PATHS):
            lane = 1 - LANE_OF[path]
            to = NAMES[(EXIT_TURN[path] + arm + 2) % 4]
            built = lanes[f"{NAMES[arm]}-in_{lane} {to}-out_{lane}"]
            line = np.concatenate([lanes[f"{NAMES[arm]}-in_{lane}"], built, lanes[f"{to}-out_{lane}"]])
            assert distances(ours[f"{arm}-{names[path]}"], line).max() < 0.02
            assert np.hypot(*np.diff(built, axis=0).T).sum() == pytest.approx(roads(CONFIG).inside[path], abs=0.05)
            checked += 1
    assert checked == 16
    assert sum(":" not in name and " " in name for name in lanes) == 16, "no other way through the junction"


def distances(points: np.ndarray, line: np.ndarray) -> np.ndarray:
    """From points to a polyline."""
    a, b = line[:-1], line[1:]
    along = ((points[:, None] - a) * (b - a)).sum(-1) / np.maximum(((b - a) ** 2).sum(-1), 1e-12)
    foot = a + np.clip(along, 0.0, 1.0)[..., None] * (b - a)
    return np.sqrt(((points[:, None] - foot) ** 2).sum(-1)).min(1)


def test_the_map_comes_from_text_that_names_every_way():
    text = road_map.network(CONFIG)
    assert text["con"].count("<connection ") == 16
    assert text["edg"].count("<edge ") == 8
    assert 'radius="8.0"' in text["nod"], "28.8 m wide: two lanes each way and round corners"


def test_pedals_give_the_acceleration_that_was_asked_for():
    speed = jnp.array([8.0, 8.0, 8.0, 12.95, 0.0, 0.2, 0.0])
    accel = jnp.array([3.0, -6.0, -0.5, 3.0, -6.0, -6.0, 2.0])
    reached = np.array([3.0, -6.0, -0.5, 0.5, 0.0, -2.0, 2.0])
    angle = jnp.array([0.3, -0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
    throttle, brake, steering = np.asarray(wheel_and_pedals(CONFIG, speed, accel, angle)).T
    given = DRIVE * throttle - BRAKE * brake - DRAG
    moving = np.arange(7) != 4
    assert np.allclose(given[moving], reached[moving], atol=1e-3)
    assert (throttle[4], brake[4]) == (0.0, 0.0), "friction holds it"
    assert not ((throttle > 0) & (brake > 0)).any()
    assert np.allclose(steering * STEER, [-0.3, 0.3, 0, 0, 0, 0, 0], atol=1e-6)


def test_it_has_the_spaces_of_the_intersection(env):
    ours = Intersection(CONFIG).spec
    for field in ("num_agents", "obs_dim", "state_dim", "horizon", "constraints", "metrics"):
        assert getattr(env.spec, field) == getattr(ours, field)
    assert (env.spec.action.low == ours.action.low).all()
    assert (env.spec.action.high == ours.action.high).all()


@pytest.mark.skipif("smarts" in sys.modules, reason="SMARTS is there")
def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "smarts.core.smarts", None)
    env = copy.deepcopy(SmartsIntersection(CONFIG))
    with pytest.raises(TridentError, match=r"pip install 'trident-marl\[smarts\]'"):
        env.reset(0)
