"""What a slot of UAV-MEC is worth: reward, costs, margins, metrics, and the attribution of costs to agents."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.dynamics import Draws, MecState, Service, distances, speed_of


def mode_names(config: UavMecConfig) -> tuple[str, ...]:
    return ("local", *(f"fog{f + 1}" for f in range(config.num_fogs)))


def margins(config: UavMecConfig, s: MecState) -> Float[Array, "K"]:
    """Signed distance to each limit of the slot, about unit scale; negative exactly when the cost is charged.

    Coverage: at least k users are covered exactly when the k-th shortest distance to an own UAV is within the
    coverage radius, and that distance is smooth in the positions.
    """
    c = config
    energy = (1.0 - s.energy / c.energy_max).min()
    within = (s.reach[None, :] <= s.reach[:, None]).sum(1)
    kth = jnp.where(within >= c.needed, s.reach, jnp.inf).min()
    coverage = 1.0 - kth / c.coverage_radius if c.needed else jnp.ones(())
    coverage = jnp.where(s.slot > c.grace, coverage, jnp.maximum(coverage, 0.0))
    if not c.separation:
        return jnp.stack([energy, coverage])
    apart = jnp.clip(closest(s) / c.separation_min - 1.0, -1.0, 1.0)
    return jnp.stack([energy, coverage, apart.min()])


def closest(s: MecState) -> Float[Array, "N"]:
    """Distance of each UAV to the nearest other one."""
    return jnp.where(jnp.eye(s.uav.shape[0], dtype=bool), jnp.inf, distances(s.uav, s.uav)).min(1)


def reward_and_costs(
    config: UavMecConfig, s: MecState, service: Service, draws: Draws
) -> tuple[Float[Array, ""], Float[Array, "K"], dict[str, Float[Array, ""]]]:
    """Reward, costs and metrics of the slot that led to state `s`."""
    c = config
    exec_time = service.latency.sum()
    finished = (draws.size * (service.latency <= c.deadline)).sum()
    covered = (s.reach <= c.coverage_radius).sum()
    over = (service.energy > c.energy_max).mean()
    low = (covered < c.needed).astype(jnp.float32)
    charged = (s.slot > c.grace).astype(jnp.float32)
    cost = [over, low * charged]
    reward = -exec_time - c.energy_weight * service.energy.sum()
    reward = reward - c.coverage_penalty * c.num_uavs * low * charged
    values = {
        "reward": reward,
        "exec": exec_time,
        "energy": service.energy.mean(),
        "throughput": finished / exec_time,
        "ev": over,
        "cv": low * charged,
        "cv_all": low,
        "charged": charged,
        "covered": covered / c.num_users,
        "served": service.load.sum() / c.num_users,
        "speed": speed_of(s.uav_vel).mean(),
    }
    values |= {name: (s.mode == m).mean() for m, name in enumerate(mode_names(c))}
    if c.separation:
        near = (closest(s) < c.separation_min).mean()
        cost.append(near)
        values["sv"] = near
    return reward, jnp.stack(cost), values


def cost_attribution(config: UavMecConfig, s: MecState, cost: Float[Array, "K"]) -> Bool[Array, "N K"]:
    """Who caused the costs: a UAV its own excess of energy and its own closeness; lost coverage, all of them."""
    own = [s.energy > config.energy_max, jnp.broadcast_to(cost[1] > 0, s.energy.shape)]
    if config.separation:
        own.append(closest(s) < config.separation_min)
    return jnp.stack(own, axis=-1)
