"""The UAV-MEC global state array, and closed-form physics on it.

What physics knows in advance of a slot: the flight, the mean motion of the users, the expected tasks, and the
task-to-task spread of the on-board energy. What it leaves to learning: which tasks really come, and everything
later than the next slot.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import (
    MecState,
    Service,
    backhaul_efficiency,
    connect,
    distances,
    flight_params,
    fly,
    move_users,
    serve,
    speed_of,
    uplink_rate,
    velocity_of,
)
from trident.maths.stable_min import first_minimum, stable_min
from trident.physics import offloading, propulsion
from trident.types import HybridAction, Physics

SPEED_SCALE = 10.0
"""m/s, of users and hotspots in the array."""
EDGE = 6.0
"""Softness of the coverage radius, m: narrow enough to predict, wide enough to pull."""
ENERGY_EDGE = 3.0
"""Softness of E_max beyond the spread of the tasks, J."""
SAME_PLACE = 0.02
"""Distances are read back from the array to better than this, m."""
SERVICE_EDGE = 50.0
"""Softness of the service radius for users without a UAV, m."""
SEPARATION_EDGE = 2.0
"""Softness of the least separation, m."""


class Scene(NamedTuple):
    """What physics reads back from the state array, in SI units."""

    uav: Float[Array, "N 2"]
    user: Float[Array, "U 2"]
    user_vel: Float[Array, "U 2"]
    hot: Float[Array, "H 2"]
    hot_vel: Float[Array, "H 2"]
    grace: Float[Array, ""]  # remaining share of the deployment grace
    reach: Float[Array, "U"]  # distance of every user to its own UAV


# --- the array ------------------------------------------------------------------------------------


def pack(config: UavMecConfig, s: MecState) -> Float[Array, "S"]:
    """State -> the global state array; every entry is about unit scale."""
    c = config
    load = s.link.sum(1).astype(jnp.float32)
    fog_tasks = load @ (s.mode[:, None] == jnp.arange(1, c.num_fogs + 1)).astype(jnp.float32)
    grace = jnp.maximum(c.grace - s.slot, 0) / max(c.grace, 1)
    scene = Scene(s.uav, s.user, s.user_vel, s.hot, s.hot_vel, grace, s.reach)
    return assemble(c, scene, s.uav_vel, load, s.energy, fog_tasks)


def assemble(
    config: UavMecConfig, scene: Scene, uav_vel: Array, load: Array, energy: Array, fog_tasks: Array
) -> Float[Array, "S"]:
    """Lay the parts out in the array's order."""
    c = config
    parts = [
        2.0 * scene.uav / c.area - 1.0,
        2.0 * scene.user / c.area - 1.0,
        scene.user_vel / SPEED_SCALE,
        2.0 * scene.hot / c.area - 1.0,
        scene.hot_vel / SPEED_SCALE,
        scene.grace,
        uav_vel / c.max_speed,
        scene.reach / c.service_radius,
        load / c.capacity,
        jnp.clip(1.0 - energy / c.energy_max, -1.0, 1.0),
        fog_tasks / c.fog_machines,
    ]
    return jnp.concatenate([p.ravel() for p in parts])


def unpack(config: UavMecConfig, array: Float[Array, "S"]) -> Scene:
    """The part of the array that physics needs."""
    c = config
    n, u, h = c.num_uavs, c.num_users, c.num_hotspots
    sizes = [2 * n, 2 * u, 2 * u, 2 * h, 2 * h, 1, 2 * n, u]
    uav, user, user_vel, hot, hot_vel, grace, _, reach, _ = jnp.split(array, np.cumsum(sizes))

    def place(flat: Array) -> Array:
        return 0.5 * c.area * (flat.reshape(-1, 2) + 1.0)

    def speed(flat: Array) -> Array:
        return SPEED_SCALE * flat.reshape(-1, 2)

    return Scene(
        place(uav), place(user), speed(user_vel), place(hot), speed(hot_vel), grace[0], c.service_radius * reach
    )


def links(config: UavMecConfig, scene: Scene) -> Float[Array, "N U"]:
    """Who serves whom, without associating anew: a user's own UAV is the one that stands as far away as the array says
    (the first of two at the same distance: UAVs that the border has stopped in one corner)."""
    distance = distances(scene.uav, scene.user)
    mine = (jnp.abs(distance - scene.reach) < SAME_PLACE) & (scene.reach < config.service_radius - SAME_PLACE)
    index, absent = jnp.arange(distance.shape[0])[:, None], distance.shape[0]
    first = jnp.where(mine, index, absent).min(0)
    return jax.lax.stop_gradient((index == first).astype(jnp.float32))


# --- expected tasks -------------------------------------------------------------------------------


def task_mean(config: UavMecConfig) -> tuple[float, float]:
    """Expected size (Mbit) and work (cycles/bit)."""
    return 0.5 * (config.size_low + config.size_high), 0.5 * (config.work_low + config.work_high)


def task_spread(config: UavMecConfig) -> float:
    """Standard deviation of a task's gigacycles: size and work are independent and uniform."""
    (size, work), c = task_mean(config), config
    size_sq = size**2 + (c.size_high - c.size_low) ** 2 / 12.0
    work_sq = work**2 + (c.work_high - c.work_low) ** 2 / 12.0
    return 1e-3 * (size_sq * work_sq - (size * work) ** 2) ** 0.5


def expect(
    config: UavMecConfig, uav: Array, velocity: Array, link: Array, reach: Array, mode: Array, ratio: Array
) -> tuple[Service, Float[Array, "N"]]:
    """Service of a slot with expected tasks, and the standard deviation of each UAV's energy."""
    size, work = (jnp.full(config.num_users, x, jnp.float32) for x in task_mean(config))
    service = serve(config, uav, speed_of(velocity), link, reach, mode, ratio, size, work)
    spread = service.compute_share * task_spread(config) * jnp.sqrt(service.load + 1e-12)
    return service, spread


# --- the three functions --------------------------------------------------------------------------


def next_scene(config: UavMecConfig, scene: Scene, velocity: Float[Array, "N 2"]) -> Scene:
    """Mean motion of everything over one slot; the association is still that of its beginning."""
    c = config
    moved = move_users(c, scene.user, scene.user_vel, scene.hot, scene.hot_vel, 0.0)
    grace = jnp.maximum(scene.grace - 1.0 / max(c.grace, 1), 0.0)
    return Scene(fly(c, scene.uav, velocity), *moved, grace, scene.reach)


def signals(config: UavMecConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "signals"]:
    """Expected reward and smooth costs in [0, 1] of the next slot.

    The association is that of the present positions (a slot moves nobody far), so counterfactual actions in one
    state share it; distances, rates and coverage are those after the move and carry the gradient. Users without a UAV
    count as if they might get one (`chances`).
    energy: mean over UAVs of Phi((E_i - E_max) / sd_i), sd_i from the spread of the tasks.
    coverage: the number of covered users is taken as normal with mean sum p_u and variance sum p_u (1 - p_u),
    p_u = sigmoid((R_cov - d_u) / EDGE).
    """
    c = config
    scene = unpack(c, array)
    velocity = velocity_of(c, action.params)
    after = next_scene(c, scene, velocity)
    link = links(c, scene)
    served = link.sum(0)
    reach = (link * distances(after.uav, after.user)).sum(0) + (1.0 - served) * c.service_radius
    service, spread = expect(c, after.uav, velocity, link, reach, action.mode, action.params[:, -1])
    excess = (service.energy - c.energy_max) / jnp.sqrt(spread**2 + ENERGY_EDGE**2)
    p = served * jax.nn.sigmoid((c.coverage_radius - reach) / EDGE)
    doubt = jnp.sqrt((p * (1.0 - p)).sum() + 0.25)
    charged = (scene.grace <= 1e-6).astype(jnp.float32)
    low = charged * jax.scipy.stats.norm.cdf((c.needed - 0.5 - p.sum()) / doubt)
    reward = -service.latency.sum() - c.energy_weight * service.energy.sum()
    reward = reward + chances(c, after, link)
    reward = reward - c.coverage_penalty * c.num_uavs * low
    costs = [jax.scipy.stats.norm.cdf(excess).mean(), low]
    if c.separation:
        gap = distances(after.uav, after.uav) + 1e6 * jnp.eye(c.num_uavs)
        costs.append(jax.nn.sigmoid((c.separation_min - stable_min(gap, 1)) / SEPARATION_EDGE).mean())
    return jnp.stack([reward, *costs])


def chances(config: UavMecConfig, scene: Scene, link: Float[Array, "N U"]) -> Float[Array, ""]:
    """Seconds that users without a UAV may expect to save by getting one: the nearest that has a free place, with
    probability sigmoid((R - d) / SERVICE_EDGE). Without this nothing pulls a UAV towards a user it does not serve."""
    c, (size, work) = config, (jnp.float32(x) for x in task_mean(config))
    load = link.sum(1)
    distance = jnp.where(load[:, None] < c.capacity, distances(scene.uav, scene.user), 1e6)
    first = first_minimum(distance, 0)
    nearest = jnp.where(first, distance, 0.0).sum(0)
    processing = jnp.where(first, mode_costs(c, scene.uav, load + 1.0).min(1)[:, None], 0.0).sum(0)
    served = size / uplink_rate(c, jnp.float32(c.service_radius)) + processing
    saved = jax.lax.stop_gradient(offloading.compute_time(size, work, c.user_ghz) - served)
    return ((1.0 - link.sum(0)) * saved * jax.nn.sigmoid((c.service_radius - nearest) / SERVICE_EDGE)).sum()


def predict(config: UavMecConfig, array: Float[Array, "S"], action: HybridAction) -> Float[Array, "S"]:
    """Mean successor: UAVs follow their commands, users and hotspots their mean motion, tasks are the expected ones."""
    c = config
    velocity = velocity_of(c, action.params)
    after = next_scene(c, unpack(c, array), velocity)
    link, reach = connect(c, distances(after.uav, after.user))
    service, _ = expect(c, after.uav, velocity, link.astype(jnp.float32), reach, action.mode, action.params[:, -1])
    return assemble(c, after._replace(reach=reach), velocity, service.load, service.energy, service.fog_tasks)


def nominal(config: UavMecConfig, array: Float[Array, "S"]) -> HybridAction:
    """Nominal controller: drift at the speed of least power towards the middle of the own users, in the mode with the
    least expected cost for the present load (no word of what the other UAVs put on a fog)."""
    c = config
    scene = unpack(c, array)
    link = links(c, scene)
    load = link.sum(1)
    to_centre = (link @ scene.user) / jnp.maximum(load, 1.0)[:, None] - scene.uav
    velocity = drift(c, scene.uav, load, to_centre)
    cost = mode_costs(c, scene.uav, load)
    mode = cost.argmin(1)
    ratio = (mode > 0).astype(jnp.float32)
    return HybridAction(mode.astype(jnp.int32), jnp.concatenate([flight_params(c, velocity), ratio[:, None]], -1))


def drift(
    config: UavMecConfig, uav: Float[Array, "N 2"], load: Float[Array, "N"], to_centre: Float[Array, "N 2"]
) -> Float[Array, "N 2"]:
    """Velocity of least power towards the middle of the own users (of the area, if there are none)."""
    towards = jnp.where(load[:, None] > 0, to_centre, 0.5 * config.area - uav)
    return min_power_speed(config) * towards / (speed_of(towards) + 1e-3)[:, None]


def mode_costs(config: UavMecConfig, uav: Float[Array, "N 2"], load: Float[Array, "N"]) -> Float[Array, "N M"]:
    """Expected processing time of one task (plus its weighted on-board energy) in every mode with ratio 1."""
    fogs = jnp.asarray(config.fogs, jnp.float32)
    return mode_costs_at(config, backhaul_efficiency(config, distances(uav, fogs)), load)


def mode_costs_at(
    config: UavMecConfig, efficiency: Float[Array, "N F"], load: Float[Array, "N"]
) -> Float[Array, "N M"]:
    """The same, given the spectral efficiency of the backhaul to every fog, bit/s/Hz."""
    c = config
    size, work = task_mean(c)
    gigacycles = jnp.full_like(load, 1e-3 * size * work)
    energy = offloading.compute_energy(gigacycles, c.uav_ghz, c.uav_capacitance)
    local = gigacycles / offloading.shared_speed(c.uav_ghz, c.uav_cores, load) + c.energy_weight * energy
    rate = c.uav_bandwidth * efficiency
    fog = c.overhead + load[:, None] * size / rate + gigacycles[:, None] / jnp.asarray(c.fog_speeds, jnp.float32)
    return jnp.concatenate([local[:, None], fog], 1)


def min_power_speed(config: UavMecConfig) -> float:
    """The speed of least propulsion power, m/s."""
    speeds = np.linspace(0.0, config.max_speed, 601, dtype=np.float32)
    with jax.ensure_compile_time_eval():
        power = np.asarray(propulsion.propulsion_power(jnp.asarray(speeds), propulsion.ROTORS[config.rotor]))
    return float(speeds[power.argmin()])


def build_physics(config: UavMecConfig) -> Physics:
    return Physics(signals=partial(signals, config), predict=partial(predict, config), nominal=partial(nominal, config))
