"""The no-fly scenario's global state array, and closed-form physics on it.

What physics knows in advance of a step: the autopilot's reference exactly, the mean of wind and offset, the power, the
shortest way to the goal, signed distances to the zones and the way that braking would take. What it leaves to learning:
gusts, and everything later than the next step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.dynamics import (
    EDGES,
    NoFlyState,
    blow,
    cell_of,
    clearance,
    command,
    fly,
    mode_mask,
    power_of,
    push,
    to_go,
    waypoint_of,
)
from trident.envs.uav_nofly.maps import Maps
from trident.physics import braking, flight, polygons
from trident.physics.flight import length
from trident.types import HybridAction, Physics

TOUCH_EDGE = 0.6
"""Softness of a zone's outline, m: the offset of the UAV is not known in advance to better than this."""
ROOM_EDGE = 1.5
"""Softness of the room that braking leaves, m."""
NOTICE = 2.0
"""How far ahead a penetration is announced, s."""
POWER_EDGE = 3.0
"""Softness of the power limit, W."""
GOAL_EDGE = 4.0
"""Softness of the goal's rim, m."""
FAR = 40.0
"""Clearances beyond this are all the same, m."""
CAUTION = 0.6
"""Share of the acceleration limit with which `nominal` plans to brake."""


# --- the array ------------------------------------------------------------------------------------


def pack(config: NoFlyConfig, maps: Maps, s: NoFlyState) -> Float[Array, "S"]:
    """State -> the global state array; every entry is about unit scale."""
    c = config
    near = clearance(jnp.asarray(maps.zones)[s.map], s.uav, s.uav)
    parts = [
        2.0 * s.place / c.area - 1.0,
        s.velocity / c.max_speed,
        s.offset / c.tube,
        s.wind / c.max_wind,
        s.mean_wind / c.max_wind,
        2.0 * s.goal / c.area - 1.0,
        s.map[None] / len(maps.goal),
        s.clock[None] / c.horizon,
        to_go(c, maps, s.map, s.place)[None] / c.area,
        jnp.clip(near, -FAR, FAR)[None] / FAR,
        jnp.clip(1.0 - s.power / c.max_power, -1.0, 1.0)[None],
    ]
    return jnp.concatenate([p.astype(jnp.float32) for p in parts])


def unpack(config: NoFlyConfig, maps: Maps, array: Float[Array, "S"]) -> NoFlyState:
    """The part of the state that evolves; what the last step did is not known."""
    c = config
    place, velocity, offset, wind, mean, goal, number, clock, _ = jnp.split(array, np.cumsum([2] * 6 + [1, 1]))
    place, goal = 0.5 * c.area * (place + 1.0), 0.5 * c.area * (goal + 1.0)
    nothing = jnp.zeros(())
    return NoFlyState(
        place=place, velocity=c.max_speed * velocity, offset=c.tube * offset, wind=c.max_wind * wind,
        mean_wind=c.max_wind * mean, goal=goal,
        map=jnp.clip(jnp.round(number[0] * len(maps.goal)).astype(jnp.int32), 0, len(maps.goal) - 1),
        clock=jnp.round(clock[0] * c.horizon).astype(jnp.int32),
        mode=jnp.zeros((), jnp.int32), waypoint=place, clearance=nothing, power=nothing, arrived=nothing > 0.0,
    )  # fmt: skip


# --- the three functions --------------------------------------------------------------------------


def expected(config: NoFlyConfig, s: NoFlyState, action: HybridAction) -> NoFlyState:
    """The mean successor: no gusts."""
    c, mode, params = config, action.mode[0], action.params[0]
    place, velocity = fly(c, s.place, s.velocity, mode, params)
    wind = blow(c, s.wind, s.mean_wind, 0.0)
    return s._replace(
        place=place, velocity=velocity, wind=wind, offset=push(c, s.offset, s.wind, wind), clock=s.clock + 1, mode=mode,
        power=power_of(c, 0.5 * (s.velocity + velocity), wind),
    )  # fmt: skip


def signals(config: NoFlyConfig, maps: Maps, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "signals"]:
    """Expected reward and smooth costs in [0, 1] of the next step.

    penetration: 1 - (1 - touch) (1 - announced), touch = sigmoid(-clearance of the UAV's way / TOUCH_EDGE),
    announced = step / NOTICE sigmoid(-(clearance of the way that braking takes - tube) / ROOM_EDGE).
    energy: sigmoid((power - most) / POWER_EDGE).
    """
    c = config
    s = unpack(c, maps, array)
    after = expected(c, s, action)
    zones = jnp.asarray(maps.zones)[s.map]
    touch = jax.nn.sigmoid(-clearance(zones, s.uav, after.uav) / TOUCH_EDGE)
    room = clearance(zones, after.place, flight.stop_place(after.place, after.velocity, c.accel, c.step)) - c.tube
    announced = c.step / NOTICE * jax.nn.sigmoid(-room / ROOM_EDGE)
    progress = to_go(c, maps, s.map, s.place) - to_go(c, maps, s.map, after.place)
    arrives = jax.nn.sigmoid((c.goal_radius - length(after.uav - s.goal)) / GOAL_EDGE)
    reward = c.progress_weight * progress - c.time_weight - c.energy_weight * c.step * after.power
    reward = reward + c.goal_reward * arrives
    penetration = 1.0 - (1.0 - touch) * (1.0 - announced)
    return jnp.stack([reward, penetration, jax.nn.sigmoid((after.power - c.max_power) / POWER_EDGE)])


def predict(config: NoFlyConfig, maps: Maps, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
    return pack(config, maps, expected(config, unpack(config, maps, array), action))


def nominal(config: NoFlyConfig, maps: Maps, array: Float[Array, "S"]) -> HybridAction:
    """Carry on sensibly: to the neighbouring cell with the shortest way to the goal, as fast as the power limit and
    the sight ahead allow."""
    c = config
    s = unpack(c, maps, array)
    mode = best_neighbour(c, maps, s)
    way = waypoint_of(c, s.place, mode) - s.place
    ahead = way / length(way)
    speed = cruise_speed(c, jnp.asarray(maps.zones)[s.map], s, ahead)
    return HybridAction(mode[None], jnp.stack([speed, jnp.zeros(())])[None])


def best_neighbour(config: NoFlyConfig, maps: Maps, s: NoFlyState) -> Any:
    """The allowed mode whose cell is nearest to the goal, the way to the cell included."""
    c = config
    cells = jnp.clip(cell_of(c, s.place) + jnp.asarray(EDGES), 0, c.grid - 1)
    onward = jnp.asarray(maps.to_go)[s.map, cells[:, 0], cells[:, 1]]
    there = length(c.cell * (cells + 0.5) - s.place)
    open_ = mode_mask(c, maps, s.map, s.place) & (jnp.arange(len(EDGES)) > 0)
    return jnp.argmin(jnp.where(open_, onward + there, jnp.inf)).astype(jnp.int32)


def cruise_speed(config: NoFlyConfig, zones: Float[Array, "Z V 2"], s: NoFlyState, ahead: Float[Array, "2"]) -> Any:
    """The fastest speed in a direction from which one can stop in sight, within the power limit."""
    c = config
    room = polygons.ranges(s.place, ahead[None], zones, c.sight)[0] - 2.0 * c.tube
    safe = braking.fastest_stoppable(room, length(s.velocity), CAUTION * c.accel, c.step)
    return jnp.clip(jnp.minimum(safe, speed_within_power(c, ahead, s.wind)), 2.0, c.max_speed)


def top_air_speed(config: NoFlyConfig) -> float:
    """The highest air speed within 94 % of the power limit, m/s."""
    speeds = np.linspace(0.0, config.max_speed + config.max_wind, 512, dtype=np.float32)
    with jax.ensure_compile_time_eval():
        power = np.asarray(power_of(config, jnp.asarray(np.stack([speeds, 0 * speeds], 1)), jnp.zeros((512, 2))))
    fine = power <= 0.94 * config.max_power
    return float(speeds[fine].max()) if fine.any() else float(speeds[power.argmin()])


def speed_within_power(config: NoFlyConfig, ahead: Float[Array, "*n 2"], wind: Float[Array, "2"]) -> Float[Array, "*n"]:
    """Ground speed in a direction at which the air speed is the highest that the power limit allows:
    |s e - w| = u  <=>  s = e.w + sqrt(u^2 - |w|^2 + (e.w)^2)."""
    tail = ahead @ wind
    return tail + jnp.sqrt(jnp.maximum(top_air_speed(config) ** 2 - wind @ wind + tail * tail, 1e-6))


def velocity_params(
    config: NoFlyConfig, place: Float[Array, "2"], mode: Any, velocity: Float[Array, "2"]
) -> Float[Array, "2"]:
    """The parameters of a mode that ask for this velocity, as far as its box allows."""
    c = config
    ahead = command(c, place, mode, jnp.array([1.0, 0.0]))
    left = command(c, place, mode, jnp.array([0.0, 1.0]))
    return jnp.stack(
        [jnp.clip(velocity @ ahead, 0.0, c.max_speed), jnp.clip(velocity @ left, -c.max_across, c.max_across)]
    )


def build_physics(config: NoFlyConfig, maps: Maps) -> Physics:
    return Physics(partial(signals, config, maps), partial(predict, config, maps), partial(nominal, config, maps))
