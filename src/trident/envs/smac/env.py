"""Hybrid SMAC: StarCraft micromanagement where a unit chooses what to do and, with it, a small repositioning.

Each ally chooses a mode {no-op, stop, north, south, east, west, target 1, ...} and an offset (dx, dy) in the unit
disc, which is added to a move's destination, or flown between the shots of an attack. With the offset at zero the
semantics are SMAC's. One step is eight ticks of the game at normal speed, 0.5 s. Enemies attack-move.

    reward = scale x ([damage dealt + 10 per kill]_+ + 200 for the win),   scale = 20 / the most there is to earn

Costs (the `-safe` variants): `losses`, allied health and shields lost in the step; `deaths`, allies that died in it;
`crowding`, living allies nearer than half a grid unit to another; all as shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.randomised import Uncertain, Varying
from trident.envs.smac import scripted
from trident.envs.smac.actions import DIRECTIONS, FIRST_TARGET, NO_OP, STOP, allowed_modes, ally_orders, crowded, gaps
from trident.envs.smac.base_policy import base_policy
from trident.envs.smac.config import MAPS, TICK, TICKS, SmacConfig
from trident.envs.smac.engine import NOBODY, Fire, Orders, Units, battle, confine, separate
from trident.envs.smac.physics import build_physics, pack
from trident.physics import combat
from trident.types import ActionSpec, Constraint, EnvSpec, FailSafe, HybridAction, Key, Metric, TimeStep, follow

# --- config ---------------------------------------------------------------------------------------

VARIANTS: dict[str, SmacConfig] = {
    f"smac-{name}{suffix}": SmacConfig(map=name, safe=bool(suffix)) for name in MAPS for suffix in ("", "-safe")
}
"""Every map, plain and with constraints."""
DEFAULT = "3s5z_vs_3s6z"
"""The map meant by `smac-hybrid`, the task without a map's name."""


def describe(config: SmacConfig) -> str:
    """The armies and the length of an episode, in a line."""
    sides = [
        ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in army)
        for army in (config.field.allies, config.field.enemies)
    ]
    safe = "; within limits on losses, deaths and crowding" if config.safe else ""
    return f"StarCraft micro: {sides[0]} against {sides[1]}, {config.field.limit} steps{safe}"


SPREAD_ROUNDS = 6
"""Rounds of pushing apart after the starting places are drawn."""


def num_targets(config: SmacConfig) -> int:
    """Target modes: an enemy each, or an ally each for healers if these are more."""
    roster = config.roster
    ours = roster.side(True)
    return max(roster.enemies, roster.allies if roster.heals[ours].any() else 0)


def action_spec(config: SmacConfig) -> ActionSpec:
    targets = num_targets(config)
    shape = (config.roster.allies, FIRST_TARGET + targets, 2)
    used = np.ones(shape, bool)
    used[:, :2] = False  # no-op and stop have no offset
    return ActionSpec(
        low=np.full(shape, -1.0, np.float32),
        high=np.full(shape, 1.0, np.float32),
        used=used,
        mode_names=("no-op", "stop", *DIRECTIONS, *(f"target{j + 1}" for j in range(targets))),
        param_names=("dx", "dy"),
        param_units=("of the offset's reach",) * 2,
    )


def fail_safe(num_modes: int) -> FailSafe:
    """Stop where one stands; the dead do nothing."""
    order = (STOP, NO_OP, *range(STOP + 1, num_modes))
    return FailSafe("hold", order, np.zeros((num_modes, 2), np.float32), help="stop in place")


def constraints(config: SmacConfig) -> tuple[Constraint, ...]:
    if not config.safe:
        return ()
    c = config
    return (
        Constraint(
            "losses", c.loss_limit, unit="share", help="allied health and shields lost in a step, of all",
            formula="sum over allies of max(health + shield before - after, 0) / that of all at full strength",
        ),
        Constraint(
            "deaths", c.death_limit, unit="share", help="allies that died in a step, of the army",
            formula="mean over allies of 1[alive before, dead after]",
        ),
        Constraint(
            "crowding", c.crowding_limit, unit="share", help=f"living allies within {c.spacing:g} of another",
            formula=f"mean over living allies of 1[gap to the nearest other on its level < {c.spacing:g}]",
        ),
    )  # fmt: skip


METRICS = (
    Metric("reward", "higher", help="team reward of a step"),
    Metric("win", "higher", "rate", per="ended", help="episodes won"),
    Metric("ended", help="1 on an episode's last step"),
    Metric("allies_left", "higher", "share", per="ended", help="allies alive at the end"),
    Metric("enemies_left", "lower", "share", per="ended", help="enemies alive at the end"),
    Metric("length", "neither", "steps", per="ended", help="steps of an episode"),
    Metric("losses", "lower", "share", per="ended", help="allied health and shields lost in an episode, of all"),
    Metric("deaths", "lower", "share", per="ended", help="allies that died in an episode"),
    Metric("crowding", "lower", "share", help="living allies that crowd another"),
    Metric("offset", "neither", help="mean length of the living allies' offsets"),
)


class SmacState(NamedTuple):
    units: Units
    t: Int[Array, ""]
    mode: Int[Array, "A"]  # chosen in the last step
    offset: Float[Array, "A 2"]  # likewise, in grid units
    fire: Fire  # of the last step


# --- reset ----------------------------------------------------------------------------------------


def formation(config: SmacConfig, ours: bool) -> np.ndarray:
    """Starting places [side, 2]: the map's, else a block about the spawn point, short reach in front, facing the other
    army."""
    field, roster = config.field, config.roster
    if field.places is not None:
        return np.asarray(field.places, np.float32)[roster.side(ours)]
    here, there = (field.ally_spawn, field.enemy_spawn) if ours else (field.enemy_spawn, field.ally_spawn)
    facing = np.subtract(there, here)
    facing = facing / np.linalg.norm(facing)
    mine = roster.side(ours)
    count, pitch = len(roster.types[mine]), 2.0 * float(roster.width[mine].max()) + 0.1
    rows = int(np.ceil(np.sqrt(count)))
    place = np.empty((count, 2))
    for slot, unit in enumerate(np.argsort(roster.reach[mine], kind="stable")):
        depth, line = divmod(slot, rows)
        breadth = min(rows, count - depth * rows)
        across = (line - 0.5 * (breadth - 1)) * np.array([-facing[1], facing[0]])
        back = (depth - 0.5 * ((count - 1) // rows)) * facing
        place[unit] = np.asarray(here) + pitch * (across - back)
    return place.astype(np.float32)


def initial_units(config: SmacConfig, key: Key) -> Units:
    roster = config.roster
    place = jnp.asarray(np.concatenate([formation(config, True), formation(config, False)]))
    place = place + config.jitter * jax.random.uniform(key, place.shape, minval=-1.0, maxval=1.0)
    zero = jnp.zeros(roster.size)
    units = Units(
        x=place[:, 0],
        y=place[:, 1],
        health=jnp.asarray(roster.health),
        shield=jnp.asarray(roster.shield),
        cooldown=zero,
        energy=jnp.asarray(np.where(roster.heals, combat.ENERGY_START, 0.0), jnp.float32),
        calm=jnp.full(roster.size, 1e4),
        target=jnp.full(roster.size, NOBODY, jnp.int32),
    )
    still = jnp.zeros(units.x.shape, bool)
    return jax.lax.fori_loop(0, SPREAD_ROUNDS, lambda _, u: confine(config, separate(config, u, still)), units)


# --- step -----------------------------------------------------------------------------------------


def orders_for_all(config: SmacConfig, units: Units, action: HybridAction) -> tuple[Orders, Float[Array, "A 2"]]:
    """The allies' orders from their actions, the enemies' attack-move; and the allies' offsets."""
    field, roster = config.field, config.roster
    target, goal, go, offset = ally_orders(config, units.x, units.y, action)
    point = np.asarray(field.ally_spawn if field.attack_point is None else field.attack_point, np.float32)
    e = roster.enemies
    drift = jnp.concatenate([offset / TICKS, jnp.zeros((e, 2))])
    orders = Orders(
        target=jnp.concatenate([target, jnp.full(e, NOBODY, jnp.int32)]),
        goal_x=jnp.concatenate([goal[:, 0], jnp.full(e, point[0])]),
        goal_y=jnp.concatenate([goal[:, 1], jnp.full(e, point[1])]),
        go=jnp.concatenate([go, jnp.ones(e, bool)]),
        drift_x=drift[:, 0],
        drift_y=drift[:, 1],
    )
    return orders, offset


def transition(config: SmacConfig, state: SmacState, action: HybridAction) -> SmacState:
    orders, offset = orders_for_all(config, state.units, action)
    units, fire = battle(config, (False, True), orders, state.units)
    return SmacState(units, state.t + 1, action.mode, offset, fire)


# --- observation ----------------------------------------------------------------------------------


def observe(config: SmacConfig, units: Units, mask: Bool[Array, "A M"]) -> Float[Array, "A O"]:
    """Own condition; of every enemy and every other ally in sight: direction, distance, condition, kind.

    Features lie one after another, each over all units: the order of a unit's slot is that of the target modes.
    """
    roster, a = config.roster, config.roster.allies
    alive = units.health > 0
    dx, dy = (v[None, :] - v[:a, None] for v in (units.x, units.y))
    distance = jnp.sqrt(dx * dx + dy * dy)
    seen = (distance < config.sight) & alive[None, :] & alive[:a, None] & ~np.eye(a, roster.size, dtype=bool)
    seen = seen.astype(jnp.float32)
    vitality = [units.health / roster.health]
    if roster.shield.any():
        vitality.append(units.shield / np.maximum(roster.shield, 1.0))
    kinds = [np.array([u == kind for u in roster.types], np.float32) for kind in dict.fromkeys(roster.types)]
    kinds = kinds if len(kinds) > 1 else []
    blocks = [seen, *(seen * b / config.sight for b in (distance, dx, dy))]
    blocks += [seen * v[None, :] for v in vitality] + [seen * k[None, :] for k in kinds]
    own = [units.x / 16.0 - 1.0, units.y / 16.0 - 1.0, *vitality, units.cooldown / roster.period]
    own += [units.energy / combat.ENERGY_MAX] if roster.heals.any() else []
    here = alive[:a, None].astype(jnp.float32)
    own = jnp.stack(own, -1)[:a] * here
    can = mask[:, 2:].astype(jnp.float32) * here  # directions that are open, targets that are near
    kind = np.stack(kinds, -1)[:a] * here if kinds else jnp.zeros((a, 0))
    return jnp.concatenate([own, kind, can, *blocks], -1)


def observation_names(config: SmacConfig, action: ActionSpec) -> tuple[str, ...]:
    """What `observe` lists, in its order."""
    roster = config.roster
    vital = ["health", "shield"] if roster.shield.any() else ["health"]
    kinds = list(dict.fromkeys(roster.types)) if len(set(roster.types)) > 1 else []
    names = ["place x", "place y", *vital, "cooldown"] + (["energy"] if roster.heals.any() else [])
    names += [f"is {kind}" for kind in kinds] + [f"may {mode}" for mode in action.mode_names[2:]]
    allies, foes = range(roster.allies), range(roster.enemies)
    units = [f"ally {k + 1}" for k in allies] + [f"enemy {k + 1}" for k in foes]
    traits = ["seen", "distance", "x", "y", *vital, *(f"is {kind}" for kind in kinds)]
    return (*names, *(f"{unit} {trait}" for trait in traits for unit in units))


# --- reward and costs -----------------------------------------------------------------------------


def most_reward(config: SmacConfig) -> float:
    """All enemy health and shields, every kill, the win."""
    roster, enemy = config.roster, config.roster.side(False)
    return float(roster.pool[enemy].sum()) + config.kill_reward * roster.enemies + config.win_reward


def outcome(config: SmacConfig, units: Units) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """(over, won). An army of which only healers are left has lost; if both have, nobody has won."""
    fighters = (units.health > 0) & (config.roster.dps > 0)
    ours, theirs = fighters[: config.roster.allies].any(), fighters[config.roster.allies :].any()
    return ~(ours & theirs), ours & ~theirs


def margins(config: SmacConfig, losses: Array, before: Units, after: Units) -> Float[Array, "3"]:
    """> 0 is safe: share of the step's loss limit that is left; the weakest ally's health (or minus the share that
    died); the smallest gap between two allies beyond the spacing asked for."""
    c, a = config, config.roster.allies
    was, lives = before.health[:a] > 0, after.health[:a] > 0
    vigour = (after.health + after.shield)[:a] / c.roster.pool[:a]
    weakest = jnp.where(was, vigour, 1.0).min()
    died = (was & ~lives).mean()
    gap = gaps(c, after.x[:a], after.y[:a], lives).min()
    loss = jnp.clip(1.0 - losses / max(c.loss_limit, 1e-6), -1.0, 1.0)
    return jnp.stack([loss, jnp.where(died > 0, -died, weakest), jnp.clip(gap / c.spacing - 1.0, -1.0, 1.0)])


def reward_and_costs(config: SmacConfig, before: Units, state: SmacState) -> TimeStep:
    """Everything of the time step but what is seen (`obs`, `state` and the mask are left empty)."""
    c, roster, after = config, config.roster, state.units
    a = roster.allies
    pool, was = after.health + after.shield, before.health + before.shield
    alive, lived = after.health > 0, before.health > 0
    over, won = outcome(c, after)
    kills = (lived & ~alive)[a:].sum()
    dealt = (was - pool)[a:].sum() + c.kill_reward * kills
    reward = c.reward_scale / most_reward(c) * (jnp.maximum(dealt, 0.0) + c.win_reward * won)
    losses = jnp.maximum(was - pool, 0.0)[:a].sum() / float(roster.pool[:a].sum())
    deaths = (lived & ~alive)[:a].mean()
    crowding = crowded(c, after.x[:a], after.y[:a], alive[:a])
    ended = over | (state.t >= c.field.limit)
    e = ended.astype(jnp.float32)
    living = jnp.maximum(lived[:a].sum(), 1)
    values = {
        "reward": reward,
        "win": e * won,
        "ended": e,
        "allies_left": e * alive[:a].mean(),
        "enemies_left": e * alive[a:].mean(),
        "length": e * state.t,
        "losses": losses,
        "deaths": deaths,
        "crowding": crowding,
        "offset": (jnp.sqrt((state.offset**2).sum(-1)) * lived[:a]).sum() / living,
    }
    cost = jnp.stack([losses, deaths, crowding])
    margin = margins(c, losses, before, after)
    keep = 3 if c.safe else 0
    nothing = jnp.zeros(0)
    return TimeStep(
        obs=nothing,
        state=nothing,
        mode_mask=nothing,
        alive=alive[:a],
        reward=reward,
        cost=cost[:keep],
        margin=margin[:keep],
        terminated=over,
        truncated=(state.t >= c.field.limit) & ~over,
        metrics=values,
    )


# --- the environment ------------------------------------------------------------------------------


class Smac(Varying):
    """The environment for one battle; see `SmacConfig` for every number and `VARIANTS` for named maps."""

    shield = None
    uncertain: Mapping[str, Uncertain] = {
        "enemy-damage": Uncertain("damage of an enemy's blow"),
        "speed": Uncertain("speed of the allies"),
    }

    def __init__(self, config: SmacConfig = SmacConfig()):  # noqa: B008 (frozen)
        self.config = config
        roster = config.roster
        self.action = action_spec(config)
        shapes = jax.eval_shape(lambda key: self._look(initial_units(config, key), jnp.int32(0)), jax.random.key(0))
        self.spec = EnvSpec(
            name=config.name,
            version=2,
            num_agents=roster.allies,
            obs_dim=shapes[0].shape[-1],
            state_dim=shapes[1].shape[-1],
            action=self.action,
            constraints=constraints(config),
            horizon=config.field.limit,
            kinds=tuple(roster.types.index(each) for each in roster.types[: roster.allies]),
            metrics=METRICS,
            obs_names=observation_names(config, self.action),
            step_seconds=TICKS * TICK,
            fail_safe=fail_safe(self.action.num_modes),
        )
        suggest = partial(base_policy, config, self.action.num_modes)
        self.physics = replace(build_physics(config, self.action.num_modes), base_policy=suggest)

        def nominal(key, state):
            return self.physics.nominal(pack(config, state.units, state.t))

        def follow_base(key, state):
            return follow(self.action, suggest, self._look(state.units, state.t)[0])

        self.scripted = scripted.policies(config, self.action) | {"nominal": nominal, "base-policy": follow_base}

    def reset(self, key: Key) -> tuple[SmacState, TimeStep]:
        units = initial_units(self.config, key)
        n, a = self.config.roster.size, self.config.roster.allies
        fire = Fire(jnp.zeros(n), jnp.full(n, NOBODY, jnp.int32))
        state = SmacState(units, jnp.int32(0), jnp.ones(a, jnp.int32), jnp.zeros((a, 2)), fire)
        first = self.reward_and_costs(units, state)
        zeros = partial(jax.tree.map, jnp.zeros_like)
        return state, first._replace(reward=jnp.float32(0), cost=zeros(first.cost), metrics=zeros(first.metrics))

    def step(self, key: Key, state: SmacState, action: HybridAction) -> tuple[SmacState, TimeStep]:
        del key  # chance lies in the starting places alone
        state = jax.tree.map(jnp.asarray, state)
        after = transition(self.config, state, action)
        return after, self.reward_and_costs(state.units, after)

    def _look(self, units: Units, t: Int[Array, ""]) -> tuple[Array, Array, Array]:
        mask = allowed_modes(self.config, self.action.num_modes, units.x, units.y, units.health > 0)
        return observe(self.config, units, mask), pack(self.config, units, t), mask

    def reward_and_costs(self, before: Units, state: SmacState) -> TimeStep:
        """The time step that led from `before` to `state`."""
        obs, array, mask = self._look(state.units, state.t)
        return reward_and_costs(self.config, before, state)._replace(obs=obs, state=array, mode_mask=mask)

    def scene(self, states: SmacState) -> Any:
        """The drawing of an episode's states [T + 1, ...] (NumPy arrays) as plain data (`trident.report.scene`)."""
        from trident.envs.smac.scene import scene

        return scene(self.config, states)

    def draw(self, where: Any, states: SmacState, t: int | None = None) -> None:
        """Draw step t of an episode (states with a leading time axis, as NumPy arrays) onto a matplotlib figure."""
        from trident.envs.smac.render import draw  # matplotlib takes a second to import

        draw(self.config, where, jax.tree.map(lambda x: x[: t + 1] if t is not None else x, states))
