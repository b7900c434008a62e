"""What one UAV can tell from its own observation alone: where to drift, how fast, and which mode is the quickest.

The mode is that of `physics.nominal`, which knows the global state: own place and load, the middle of the own
users and the backhaul's efficiency to every fog all stand in the observation (`uav_mec.observe`). So does what nominal
leaves out: who is heard nearby and has no place left. The speed is as high as E_max allows on top of the computing of
each mode, with something left for exploration.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import flight_params, speed_of
from trident.envs.uav_mec.physics import drift, min_power_speed, mode_costs_at, task_mean, task_spread
from trident.maths.stable_min import first_minimum
from trident.physics import offloading, propulsion
from trident.types import ActionSpec, BaseAction

CONFIDENCE = 4.0
"""Logit of the mode that is the quickest for an expected task; the others are at 0."""
CAUTION = 0.7
"""Share of E_max that is planned with: exploration spends some, too."""
NEAR = 20.0
"""Distance below which a UAV does not speed up, m."""
LEAN = 0.5
"""Share of the way to a full UAV that an idle one aims for."""
SECTORS = 8
"""Directions in which users that nobody covers are counted."""
EFFICIENCY_SCALE = 12.0
"""bit/s/Hz"""


def base_policy(config: UavMecConfig, spec: ActionSpec, obs: Float[Array, "O"]) -> BaseAction:
    """Towards the middle of the own users (see `lean` for when not quite); the mode with the least expected cost for
    the present load; all of a task is offloaded, or nothing."""
    c = config
    listed = 5 * min(c.seen_users, c.num_users)
    sizes = [2, 2, 1, 1, 1, 1, 2, listed + SECTORS, 2 * c.num_fogs, c.num_fogs]
    place, _, _, _, load, _, centre, _, _, efficiency, rest = jnp.split(obs, np.cumsum(sizes))
    fleet = rest[c.num_fogs :].reshape(-1, 4)
    load, place, centre = jnp.round(c.capacity * load), 0.5 * c.area * (place[None] + 1.0), c.sight * centre[None]
    centre = lean(c, load, jnp.where(load > 0, centre, 0.5 * c.area - place), fleet)
    slow = drift(c, place, jnp.ones_like(load), centre)
    hurry = jnp.where(load > 0, speed_of(centre) / NEAR, jnp.inf)
    least = min_power_speed(c)
    speed = jnp.clip(least * hurry, least, speed_within(c, CAUTION * c.energy_max - compute_energy(c, load[0])))
    cost = mode_costs_at(c, EFFICIENCY_SCALE * efficiency[None], load)[0]
    flight = flight_params(c, slow * (speed / least)[:, None])
    params = jnp.concatenate([flight, jnp.ones_like(speed)[:, None]], -1)  # [M, P]
    low, high = jnp.asarray(spec.low[0]), jnp.asarray(spec.high[0])  # all UAVs have the same boxes
    return BaseAction(CONFIDENCE * (cost <= cost.min()), 2.0 * (params - low) / (high - low) - 1.0)


def lean(
    config: UavMecConfig, load: Float[Array, "1"], goal: Float[Array, "1 2"], fleet: Float[Array, "F 4"]
) -> Float[Array, "1 2"]:
    """From the middle of the own users towards the nearest UAV heard that has no place left, the further the more
    places are free here: somebody has to take the users that it turns away."""
    c = config
    if fleet.shape[0] == 0:
        return goal
    rel = 2.0 * c.sight * fleet[:, :2]
    full = (fleet[:, 3] > 0.5) & (fleet[:, 2] > 1.0 - 0.5 / c.capacity)
    first = first_minimum(jnp.where(full, speed_of(rel), jnp.inf), 0) & full
    share = LEAN * (1.0 - load / c.capacity) * first.any()
    return (1.0 - share) * goal + share * jnp.where(first[:, None], rel, 0.0).sum(0)


def compute_energy(config: UavMecConfig, load: Float[Array, ""]) -> Float[Array, "M"]:
    """What computing takes in every mode, J: on board that of the expected tasks and two standard deviations."""
    c, (size, work) = config, task_mean(config)
    gigacycles = 1e-3 * size * work * load + 2.0 * task_spread(c) * jnp.sqrt(load)
    on_board = offloading.compute_energy(gigacycles, c.uav_ghz, c.uav_capacitance)
    return jnp.concatenate([on_board[None], jnp.zeros(c.num_fogs)])


def speed_within(config: UavMecConfig, energy: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The highest speed that takes no more than `energy` per slot, but at least the one that takes the least, m/s."""
    speeds = np.linspace(min_power_speed(config), config.max_speed, 33, dtype=np.float32)
    with jax.ensure_compile_time_eval():
        power = np.asarray(propulsion.propulsion_power(jnp.asarray(speeds), propulsion.ROTORS[config.rotor]))
    within = (config.slot * power[1:] <= energy[..., None]).sum(-1)  # power rises beyond the least
    return speeds[0] + (speeds[1] - speeds[0]) * within
