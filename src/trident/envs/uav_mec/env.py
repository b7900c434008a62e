"""Multi-UAV mobile-edge computing: where to fly, where to compute, how much to offload, within two limits.

Each of N UAVs chooses in every slot a mode (local, fog 1, ..., fog F) and parameters (velocity, offload ratio).
A slot: the UAVs fly, users and hotspots move, users are associated with UAVs, tasks are drawn and served.
Tasks are drawn inside the step, so a policy knows only their distribution.

    reward = -(sum of the users' latencies) - w_E (sum of the UAVs' energies) - penalty [coverage too low]

Costs: `energy`, the share of UAVs that spent more than E_max in the slot; `coverage`, whether fewer than Cov_min
of the users were covered (not charged during the deployment grace); optionally `separation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.randomised import Uncertain, Varying
from trident.envs.uav_mec import scripted
from trident.envs.uav_mec.base_policy import EFFICIENCY_SCALE, SECTORS, base_policy
from trident.envs.uav_mec.config import UavMecConfig, lattice
from trident.envs.uav_mec.dynamics import (
    Draws,
    MecState,
    Service,
    backhaul_efficiency,
    connect,
    distances,
    fly,
    move_users,
    per_member,
    reflect,
    serve,
    speed_of,
    velocity_of,
)
from trident.envs.uav_mec.fast.physics import bulk_physics
from trident.envs.uav_mec.physics import build_physics, pack
from trident.envs.uav_mec.reward import cost_attribution, margins, mode_names, reward_and_costs
from trident.types import ActionSpec, Constraint, EnvSpec, FailSafe, HybridAction, Key, Metric, TimeStep, follow

# --- config ---------------------------------------------------------------------------------------

VARIANTS: dict[str, UavMecConfig] = {
    "uav-mec": UavMecConfig(),
    "uav-mec-easy": UavMecConfig(energy_max=95.0, coverage_min=0.4, hotspot_speed=1.5, start="covering"),
    "uav-mec-hard": UavMecConfig(energy_max=80.0, coverage_min=0.6, hotspot_speed=8.0),
    "uav-mec-cover60": UavMecConfig(coverage_min=0.6),
    "uav-mec-n8": UavMecConfig(num_uavs=8),
    "uav-mec-n16": UavMecConfig(num_uavs=16),
    "uav-mec-n32": UavMecConfig(num_uavs=32),
    "uav-mec-velocity": UavMecConfig(flight="cartesian"),
    "uav-mec-polar": UavMecConfig(flight="polar"),
    "uav-mec-parallel": UavMecConfig(execution="parallel"),
    "uav-mec-separation": UavMecConfig(separation=True),
    "uav-mec-suburban": UavMecConfig(channel="suburban"),
    "uav-mec-dense-urban": UavMecConfig(channel="dense-urban"),
    "uav-mec-3gpp": UavMecConfig(channel="umi-av"),
}
"""Named scenarios. `uav-mec` is version 2 and frozen; results on it stay comparable. Version 1 had another flight
command and is `uav-mec-velocity`."""


def action_spec(config: UavMecConfig) -> ActionSpec:
    shape = (config.num_uavs, config.num_fogs + 1, 4 if config.flight == "course" else 3)
    if config.flight == "polar":
        low, high, names = (0.0, -np.pi, 0.0), (config.max_speed, np.pi, 1.0), ("speed", "heading", "ratio")
    elif config.flight == "course":
        low, high = (0.0, -1.0, -1.0, 0.0), (config.max_speed, 1.0, 1.0, 1.0)
        names = ("speed", "east", "north", "ratio")
    else:
        low, high, names = (-1.0, -1.0, 0.0), (1.0, 1.0, 1.0), ("vx", "vy", "ratio")
    used = np.ones(shape, bool)
    used[:, 0, -1] = False  # local computing offloads nothing
    return ActionSpec(
        low=np.full(shape, low, np.float32),
        high=np.full(shape, high, np.float32),
        used=used,
        mode_names=mode_names(config),
        param_names=names,
        param_units=FLIGHT_UNITS[config.flight] + ("share",),
    )


FLIGHT_UNITS = {"cartesian": ("of top speed",) * 2, "polar": ("m/s", "rad"), "course": ("m/s", "of a direction", "")}


def fail_safe(config: UavMecConfig) -> FailSafe:
    """Hover and let a fog compute. Hovering takes 69 J of the 86 J of a slot: with a UAV's own processor at work it
    would break the energy limit (it did, in every sixth slot, when faults put a fleet into it)."""
    params = np.zeros((config.num_fogs + 1, len(FLIGHT_UNITS[config.flight]) + 1), np.float32)
    params[1:, -1] = 1.0
    return FailSafe("hover", (*range(1, config.num_fogs + 1), 0), params, help="stay in place, let a fog compute")


def constraints(config: UavMecConfig) -> tuple[Constraint, ...]:
    c = config
    energy = Constraint(
        "energy", c.energy_limit, immediate=True, help=f"share of UAV-slots above {c.energy_max:g} J",
        formula=f"mean over UAVs of 1[energy of the slot > {c.energy_max:g} J]",
    )  # fmt: skip
    coverage = Constraint(
        "coverage", c.coverage_limit, help=f"share of slots with fewer than {c.needed} users covered",
        formula=f"1[users within {c.coverage_radius:g} m of their UAV < {c.needed}], 0 in the first {c.grace} slots",
    )  # fmt: skip
    apart = Constraint(
        "separation", c.separation_limit, help=f"share of UAV-slots within {c.separation_min:g} m of another",
        formula=f"mean over UAVs of 1[distance to the nearest other < {c.separation_min:g} m]",
    )  # fmt: skip
    return (energy, coverage, apart) if c.separation else (energy, coverage)


def metrics(config: UavMecConfig) -> tuple[Metric, ...]:
    rows = [
        Metric("reward", "higher", help="team reward of a slot"),
        Metric("exec", "lower", "s", help="sum of the users' latencies in a slot"),
        Metric("energy", "lower", "J", help="energy of a UAV in a slot"),
        Metric("throughput", "higher", "Mbit/s", help="Mbit finished within the deadline / exec"),
        Metric("ev", "lower", "rate", help="E.V.: share of UAV-slots above E_max"),
        Metric("cv", "lower", "rate", per="charged", help="C.V.: share of slots below Cov_min, after the grace"),
        Metric("cv_all", "lower", "rate", help="share of all slots below Cov_min"),
        Metric("charged", help="1 on slots after the deployment grace"),
        Metric("covered", "higher", "share", help="share of the users that are covered"),
        Metric("served", "higher", "share", help="share of the users that have a UAV"),
        Metric("speed", "neither", "m/s", help="mean speed"),
    ]
    rows += [Metric(name, help=f"share of UAV-slots in mode {name}") for name in mode_names(config)]
    if config.separation:
        rows.append(Metric("sv", "lower", "rate", help="share of UAV-slots too near another UAV"))
    return tuple(rows)


# --- reset ----------------------------------------------------------------------------------------


def start_places(config: UavMecConfig, key: Key, hot: Float[Array, "H 2"]) -> Float[Array, "N 2"]:
    n, side = config.num_uavs, config.area
    if config.start == "uniform":
        return jax.random.uniform(key, (n, 2), maxval=side)
    if config.start == "grid":
        return jnp.asarray(lattice(n) * side, jnp.float32)
    if config.start == "covering":
        return jnp.resize(hot, (n, 2))
    angle = 2.0 * np.pi * np.arange(n) / n
    ring = 0.05 * side * np.stack([np.cos(angle), np.sin(angle)], 1)
    return jnp.asarray(0.5 * side + ring, jnp.float32)


def initial_state(config: UavMecConfig, key: Key) -> MecState:
    c = config
    k_hot, k_turn, k_user, k_vel, k_uav = jax.random.split(key, 5)
    hot = jax.random.uniform(k_hot, (c.num_hotspots, 2), minval=c.hotspot_border, maxval=c.area - c.hotspot_border)
    turn = jax.random.uniform(k_turn, (c.num_hotspots,), maxval=2.0 * np.pi)
    hot_vel = c.hotspot_speed * jnp.stack([jnp.cos(turn), jnp.sin(turn)], -1)
    k_member, k_free = jax.random.split(k_user)
    member = per_member(c, hot) + c.hotspot_spread * jax.random.normal(k_member, (c.members, 2))
    free = jax.random.uniform(k_free, (c.num_users - c.members, 2), maxval=c.area)
    user_vel = c.user_speed * 0.5**0.5 * jax.random.normal(k_vel, (c.num_users, 2))
    user, user_vel = reflect(jnp.concatenate([member, free]), user_vel, 0.0, c.area)
    user = jnp.clip(user, 0.0, c.area)
    uav = start_places(c, k_uav, hot)
    link, reach = connect(c, distances(uav, user))
    return MecState(
        uav=uav,
        uav_vel=jnp.zeros_like(uav),
        user=user,
        user_vel=user_vel,
        hot=hot,
        hot_vel=hot_vel,
        link=link,
        reach=reach,
        mode=jnp.zeros(c.num_uavs, jnp.int32),
        energy=jnp.zeros(c.num_uavs),
        slot=jnp.zeros((), jnp.int32),
    )


# --- step -----------------------------------------------------------------------------------------


def draw_slot(config: UavMecConfig, key: Key) -> Draws:
    """The randomness of one slot: task sizes, task work, and the users' Gauss-Markov noise."""
    k_task, k_noise = jax.random.split(key)
    size, work = jax.random.uniform(k_task, (2, config.num_users))
    return Draws(
        size=config.size_low + (config.size_high - config.size_low) * size,
        work=config.work_low + (config.work_high - config.work_low) * work,
        noise=jax.random.normal(k_noise, (config.num_users, 2)),
    )


def transition(config: UavMecConfig, state: MecState, draws: Draws, action: HybridAction) -> tuple[MecState, Service]:
    """The deterministic part of a step: fly, let the users move, connect, serve."""
    s, c = state, config
    velocity = velocity_of(c, action.params)
    uav = fly(c, s.uav, velocity)
    user, user_vel, hot, hot_vel = move_users(c, s.user, s.user_vel, s.hot, s.hot_vel, draws.noise)
    link, reach = connect(c, distances(uav, user))
    links, ratio = link.astype(jnp.float32), action.params[:, -1]
    service = serve(c, uav, speed_of(velocity), links, reach, action.mode, ratio, draws.size, draws.work)
    after = MecState(uav, velocity, user, user_vel, hot, hot_vel, link, reach, action.mode, service.energy, s.slot + 1)
    return after, service


# --- observation ----------------------------------------------------------------------------------


def pick_nearest(
    distance: Float[Array, "N X"], seen: Float[Array, "N X"], traits: Float[Array, "N X F"], count: int
) -> Float[Array, "N _"]:
    """Traits of the `count` nearest of those seen, in order of distance, zeros where there are fewer.

    Ranks by comparison and picks by a masked sum: on small arrays both are much faster than sort, gather or einsum.
    """
    d = jnp.where(seen > 0, distance, jnp.inf)
    index = jnp.arange(d.shape[1])
    tied = (d[:, None, :] == d[:, :, None]) & (index[None, None, :] < index[None, :, None])
    rank = ((d[:, None, :] < d[:, :, None]) | tied).sum(-1)
    chosen = (rank[:, None, :] == jnp.arange(count)[None, :, None]) * seen[:, None, :]
    return (chosen[..., None] * traits[:, None]).sum(2).reshape(d.shape[0], -1)


def see_users(config: UavMecConfig, s: MecState) -> Float[Array, "N _"]:
    """Nearest users in sight (place, mine, covered by another), those not covered by sector, centre of my users."""
    c = config
    rel = (s.user[None] - s.uav[:, None]) / c.sight
    distance = distances(s.uav, s.user)
    seen = (distance <= c.sight).astype(jnp.float32)
    mine = s.link.astype(jnp.float32)
    covered = (s.reach <= c.coverage_radius).astype(jnp.float32)
    traits = jnp.stack([rel[..., 0], rel[..., 1], mine, covered * (1.0 - mine), seen], -1)
    listed = pick_nearest(distance, seen, traits, min(c.seen_users, c.num_users))
    right, up, flat = rel[..., 0] > 0, rel[..., 1] > 0, jnp.abs(rel[..., 0]) > jnp.abs(rel[..., 1])
    octant = 4 * right + 2 * up + flat
    missed = seen * (1.0 - covered)
    sectors = ((octant[:, None, :] == jnp.arange(SECTORS)[None, :, None]) * missed[:, None, :]).sum(-1)
    load = mine.sum(1)
    centre = (mine[..., None] * rel).sum(1) / jnp.maximum(load, 1.0)[:, None]
    counts = jnp.stack([load, (mine * covered).sum(1)], -1) / c.capacity
    return jnp.concatenate([counts, centre, listed.reshape(c.num_uavs, -1), jnp.minimum(sectors / c.capacity, 1.0)], -1)


def see_fleet(config: UavMecConfig, s: MecState) -> Float[Array, "N _"]:
    """Nearest other UAVs: place, load, heard."""
    c, count = config, min(config.seen_uavs, config.num_uavs - 1)
    hearing = 2.0 * c.sight
    rel = (s.uav[None] - s.uav[:, None]) / hearing
    distance = distances(s.uav, s.uav)
    heard = (distance <= hearing) * (1.0 - jnp.eye(c.num_uavs))
    load = jnp.broadcast_to(s.link.sum(1) / c.capacity, heard.shape)
    traits = jnp.stack([rel[..., 0], rel[..., 1], load, heard], -1)
    return pick_nearest(distance, heard, traits, count)


def see_fogs(config: UavMecConfig, s: MecState) -> Float[Array, "N _"]:
    """Direction and expected spectral efficiency of every fog, and the load others put on its machines."""
    c = config
    fogs = jnp.asarray(c.fogs, jnp.float32)
    rel = (fogs[None] - s.uav[:, None]) / c.area
    efficiency = backhaul_efficiency(c, distances(s.uav, fogs)) / EFFICIENCY_SCALE
    sent = s.link.sum(1)[:, None] * (s.mode[:, None] == jnp.arange(1, c.num_fogs + 1))
    others = jnp.minimum((sent.sum(0) - sent) / c.fog_machines, 2.0)
    return jnp.concatenate([rel[..., 0], rel[..., 1], efficiency, others], -1)


def observe(config: UavMecConfig, s: MecState) -> Float[Array, "N O"]:
    """What each UAV sees; every feature is about unit scale and bounded."""
    c = config
    grace = jnp.full((c.num_uavs, 1), grace_left(c, s))
    margin = jnp.clip(1.0 - s.energy / c.energy_max, -1.0, 1.0)[:, None]
    own = [2.0 * s.uav / c.area - 1.0, s.uav_vel / c.max_speed, grace, margin]
    return jnp.concatenate([*own, see_users(c, s), see_fogs(c, s), see_fleet(c, s)], -1)


def observation_names(config: UavMecConfig) -> tuple[str, ...]:
    """What `observe` lists, in its order."""
    c = config
    names = ["place x", "place y", "velocity x", "velocity y", "grace left", "energy margin"]
    names += ["own users / capacity", "users in sight / users", "own centre x", "own centre y"]
    traits = ("x", "y", "mine", "covered by another", "seen")
    names += [f"user {u + 1} {trait}" for u in range(min(c.seen_users, c.num_users)) for trait in traits]
    names += [f"uncovered users, sector {k + 1}" for k in range(SECTORS)]
    names += [f"fog {f + 1} {trait}" for trait in ("x", "y", "efficiency", "load") for f in range(c.num_fogs)]
    heard = min(c.seen_uavs, c.num_uavs - 1)
    return (*names, *(f"UAV {k + 1} {trait}" for k in range(heard) for trait in ("x", "y", "load", "heard")))


def grace_left(config: UavMecConfig, s: MecState) -> Float[Array, ""]:
    """Remaining share of the deployment grace."""
    return jnp.maximum(config.grace - s.slot, 0) / max(config.grace, 1)


# --- the environment ------------------------------------------------------------------------------


class UavMec(Varying):
    """The environment for one fleet; see `UavMecConfig` for every number and `VARIANTS` for named scenarios.

    `omega`: the closed form weighs energy against delay by so many times what the reward does; a learner that trusts it
    is then told something wrong (the paper's omega_2 : omega_1).
    """

    uncertain: Mapping[str, Uncertain] = {
        "wind": Uncertain("steady wind, of the top speed", size=2),
        "mass": Uncertain("take-off mass, on which hovering depends"),
        "channel": Uncertain("rate of every link"),
    }

    def __init__(self, config: UavMecConfig = UavMecConfig(), omega: float = 1.0):  # noqa: B008 (frozen)
        self.config = config
        shapes = jax.eval_shape(lambda key: self._look(initial_state(config, key)), jax.random.key(0))
        self.spec = EnvSpec(
            name="uav-mec",
            version=1 if config.flight == "cartesian" else 2,
            num_agents=config.num_uavs,
            obs_dim=shapes[0].shape[-1],
            state_dim=shapes[1].shape[-1],
            action=action_spec(config),
            constraints=constraints(config),
            horizon=config.horizon,
            metrics=metrics(config),
            obs_names=observation_names(config),
            step_seconds=config.slot,
            fail_safe=fail_safe(config),
        )
        suggest = partial(base_policy, config, self.spec.action)
        told = replace(config, energy_weight=omega * config.energy_weight)
        self.physics = replace(build_physics(told), base_policy=suggest, bulk=bulk_physics(told))

        def nominal(key, state):
            return self.physics.nominal(pack(config, state))

        def follow_base(key, state):
            return follow(self.spec.action, suggest, observe(config, state))

        self.scripted = scripted.policies(config) | {"nominal": nominal, "base-policy": follow_base}
        self.shield = scripted.build_shield(config)

    def reset(self, key: Key) -> tuple[MecState, TimeStep]:
        state = initial_state(self.config, key)
        zero = jnp.zeros(())
        idle = {m.name: zero for m in self.spec.metrics}
        costs = jnp.zeros(self.spec.num_constraints)
        return state, self._timestep(state, zero, costs, idle, jnp.zeros((self.config.num_uavs, costs.size), bool))

    def step(self, key: Key, state: MecState, action: HybridAction) -> tuple[MecState, TimeStep]:
        return self.transition(state, draw_slot(self.config, key), action)

    def transition(self, state: MecState, draws: Draws, action: HybridAction) -> tuple[MecState, TimeStep]:
        """`step` with its randomness given."""
        after, service = transition(self.config, state, draws, action)
        reward, cost, values = reward_and_costs(self.config, after, service, draws)
        return after, self._timestep(after, reward, cost, values, cost_attribution(self.config, after, cost))

    def _look(self, state: MecState) -> tuple[Array, Array]:
        return observe(self.config, state), pack(self.config, state)

    def _timestep(
        self, state: MecState, reward: Array, cost: Array, values: dict[str, Any], cost_attribution: Array
    ) -> TimeStep:
        obs, array = self._look(state)
        n, modes = self.config.num_uavs, self.config.num_fogs + 1
        return TimeStep(
            obs=obs,
            state=array,
            mode_mask=jnp.ones((n, modes), bool),
            alive=jnp.ones(n, bool),
            reward=reward,
            cost=cost,
            margin=margins(self.config, state),
            terminated=jnp.zeros((), bool),
            truncated=state.slot >= self.config.horizon,
            metrics=values,
            cost_attribution=cost_attribution,
        )

    def scene(self, states: MecState) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`)."""
        from trident.envs.uav_mec.scene import scene

        return scene(self.config, states)

    def draw(self, where: Any, history: Any, t: int | None = None) -> None:
        """Draw a frame onto a matplotlib figure (map and gauges) or axes (map).

        `history`: the states of an episode [T + 1, ...] as NumPy arrays, of which frame `t` is drawn; or a sequence
        of (state, timestep, action) trees, of which the last is drawn.
        """
        from trident.envs.uav_mec.render import draw  # matplotlib takes a second to import

        if not isinstance(history, MecState):
            history = jax.tree.map(lambda *x: np.stack(x), *(frame[0] for frame in history))
        draw(self.config, where, jax.tree.map(lambda x: x[: t + 1] if t is not None else x, history))
