"""The cruise scenario's global state array, and closed-form physics on it.

What physics knows in advance of a slot: flight, power and batteries, chances of links, of seeing and of delivering.
What it leaves to learning: where needs come up, and everything later than the next slot.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.uav_cruise.config import NAMES, CruiseConfig
from trident.envs.uav_cruise.dynamics import (
    PATROL,
    RELAY,
    RETURN,
    SCOUT,
    CruiseState,
    command,
    energy_home,
    fly,
    gaps,
    give_way_all,
    link_room,
    reached,
    return_speed,
    supply,
    targets,
    transition,
)
from trident.maths.stable_min import stable_min
from trident.physics import flight
from trident.physics.flight import length
from trident.types import HybridAction, Physics

LINK_EDGE = 15.0
"""Softness of a link's reach, m."""
SEE_EDGE = 8.0
"""Softness of sensors and of the drop radius, m."""
GAP_EDGE = 2.0
"""Softness of the separation, m."""
NOTICE = 2.0
"""How far ahead a lost separation is announced, s."""
BATTERY_EDGE = 0.02
"""Softness of the energy for the way back, in shares of the battery."""
APPROACH = 150.0
"""A point that is so far away is worth 1 / e of what it is worth to be there, m."""
APPROACH_WEIGHT = 0.3
"""Of what approaching the own point is worth."""
LOW = 0.1
"""Who has less than this beyond what the way back takes, in shares of the battery, returns."""
FULL = 0.95
"""Who is on its pad stays until its battery is as full as this."""
HOME = 20.0
"""Who is so near to its pad does not give way any more, m."""
RELAY_SHARE = 0.4
"""Where a relay stands on the line to its clients."""


# --- the array ------------------------------------------------------------------------------------


def pack(config: CruiseConfig, s: CruiseState) -> Float[Array, "S"]:
    """State -> the global state array; every entry is about unit scale."""
    c = config
    top, full = jnp.asarray(c.of_kind("max_speed")), jnp.asarray(c.of_kind("battery"))
    parts = [
        2.0 * s.uav / c.area - 1.0,
        s.velocity / top[:, None],
        s.battery / full,
        s.payload / 4.0,
        s.role == RETURN,
        s.role == RELAY,
        2.0 * s.point / c.area - 1.0,
        s.age / c.oldest,
        s.need,
        s.clock / c.horizon,
        s.linked,
        (s.battery - energy_home(c, s.uav)) / full,
    ]
    return jnp.concatenate([p.astype(jnp.float32).ravel() for p in parts])


def unpack(config: CruiseConfig, array: Float[Array, "S"]) -> CruiseState:
    """The state back; of the roles only whether they were return or relay, and nothing of the power."""
    c, n, p = config, config.num_uavs, config.num_points
    sizes = [2 * n, 2 * n, n, n, n, n, 2 * p, p, p, 1, n]
    uav, velocity, battery, payload, back, relay, *rest = jnp.split(array, np.cumsum(sizes))
    point, age, need, clock, linked, _ = rest
    place = lambda flat: 0.5 * c.area * (flat.reshape(-1, 2) + 1.0)  # noqa: E731
    return CruiseState(
        uav=place(uav), velocity=velocity.reshape(-1, 2) * c.of_kind("max_speed")[:, None],
        battery=battery * c.of_kind("battery"), payload=4.0 * payload,
        role=jnp.where(back > 0.5, RETURN, jnp.where(relay > 0.5, RELAY, PATROL)).astype(jnp.int32),
        point=place(point), age=c.oldest * age, need=need, power=jnp.zeros(n), linked=linked > 0.5,
        clock=jnp.round(c.horizon * clock[0]).astype(jnp.int32),
    )  # fmt: skip


# --- the three functions --------------------------------------------------------------------------


def signals(config: CruiseConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "signals"]:
    """Expected reward and smooth costs in [0, 1] of the next slot.

    Links, sensors and drops are soft; nearing the own point counts as if some of its worth were had already.
    """
    c, role = config, action.mode
    s = unpack(c, array)
    uav, velocity = fly(c, s, command(c, s, role, action.params))
    power, battery, _ = supply(c, s, uav, velocity, role)
    reach = reached(jax.nn.sigmoid(link_room(c, uav, role) / LINK_EDGE))
    away = gaps(uav, s.point)
    sees = reach[:, None] * jax.nn.sigmoid((jnp.asarray(c.of_kind("sensor"))[:, None] - away) / SEE_EDGE)
    seen = 1.0 - jnp.prod(1.0 - sees, axis=0)
    fresh = (seen + (1.0 - seen) * jnp.exp(-jnp.minimum(s.age + c.slot, c.oldest) / c.fresh_time)).mean()
    able = ((role == PATROL) & (s.payload > 0.5)).astype(jnp.float32)[:, None]
    drops = able * jax.nn.sigmoid((c.drop_radius - away) / SEE_EDGE)
    delivered = (s.need * (1.0 - jnp.prod(1.0 - drops, axis=0))).sum()
    goal, value = targets(c, s)
    nearer = jnp.exp(-length(goal - uav) / APPROACH) - jnp.exp(-length(goal - s.uav) / APPROACH)
    reward = c.fresh_weight * fresh + c.delivery_reward * delivered + c.link_weight * reach.mean()
    reward = reward - c.energy_weight * power.mean() + APPROACH_WEIGHT * (jax.lax.stop_gradient(value) * nearer).mean()
    lack = (energy_home(c, uav) - battery) / jnp.asarray(c.of_kind("battery"))
    costs = [crowding(c, uav, velocity), jax.nn.sigmoid(lack / BATTERY_EDGE).mean(), 1.0 - reach.mean()]
    return jnp.stack([reward, *costs])


def crowding(config: CruiseConfig, uav: Float[Array, "N 2"], velocity: Float[Array, "N 2"]) -> Float[Array, ""]:
    """Chance of being too near another, now or where both would come to a stop."""
    c = config

    def near(place: Array) -> Array:
        gap = stable_min(gaps(place, place) + 1e6 * jnp.eye(c.num_uavs), 1)
        return jax.nn.sigmoid((c.separation - gap) / GAP_EDGE)

    later = near(flight.stop_place(uav, velocity, c.accel, c.slot))
    return (1.0 - (1.0 - near(uav)) * (1.0 - c.slot / NOTICE * later)).mean()


def predict(config: CruiseConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
    """The mean successor, but for needs that come up."""
    never = jnp.ones(config.num_points)
    return pack(config, transition(config, unpack(config, array), never, action)[0])


def nominal(config: CruiseConfig, array: Float[Array, "S"]) -> HybridAction:
    """Carry on sensibly: relays stand between the base and their clients, scouts fly to their stalest point, carriers
    patrol; who has just enough left for the way back returns."""
    c = config
    s = unpack(c, array)
    goal, _ = targets(c, s)
    spare = (s.battery - energy_home(c, s.uav)) / jnp.asarray(c.of_kind("battery"))
    return roles_by_kind(c, s, goal, must_return(c, s, spare))


def must_return(config: CruiseConfig, s: CruiseState, spare: Float[Array, "N"]) -> Array:
    """Low batteries, carriers with nothing left, and who is on the pad and not yet full."""
    c = config
    empty = (s.payload < 0.5) & (jnp.asarray(c.of_kind("payload")) > 0)
    filling = (s.role == RETURN) & (s.battery < FULL * jnp.asarray(c.of_kind("battery")))
    return (spare < LOW) | empty | filling


def roles_by_kind(config: CruiseConfig, s: CruiseState, goal: Float[Array, "N 2"], back: Array) -> HybridAction:
    """A kind's usual role with usual parameters."""
    c = config
    top = jnp.asarray(c.of_kind("max_speed"))
    usual = np.array([{"relay": RELAY, "scout": SCOUT, "carrier": PATROL}[NAMES[k]] for k in c.kind], np.int32)
    role = jnp.where(back, RETURN, usual).astype(jnp.int32)
    way = goal - s.uav
    far = length(way)
    straight = way * (jnp.minimum(0.8 * top, 0.4 * far) / far)[:, None]
    ahead, home = way / far[:, None], jnp.asarray(c.pads) - s.uav
    homeward = home / jnp.maximum(length(home), 1.0)[:, None]
    on_route, on_way = (give_way_all(c, 0.8 * top[:, None] * unit, s.uav) for unit in (ahead, homeward))
    params = jnp.stack([
        in_frame(c, on_route, ahead, top),
        give_way_all(c, straight, s.uav),
        jnp.stack([jnp.full_like(top, RELAY_SHARE), jnp.zeros_like(top)], 1),
        jnp.where((length(home) > HOME)[:, None], in_frame(c, on_way, homeward, top), straight_home(c)),
    ])  # fmt: skip
    return HybridAction(role, jnp.take_along_axis(params, role[None, :, None], axis=0)[0])


def in_frame(
    config: CruiseConfig, velocity: Float[Array, "*n 2"], ahead: Float[Array, "*n 2"], top: Float[Array, "*n"]
) -> Float[Array, "*n 2"]:
    """Speed along a unit vector and across it, within the box of patrol and return."""
    c = config
    across = velocity[..., 1] * ahead[..., 0] - velocity[..., 0] * ahead[..., 1]
    return jnp.stack([jnp.clip((velocity * ahead).sum(-1), 0.0, top), jnp.clip(across, -c.across, c.across)], -1)


def straight_home(config: CruiseConfig) -> Float[Array, "N 2"]:
    speed = jnp.asarray(return_speed(config))
    return jnp.stack([speed, jnp.zeros_like(speed)], 1)


def build_physics(config: CruiseConfig) -> Physics:
    return Physics(partial(signals, config), partial(predict, config), partial(nominal, config))
