"""The mechanics of heterogeneous cruise that the environment, its physics, shield and scripted policies share.

A point belongs, for every kind, to the UAV of that kind that is nearest to it: so who goes where is settled without a
word. The same holds for a relay and its clients.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.uav_cruise.config import NAMES, CruiseConfig
from trident.maths.stable_min import first_minimum
from trident.physics import flight, propulsion
from trident.physics.flight import length
from trident.types import HybridAction

PATROL, SCOUT, RELAY, RETURN = range(4)
ROLES = ("patrol", "scout", "relay", "return")
HOPS = 4
"""Links between a UAV and the base at most."""
NEARBY = 150.0
"""Points are chosen by what they are worth over their distance and this, m."""


class CruiseState(NamedTuple):
    """Everything that evolves, and what the last slot did."""

    uav: Float[Array, "N 2"]
    velocity: Float[Array, "N 2"]
    battery: Float[Array, "N"]  # kJ
    payload: Float[Array, "N"]  # deliveries left
    role: Int[Array, "N"]
    point: Float[Array, "P 2"]
    age: Float[Array, "P"]  # s since a connected UAV has seen it
    need: Float[Array, "P"]  # 1: a delivery is wanted
    power: Float[Array, "N"]  # of the last slot, W
    linked: Bool[Array, "N"]  # to the base, over others or not
    clock: Int[Array, ""]


NEAR, CAUTION, AWAY, ASIDE = 1.6, 0.5, 1.0, 0.4
"""Others are avoided so as to stop so many separations away, with this share of the acceleration; who is nearer is
left at so many m/s per m; and with so much of it to the right."""

# --- who goes where -------------------------------------------------------------------------------


def gaps(a: Float[Array, "A 2"], b: Float[Array, "B 2"]) -> Float[Array, "A B"]:
    """Pairwise distances."""
    dx, dy = a[:, None, 0] - b[None, :, 0], a[:, None, 1] - b[None, :, 1]
    return jnp.sqrt(dx * dx + dy * dy + 1e-12)


def alike(config: CruiseConfig) -> Bool[np.ndarray, "N N"]:
    return config.kind[:, None] == config.kind[None]


def worth(config: CruiseConfig, s: CruiseState) -> Float[Array, "N P"]:
    """What going to a point is worth to a UAV: deliveries to those who carry some, freshness to the others."""
    c = config
    stale = 1.0 - jnp.exp(-s.age / c.fresh_time)
    carries = (s.payload > 0.5)[:, None]
    return jnp.where(carries, s.need + 0.05 * stale, stale)


def targets(config: CruiseConfig, s: CruiseState) -> tuple[Float[Array, "N 2"], Float[Array, "N"]]:
    """The point that each UAV should see to, and what that is worth: of those that are its own the best for its
    distance; the best of all if it owns none."""
    c = config
    away = gaps(s.uav, s.point)
    rival = jnp.where(alike(c)[..., None], away[None], jnp.inf).min(1)  # nearest of the same kind
    value = worth(c, s)
    score = value / (away + NEARBY) + jnp.where(away <= rival, 1.0, 0.0) * (value > 0.02)
    best = jnp.argmax(score, axis=1)
    return s.point[best], jnp.take_along_axis(value, best[:, None], 1)[:, 0]


def clients(config: CruiseConfig, uav: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
    """Middle of the UAVs of other kinds that are nearer to this UAV than to others of its kind; of all other kinds if
    there are none."""
    c = config
    other = ~alike(c)
    away = gaps(uav, uav)
    best = jnp.where(alike(c)[..., None], away[None], jnp.inf).min(1)  # [N, N]: nearest of i's kind to j
    mine = other & (away <= best)
    chosen = jnp.where(mine.any(1, keepdims=True), mine, other).astype(jnp.float32)
    total = chosen.sum(1, keepdims=True)
    return jnp.where(total > 0, (chosen @ uav) / jnp.maximum(total, 1.0), uav.mean(0))


def relay_spot(
    config: CruiseConfig, uav: Float[Array, "N 2"], share: Float[Array, "N"], aside: Float[Array, "N"]
) -> Float[Array, "N 2"]:
    """A place on the line from the base to the clients, or beside it, out of the traffic at the base."""
    c = config
    base = jnp.asarray(c.base_place)
    line = clients(c, uav) - base
    far = length(line)
    ahead = line / jnp.maximum(far, 1.0)[:, None]
    out = c.relay_near + share * jnp.maximum(far - c.relay_near, 0.0)
    left = jnp.stack([-ahead[:, 1], ahead[:, 0]], 1)
    return base + out[:, None] * ahead + aside[:, None] * left


# --- flight ---------------------------------------------------------------------------------------


def head_for(place: Float[Array, "N 2"], goal: Float[Array, "N 2"], speed: Float[Array, "N"]) -> Float[Array, "N 2"]:
    """Towards a goal, slower near it."""
    way = goal - place
    far = length(way)
    return way * (jnp.minimum(speed, 0.5 * far) / far)[:, None]


def give_way(
    config: CruiseConfig, wanted: Float[Array, "2"], rel: Float[Array, "X 2"], there: Float[Array, "X"]
) -> Float[Array, "2"]:
    """The velocity without what leads faster towards another than half of the room allows to brake in, and away from
    who is nearer than `NEAR` separations. `rel`: where the others are, as far as they are `there`."""
    c = config
    far = jnp.maximum(length(rel), 1.0)
    towards = rel / far[:, None]
    room = far - NEAR * c.separation
    most = jnp.where(room > 0.0, jnp.sqrt(CAUTION * c.accel * jnp.maximum(room, 1e-6)), AWAY * room)
    for k in range(rel.shape[0]):  # one after another: what is taken for one may lead towards the next
        excess = there[k] * jnp.maximum(wanted @ towards[k] - most[k], 0.0)
        right = jnp.stack([towards[k, 1], -towards[k, 0]])  # two that meet head on pass each other
        wanted = wanted - excess * (towards[k] - ASIDE * right)
    return wanted


def give_way_all(config: CruiseConfig, wanted: Float[Array, "N 2"], uav: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
    there = 1.0 - jnp.eye(config.num_uavs)
    return jax.vmap(partial(give_way, config))(wanted, uav[None] - uav[:, None], there)


def left_of(way: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
    """Unit vectors to the left of ways; shorter ones for ways of less than a metre, where there is nothing to avoid."""
    return jnp.stack([-way[:, 1], way[:, 0]], 1) / jnp.maximum(length(way), 1.0)[:, None]


def command(config: CruiseConfig, s: CruiseState, role: Int[Array, "N"], params: Float[Array, "N 2"]) -> Array:
    """Velocity asked for, by role. patrol: (speed, across) to the own point; scout: (vx, vy) within the disc of speeds;
    relay: (share of the line to the clients, m beside it), giving way to
    others; return: (speed, across) to the own pad."""
    c = config
    top = jnp.asarray(c.of_kind("max_speed"))
    goal, _ = targets(c, s)
    route = head_for(s.uav, goal, params[:, 0])
    pad = jnp.asarray(c.pads)
    wanted = jnp.stack([
        route + params[:, 1:] * left_of(goal - s.uav),
        flight.within(params, top),
        give_way_all(c, head_for(s.uav, relay_spot(c, s.uav, params[:, 0], params[:, 1]), top), s.uav),
        head_for(s.uav, pad, params[:, 0]) + params[:, 1:] * left_of(pad - s.uav),
    ])  # fmt: skip
    chosen = jnp.take_along_axis(wanted, role[None, :, None], axis=0)[0]
    chosen = jnp.where((s.battery > 0.0)[:, None], chosen, 0.0)  # an empty battery brings it down
    return flight.fenced(s.uav, chosen, c.area, c.accel)


def fly(config: CruiseConfig, s: CruiseState, wanted: Float[Array, "N 2"]) -> tuple[Array, Array]:
    """Places and velocities after a slot."""
    after = flight.accelerate(s.velocity, wanted, config.accel, config.slot)
    return flight.travel(s.uav, s.velocity, after, config.slot), after


def rotor_power(config: CruiseConfig, speed: Float[Array, "N"]) -> Float[Array, "N"]:
    """Of every UAV with its kind's rotor, W."""
    rotor = propulsion.Rotor(*(config.rotor(name) for name in propulsion.Rotor._fields))  # pyright: ignore
    return propulsion.propulsion_power(speed, rotor)


def on_pad(config: CruiseConfig, uav: Float[Array, "N 2"], role: Int[Array, "N"]) -> Bool[Array, "N"]:
    return (length(uav - jnp.asarray(config.pads)) <= config.pad_radius) & (role == RETURN)


def energy_home(config: CruiseConfig, uav: Float[Array, "N 2"]) -> Float[Array, "N"]:
    """What the way back takes at the speed of return, and the reserve, kJ."""
    c = config
    speed = return_speed(c)
    per_metre = 1e-3 * rotor_power(c, jnp.asarray(speed)) / speed
    return per_metre * length(uav - jnp.asarray(c.pads)) + c.reserve * jnp.asarray(c.of_kind("battery"))


def return_speed(config: CruiseConfig) -> Float[np.ndarray, "N"]:
    return 0.8 * config.of_kind("max_speed")


# --- links ----------------------------------------------------------------------------------------


def link_room(config: CruiseConfig, uav: Float[Array, "N 2"], role: Int[Array, "N"]) -> Float[Array, "N N+1"]:
    """How much further each UAV could be from each other one, and from the base (last), for a link, m."""
    c = config
    radio = jnp.asarray(c.of_kind("radio")) * jnp.where(role == RELAY, c.relay_gain, 1.0)
    radios = jnp.append(radio, c.base_radio)
    places = jnp.concatenate([uav, jnp.asarray(c.base_place)[None]])
    return 0.5 * (radio[:, None] + radios[None]) - gaps(uav, places)


def reached(links: Float[Array, "N N+1"]) -> Float[Array, "N"]:
    """Chance of a link to the base over at most HOPS, from the chance of every single one:
    r_i <- 1 - (1 - l_i,base) prod_j (1 - l_ij r_j), as if all were independent. Zeros and ones give zeros and ones."""
    count = links.shape[0]
    direct, between = links[:, -1], links[:, :-1] * (1.0 - jnp.eye(count))
    reach = direct
    for _ in range(HOPS - 1):
        reach = 1.0 - (1.0 - direct) * jnp.prod(1.0 - between * reach[None], axis=1)
    return reach


# --- a slot ---------------------------------------------------------------------------------------


def supply(
    config: CruiseConfig, s: CruiseState, uav: Float[Array, "N 2"], after: Float[Array, "N 2"], role: Int[Array, "N"]
) -> tuple[Float[Array, "N"], Float[Array, "N"], Float[Array, "N"]]:
    """Power, battery and payload after a slot. On its pad a UAV is charged and loaded."""
    c = config
    landed = on_pad(c, uav, role)
    power = jnp.where(landed, 0.0, rotor_power(c, length(0.5 * (s.velocity + after))))
    gained = jnp.where(landed, c.charging, -1e-3 * power) * c.slot
    battery = jnp.clip(s.battery + gained, 0.0, jnp.asarray(c.of_kind("battery")))
    return power, battery, jnp.where(landed, jnp.asarray(c.of_kind("payload")), s.payload)


def deliver(
    config: CruiseConfig, s: CruiseState, uav: Float[Array, "N 2"], role: Int[Array, "N"]
) -> Bool[Array, "N P"]:
    """Who delivers where: carriers on patrol with something left, each to the nearest needy point within reach, and
    the nearest of them to each point."""
    c = config
    away = gaps(uav, s.point)
    able = ((role == PATROL) & (s.payload > 0.5))[:, None] & (s.need > 0.5)[None] & (away <= c.drop_radius)
    mine = able & first_minimum(jnp.where(able, away, jnp.inf), 1)
    return mine & first_minimum(jnp.where(mine, away, jnp.inf), 0)


def transition(
    config: CruiseConfig, s: CruiseState, lots: Float[Array, "P"], action: HybridAction
) -> tuple[CruiseState, Float[Array, ""]]:
    """The deterministic part of a slot; and how many deliveries were made."""
    c, role = config, action.mode
    uav, velocity = fly(c, s, command(c, s, role, action.params))
    power, battery, payload = supply(c, s, uav, velocity, role)
    linked = reached((link_room(c, uav, role) >= 0.0).astype(jnp.float32)) > 0.5
    sees = gaps(uav, s.point) <= jnp.asarray(c.of_kind("sensor"))[:, None]
    seen = (sees & linked[:, None]).any(0)
    drops = deliver(c, s, uav, role)
    done = drops.any(0)
    need = jnp.where(done, 0.0, jnp.maximum(s.need, (lots < c.need_rate).astype(jnp.float32)))
    after = CruiseState(
        uav=uav,
        velocity=velocity,
        battery=battery,
        payload=payload - drops.sum(1),
        role=role,
        point=s.point,
        age=jnp.where(seen, 0.0, jnp.minimum(s.age + c.slot, c.oldest)),
        need=need,
        power=power,
        linked=linked,
        clock=s.clock + 1,
    )
    return after, done.sum().astype(jnp.float32)


def closest(uav: Float[Array, "N 2"]) -> Float[Array, "N"]:
    """Distance of each UAV to the nearest other."""
    return jnp.where(jnp.eye(uav.shape[0], dtype=bool), jnp.inf, gaps(uav, uav)).min(1)


def kind_flags(config: CruiseConfig) -> Float[np.ndarray, "N 3"]:
    """The kind of each UAV, one-hot."""
    return np.eye(len(NAMES), dtype=np.float32)[config.kind]
