"""The intersection in SMARTS: its vehicles, physics and contacts, with the words of `intersection`.

Chance, lanes, the lane tracker, admission, observation, reward and costs are those of `trident.envs.intersection.env`,
computed from where SMARTS has the vehicles. SMARTS decides how they move and whether they touch.
"""

from __future__ import annotations

import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.dynamics import DRIVING, Traffic, settle
from trident.envs.intersection.env import Intersection, reward_and_costs
from trident.envs.intersection.smarts import road_map
from trident.envs.intersection.smarts.bridge import Readings, controls, entries, read
from trident.errors import TridentError
from trident.types import HybridAction, ScriptedPolicy, Shield, TimeStep

INSTALL = "smarts-intersection needs SMARTS (Python 3.11, about 1.2 GB): pip install 'trident-marl[smarts]'"


class Road(Protocol):
    """What the adapter needs of a simulator. Vehicles are numbered."""

    def restart(self) -> None: ...
    def enter(self, vehicle: int, x: float, y: float, heading: float, speed: float) -> None: ...
    def leave(self, vehicle: int) -> None: ...
    def advance(self, pedals: Mapping[int, tuple[float, float, float]]) -> Readings:
        """One step with (throttle, brake, steering) of every vehicle on the road."""
        ...

    def close(self) -> None: ...


class SmartsIntersection:
    """A simulator outside JAX (`trident.types.HostEnv`). SMARTS starts with the first reset."""

    def __init__(
        self,
        config: IntersectionConfig = IntersectionConfig(),  # noqa: B008 (frozen)
        road: Callable[[IntersectionConfig], Road] | None = None,
    ):
        self.config, self.twin, self._new_road = config, Intersection(config), road or SmartsRoad
        self.spec = replace(self.twin.spec, name="smarts-intersection")
        self.physics = self.twin.physics
        self.scripted: Mapping[str, ScriptedPolicy] = {n: jax.jit(p) for n, p in self.twin.scripted.items()}
        self.shield: Shield | None = jax.jit(self.twin.shield)
        self.env_state: Any = None
        self._road: Road | None = None
        self._begin = jax.jit(lambda seed: self.twin.reset(jax.random.key(seed)))
        self._plan = jax.jit(lambda t, action: controls(config, t, action))
        self._conclude = jax.jit(self.conclude)
        self._entries = jax.jit(lambda t: entries(config, t))

    def __deepcopy__(self, memo: Any) -> SmartsIntersection:
        return SmartsIntersection(self.config, self._new_road)

    def reset(self, seed: int) -> TimeStep:
        if self._road is None:
            self._road = self._new_road(self.config)
        self._road.restart()
        nobody = np.zeros(self.config.num_vehicles, bool)
        self.env_state, out = jax.device_get(self._begin(np.uint32(seed)))
        self._exchange(nobody)
        return out

    def step(self, action: HybridAction) -> TimeStep:
        assert self._road is not None, "reset comes first"
        chosen, pedals = jax.device_get(self._plan(self.env_state, action))
        on_road = np.flatnonzero(chosen.phase == DRIVING)
        seen = self._road.advance({int(i): tuple(map(float, pedals[i])) for i in on_road})  # pyright: ignore
        self.env_state, out = jax.device_get(self._conclude(chosen, seen))
        self._exchange(chosen.phase == DRIVING)
        return out

    def conclude(self, chosen: Traffic, seen: Readings) -> tuple[Traffic, TimeStep]:
        """What a step brought, from the traffic with its chosen lanes and what SMARTS made of it."""
        after, events = settle(self.config, chosen, *read(self.config, chosen, seen))
        out = self.twin.timestep(after, *reward_and_costs(self.config, after, events))
        return after, out._replace(cost_attribution=jnp.stack([events.crashed, events.off_lane], axis=-1))

    def _exchange(self, before: np.ndarray) -> None:
        """Who is gone is taken off the map, who has come is put on it."""
        assert self._road is not None
        now = self.env_state.phase == DRIVING
        for i in np.flatnonzero(before & ~now):
            self._road.leave(int(i))
        if (now & ~before).any():
            entry = jax.device_get(self._entries(self.env_state))
            for i in np.flatnonzero(now & ~before):
                self._road.enter(int(i), *(float(column[i]) for column in entry))

    def close(self) -> None:
        if self._road is not None:
            self._road.close()
        self._road = None

    def scene(self, states: Any, changed: Any = None) -> Any:
        return self.twin.scene(states, changed)

    def draw(self, where: Any, history: Any, t: int | None = None, changed: Any = None) -> None:
        self.twin.draw(where, history, t, changed)


class SmartsRoad:
    """SMARTS itself, by its core class; vehicles come and go one by one, on a map of our own."""

    def __init__(self, config: IntersectionConfig):
        try:
            import sumo  # pyright: ignore[reportMissingImports]
            from smarts.core.agent_interface import (  # pyright: ignore[reportMissingImports]
                AgentInterface,
                DoneCriteria,
                Waypoints,
            )
            from smarts.core.controllers import ActionSpaceType  # pyright: ignore[reportMissingImports]
            from smarts.core.scenario import Scenario  # pyright: ignore[reportMissingImports]
            from smarts.core.smarts import SMARTS  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise TridentError(INSTALL) from error
        self.config = config
        self._folder = tempfile.TemporaryDirectory(prefix="trident-smarts-")
        netconvert = os.path.join(sumo.SUMO_HOME, "bin", "netconvert")
        folder = road_map.build(config, Path(self._folder.name), netconvert)
        with warnings.catch_warnings():  # it forks a child that only looks through the map's text
            warnings.filterwarnings("ignore", message=r"os\.fork\(\)")
            self._scenario = Scenario(str(folder))
        self._interface = AgentInterface(
            action=ActionSpaceType.Continuous,
            done_criteria=DoneCriteria(collision=False, off_road=False, off_route=False),
            waypoint_paths=Waypoints(lookahead=1),  # its default is 32, and takes a third of a step
            accelerometer=False,
            lane_positions=False,
        )
        self._sim = SMARTS(agent_interfaces={}, fixed_timestep_sec=config.step)
        self._end = weakref.finalize(self, _end, self._sim, self._folder)  # SMARTS complains if it is left to exit

    def restart(self) -> None:
        self._sim.reset(self._scenario)

    def enter(self, vehicle: int, x: float, y: float, heading: float, speed: float) -> None:
        """At once: SMARTS' own entry tactics would let it appear a step later."""
        from smarts.core.coordinates import Heading  # pyright: ignore[reportMissingImports]
        from smarts.core.plan import (  # pyright: ignore[reportMissingImports]
            EndlessGoal,
            NavigationMission,
            Plan,
            Start,
        )

        sim, name = self._sim, str(vehicle)
        start = Start(np.array([x, y]), Heading(heading), from_front_bumper=False)
        plan = Plan(sim.road_map, NavigationMission(start=start, goal=EndlessGoal()))
        sim.agent_manager.add_ego_agent(name, self._interface, for_trap=False)
        body = sim.vehicle_index.build_agent_vehicle(sim, name, self._interface, plan, True, initial_speed=speed)
        sim.create_vehicle_in_providers(body, name, True)
        roll(body.chassis, speed)

    def leave(self, vehicle: int) -> None:
        self._sim.agent_manager.teardown_ego_agents({str(vehicle)})
        self._sim.vehicle_index.teardown_vehicles_by_vehicle_ids([str(vehicle)], None)

    def advance(self, pedals: Mapping[int, tuple[float, float, float]]) -> Readings:
        seen, *_ = self._sim.step({str(vehicle): triple for vehicle, triple in pedals.items()})
        n = self.config.num_vehicles
        out = Readings(*(np.zeros(n, np.float32) for _ in range(5)), touching=np.zeros((n, n), bool))
        for name, one in seen.items():
            i, ego = int(name), one.ego_vehicle_state
            out.x[i], out.y[i] = ego.position[:2]
            out.heading[i], out.speed[i], out.steering[i] = float(ego.heading), ego.speed, ego.steering
            for collision in one.events.collisions:
                j = int(collision.collidee_id)
                out.touching[i, j] = out.touching[j, i] = True
        return out

    def close(self) -> None:
        self._end()


def _end(sim: Any, folder: tempfile.TemporaryDirectory[str]) -> None:
    sim.destroy()
    folder.cleanup()


def roll(chassis: Any, speed: float) -> None:
    """Set the wheels turning: SMARTS only sets the body's speed, and spinning them up costs 0.17 m/s."""
    client, body = chassis.bullet_client, chassis.bullet_id
    for joint in range(client.getNumJoints(body)):
        if client.getJointInfo(body, joint)[1].decode().endswith("_wheel_joint"):
            client.resetJointState(body, joint, 0.0, speed / chassis.wheel_radius)
