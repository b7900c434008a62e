"""UAV-MEC's closed form for many rows at once: what `uav_mec.physics` says of one state, laid out for speed.

Rows are the last axis of every array, so that each operation is a vectorised loop over them, and each step is
`no_inline`, so that the compiler computes nothing twice; who serves whom is in `association`. UAVs are few and
are gone through one by one. What a user's task costs beyond its uplink is the same for all users of a UAV (tasks are
the expected ones), so only uplinks are counted by user."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import backhaul_efficiency, reflect, uplink_rate, velocity_of
from trident.envs.uav_mec.fast.association import (
    add_up,
    associate,
    by_uav,
    distances,
    length,
    loads,
    of_own,
    step,
    users_sum,
)
from trident.envs.uav_mec.fast.chebyshev import chebyshev_of
from trident.envs.uav_mec.fast.elementwise import Elementwise, elementwise
from trident.envs.uav_mec.physics import (
    EDGE,
    ENERGY_EDGE,
    SAME_PLACE,
    SEPARATION_EDGE,
    SERVICE_EDGE,
    SPEED_SCALE,
    min_power_speed,
    task_mean,
    task_spread,
)
from trident.physics import offloading, propulsion
from trident.types import BulkPhysics, HybridAction


class BatchState(NamedTuple):
    """Where everyone is, who serves whom, and how slow the backhaul to every fog is, s/Mbit."""

    uav: Float[Array, "2 N B"]
    user: Float[Array, "2 U B"]
    user_vel: Float[Array, "2 U B"]
    hot: Float[Array, "2 H B"]
    hot_vel: Float[Array, "2 H B"]
    grace: Float[Array, "B"]
    own: Int[Array, "U B"]  # every user's UAV; N without one
    slowness: Float[Array, "F N B"]


class BatchAction(NamedTuple):
    """What the UAVs do, and where that leads."""

    velocity: Float[Array, "2 N B"]
    mode: Int[Array, "N B"]
    ratio: Float[Array, "N B"]
    uav: Float[Array, "2 N B"]
    slowness: Float[Array, "F N B"]
    moved: tuple[Array, Array, Array, Array]  # users and hotspots, each with its velocity
    distance: Float[Array, "N U B"]


def bulk_physics(config: UavMecConfig) -> BulkPhysics:
    """Many rows at once, for two cores that share a short loop lose more time than they gain; but few side by side, so
    that one user's numbers do not drive another's out of the cache."""
    c = config
    rows = max(655_360 // (c.num_uavs * c.num_users), 256)
    group = max(512 // c.num_uavs, 64)
    return BulkPhysics(
        partial(read, c), partial(take, c), partial(signals, c), partial(predict, c), partial(nominal, c), rows, group
    )


def read(config: UavMecConfig, state: Float[Array, "B S"]) -> BatchState:
    uav, user, user_vel, hot, hot_vel, grace, reach = unpack(config, state)
    own = owners(config, uav, user, reach)
    return BatchState(uav, user, user_vel, hot, hot_vel, grace, own, backhaul_slowness(config, uav))


def take(config: UavMecConfig, standing: BatchState, action: HybridAction) -> BatchAction:
    return do(config, standing, *orders(config, action))


def do(config: UavMecConfig, standing: BatchState, velocity: Array, mode: Array, ratio: Array) -> BatchAction:
    c = config
    uav, moved = fly(c, standing.uav, velocity), move_users(c, *standing[1:5])
    return BatchAction(
        velocity, mode, ratio, uav, backhaul_slowness(c, uav), moved, distances(c, jax.lax.stop_gradient(uav), moved[0])
    )


def signals(config: UavMecConfig, standing: BatchState, doing: BatchAction) -> Float[Array, "B J"]:
    """Expected reward and smooth costs of the next slot."""
    c, own, load = config, standing.own, loads(config, standing.own)
    nearest = serving_uav(c, own, load, doing.distance)
    saving = savings(c, jax.lax.stop_gradient(doing.slowness), load)
    gained, low = service(c, doing.uav, doing.moved[0], own, nearest, doing.distance, saving, standing.grace)
    service_reward, excess = total(c, *per_uav(c, doing.velocity, doing.mode, doing.ratio, load, doing.slowness))
    costs = [excess / c.num_uavs, low]
    if c.separation:
        costs.append(too_near(c, doing.uav).mean(0))
    reward = gained + service_reward - c.num_users * alone(c) - c.coverage_penalty * c.num_uavs * low
    return jnp.stack([reward, *costs], axis=-1)


def predict(config: UavMecConfig, standing: BatchState, doing: BatchAction) -> BatchState:
    """Mean successor."""
    grace = jnp.maximum(standing.grace - 1.0 / max(config.grace, 1), 0.0)
    return BatchState(doing.uav, *doing.moved, grace, associate(config, doing.distance), doing.slowness)


def nominal(config: UavMecConfig, standing: BatchState) -> BatchAction:
    """Drift towards the middle of the own users, in the cheapest mode."""
    c, s = config, standing
    return do(c, s, *drift(c, s.uav, loads(c, s.own), users_sum(c, s.own, s.user), s.slowness))


# --- the array ------------------------------------------------------------------------------------


@step
def unpack(config: UavMecConfig, state: Float[Array, "B S"]) -> tuple[Array, ...]:
    """Places and velocities, the grace, and every user's distance to its UAV: as `uav_mec.physics.unpack`."""
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

    def spread(of_hot):
        return jnp.tile(of_hot, (1, -(-k // c.num_hotspots), 1))[:, :k]

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
    velocity = min_power_speed(config) * towards / (length(towards) + 1e-3)
    return velocity, mode, (mode > 0).astype(jnp.float32)


# --- links ----------------------------------------------------------------------------------------


normal_cdf = elementwise(
    lambda x: 0.5 + 0.5 * jax.lax.erf(np.sqrt(0.5) * x), lambda x: np.sqrt(0.5 / np.pi) * jnp.exp(-0.5 * x * x)
)
"""To 1e-7: far fewer operations than one that is right far out in the tail."""


class Radio(NamedTuple):
    """s/Mbit at a horizontal distance."""

    uplink: Elementwise
    slowness: Elementwise


@cache
def radio(config: UavMecConfig) -> Radio:
    """Both links as series, as far as they may be asked for; as formulas, where a channel is not smooth enough."""
    c = config

    def uplink(d):
        return 1.0 / uplink_rate(c, d)

    def slowness(d):
        return 1.0 / (c.uav_bandwidth * backhaul_efficiency(c, d))

    a_slot = c.slot * (c.max_speed + c.hotspot_speed + 6.0 * c.user_speed)
    bend = 2.0 * c.altitude
    return Radio(_short(uplink, c.service_radius + a_slot, bend), _short(slowness, 2.0**0.5 * c.area, bend))


def _short(formula: Elementwise, farthest: float, bend: float) -> Elementwise:
    def exactly(d: np.ndarray) -> np.ndarray:
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            return np.asarray(formula(jnp.asarray(d, jnp.float64)))

    return chebyshev_of(exactly, farthest, bend) or elementwise(formula)


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
def savings(config: UavMecConfig, slowness: Array, load: Array) -> Float[Array, "N B"]:
    """What one more user of a UAV at the edge of its service would save."""
    c, (size, _) = config, task_mean(config)
    uplink = size * radio(c).uplink(jnp.float32(c.service_radius))
    return alone(c) - uplink - jnp.stack(mode_costs(c, slowness, load + 1.0)).min(0)


@step
def serving_uav(config: UavMecConfig, own: Array, load: Array, distance: Array) -> Int[Array, "U B"]:
    """Every user's UAV, or else the nearest that has a free place."""
    none, nearest, near = config.num_uavs, own, jnp.full(own.shape, jnp.inf)
    for i in range(none):
        better = (own == none) & (load[i] < config.capacity) & (distance[i] < near)
        nearest, near = jnp.where(better, i, nearest), jnp.where(better, distance[i], near)
    return nearest


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def service(
    config: UavMecConfig,
    uav: Array,
    user: Array,
    own: Array,
    nearest: Array,
    distance: Array,
    saving: Array,
    grace: Array,
) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    """What all users gain, and the probability that too few are covered."""
    chance, gained = at_reach(config, own, nearest, saving, reaches(config, nearest, distance))
    return total(config, gained)[0], coverage_shortfall(config, *coverage(config, own, chance), grace)


@service.defjvp
def _(config: UavMecConfig, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Users go their ways whatever UAVs do, so that what a step of a UAV changes is first summed over its users, and
    only then asked for in every direction."""
    uav, user, own, nearest, distance, saving, grace = primals
    reach, by_reach = reaches(config, nearest, distance), partial(at_reach, config, own, nearest, saving)
    (chance, gained), (d_chance, d_gained) = jax.jvp(by_reach, (reach,), (jnp.ones_like(reach),))
    low, back = jax.vjp(lambda n, v: coverage_shortfall(config, n, v, grace), *coverage(config, own, chance))
    d_low = shortfall_gradient(config, own, chance, d_chance, *back(jnp.ones_like(low)))

    def along(gradient: Array) -> Array:
        pull = uav_gradient(config, nearest, user_gradient(config, uav, user, nearest, reach, gradient))
        return towards(config, pull, tangents[0])

    return (total(config, gained)[0], low), (along(d_gained), along(d_low))


@step
def reaches(config: UavMecConfig, nearest: Array, distance: Array) -> Float[Array, "U B"]:
    return of_own(nearest, distance, 1e6)


def at_reach(
    config: UavMecConfig, own: Array, nearest: Array, saving: Array, reach: Array
) -> tuple[Float[Array, "U B"], Float[Array, "U B"]]:
    chance = chances(config, own, reach)
    return chance, gains(config, own, nearest, saving, reach, chance)


@step
def chances(config: UavMecConfig, own: Array, reach: Array) -> Float[Array, "U B"]:
    """Probability that a user is covered, or without a UAV that it gets one."""
    c, served = config, own < config.num_uavs
    past = jnp.where(served, (c.coverage_radius - reach) / EDGE, (c.service_radius - reach) / SERVICE_EDGE)
    return jax.nn.sigmoid(past)


@step
def gains(
    config: UavMecConfig, own: Array, nearest: Array, saving: Array, reach: Array, chance: Array
) -> Float[Array, "U B"]:
    """Of every user: its uplink's time, negative; without a UAV what it may expect to save by getting one."""
    size, _ = task_mean(config)
    return jnp.where(own < config.num_uavs, -size * radio(config).uplink(reach), of_own(nearest, saving, 0.0) * chance)


@step
def coverage(config: UavMecConfig, own: Array, chance: Array) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    """Expected number of covered users, and its variance."""
    users, served = own.shape[0], jnp.where(own < config.num_uavs, chance, 0.0)
    return add_up(users, lambda u: served[u]), add_up(users, lambda u: served[u] * (1.0 - served[u]))


@step
def shortfall_gradient(
    config: UavMecConfig, own: Array, chance: Array, d_chance: Array, of_covered: Array, of_doubt: Array
) -> Float[Array, "U B"]:
    """The gradient of `coverage_shortfall` in every user's distance."""
    return jnp.where(own < config.num_uavs, (of_covered + of_doubt * (1.0 - 2.0 * chance)) * d_chance, 0.0)


@step
def user_gradient(
    config: UavMecConfig, uav: Array, user: Array, nearest: Array, reach: Array, gradient: Array
) -> Float[Array, "2 U B"]:
    """A gradient in the users' distances as one in the places of their UAVs."""
    along = [of_own(nearest, place, 0.0) for place in uav]
    return (jnp.stack(along) - user) * (gradient / reach)


uav_gradient = step(by_uav)


@step
def towards(config: UavMecConfig, pull: Float[Array, "2 N B"], direction: Float[Array, "2 N B"]) -> Float[Array, "B"]:
    return add_up(config.num_uavs, lambda i: pull[0, i] * direction[0, i] + pull[1, i] * direction[1, i])


def per_uav(
    config: UavMecConfig, velocity: Array, mode: Array, ratio: Array, load: Array, slowness: Array
) -> tuple[Float[Array, "N B"], Float[Array, "N B"]]:
    """What every UAV's service gains (beyond the uplinks, against its users' own processors, less its weighted energy),
    and the probability that it spends too much."""
    here, fog = processors(config, mode, load)
    ratio, slow = relay(config, mode, ratio, slowness)
    energy = spent(config, velocity, ratio, slow, load)
    return service_reward(config, mode, ratio, slow, load, here, fog, energy), overspent(config, ratio, load, energy)


@step
def processors(config: UavMecConfig, mode: Array, load: Array) -> tuple[Float[Array, "N B"], Float[Array, "N B"]]:
    """Time of a task on board, and at the fog of the UAV's mode."""
    c, (size, work) = config, task_mean(config)
    cycles, fog = 1e-3 * size * work, jnp.zeros_like(load)
    for f, speed in enumerate(c.fog_speeds, 1):
        tasks = jnp.where(mode == f, load, 0.0).sum(0)
        fog = jnp.where(mode == f, cycles / offloading.shared_speed(float(speed), c.fog_machines, tasks), fog)
    return cycles / offloading.shared_speed(c.uav_ghz, c.uav_cores, load), fog


@step
def relay(config: UavMecConfig, mode: Array, ratio: Array, slowness: Array) -> tuple[Array, Array]:
    """The ratio that goes to a fog, and how slow the way there is."""
    return jnp.where(mode > 0, ratio, 0.0), of_own(mode - 1, slowness, 0.0)


def on_board(config: UavMecConfig, ratio: Array) -> Float[Array, "N B"]:
    """J per gigacycle."""
    return offloading.compute_energy(1.0 - ratio, config.uav_ghz, config.uav_capacitance)


@step
def spent(config: UavMecConfig, velocity: Array, ratio: Array, slow: Array, load: Array) -> Float[Array, "N B"]:
    c, (size, work) = config, task_mean(config)
    power = elementwise(partial(propulsion.propulsion_power, rotor=propulsion.ROTORS[c.rotor]))
    of_task = on_board(c, ratio) * (1e-3 * size * work) + c.uav_power * ratio * slow * size
    return c.slot * power(length(velocity)) + load * of_task


@step
def service_reward(
    config: UavMecConfig, mode: Array, ratio: Array, slow: Array, load: Array, here: Array, fog: Array, energy: Array
) -> Float[Array, "N B"]:
    c, (size, _) = config, task_mean(config)
    form = offloading.sequential_latency if c.execution == "sequential" else offloading.parallel_latency
    processing = form(jnp.zeros_like(load), here, size * load * slow + fog, ratio, jnp.where(mode > 0, c.overhead, 0.0))
    return load * (alone(c) - processing) - c.energy_weight * energy


@step
def overspent(config: UavMecConfig, ratio: Array, load: Array, energy: Array) -> Float[Array, "N B"]:
    variance = (on_board(config, ratio) * task_spread(config)) ** 2 * (load + 1e-12) + ENERGY_EDGE**2
    return normal_cdf((energy - config.energy_max) / jnp.sqrt(variance))


@step
def too_near(config: UavMecConfig, uav: Array) -> Float[Array, "N B"]:
    gap = jnp.full(uav.shape[1:], jnp.inf)
    for k in range(1, config.num_uavs):
        other = length(uav - jnp.roll(uav, k, axis=1))
        gap = jnp.where(other < gap, other, gap)
    return jax.nn.sigmoid((config.separation_min - gap) / SEPARATION_EDGE)


@step
def total(config: UavMecConfig, *of_each: Array) -> list[Float[Array, "B"]]:
    return [add_up(x.shape[0], x.__getitem__) for x in of_each]


@step
def coverage_shortfall(config: UavMecConfig, covered: Array, doubt: Array, grace: Array) -> Float[Array, "B"]:
    """Probability that too few users are covered, their number taken as normal; nothing is charged in the grace."""
    low = normal_cdf((config.needed - 0.5 - covered) / jnp.sqrt(doubt + 0.25))
    return jnp.where(grace <= 1e-6, low, 0.0)
