"""UAV-MEC's closed form for many rows at once: what `uav_mec_physics` says of one state, laid out for speed.

Rows are the last axis of every array, so that each operation is a vectorised loop over them, and each step is `apart`,
so that the compiler computes nothing twice. UAVs are few and are gone through one by one. What a user's task costs
beyond its uplink is the same for all users of a UAV (tasks are the expected ones), so only uplinks are counted by user.
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.envs.uav_mec_config import UavMecConfig
from trident.envs.uav_mec_model import backhaul_efficiency, reflect, uplink_rate, velocity_of
from trident.envs.uav_mec_physics import (
    EDGE,
    ENERGY_EDGE,
    SAME_PLACE,
    SEPARATION_EDGE,
    SERVICE_EDGE,
    SPEED_SCALE,
    task_mean,
    task_spread,
    thrifty_speed,
)
from trident.maths.apart import apart
from trident.maths.pointwise import Pointwise, pointwise
from trident.maths.series import series_of
from trident.physics import offloading, propulsion
from trident.types import BulkPhysics, HybridAction


class Standing(NamedTuple):
    """Where everyone is, who serves whom, and how slow the backhaul to every fog is, s/Mbit."""

    uav: Float[Array, "2 N B"]
    user: Float[Array, "2 U B"]
    user_vel: Float[Array, "2 U B"]
    hot: Float[Array, "2 H B"]
    hot_vel: Float[Array, "2 H B"]
    grace: Float[Array, "B"]
    own: Int[Array, "U B"]  # every user's UAV; N without one
    slowness: Float[Array, "F N B"]


class Doing(NamedTuple):
    """What the UAVs do, and where that leads."""

    velocity: Float[Array, "2 N B"]
    mode: Int[Array, "N B"]
    ratio: Float[Array, "N B"]
    uav: Float[Array, "2 N B"]
    slowness: Float[Array, "F N B"]
    moved: tuple[Array, Array, Array, Array]  # users and hotspots, each with its velocity
    distance: Float[Array, "N U B"]


step = partial(apart, static_argnums=0)
"""A step of the computation, (config, arrays) -> arrays that are stored."""


def bulk_physics(config: UavMecConfig) -> BulkPhysics:
    """384 rows of four UAVs at once: few enough for the cache, and no power of two, at which one user's numbers would
    drive another's out of it."""
    c, rows = config, max(1536 // config.num_uavs, 48)
    return BulkPhysics(
        partial(read, c), partial(take, c), partial(signals, c), partial(predict, c), partial(nominal, c), rows
    )


def read(config: UavMecConfig, state: Float[Array, "B S"]) -> Standing:
    uav, user, user_vel, hot, hot_vel, grace, reach = unpack(config, state)
    own = owners(config, uav, user, reach)
    return Standing(uav, user, user_vel, hot, hot_vel, grace, own, backhaul_slowness(config, uav))


def take(config: UavMecConfig, standing: Standing, action: HybridAction) -> Doing:
    return do(config, standing, *orders(config, action))


def do(config: UavMecConfig, standing: Standing, velocity: Array, mode: Array, ratio: Array) -> Doing:
    c = config
    uav, moved = fly(c, standing.uav, velocity), move_users(c, *standing[1:5])
    return Doing(velocity, mode, ratio, uav, backhaul_slowness(c, uav), moved, distances(c, uav, moved[0]))


def signals(config: UavMecConfig, standing: Standing, doing: Doing) -> Float[Array, "B J"]:
    """Expected reward and smooth costs of the next slot."""
    c, own, load = config, standing.own, loads(config, standing.own)
    chance = cheapest(c, jax.lax.stop_gradient(doing.slowness), load + 1.0)
    of_users = per_user(c, own, doing.distance, load, chance)
    of_uavs = per_uav(c, doing.velocity, doing.mode, doing.ratio, load, doing.slowness)
    gained, covered, doubt, earned, excess = total(c, *of_users, *of_uavs)
    low = lacking(c, covered, doubt, standing.grace)
    costs = [excess / c.num_uavs, low]
    if c.separation:
        costs.append(too_near(c, doing.uav).mean(0))
    reward = gained + earned - c.num_users * alone(c) - c.coverage_penalty * c.num_uavs * low
    return jnp.stack([reward, *costs], axis=-1)


def predict(config: UavMecConfig, standing: Standing, doing: Doing) -> Standing:
    """Mean successor."""
    grace = jnp.maximum(standing.grace - 1.0 / max(config.grace, 1), 0.0)
    return Standing(doing.uav, *doing.moved, grace, associate(config, doing.distance), doing.slowness)


def nominal(config: UavMecConfig, standing: Standing) -> Doing:
    """Drift towards the middle of the own users, in the cheapest mode."""
    c, s = config, standing
    return do(c, s, *drift(c, s.uav, loads(c, s.own), users_sum(c, s.own, s.user), s.slowness))


# --- the array ------------------------------------------------------------------------------------


@step
def unpack(config: UavMecConfig, state: Float[Array, "B S"]) -> tuple[Array, ...]:
    """Places and velocities, the grace, and every user's distance to its UAV: as `uav_mec_physics.unpack`."""
    c = config
    n, u, h = c.num_uavs, c.num_users, c.num_hotspots
    sizes = [2 * n, 2 * u, 2 * u, 2 * h, 2 * h, 1, 2 * n, u]
    uav, user, user_vel, hot, hot_vel, grace, _, reach, _ = jnp.split(state, np.cumsum(sizes), axis=1)

    def pairs(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(x.shape[0], -1, 2), (2, 1), (0, 1))

    def place(x: Array) -> Array:
        return 0.5 * c.area * (pairs(x) + 1.0)

    def speed(x: Array) -> Array:
        return SPEED_SCALE * pairs(x)

    return place(uav), place(user), speed(user_vel), place(hot), speed(hot_vel), grace[:, 0], c.service_radius * reach.T


@step
def owners(config: UavMecConfig, uav: Array, user: Array, reach: Array) -> Int[Array, "U B"]:
    """A user's own UAV is the first that stands as far away as the array says."""
    c, own = config, jnp.full(reach.shape, config.num_uavs, jnp.int32)
    for i in reversed(range(c.num_uavs)):
        mine = jnp.abs(length(uav[:, i, None] - user) - reach) < SAME_PLACE
        own = jnp.where(mine & (reach < c.service_radius - SAME_PLACE), i, own)
    return own


@step
def orders(config: UavMecConfig, action: HybridAction) -> tuple[Array, Array, Array]:
    """Velocities, modes and ratios."""
    velocity = velocity_of(config, action.params)
    return jnp.moveaxis(velocity, (2, 1), (0, 1)), action.mode.T, action.params[:, :, -1].T


# --- motion ---------------------------------------------------------------------------------------


@step
def fly(config: UavMecConfig, uav: Array, velocity: Array) -> Float[Array, "2 N B"]:
    return jnp.clip(uav + config.slot * velocity, 0.0, config.area)


@step
def move_users(
    config: UavMecConfig, user: Array, user_vel: Array, hot: Array, hot_vel: Array
) -> tuple[Array, Array, Array, Array]:
    """Mean motion of users and hotspots; the first users are members of a hotspot, in turn."""
    c, k, m = config, config.members, config.user_memory
    spread = lambda of_hot: jnp.tile(of_hot, (1, -(-k // c.num_hotspots), 1))[:, :k]  # noqa: E731
    member_vel = m * user_vel[:, :k] + (1.0 - m) * c.spring * (spread(hot) - user[:, :k])
    free_vel = m * user_vel[:, k:]
    members = reflect(user[:, :k] + c.slot * (member_vel + spread(hot_vel)), member_vel, 0.0, c.area)
    others = reflect(user[:, k:] + c.slot * free_vel, free_vel, 0.0, c.area)
    place, velocity = (jnp.concatenate([a, b], axis=1) for a, b in zip(members, others, strict=True))
    return place, velocity, *reflect(hot + c.slot * hot_vel, hot_vel, c.hotspot_border, c.area - c.hotspot_border)


@step
def drift(config: UavMecConfig, uav: Array, load: Array, users: Array, slowness: Array) -> tuple[Array, Array, Array]:
    """At the speed of least power towards the middle of the own users (of the area, if there are none)."""
    costs = mode_costs(config, slowness, load)
    towards = jnp.where(load > 0, users / jnp.maximum(load, 1.0), 0.5 * config.area) - uav
    mode, least = jnp.zeros(load.shape, jnp.int32), costs[0]
    for m, cost in enumerate(costs[1:], 1):
        mode, least = jnp.where(cost < least, m, mode), jnp.minimum(cost, least)
    velocity = thrifty_speed(config) * towards / (length(towards) + 1e-3)
    return velocity, mode, (mode > 0).astype(jnp.float32)


# --- links ----------------------------------------------------------------------------------------


def length(vector: Float[Array, "2 *shape"]) -> Float[Array, "*shape"]:
    return jnp.sqrt(vector[0] * vector[0] + vector[1] * vector[1] + 1e-12)


def of_own(own: Int[Array, "U B"], of_uav: Array, without: Array | float) -> Array:
    """Every user's entry of its own UAV."""
    for i in range(of_uav.shape[0]):
        without = jnp.where(own == i, of_uav[i], without)
    return jnp.asarray(without)


@step
def distances(config: UavMecConfig, uav: Array, user: Array) -> Float[Array, "N U B"]:
    return length(uav[:, :, None] - user[:, None])


@step
def loads(config: UavMecConfig, own: Array) -> Float[Array, "N B"]:
    return jnp.stack([(own == i).astype(jnp.float32).sum(0) for i in range(config.num_uavs)])


@step
def users_sum(config: UavMecConfig, own: Array, user: Array) -> Float[Array, "2 N B"]:
    """Of the own users' places."""
    return jnp.stack([jnp.where(own == i, user, 0.0).sum(1) for i in range(config.num_uavs)], axis=1)


def associate(config: UavMecConfig, distance: Float[Array, "N U B"]) -> Int[Array, "U B"]:
    """As `offloading.associate`; who is too near the edge to be told from a user without a UAV counts as such."""
    c = config
    own = jnp.full(distance.shape[1:], c.num_uavs, jnp.int32)
    for _ in range(c.association_rounds):
        free = c.capacity - loads(c, own)
        own = accept(c, own, free, *ask(c, own, free, distance))
    return settle(c, own, distance)


@step
def ask(config: UavMecConfig, own: Array, free: Array, distance: Array) -> tuple[Array, Array]:
    """The nearest UAV with a free place, of users without one, and how near it is: as integers, positive floats keep
    their order, and one less than a number is below it and above all that are smaller."""
    none = config.num_uavs
    target, near = jnp.full(own.shape, none, jnp.int32), jnp.full(own.shape, jnp.inf, distance.dtype)
    for i in range(none):
        better = (distance[i] < near) & (distance[i] <= config.service_radius) & (free[i] > 0)
        target, near = jnp.where(better, i, target), jnp.where(better, distance[i], near)
    order = jax.lax.bitcast_convert_type(near, f"int{8 * near.dtype.itemsize}")
    return jnp.where(own == none, target, none), order


@step
def accept(config: UavMecConfig, own: Array, free: Array, target: Array, order: Array) -> Int[Array, "U B"]:
    """Those who ask are taken in order of distance, equal ones in order of their index."""
    rank, index = jnp.zeros(own.shape), np.arange(own.shape[0])[:, None]
    for k in range(own.shape[0]):
        ahead = (order[k] - (index > k) < order) & (target[k] == target)
        rank = rank + ahead.astype(jnp.float32)
    return jnp.where(rank < of_own(target, free, 0.0), target, own)


@step
def settle(config: UavMecConfig, own: Array, distance: Array) -> Int[Array, "U B"]:
    c = config
    near = of_own(own, distance, c.service_radius) < c.service_radius - SAME_PLACE
    return jnp.where(near, own, c.num_uavs)


normal_cdf = pointwise(jax.scipy.stats.norm.cdf)


class Radio(NamedTuple):
    """s/Mbit at a horizontal distance."""

    uplink: Pointwise
    slowness: Pointwise


@cache
def radio(config: UavMecConfig) -> Radio:
    """Both links as series, as far as they may be asked for; as formulas, where a channel is not smooth enough."""
    c = config
    uplink = lambda d: 1.0 / uplink_rate(c, d)  # noqa: E731
    slowness = lambda d: 1.0 / (c.uav_bandwidth * backhaul_efficiency(c, d))  # noqa: E731
    a_slot = c.slot * (c.max_speed + c.hotspot_speed + 6.0 * c.user_speed)
    bend = 2.0 * c.altitude
    return Radio(_short(uplink, c.service_radius + a_slot, bend), _short(slowness, 2.0**0.5 * c.area, bend))


def _short(formula: Pointwise, farthest: float, bend: float) -> Pointwise:
    def exactly(d: np.ndarray) -> np.ndarray:
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            return np.asarray(formula(jnp.asarray(d, jnp.float64)))

    return series_of(exactly, farthest, bend) or pointwise(formula)


# --- service --------------------------------------------------------------------------------------


def alone(config: UavMecConfig) -> float:
    """Time of a task without a UAV."""
    size, work = task_mean(config)
    return size * work * 1e-3 / config.user_ghz


@step
def backhaul_slowness(config: UavMecConfig, uav: Array) -> Float[Array, "F N B"]:
    """s/Mbit to every fog."""
    fogs = jnp.asarray(config.fogs.T, jnp.float32)[:, :, None, None]
    return radio(config).slowness(length(uav[:, None] - fogs))


def mode_costs(config: UavMecConfig, slowness: Array, load: Array) -> list[Float[Array, "N B"]]:
    """Expected processing time of one task (plus its weighted on-board energy) in every mode with ratio 1."""
    c, (size, work) = config, task_mean(config)
    cycles = 1e-3 * size * work
    energy = offloading.compute_energy(jnp.float32(cycles), c.uav_ghz, c.uav_capacitance)
    local = cycles / offloading.shared_speed(c.uav_ghz, c.uav_cores, load) + c.energy_weight * energy
    fogs = zip(slowness, c.fog_speeds, strict=True)
    return [local, *(c.overhead + load * size * slow + cycles / float(speed) for slow, speed in fogs)]


@step
def cheapest(config: UavMecConfig, slowness: Array, load: Array) -> Float[Array, "N B"]:
    return jnp.stack(mode_costs(config, slowness, load)).min(0)


@step
def per_user(
    config: UavMecConfig, own: Array, distance: Array, load: Array, processing: Array
) -> tuple[Float[Array, "U B"], Float[Array, "U B"], Float[Array, "U B"]]:
    """What every user gains (its uplink's time, negative; without a UAV what it may expect to save by getting one), the
    probability that it is covered, and the variance of that."""
    c, (size, _) = config, task_mean(config)
    served = own < c.num_uavs
    reach = of_own(own, distance, c.service_radius)
    coverage = pointwise(lambda d: jax.nn.sigmoid((c.coverage_radius - d) / EDGE))
    within_reach = pointwise(lambda d: jax.nn.sigmoid((c.service_radius - d) / SERVICE_EDGE))
    uplink = lambda d: size * radio(c).uplink(d)  # noqa: E731
    covered = jnp.where(served, coverage(reach), 0.0)
    near, cost = jnp.full(own.shape, 1e6), jnp.zeros(own.shape)
    for i in range(c.num_uavs):
        better = (distance[i] < near) & (load[i] < c.capacity)
        near, cost = jnp.where(better, distance[i], near), jnp.where(better, processing[i], cost)
    chance = (alone(c) - uplink(jnp.float32(c.service_radius)) - cost) * within_reach(near)
    return jnp.where(served, -uplink(reach), chance), covered, covered * (1.0 - covered)


@step
def per_uav(
    config: UavMecConfig, velocity: Array, mode: Array, ratio: Array, load: Array, slowness: Array
) -> tuple[Float[Array, "N B"], Float[Array, "N B"]]:
    """What every UAV's service gains (beyond the uplinks, against its users' own processors, less its weighted energy),
    and the probability that it spends too much."""
    c, (size, work) = config, task_mean(config)
    cycles = 1e-3 * size * work
    to_fog = [(mode == f).astype(jnp.float32) for f in range(1, c.num_fogs + 1)]
    relayed = jnp.asarray(sum(to_fog))
    ratio = ratio * relayed
    slow = sum(to * s for to, s in zip(to_fog, slowness, strict=True))
    tasks = [(load * to).sum(0) for to in to_fog]
    speeds = [offloading.shared_speed(float(s), c.fog_machines, t) for s, t in zip(c.fog_speeds, tasks, strict=True)]
    there = size * load * slow + cycles * sum(to / s for to, s in zip(to_fog, speeds, strict=True))
    here = cycles / offloading.shared_speed(c.uav_ghz, c.uav_cores, load)
    form = offloading.sequential_latency if c.execution == "sequential" else offloading.parallel_latency
    processing = form(jnp.zeros_like(load), here, there, ratio, c.overhead * relayed)
    per_gigacycle = offloading.compute_energy(1.0 - ratio, c.uav_ghz, c.uav_capacitance)
    power = pointwise(partial(propulsion.propulsion_power, rotor=propulsion.ROTORS[c.rotor]))
    energy = c.slot * power(length(velocity)) + load * (per_gigacycle * cycles + c.uav_power * ratio * slow * size)
    variance = (per_gigacycle * task_spread(c)) ** 2 * (load + 1e-12) + ENERGY_EDGE**2
    excess = normal_cdf((energy - c.energy_max) / jnp.sqrt(variance))
    return load * (alone(c) - processing) - c.energy_weight * energy, excess


@step
def too_near(config: UavMecConfig, uav: Array) -> Float[Array, "N B"]:
    gap = jnp.full(uav.shape[1:], jnp.inf)
    for k in range(1, config.num_uavs):
        other = length(uav - jnp.roll(uav, k, axis=1))
        gap = jnp.where(other < gap, other, gap)
    return jax.nn.sigmoid((config.separation_min - gap) / SEPARATION_EDGE)


@step
def total(config: UavMecConfig, *of_each: Array) -> list[Float[Array, "B"]]:
    return [x.sum(0) for x in of_each]


@step
def lacking(config: UavMecConfig, covered: Array, doubt: Array, grace: Array) -> Float[Array, "B"]:
    """Probability that too few users are covered, their number taken as normal; nothing is charged in the grace."""
    low = normal_cdf((config.needed - 0.5 - covered) / jnp.sqrt(doubt + 0.25))
    return jnp.where(grace <= 1e-6, low, 0.0)
