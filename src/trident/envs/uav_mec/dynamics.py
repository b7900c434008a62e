"""The mechanics of the UAV-MEC scenario that the environment, its physics and its scripted policies share.

N UAVs at a fixed altitude serve U ground users; F fog servers stand on the ground. In every slot each user has one
task. A served user sends it to its UAV, which computes it on board or relays a share of it to a fog server.
Positions in m, time in s, sizes in Mbit, work in cycles/bit, processor speeds in GHz, energy in J.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trident.envs.geometry import disc_to_square, square_to_disc
from trident.envs.randomised import off
from trident.envs.uav_mec.config import UavMecConfig
from trident.physics import channel, offloading, propulsion


class MecState(NamedTuple):
    """Everything that evolves. `link`, `covered`, `mode`, `energy` are those of the slot that has just ended."""

    uav: Float[Array, "N 2"]
    uav_vel: Float[Array, "N 2"]
    user: Float[Array, "U 2"]
    user_vel: Float[Array, "U 2"]  # a user's own velocity; members of a hotspot drift along with it
    hot: Float[Array, "H 2"]
    hot_vel: Float[Array, "H 2"]
    link: Bool[Array, "N U"]
    reach: Float[Array, "U"]  # distance to the own UAV; service_radius when there is none
    mode: Int[Array, "N"]
    energy: Float[Array, "N"]
    slot: Int[Array, ""]


class Draws(NamedTuple):
    """All the randomness of one slot."""

    size: Float[Array, "U"]
    work: Float[Array, "U"]
    noise: Float[Array, "U 2"]  # standard normal


class Service(NamedTuple):
    """What a slot's tasks cost."""

    latency: Float[Array, "U"]
    energy: Float[Array, "N"]
    compute_share: Float[Array, "N"]  # J per gigacycle offered to the UAV: kappa f^2 (1 - ratio)
    load: Float[Array, "N"]  # users served
    fog_tasks: Float[Array, "F"]


# --- flight ---------------------------------------------------------------------------------------


def velocity_of(config: UavMecConfig, params: Float[Array, "*n P"]) -> Float[Array, "*n 2"]:
    """Flight parameters of an action -> velocity in m/s."""
    if config.flight == "polar":
        speed, heading = params[..., 0], params[..., 1]
        return speed[..., None] * jnp.stack([jnp.cos(heading), jnp.sin(heading)], -1)
    if config.flight == "course":
        speed, course = params[..., :1], params[..., 1:3]
        return speed * course / jnp.sqrt((course**2).sum(-1, keepdims=True) + 1e-4)  # a finite gradient at no course
    return config.max_speed * square_to_disc(params[..., :2])


def flight_params(config: UavMecConfig, velocity: Float[Array, "*n 2"]) -> Float[Array, "*n F"]:
    """Velocity in m/s -> the flight parameters of an action."""
    if config.flight == "polar":
        speed = jnp.sqrt((velocity**2).sum(-1))
        heading = jnp.arctan2(velocity[..., 1], velocity[..., 0])
        return jnp.stack([jnp.minimum(speed, config.max_speed), heading], -1)
    if config.flight == "course":
        speed = jnp.sqrt((velocity**2).sum(-1, keepdims=True) + 1e-6)
        return jnp.concatenate([jnp.minimum(speed, config.max_speed), 0.6 * velocity / speed], -1)
    return disc_to_square(velocity / config.max_speed)


def speed_of(velocity: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """|velocity|, with a finite gradient at hover."""
    return jnp.sqrt((velocity**2).sum(-1) + 1e-12)


def fly(config: UavMecConfig, uav: Float[Array, "*n 2"], velocity: Float[Array, "*n 2"]) -> Float[Array, "*n 2"]:
    """One slot of flight; the border of the area stops a UAV."""
    if "wind" in config.errors:
        velocity = velocity + config.max_speed * config.errors["wind"]
    return jnp.clip(uav + config.slot * velocity, 0.0, config.area)


def rotor_of(config: UavMecConfig) -> propulsion.Rotor:
    rotor = propulsion.ROTORS[config.rotor]
    return propulsion.laden(rotor, 1.0 + config.errors["mass"][0]) if "mass" in config.errors else rotor


# --- users ----------------------------------------------------------------------------------------


def reflect(
    place: Float[Array, "*shape"], velocity: Float[Array, "*shape"], low: float, high: float
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Mirror what has crossed a border back inside and turn its velocity."""
    outside = (place < low) | (place > high)
    inside = jnp.where(place < low, 2.0 * low - place, jnp.where(place > high, 2.0 * high - place, place))
    return inside, jnp.where(outside, -velocity, velocity)


def per_member(config: UavMecConfig, of_hotspot: Float[Array, "H 2"]) -> Float[Array, "members 2"]:
    """Spread a value per hotspot over its members."""
    repeats = -(-config.members // config.num_hotspots)
    return jnp.tile(of_hotspot, (repeats, 1))[: config.members]


def move_users(
    config: UavMecConfig,
    user: Float[Array, "U 2"],
    user_vel: Float[Array, "U 2"],
    hot: Float[Array, "H 2"],
    hot_vel: Float[Array, "H 2"],
    noise: Float[Array, "U 2"] | float,
) -> tuple[Float[Array, "U 2"], Float[Array, "U 2"], Float[Array, "H 2"], Float[Array, "H 2"]]:
    """Gauss-Markov walk of the users; members of a hotspot are carried along and pulled gently towards it.

    v' = m v + (1 - m) spring (centre - x) + s sqrt(1 - m^2) noise,    x' = x + (v' + drift of the hotspot) dt
    """
    c, k, m = config, config.members, config.user_memory
    pull = c.spring * (per_member(c, hot) - user[:k])
    free = jnp.zeros((c.num_users - k, 2), user.dtype)
    spread = c.user_speed * (0.5 * (1.0 - m * m)) ** 0.5
    new_vel = m * user_vel + (1.0 - m) * jnp.concatenate([pull, free]) + spread * noise
    carried = jnp.concatenate([per_member(c, hot_vel), free])
    new_user, new_vel = reflect(user + c.slot * (new_vel + carried), new_vel, 0.0, c.area)
    new_hot, new_hot_vel = reflect(hot + c.slot * hot_vel, hot_vel, c.hotspot_border, c.area - c.hotspot_border)
    return new_user, new_vel, new_hot, new_hot_vel


# --- links and service ----------------------------------------------------------------------------


def distances(a: Float[Array, "A 2"], b: Float[Array, "B 2"]) -> Float[Array, "A B"]:
    """Pairwise horizontal distances."""
    dx = a[:, None, 0] - b[None, :, 0]
    dy = a[:, None, 1] - b[None, :, 1]
    return jnp.sqrt(dx * dx + dy * dy + 1e-12)


def connect(config: UavMecConfig, distance: Float[Array, "N U"]) -> tuple[Bool[Array, "N U"], Float[Array, "U"]]:
    """Who serves whom, and every user's distance to its own UAV (the service radius if it has none)."""
    link = offloading.associate(distance, config.service_radius, config.capacity, config.association_rounds)
    return link, jnp.where(link, distance, config.service_radius).min(0)


def uplink_rate(config: UavMecConfig, reach: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """User to UAV, Mbit/s."""
    loss = channel.air_to_ground_loss(config.channel, reach, config.altitude, 0.0, config.carrier)
    noise = channel.noise_dbm(config.user_bandwidth, config.noise_figure)
    rate = channel.shannon_rate(config.user_bandwidth, channel.watt_to_dbm(config.user_power), loss, noise)
    return off(config.errors, "channel", rate)


def backhaul_efficiency(config: UavMecConfig, distance: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """UAV to fog, bit/s/Hz."""
    loss = channel.air_to_ground_loss(config.channel, distance, config.altitude, config.fog_height, config.carrier)
    noise = channel.noise_dbm(config.uav_bandwidth, config.noise_figure)
    efficiency = channel.spectral_efficiency(channel.watt_to_dbm(config.uav_power), loss, noise)
    return off(config.errors, "channel", efficiency)


def serve(
    config: UavMecConfig,
    uav: Float[Array, "N 2"],
    speed: Float[Array, "N"],
    link: Float[Array, "N U"],
    reach: Float[Array, "U"],
    mode: Int[Array, "N"],
    ratio: Float[Array, "N"],
    size: Float[Array, "U"],
    work: Float[Array, "U"],
) -> Service:
    """Latency of every user's task and energy of every UAV in one slot."""
    c = config
    to_fog = (mode[:, None] == jnp.arange(1, c.num_fogs + 1)).astype(jnp.float32)
    relayed = to_fog.sum(1)
    ratio = ratio * relayed
    load = link.sum(1)
    rate = c.uav_bandwidth * backhaul_efficiency(c, distances(uav, jnp.asarray(c.fogs, jnp.float32)))
    slowness = (to_fog / rate).sum(1)  # s/Mbit of the whole backhaul
    fog_tasks = load @ to_fog
    fog_speed = offloading.shared_speed(1.0, c.fog_machines, fog_tasks) * jnp.asarray(c.fog_speeds, jnp.float32)
    here = 1.0 / offloading.shared_speed(c.uav_ghz, c.uav_cores, load)
    there = (to_fog / fog_speed).sum(1)

    def of_user(per_uav: Float[Array, "N"]) -> Float[Array, "U"]:
        return per_uav @ link

    cycles = 1e-3 * size * work
    latency_form = offloading.sequential_latency if c.execution == "sequential" else offloading.parallel_latency
    served = latency_form(
        size / uplink_rate(c, reach),
        cycles * of_user(here),
        size * of_user(load * slowness) + cycles * of_user(there),
        of_user(ratio),
        c.overhead * of_user(relayed),
    )
    alone = offloading.compute_time(size, work, c.user_ghz)
    latency = jnp.where(of_user(jnp.ones_like(load)) > 0.5, served, alone)
    per_gigacycle = offloading.compute_energy(1.0 - ratio, c.uav_ghz, c.uav_capacitance)
    fly_energy = c.slot * propulsion.propulsion_power(speed, rotor_of(c))
    sent = c.uav_power * ratio * slowness * (link @ size)
    energy = fly_energy + per_gigacycle * (link @ cycles) + sent
    return Service(latency, energy, per_gigacycle, load, fog_tasks)
