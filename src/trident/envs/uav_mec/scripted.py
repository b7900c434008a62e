"""Scripted policies for UAV-MEC, from chance to an honest ceiling, and the shield.

- `random`: uniform mode, speed, heading and ratio.
- `greedy`: local sight and no word of energy. Fly fast to the nearest user in sight whom nobody serves; if there is
  none, to the middle of the own near users. Send everything to the nearest fog.
- `planner`: global sight; obeys the limits. Searches places for the fleet, circles there at the speed of least
  power, and lets the UAVs choose their modes by best response.
- `planner-free`: the same without a thought for the limits.
- `planner-local`, `planner-fog1`, ...: the planner confined to one mode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import (
    MecState,
    connect,
    distances,
    flight_params,
    fly,
    move_users,
    speed_of,
    velocity_of,
)
from trident.envs.uav_mec.physics import mode_costs, task_mean, task_spread
from trident.envs.uav_mec.planner import Habits, plan
from trident.physics import offloading, propulsion
from trident.types import HybridAction, Key, ScriptedPolicy, Shield

GREEDY_SPEED = 25.0
"""m/s"""
GREEDY_NEAR = 125.0
"""m"""
SHIELD_SIGMAS = 2.8
"""Standard deviations of the tasks' work that must still fit into E_max."""
SHIELD_WATTS = 0.2
"""Room for the transmitter, W."""
SHIELD_USERS = 2
"""Covered users kept beyond the limit."""
SHIELD_SPEED = 20.0
"""m/s, of a covering move."""


def random_policy(config: UavMecConfig, key: Key, state: MecState) -> HybridAction:
    """Mode, speed, heading and ratio uniform, as the paper's polar action box says."""
    k_mode, k_fly = jax.random.split(key)
    n = config.num_uavs
    mode = jax.random.randint(k_mode, (n,), 0, config.num_fogs + 1)
    speed, heading, ratio = jax.random.uniform(k_fly, (3, n))
    heading = (2.0 * heading - 1.0) * np.pi
    velocity = config.max_speed * speed[:, None] * jnp.stack([jnp.cos(heading), jnp.sin(heading)], -1)
    ratio = jnp.where(mode > 0, ratio, 0.0)
    return HybridAction(mode, jnp.concatenate([flight_params(config, velocity), ratio[:, None]], -1))


def head_for(
    config: UavMecConfig, uav: Float[Array, "N 2"], goal: Float[Array, "N 2"], top: float
) -> Float[Array, "N 2"]:
    """Velocity that reaches the goal within a slot if `top` m/s allows it."""
    want = (goal - uav) / config.slot
    return want * jnp.minimum(1.0, top / speed_of(want))[:, None]


def greedy_policy(config: UavMecConfig, key: Key, state: MecState) -> HybridAction:
    """See the module's docstring."""
    c, s = config, state
    distance = distances(s.uav, s.user)
    lost = (distance <= c.sight) & ~s.link.any(0)
    to_lost = jnp.where(lost, distance, jnp.inf)
    pick = jax.nn.one_hot(to_lost.argmin(1), c.num_users)
    near = (s.link & (distance <= GREEDY_NEAR)).astype(jnp.float32)
    middle = (near @ s.user) / jnp.maximum(near.sum(1), 1.0)[:, None]
    middle = jnp.where(near.any(1)[:, None], middle, s.uav)
    goal = jnp.where(lost.any(1)[:, None], pick @ s.user, middle)
    velocity = head_for(c, s.uav, goal, GREEDY_SPEED)
    mode = 1 + distances(s.uav, jnp.asarray(c.fogs, jnp.float32)).argmin(1).astype(jnp.int32)
    return HybridAction(mode, jnp.concatenate([flight_params(c, velocity), jnp.ones((c.num_uavs, 1))], -1))


def policies(config: UavMecConfig) -> dict[str, ScriptedPolicy]:
    modes = tuple(range(config.num_fogs + 1))
    names = ("local", *(f"fog{f}" for f in modes[1:]))
    single = {f"planner-{names[m]}": partial(plan, config, Habits(modes=(m,))) for m in modes}
    return {
        "random": partial(random_policy, config),
        "greedy": partial(greedy_policy, config),
        "planner": partial(plan, config, Habits(modes=modes)),
        "planner-free": partial(plan, config, Habits(modes, careful=False, top_speed=23.0, travel=5e-4, sweeps=2)),
        **single,
    }


# --- shield ---------------------------------------------------------------------------------------


def build_shield(config: UavMecConfig) -> Shield:
    return partial(shield, config)


def shield(config: UavMecConfig, state: MecState, action: HybridAction) -> tuple[HybridAction, Bool[Array, "N"]]:
    """The least change of an action after which the next slot is expected to keep its limits.

    First the velocities are blended towards a covering move until enough users stay covered; then every speed is
    clipped into the interval whose propulsion fits beside the on-board computing, and a UAV whose computing leaves
    no such speed sends its tasks to its best fog instead.
    """
    c, s = config, state
    user, _, hot, _ = move_users(c, s.user, s.user_vel, s.hot, s.hot_vel, 0.0)
    asked = velocity_of(c, action.params)
    velocity = keep_coverage(c, s.uav, asked, user, hot)
    load = connect(c, distances(fly(c, s.uav, velocity), user))[0].sum(1).astype(jnp.float32)
    mode, ratio = action.mode, action.params[:, -1]
    room = power_left(c, load, jnp.where(mode > 0, ratio, 0.0))
    slow, fast, least = speed_tables(c)
    relieved = room < least
    best_fog = 1 + mode_costs(c, s.uav, load)[:, 1:].argmin(1).astype(jnp.int32)
    mode = jnp.where(relieved, best_fog, mode)
    ratio = jnp.where(relieved, 1.0, ratio)
    room = jnp.where(relieved, power_left(c, load, jnp.ones_like(load)), room)
    speed = speed_of(velocity)
    fits = jnp.clip(speed, slow(room), fast(room))
    heading = jnp.where(speed[:, None] > 1e-3, velocity / speed[:, None], jnp.array([1.0, 0.0]))
    velocity = jnp.where((fits == speed)[:, None], velocity, fits[:, None] * heading)
    changed = relieved | (speed_of(velocity - asked) > 1e-3)
    params = jnp.concatenate([flight_params(c, velocity), ratio[:, None]], -1)
    return HybridAction(mode, jnp.where(changed[:, None], params, action.params)), changed


def power_left(config: UavMecConfig, load: Float[Array, "N"], ratio: Float[Array, "N"]) -> Float[Array, "N"]:
    """Propulsion power (W) that E_max leaves beside the on-board share of the tasks, with room for large ones."""
    c = config
    size, work = task_mean(c)
    cycles = 1e-3 * size * work * load + SHIELD_SIGMAS * task_spread(c) * jnp.sqrt(load)
    computing = offloading.compute_energy((1.0 - ratio) * cycles, c.uav_ghz, c.uav_capacitance)
    return (c.energy_max - computing) / c.slot - SHIELD_WATTS


def speed_tables(config: UavMecConfig) -> tuple[Callable[[Array], Array], Callable[[Array], Array], float]:
    """Slowest and fastest speed as functions of the power one may spend, and the least power there is."""
    speeds = np.linspace(0.0, config.max_speed, 301, dtype=np.float32)
    with jax.ensure_compile_time_eval():
        power = np.asarray(propulsion.propulsion_power(jnp.asarray(speeds), propulsion.ROTORS[config.rotor]))
    low = int(power.argmin())
    slow = partial(jnp.interp, xp=power[low::-1], fp=speeds[low::-1])
    fast = partial(jnp.interp, xp=power[low:], fp=speeds[low:])
    return slow, fast, float(power[low])


def keep_coverage(
    config: UavMecConfig,
    uav: Float[Array, "N 2"],
    velocity: Float[Array, "N 2"],
    user: Float[Array, "U 2"],
    hot: Float[Array, "H 2"],
) -> Float[Array, "N 2"]:
    """The smallest blend towards a covering move that keeps enough users covered; then UAVs that are not needed
    for it get their own velocity back. If no blend is enough, the covering move itself."""
    c = config
    need = min(c.needed + SHIELD_USERS, c.num_users)

    def covered(v: Float[Array, "N 2"]) -> Float[Array, ""]:
        reach = connect(c, distances(fly(c, uav, v), user))[1]
        return (reach <= c.coverage_radius - 1.0).sum().astype(jnp.float32)

    rescue = head_for(c, uav, covering_places(c, uav, user, hot), SHIELD_SPEED)
    blends = [velocity + b * (rescue - velocity) for b in (0.0, 0.25, 0.5, 0.75, 1.0)]
    options = jnp.stack(blends)
    enough = jnp.stack([covered(v) >= need for v in blends]).at[-1].set(True)
    chosen = options[enough.argmax()]
    possible = covered(chosen) >= need
    for i in range(c.num_uavs):
        freed = chosen.at[i].set(velocity[i])
        chosen = jnp.where(possible & (covered(freed) >= need), freed, chosen)
    return chosen


def covering_places(
    config: UavMecConfig, uav: Float[Array, "N 2"], user: Float[Array, "U 2"], hot: Float[Array, "H 2"]
) -> Float[Array, "N 2"]:
    """One pass of a coordinate search for places that cover more users (softly counted)."""
    c = config
    turn = np.arange(8) * np.pi / 4
    rose = np.stack([np.cos(turn), np.sin(turn)], 1)
    steps = jnp.asarray(np.concatenate([np.zeros((1, 2)), 15.0 * rose, 80.0 * rose]), jnp.float32)

    def improve(places: Array, i: Array) -> tuple[Array, None]:
        tries = jnp.clip(jnp.concatenate([places[i] + steps, hot]), 0.0, c.area)

        def score(place: Array) -> Array:
            reach = connect(c, distances(places.at[i].set(place), user))[1]
            return jax.nn.sigmoid((c.coverage_radius - 8.0 - reach) / 15.0).sum()

        gain = jax.vmap(score)(tries) - 2e-3 * speed_of(tries - uav[i])
        return places.at[i].set(tries[gain.argmax()]), None

    return jax.lax.scan(improve, uav, jnp.arange(c.num_uavs))[0]
