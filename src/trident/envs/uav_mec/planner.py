"""A planner with global sight for UAV-MEC: the honest ceiling for policies that obey (or ignore) the limits.

It keeps no memory: in every slot it searches better places for the fleet from where the UAVs circle now, so a
pure function of the state is enough. The phase of a circle follows from the slot number.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import (
    MecState,
    connect,
    distances,
    flight_params,
    fly,
    move_users,
    speed_of,
    uplink_rate,
)
from trident.envs.uav_mec.physics import expect, min_power_speed, mode_costs, task_mean
from trident.types import HybridAction, Key

CIRCLE = 12
"""Slots per circle."""
STEPS = (15.0, 60.0)
"""Lengths of the moves the search tries, m."""
RATIOS = (1.0, 0.75, 0.5, 0.25)


@dataclass(frozen=True)
class Habits:
    """How the planner behaves."""

    modes: tuple[int, ...]
    """Modes it may use."""
    careful: bool = True
    """Obey the limits."""
    top_speed: float = 20.0
    """m/s"""
    spare_users: int = 5
    """Covered users wanted beyond the limit, when careful."""
    inner: float = 10.0
    """Coverage is counted this much inside its radius, m."""
    shortage: float = 0.3
    """Search cost per missing covered user, s."""
    sigmas: float = 2.4
    """Energy must fit with this many standard deviations, when careful."""
    travel: float = 1e-3
    """Search cost per metre of travel, s."""
    sweeps: int = 1
    """Passes of the search over the fleet."""


def circle_offset(config: UavMecConfig, slot: Int[Array, ""]) -> Float[Array, "N 2"]:
    """Place on the circle, relative to its centre, at the start of a slot; its chord is flown at `min_power_speed`."""
    radius = 0.5 * min_power_speed(config) * config.slot / np.sin(np.pi / CIRCLE)
    angle = 2.0 * np.pi * (slot / CIRCLE + jnp.arange(config.num_uavs) / config.num_uavs)
    return radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)


def place_cost(
    config: UavMecConfig, habits: Habits, places: Float[Array, "N 2"], user: Float[Array, "U 2"]
) -> Float[Array, ""]:
    """Expected latency of a slot with the fleet at these places, every UAV in its best mode, plus missing coverage."""
    c = config
    size, work = task_mean(c)
    link, reach = connect(c, distances(places, user))
    load = link.sum(1).astype(jnp.float32)
    served = load.sum()
    processing = mode_costs(c, places, load)[:, jnp.asarray(habits.modes)].min(1)
    uplink = (size / uplink_rate(c, reach) * link.any(0)).sum()
    alone = (c.num_users - served) * 1e-3 * size * work / c.user_ghz
    cost = uplink + load @ processing + alone
    if habits.careful:
        inside = (reach <= c.coverage_radius - habits.inner).sum()
        wanted = min(c.needed + habits.spare_users, c.num_users)
        return cost + habits.shortage * jnp.maximum(wanted - inside, 0)
    low = (reach <= c.coverage_radius - habits.inner).sum() < c.needed
    return cost + c.coverage_penalty * c.num_uavs * low


def search_places(
    config: UavMecConfig,
    habits: Habits,
    start: Float[Array, "N 2"],
    user: Float[Array, "U 2"],
    hot: Float[Array, "H 2"],
) -> Float[Array, "N 2"]:
    """Coordinate search: one UAV after the other tries steps in eight directions and the middle of every hotspot."""
    c = config
    turn = np.arange(8) * np.pi / 4
    rose = np.stack([np.cos(turn), np.sin(turn)], 1)
    steps = jnp.asarray(np.concatenate([np.zeros((1, 2)), *(r * rose for r in STEPS)]), jnp.float32)

    def improve(places: Array, i: Array) -> tuple[Array, None]:
        tries = jnp.clip(jnp.concatenate([places[i] + steps, hot]), 0.0, c.area)
        cost = jax.vmap(lambda p: place_cost(c, habits, places.at[i].set(p), user))(tries)
        cost = cost + habits.travel * speed_of(tries - start[i])
        return places.at[i].set(tries[cost.argmin()]), None

    order = jnp.tile(jnp.arange(c.num_uavs), habits.sweeps)
    return jax.lax.scan(improve, start, order)[0]


def choose_modes(
    config: UavMecConfig,
    habits: Habits,
    uav: Float[Array, "N 2"],
    velocity: Float[Array, "N 2"],
    user: Float[Array, "U 2"],
) -> tuple[Int[Array, "N"], Float[Array, "N"]]:
    """Best response in turn: each UAV takes the (mode, ratio) that serves the team best and fits its energy."""
    c = config
    link, reach = connect(c, distances(uav, user))
    link = link.astype(jnp.float32)
    pairs = [(m, r) for m in habits.modes for r in (RATIOS if m else (0.0,))]
    modes = jnp.array([m for m, _ in pairs], jnp.int32)
    ratios = jnp.array([r for _, r in pairs], jnp.float32)

    def respond(choice: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        mode, ratio = choice

        def cost_of(m: Array, r: Array) -> Array:
            service, spread = expect(c, uav, velocity, link, reach, mode.at[i].set(m), ratio.at[i].set(r))
            cost = service.latency.sum() + c.energy_weight * service.energy.sum()
            excess = service.energy[i] + habits.sigmas * spread[i] - c.energy_max
            return cost + (100.0 * jnp.maximum(excess, 0.0) if habits.careful else 0.0)

        best = jax.vmap(cost_of)(modes, ratios).argmin()
        return (mode.at[i].set(modes[best]), ratio.at[i].set(ratios[best])), None

    start = (jnp.full(c.num_uavs, modes[0]), jnp.full(c.num_uavs, ratios[0]))
    return jax.lax.scan(respond, start, jnp.tile(jnp.arange(c.num_uavs), 2))[0]


def plan(config: UavMecConfig, habits: Habits, key: Key, state: MecState) -> HybridAction:
    """One slot of the planner."""
    c, s = config, state
    user, _, hot, _ = move_users(c, s.user, s.user_vel, s.hot, s.hot_vel, 0.0)
    centre = jnp.clip(s.uav - circle_offset(c, s.slot), 0.0, c.area)
    places = search_places(c, habits, centre, user, hot)
    want = (places + circle_offset(c, s.slot + 1) - s.uav) / c.slot
    top = min(habits.top_speed, c.max_speed)
    velocity = want * jnp.minimum(1.0, top / speed_of(want))[:, None]
    mode, ratio = choose_modes(c, habits, fly(c, s.uav, velocity), velocity, user)
    return HybridAction(mode, jnp.concatenate([flight_params(c, velocity), ratio[:, None]], -1))
