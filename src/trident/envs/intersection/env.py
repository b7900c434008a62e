"""An intersection without lights: vehicles choose a lane and (accelerator, brake, steering), and must not collide.

N vehicles arrive at random times on four arms with two lanes each way, each intending to turn left, go straight or turn
right. A step: lanes are chosen, vehicles drive (kinematic bicycle), who crashed, left the road or arrived leaves, and
who is due enters. All chance lies in the initial state: when, where and how fast everyone comes.

    reward = mean over the vehicles of  0.1 progress (m) - 0.1 time (s) + 30 [goal] - 10 [crash or off the road]

so that the sum over an episode is the mean return of a vehicle. Costs: `collision`, the share of vehicles that crash
in the step; `lane`, the share that is off its lane.
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

from trident.envs.geometry import nearest, take
from trident.envs.intersection import scripted
from trident.envs.intersection.base_policy import base_policy
from trident.envs.intersection.config import ARMS, LANES, IntersectionConfig
from trident.envs.intersection.dynamics import (
    LATER,
    WAITING,
    Boxes,
    Events,
    Traffic,
    admit,
    boxes,
    may_choose,
    transition,
)
from trident.envs.intersection.physics import build_physics, pack
from trident.envs.intersection.right_of_way import Relations, bend_limit, relate
from trident.envs.intersection.roads import FAR, path_of, pick, place, roads
from trident.envs.intersection.shield import shield
from trident.envs.randomised import Uncertain, Varying
from trident.physics import braking
from trident.types import ActionSpec, Constraint, EnvSpec, FailSafe, HybridAction, Key, Metric, TimeStep, follow

# --- config ---------------------------------------------------------------------------------------

VARIANTS: dict[str, IntersectionConfig] = {
    "intersection": IntersectionConfig(),
    "intersection-n2": IntersectionConfig(num_vehicles=2),
    "intersection-n4": IntersectionConfig(num_vehicles=4),
    "intersection-n16": IntersectionConfig(num_vehicles=16),
    "intersection-n32": IntersectionConfig(num_vehicles=32),
    "intersection-dense": IntersectionConfig(headway=1.5, entry_speed=(10.0, 13.0)),
    "intersection-raw": IntersectionConfig(steering="raw"),
}
"""Named scenarios. `intersection` is version 1 and frozen; results on it stay comparable."""


def action_spec(config: IntersectionConfig) -> ActionSpec:
    c, shape = config, (config.num_vehicles, LANES, 3)
    turn = c.correction if c.steering == "lane" else c.steer_limit
    return ActionSpec(
        low=np.full(shape, (0.0, -c.brake, -turn), np.float32),
        high=np.full(shape, (c.accel, c.brake, turn), np.float32),
        used=np.ones(shape, bool),
        mode_names=("left lane", "right lane"),
        param_names=("accel", "brake", "steering"),
        param_units=("m/s2", "m/s2", "rad"),
    )


def fail_safe(config: IntersectionConfig) -> FailSafe:
    """Full brake, wheels as the lane tracker holds them (straight, with raw steering), no change of lane."""
    params = np.tile(np.array([0.0, config.brake, 0.0], np.float32), (LANES, 1))
    return FailSafe("brake", tuple(range(LANES))[::-1], params, keep_mode=True, help="full brake in the present lane")


def constraints(config: IntersectionConfig) -> tuple[Constraint, ...]:
    c = config
    return (
        Constraint(
            "collision", c.collision_limit, help="share of the vehicles that crash in a step",
            formula="mean over vehicles of 1[it touches another in this step]",
        ),
        Constraint(
            "lane", c.lane_limit, help="share of the vehicles with a corner off their lane",
            formula="mean over vehicles of 1[a corner is outside its lane]",
        ),
    )  # fmt: skip


METRICS = (
    Metric("return", "higher", per="episodes", help="reward of a vehicle over its episode, the paper's Reward"),
    Metric("collisions", "lower", per="vehicles", help="crashed vehicles per 100 vehicle-episodes"),
    Metric("throughput", "higher", "vehicles/min", help="vehicles that reach their goal per minute"),
    Metric("delay", "lower", "s", per="finished", help="time lost against an empty road, of those who arrive"),
    Metric("clear", "lower", "s", per="episodes", help="time until the last vehicle is gone (the horizon at most)"),
    Metric("cleared", "higher", "share", per="episodes", help="share of episodes that end before the horizon"),
    Metric("arrived", "higher", "share", per="vehicles", help="share of the vehicles that reach their goal"),
    Metric("off_lane", "lower", "rate", per="driving", help="share of vehicle-steps off the lane"),
    Metric("off_road", "lower", per="vehicles", help="vehicles per 100 vehicle-episodes that leave the road"),
    Metric("speed", "neither", "m/s", per="driving", help="mean speed of vehicles on the road"),
    Metric("vehicles", help="vehicle-episodes that ended in the step"),
    Metric("episodes", help="1 on the last step of an episode"),
    Metric("finished", help="vehicles that reached their goal in the step"),
    Metric("driving", help="vehicles on the road"),
)


# --- reset ----------------------------------------------------------------------------------------


def initial_traffic(config: IntersectionConfig, key: Key) -> Traffic:
    """Arrivals, entry speeds, lanes and routes are drawn; the first to arrive is on the road."""
    c, n = config, config.num_vehicles
    k_time, k_speed, k_lane, k_turn = jax.random.split(key, 4)
    arrival = c.headway * (np.arange(n) // ARMS + jax.random.uniform(k_time, (n,)))
    arrival = arrival - arrival.min()
    entry = jax.random.uniform(k_speed, (n,), minval=c.entry_speed[0], maxval=c.entry_speed[1])
    lane = jax.random.randint(k_lane, (n,), 0, LANES)
    lot = jax.random.uniform(k_turn, (n,))
    movement = (lot >= c.turns[0]).astype(jnp.int32) + (lot >= c.turns[0] + c.turns[1])
    s, zero = jnp.full(n, -c.approach), jnp.zeros(n)
    x, y, heading = place(c, s, zero, zero, path_of(lane, movement))
    t = Traffic(
        x=x,
        y=y,
        heading=heading,
        cos=zero,
        sin=zero + 1.0,
        speed=zero,
        steer=zero,
        s=s,
        e=zero,
        error=zero,
        lane=lane,
        phase=jnp.full(n, WAITING, jnp.int32),
        movement=movement,
        arrival=arrival,
        entry=entry,
        request=zero + LATER,
        commit=zero + LATER,
        halted=jnp.zeros(n, bool),
        clock=jnp.zeros((), jnp.int32),
    )
    return admit(c, t, arrival <= 0.0)


def empty_road_time(config: IntersectionConfig, t: Traffic) -> Float[Array, "N"]:
    """Time of a lone vehicle: up to top speed, brake for the turn, turn, up to top speed again."""
    c, r = config, roads(config)
    path = path_of(jnp.where(t.movement == 0, 0, 1), t.movement)
    slow, inside, top = pick(r.turn_speed, path), pick(r.inside, path), c.top_speed
    rising = (top - t.entry) / c.accel + (top - slow) / c.accel
    rise_way = (2.0 * top**2 - t.entry**2 - slow**2) / (2.0 * c.accel)
    braking, brake_way = (top - slow) / c.brake, (top**2 - slow**2) / (2.0 * c.brake)
    return rising + braking + inside / slow + (c.approach + c.exit - rise_way - brake_way) / top


# --- observation ----------------------------------------------------------------------------------


def see_self(config: IntersectionConfig, t: Traffic, rel: Relations) -> Float[Array, "N _"]:
    """Own motion, route and lane; the leader; the first conflict point that belongs to someone else."""
    c, r = config, roads(config)
    to_line = c.stop - t.s
    to_goal = pick(r.inside, t.path) + c.exit - t.s
    lead = rel.gap.min(1)
    nearest = rel.gap == lead[:, None]
    lead_speed = jnp.where(nearest, t.speed[None, :], 0.0).max(1)
    has_lead = lead < FAR
    wait = jnp.where(rel.waits, rel.enter, FAR).min(1) - t.s
    wrong = jnp.where(t.lane == 0, t.movement == 2, t.movement == 0)
    features = [
        t.speed / c.top_speed,
        t.e / c.lane_width,
        t.error / 0.3,
        t.steer / c.steer_limit,
        jnp.clip(to_line / 100.0, -1.0, 1.0),
        jnp.clip(to_line / 15.0, -1.0, 1.0),
        jnp.clip(to_goal / 50.0, 0.0, 1.0),
        jnp.clip((bend_limit(c, t) - t.speed) / 4.0, -1.0, 1.0),
        t.lane,
        wrong,
        t.s < -c.lock,
        t.movement == 0,
        t.movement == 2,
        t.commit < LATER,
        t.halted,
        jnp.where(has_lead, jnp.clip(1.0 - (lead - c.length) / 40.0, 0.0, 1.0), 0.0),
        jnp.where(has_lead, (lead_speed - t.speed) / c.top_speed, 0.0),
        jnp.clip(1.0 - wait / 40.0, 0.0, 1.0),
        jnp.minimum(rel.waits.sum(1) / 4.0, 1.0),
    ]
    return jnp.stack([f.astype(jnp.float32) for f in features], 1)


def see_others(config: IntersectionConfig, t: Traffic, rel: Relations, box: Boxes) -> Float[Array, "N _"]:
    """Nearest vehicles: place and motion in the own frame, and how the two would meet at their present speeds."""
    c, n = config, config.num_vehicles
    dx, dy = box.x[None, :] - box.x[:, None], box.y[None, :] - box.y[:, None]
    vx, vy = t.speed * box.cos, t.speed * box.sin
    dvx, dvy = vx[None, :] - vx[:, None], vy[None, :] - vy[:, None]
    cos, sin = box.cos[:, None], box.sin[:, None]
    pace = 1.0 / jnp.maximum(t.speed, 1.0)[:, None]
    enter, leave = (jnp.maximum(edge - t.s[:, None], 0.0) * pace for edge in (rel.enter, rel.leave))
    apart = braking.time_gap(enter, leave, enter.T, leave.T)
    traits = [
        (dx * cos + dy * sin) / 50.0,
        (dy * cos - dx * sin) / 50.0,
        (dvx * cos + dvy * sin) / c.top_speed,
        (dvy * cos - dvx * sin) / c.top_speed,
        jnp.where(rel.meets, jnp.clip(1.0 - apart / 4.0, 0.0, 1.5), 0.0),
        jnp.where(rel.meets, jnp.clip(1.0 - enter / 6.0, 0.0, 1.0), 0.0),
        rel.waits.astype(jnp.float32),
        jnp.ones((n, n)),
    ]
    seen = t.driving[:, None] & t.driving[None, :] & ~np.eye(n, dtype=bool)
    return take(jnp.stack(traits, -1), *nearest(dx * dx + dy * dy, seen, min(c.seen, n - 1)))


def observe(config: IntersectionConfig, t: Traffic) -> Float[Array, "N O"]:
    """What each vehicle sees; every feature is about unit scale; zeros for those who are not on the road."""
    rel = relate(config, t)
    parts = [see_self(config, t, rel)]
    if config.num_vehicles > 1:
        parts.append(see_others(config, t, rel, boxes(config, t)))
    return jnp.where(t.driving[:, None], jnp.concatenate(parts, 1), 0.0)


def observation_names(config: IntersectionConfig) -> tuple[str, ...]:
    """What `observe` lists, in its order."""
    own = (
        "speed", "offset", "heading error", "wheels", "way to the line / 100 m", "way to the line / 15 m",
        "way to the goal", "room below the bend's speed", "right lane", "wrong lane", "lane may change", "turns left",
        "turns right", "committed", "halted", "leader near", "leader's speed", "conflict near", "conflicts ahead",
    )  # fmt: skip
    traits = ("ahead", "left", "speed ahead", "speed left", "time gap", "time to conflict", "goes first", "seen")
    others = min(config.seen, config.num_vehicles - 1)
    return (*own, *(f"vehicle {k + 1} {trait}" for k in range(others) for trait in traits))


# --- reward and costs -----------------------------------------------------------------------------


def reward_and_costs(
    config: IntersectionConfig, t: Traffic, ev: Events
) -> tuple[Array, Array, Array, dict[str, Array]]:
    """Reward, costs, margins and metrics of the step that led to `t`."""
    c = config
    lost = ev.crashed | ev.off_road
    reward = c.progress_weight * ev.progress - c.time_weight * c.step * ev.on_time
    reward = (reward + c.goal_reward * ev.finished - c.crash_penalty * lost).mean()
    cost = jnp.stack([ev.crashed.mean(), ev.off_lane.mean()])
    margin = jnp.stack([jnp.clip(ev.clearance / 5.0, -1.0, 1.0), ev.lane_room.min() / (0.5 * c.lane_width)])
    gone = ~(t.driving | (t.phase == WAITING))
    over = gone.all() | (t.clock >= c.horizon)
    now = t.clock * c.step
    late = now - t.arrival - empty_road_time(c, t)
    ended = jnp.where(over, (ev.finished | ev.missed | lost | ~gone).sum(), (ev.finished | ev.missed | lost).sum())
    values = {
        "collisions": 100.0 * ev.crashed.sum(),
        "throughput": ev.finished.sum() * 60.0 / c.step,
        "delay": (late * ev.finished).sum(),
        "clear": over * now,
        "cleared": gone.all(),
        "arrived": ev.finished.sum(),
        "off_lane": ev.off_lane.sum(),
        "off_road": 100.0 * ev.off_road.sum(),
        "speed": (t.speed * t.driving).sum(),
        "vehicles": ended,
        "episodes": over,
        "finished": ev.finished.sum(),
        "driving": t.driving.sum(),
    }
    values = {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
    return reward, cost.astype(jnp.float32), margin, values | {"return": reward}


# --- the environment ------------------------------------------------------------------------------


class Intersection(Varying):
    """The environment for one intersection; see `IntersectionConfig` for every number, `VARIANTS` for scenarios."""

    uncertain: Mapping[str, Uncertain] = {
        "brakes": Uncertain("deceleration that the brake pedal gives"),
        "engine": Uncertain("acceleration that the other pedal gives"),
        "steering": Uncertain("curvature that a steering angle gives"),
    }

    def __init__(self, config: IntersectionConfig = IntersectionConfig()):  # noqa: B008 (frozen)
        self.config = config
        shapes = jax.eval_shape(lambda key: self._look(initial_traffic(config, key)), jax.random.key(0))
        self.spec = EnvSpec(
            name="intersection",
            version=1,
            num_agents=config.num_vehicles,
            obs_dim=shapes[0].shape[-1],
            state_dim=shapes[1].shape[-1],
            action=action_spec(config),
            constraints=constraints(config),
            horizon=config.horizon,
            metrics=METRICS,
            obs_names=observation_names(config),
            step_seconds=config.step,
            fail_safe=fail_safe(config),
        )
        self.physics = build_physics(config)

        def nominal(key, state):
            return self.physics.nominal(pack(config, state))

        self.scripted = scripted.policies(config) | {"nominal": nominal}
        if config.steering == "lane":
            suggest = partial(base_policy, config, self.spec.action)
            self.physics = replace(self.physics, base_policy=suggest)
            self.scripted["base-policy"] = lambda key, state: follow(self.spec.action, suggest, observe(config, state))
        self.shield = partial(shield, config)

    def reset(self, key: Key) -> tuple[Traffic, TimeStep]:
        t = initial_traffic(self.config, key)
        c = self.config
        margin = jnp.array([1.0, 1.0 - c.width / c.lane_width])  # the first to arrive is alone, in mid-lane
        zero = jnp.zeros(())
        idle = {m.name: zero for m in self.spec.metrics}
        nobody = jnp.zeros((c.num_vehicles, 2), bool)
        return t, self.timestep(t, zero, jnp.zeros(2), margin, idle)._replace(cost_attribution=nobody)

    def step(self, key: Key, state: Traffic, action: HybridAction) -> tuple[Traffic, TimeStep]:
        state = jax.tree.map(jnp.asarray, state)  # a state kept on the host is as good
        after, events = transition(self.config, state, action)
        out = self.timestep(after, *reward_and_costs(self.config, after, events))
        return after, out._replace(cost_attribution=jnp.stack([events.crashed, events.off_lane], axis=-1))

    def _look(self, t: Traffic) -> tuple[Array, Array]:
        return observe(self.config, t), pack(self.config, t)

    def timestep(self, t: Traffic, reward: Array, cost: Array, margin: Array, values: dict[str, Any]) -> TimeStep:
        obs, array = self._look(t)
        gone = ~(t.driving | (t.phase == WAITING)).any()
        return TimeStep(
            obs=obs,
            state=array,
            mode_mask=may_choose(self.config, t),
            alive=t.driving,
            reward=reward,
            cost=cost,
            margin=margin,
            terminated=gone,
            truncated=(t.clock >= self.config.horizon) & ~gone,
            metrics=values,
        )

    def scene(self, states: Any, changed: Any = None) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`)."""
        from trident.envs.intersection.scene import scene

        return scene(self.config, states, changed)

    def draw(self, where: Any, history: Any, t: int | None = None, changed: Any = None) -> None:
        """Draw a frame onto a matplotlib figure (map and gauges) or axes (map).

        `history`: the states of an episode [T + 1, ...] as NumPy arrays, of which frame `t` is drawn. `changed` [T, N]:
        which actions a shield has altered on the way.
        """
        from trident.envs.intersection.render import draw  # matplotlib takes a second to import

        last = len(history.clock) - 1 if t is None else t
        past = None if changed is None else np.asarray(changed)[:last]
        draw(self.config, where, jax.tree.map(lambda x: x[: last + 1], history), past)
