"""Heterogeneous cruise: relays, scouts and carriers share out roles to keep points of interest fresh and supplied.

A slot: every UAV takes a role (patrol to its own point, scout freely, relay between base and clients, return to its
pad) and the trajectory within it. Points are seen by sensors, but only what reaches the base over the fleet's links
counts; carriers on patrol deliver.

    reward = mean freshness of the points + deliveries + 0.2 share connected - 1e-3 mean power of a UAV (W)

Costs: `separation`, the share of UAVs too near another; `battery`, the share whose battery does not last for the way
back and the reserve; `link`, the share without a link to the base.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.envs.geometry import nearest, take
from trident.envs.uav_cruise import scripted
from trident.envs.uav_cruise.base_policy import base_policy
from trident.envs.uav_cruise.config import NAMES, CruiseConfig
from trident.envs.uav_cruise.dynamics import (
    PATROL,
    RELAY,
    RETURN,
    ROLES,
    SCOUT,
    CruiseState,
    clients,
    closest,
    energy_home,
    gaps,
    kind_flags,
    link_room,
    return_speed,
    targets,
    transition,
)
from trident.envs.uav_cruise.physics import build_physics, pack
from trident.envs.uav_cruise.shield import shield
from trident.types import ActionSpec, Constraint, EnvSpec, FailSafe, HybridAction, Key, Metric, TimeStep, follow

# --- config ---------------------------------------------------------------------------------------

TWELVE = ("relay",) * 4 + ("scout",) * 4 + ("carrier",) * 4
VARIANTS: dict[str, CruiseConfig] = {
    "uav-cruise": CruiseConfig(),
    "uav-cruise-n12": CruiseConfig(fleet=TWELVE, area=1130.0, num_points=20),
    "uav-cruise-scarce": CruiseConfig(fleet=("relay", "scout", "scout", "carrier")),
}
"""Named scenarios."""


def action_spec(config: CruiseConfig) -> ActionSpec:
    c, n = config, config.num_uavs
    top = c.of_kind("max_speed")
    low, high = np.zeros((2, n, 4, 2), np.float32)
    high[:, PATROL] = np.stack([top, np.full(n, c.across)], 1)
    low[:, PATROL, 1] = -c.across
    high[:, SCOUT], low[:, SCOUT] = top[:, None], -top[:, None]
    high[:, RELAY], low[:, RELAY, 1] = (1.0, c.relay_aside), -c.relay_aside
    high[:, RETURN], low[:, RETURN] = high[:, PATROL], low[:, PATROL]
    used = np.ones((n, 4, 2), bool)
    names, units = ("speed, vx or share", "across, vy or beside"), ("m/s, of the line", "m/s, m")
    return ActionSpec(low, high, used, ROLES, names, units)


def fail_safe(config: CruiseConfig) -> FailSafe:
    params = np.zeros((len(ROLES), 2), np.float32)
    params[RETURN, 0] = return_speed(config).min()
    return FailSafe("return", (RETURN,), params, help="fly back to the own pad")


def constraints(config: CruiseConfig) -> tuple[Constraint, ...]:
    c = config
    return (
        Constraint(
            "separation", c.separation_limit, help=f"share of UAVs within {c.separation:g} m of another",
            formula=f"mean over UAVs of 1[distance to the nearest other < {c.separation:g} m]",
        ),
        Constraint(
            "battery", c.battery_limit, help="share of UAVs whose battery does not last for the way back",
            formula=f"mean over UAVs of 1[battery < energy of the way back + {c.reserve:g} of the full one]",
        ),
        Constraint(
            "link", c.link_limit, help="share of UAVs without a link to the base",
            formula="mean over UAVs of 1[no chain of at most four links leads to the base]",
        ),
    )  # fmt: skip


METRICS = (
    Metric("fresh", "higher", "share", help="mean freshness of the points' information"),
    Metric("deliveries", "higher", "1/min", help="deliveries per minute"),
    Metric("waiting", "lower", "share", help="share of the points that need a delivery"),
    Metric("connected", "higher", "share", help="share of the UAVs with a link to the base"),
    Metric("power", "lower", "W", help="mean power of a UAV"),
    Metric("charge", "neither", "share", help="mean charge of the batteries"),
    Metric("stranded", "lower", "share", help="share of UAVs with an empty battery"),
)


# --- reset ----------------------------------------------------------------------------------------


def initial_state(config: CruiseConfig, key: Key) -> CruiseState:
    """Points anywhere but near the base; everyone on its pad, loaded, more or less charged."""
    c = config
    k_point, k_age, k_need, k_charge = jax.random.split(key, 4)
    n, p = c.num_uavs, c.num_points
    point = jax.random.uniform(k_point, (p, 2), minval=0.06 * c.area, maxval=0.94 * c.area)
    point = point.at[:, 1].set(0.25 * c.area + 0.72 * (point[:, 1] - 0.06 * c.area))
    charge = jax.random.uniform(k_charge, (n,), minval=0.6, maxval=1.0)
    return CruiseState(
        uav=jnp.asarray(c.pads),
        velocity=jnp.zeros((n, 2)),
        battery=charge * c.of_kind("battery"),
        payload=jnp.asarray(c.of_kind("payload")),
        role=jnp.zeros(n, jnp.int32),
        point=point,
        age=jax.random.uniform(k_age, (p,), maxval=60.0),
        need=jax.random.bernoulli(k_need, 0.5, (p,)).astype(jnp.float32),
        power=jnp.zeros(n),
        linked=jnp.ones(n, bool),
        clock=jnp.zeros((), jnp.int32),
    )


# --- observation ----------------------------------------------------------------------------------


def observe(config: CruiseConfig, s: CruiseState) -> Float[Array, "N O"]:
    """Own kind, place, motion, battery and load; the own point, pad and clients; nearest others and nearest points."""
    c = config
    top, full = jnp.asarray(c.of_kind("max_speed")), jnp.asarray(c.of_kind("battery"))
    goal, value = targets(c, s)
    room = link_room(c, s.uav, s.role)
    own = [
        jnp.asarray(kind_flags(c)),  # 0:3
        2.0 * s.uav / c.area - 1.0,  # 3:5
        s.velocity / top[:, None],  # 5:7
        ((s.battery - energy_home(c, s.uav)) / full)[:, None],  # 7
        (s.battery / full)[:, None],  # 8
        s.payload[:, None] / 4.0,  # 9
        (s.role == RETURN)[:, None],  # 10
        s.linked[:, None],  # 11
        value[:, None],  # 12
        (goal - s.uav) / c.area,  # 13:15
        (jnp.asarray(c.pads) - s.uav) / c.area,  # 15:17
        (clients(c, s.uav) - s.uav) / c.area,  # 17:19
        jnp.clip(room[:, -1:] / c.base_radio, -1.0, 1.0),  # 19
        jnp.broadcast_to(s.linked.mean(), (c.num_uavs, 1)),  # 20
        jnp.broadcast_to(s.need.mean(), (c.num_uavs, 1)),  # 21
        jnp.broadcast_to(jnp.exp(-s.age / c.fresh_time).mean(), (c.num_uavs, 1)),  # 22
        jnp.broadcast_to(s.clock / c.horizon, (c.num_uavs, 1)),  # 23
    ]
    return jnp.concatenate([p.astype(jnp.float32) for p in (*own, see_fleet(c, s, room), see_points(c, s))], -1)


def see_fleet(config: CruiseConfig, s: CruiseState, room: Float[Array, "N M"]) -> Float[Array, "N _"]:
    """Nearest three others: place, link room, there."""
    c, n = config, config.num_uavs
    rel = (s.uav[None] - s.uav[:, None]) / c.area
    linkable = jnp.clip(room[:, :n] / c.base_radio, -1.0, 1.0)
    traits = jnp.stack([rel[..., 0], rel[..., 1], linkable, jnp.ones((n, n))], -1)
    away = gaps(s.uav, s.uav)
    return take(traits, *nearest(away, jnp.asarray(~np.eye(n, dtype=bool)), min(3, n - 1)))


def see_points(config: CruiseConfig, s: CruiseState) -> Float[Array, "N _"]:
    """Nearest four points: place, freshness, need."""
    c, n = config, config.num_uavs
    rel = (s.point[None] - s.uav[:, None]) / c.area
    fresh = jnp.broadcast_to(jnp.exp(-s.age / c.fresh_time), rel.shape[:2])
    traits = jnp.stack([rel[..., 0], rel[..., 1], fresh, jnp.broadcast_to(s.need, rel.shape[:2])], -1)
    away = gaps(s.uav, s.point)
    return take(traits, *nearest(away, jnp.ones((n, c.num_points), bool), min(4, c.num_points)))


# --- reward and costs -----------------------------------------------------------------------------


def reward_and_costs(
    config: CruiseConfig, s: CruiseState, done: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, "3"], dict[str, Array], Array]:
    """Reward, costs, metrics and who caused the costs, of the slot that led to `s`."""
    c = config
    fresh, linked = jnp.exp(-s.age / c.fresh_time).mean(), s.linked.mean()
    reward = c.fresh_weight * fresh + c.delivery_reward * done + c.link_weight * linked
    reward = reward - c.energy_weight * s.power.mean()
    near = closest(s.uav) < c.separation
    low = s.battery < energy_home(c, s.uav)
    causes = jnp.stack([near, low, ~s.linked], 1)
    values = {
        "fresh": fresh,
        "deliveries": done * 60.0 / c.slot,
        "waiting": s.need.mean(),
        "connected": linked,
        "power": s.power.mean(),
        "charge": (s.battery / c.of_kind("battery")).mean(),
        "stranded": (s.battery <= 0.0).mean(),
    }
    cost = causes.mean(0).astype(jnp.float32)
    return reward, cost, {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}, causes


def margins(config: CruiseConfig, s: CruiseState) -> Float[Array, "3"]:
    """Signed distance to each limit, about unit scale; negative exactly when the cost is charged. Of a link: the best
    room that an unlinked UAV lacks, or the least that a linked one has to its best partner."""
    c = config
    apart = jnp.clip(closest(s.uav).min() / c.separation - 1.0, -1.0, 1.0)
    spare = ((s.battery - energy_home(c, s.uav)) / c.of_kind("battery")).min()
    others = jnp.append(s.linked, True)[None] & ~jnp.eye(c.num_uavs, c.num_uavs + 1, dtype=bool)
    room = jnp.where(others, link_room(c, s.uav, s.role), -jnp.inf).max(1) / c.base_radio
    link = jnp.where(s.linked, jnp.maximum(room, 0.0), jnp.minimum(room, -1e-3))
    return jnp.stack([apart, spare, jnp.clip(link, -1.0, 1.0).min()])


# --- the environment ------------------------------------------------------------------------------


class UavCruise:
    """The environment for one fleet; see `CruiseConfig` for every number and `VARIANTS` for named scenarios."""

    def __init__(self, config: CruiseConfig = CruiseConfig()):  # noqa: B008 (frozen)
        self.config = config
        shapes = jax.eval_shape(lambda key: self._look(initial_state(config, key)), jax.random.key(0))
        self.spec = EnvSpec(
            name="uav-cruise",
            version=1,
            num_agents=config.num_uavs,
            obs_dim=shapes[0].shape[-1],
            state_dim=shapes[1].shape[-1],
            action=action_spec(config),
            constraints=constraints(config),
            horizon=config.horizon,
            metrics=METRICS,
            step_seconds=config.slot,
            fail_safe=fail_safe(config),
            kinds=tuple(NAMES.index(name) for name in config.fleet),
        )
        suggest = partial(base_policy, config, self.spec.action)
        self.physics = replace(build_physics(config), base_policy=suggest)
        self.scripted = scripted.policies(config, self.spec.action) | {
            "nominal": lambda key, state: self.physics.nominal(pack(config, state)),
            "base-policy": lambda key, state: follow(self.spec.action, suggest, observe(config, state)),
        }
        self.shield = partial(shield, config)

    def reset(self, key: Key) -> tuple[CruiseState, TimeStep]:
        s = initial_state(self.config, key)
        idle = {m.name: jnp.zeros(()) for m in self.spec.metrics}
        nobody = jnp.zeros((self.config.num_uavs, 3), bool)
        return s, self._timestep(s, jnp.zeros(()), jnp.zeros(3), idle, nobody)

    def step(self, key: Key, state: CruiseState, action: HybridAction) -> tuple[CruiseState, TimeStep]:
        state = jax.tree.map(jnp.asarray, state)  # a state kept on the host is as good
        return self.transition(state, jax.random.uniform(key, (self.config.num_points,)), action)

    def transition(
        self, state: CruiseState, lots: Float[Array, "P"], action: HybridAction
    ) -> tuple[CruiseState, TimeStep]:
        """`step` with its lots given: a point comes to need a delivery if its lot is below `need_rate`."""
        after, done = transition(self.config, state, lots, action)
        return after, self._timestep(after, *reward_and_costs(self.config, after, done))

    def _look(self, s: CruiseState) -> tuple[Array, Array]:
        return observe(self.config, s), pack(self.config, s)

    def _timestep(self, s: CruiseState, reward: Array, cost: Array, values: dict[str, Any], causes: Array) -> TimeStep:
        obs, array = self._look(s)
        n = self.config.num_uavs
        return TimeStep(
            obs=obs,
            state=array,
            mode_mask=jnp.ones((n, len(ROLES)), bool),
            alive=jnp.ones(n, bool),
            reward=reward,
            cost=cost,
            margin=margins(self.config, s),
            terminated=jnp.zeros((), bool),
            truncated=s.clock >= self.config.horizon,
            metrics=values,
            cost_attribution=causes,
        )

    def scene(self, states: CruiseState, changed: Any = None) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`).

        `changed` [T, N]: which actions a shield has altered on the way.
        """
        from trident.envs.uav_cruise.scene import scene

        return scene(self.config, states, changed)

    def figure(self, where: Any, states: CruiseState, changed: Any = None) -> None:
        """Draw the episode onto a matplotlib figure, for print."""
        from trident.envs.uav_cruise.scene import figure

        figure(self.config, where, states, changed)
