"""Hybrid SMAC on the real game, for users who have StarCraft II and the `smac` maps: the same spaces and words.

`commands` turns an action into the game's raw unit commands, `read_units` turns its raw unit messages into the arrays
of the JAX environment, from which masks, observation, state, reward and costs follow as there. Messages are read and
written by their protocol names (tag, unit_type, pos.x, health, ...), so nothing of the game is imported here.
`from_smac` drives the game of the `smac` package's environment.

Tested against messages built by hand; it has not been run against the game.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.geometry import square_to_disc
from trident.envs.smac.actions import FIRST_TARGET, NO_OP, STEPS, STOP, ally_orders
from trident.envs.smac.config import TICKS, SmacConfig
from trident.envs.smac.engine import NOBODY, Fire, Units
from trident.envs.smac.env import Smac, SmacState
from trident.types import HybridAction, TimeStep

ABILITIES = {"stop": 4, "move": 16, "attack": 23, "heal": 386}
ENEMY_KINDS = {
    48: "marine",
    51: "marauder",
    54: "medivac",
    73: "zealot",
    74: "stalker",
    105: "zergling",
    107: "hydralisk",
}
"""The game's unit types. The maps' own allied types have other numbers: `ally_kinds`."""
LEAST_OFFSET = 0.05
"""Grid units below which an attack is not interrupted for repositioning."""


class Command(NamedTuple):
    """One raw unit command; either a point, a target, or neither."""

    ability: int
    tag: int
    point: tuple[float, float] | None = None
    target: int | None = None
    queued: bool = False


def ally_kinds(config: SmacConfig, types: Iterable[int]) -> dict[int, str]:
    """The maps number their allied types in the alphabetical order of the kinds."""
    kinds = sorted({u.name for u in config.roster.types[: config.roster.allies]})
    return dict(zip(sorted(set(types)), kinds, strict=True))


def muster(config: SmacConfig, ours: bool, messages: Sequence[Any], kinds: Mapping[int, str]) -> list[int]:
    """Tags in the order of the roster: kind by kind, within a kind by place."""
    wanted = [u.name for u in config.roster.types[config.roster.side(ours)]]
    order = {name: k for k, name in enumerate(dict.fromkeys(wanted))}
    found = sorted(messages, key=lambda m: (order.get(kinds.get(m.unit_type, ""), 99), m.pos.x, m.pos.y))
    names = [kinds.get(m.unit_type, f"type {m.unit_type}") for m in found]
    if names != wanted:
        raise ValueError(f"the game has {', '.join(names)}; {config.name} needs {', '.join(wanted)}")
    return [m.tag for m in found]


def read_units(config: SmacConfig, tags: Sequence[int], messages: Iterable[Any], before: Units | None) -> Units:
    """Arrays from raw unit messages. Units the game no longer lists are dead and stay where they were."""
    roster, seen = config.roster, {m.tag: m for m in messages}
    nothing = jnp.zeros(roster.size)
    last = before or Units(*[nothing] * 7, target=nothing.astype(jnp.int32))
    rows = []
    for i, tag in enumerate(tags):
        m = seen.get(tag)
        if m is None or m.health <= 0:
            rows.append((float(last.x[i]), float(last.y[i]), 0.0, 0.0, 0.0, 0.0))
        else:
            rows.append((m.pos.x, m.pos.y, m.health, m.shield, m.weapon_cooldown, m.energy))
    x, y, health, shield, cooldown, energy = np.asarray(rows, np.float32).T
    # The game does not say when a unit was last hit: less health or shield than a step ago says that it was.
    hit = (health + shield) < np.asarray(last.health + last.shield) - 1e-3
    calm = np.full(roster.size, 1e4) if before is None else np.where(hit, 0.0, np.asarray(last.calm) + TICKS)
    arrays = (jnp.asarray(a, jnp.float32) for a in (x, y, health, shield, cooldown, energy * roster.heals, calm))
    return Units(*arrays, target=jnp.full(roster.size, NOBODY, jnp.int32))


def commands(config: SmacConfig, tags: Sequence[int], units: Units, action: HybridAction) -> list[Command]:
    """Raw commands of the living allies.

    A move goes to the place two grid units away plus the offset. An attack whose weapon is cooling down first moves by
    the offset, the attack is queued behind it; a ready weapon, or an offset near zero, attacks at once, as SMAC does.
    """
    roster = config.roster
    offsets = config.offset * np.asarray(square_to_disc(jnp.clip(jnp.asarray(action.params, jnp.float32), -1, 1)))
    out = []
    for i, mode in enumerate(np.asarray(action.mode).tolist()):
        tag, here = tags[i], np.array([float(units.x[i]), float(units.y[i])])
        if mode == NO_OP or float(units.health[i]) <= 0:
            continue
        if mode == STOP:
            out.append(Command(ABILITIES["stop"], tag))
        elif mode < FIRST_TARGET:
            goal = here + config.move * STEPS[mode - 2] + offsets[i]
            out.append(Command(ABILITIES["move"], tag, point=(float(goal[0]), float(goal[1]))))
        else:
            heals = bool(roster.heals[i])
            target = tags[mode - FIRST_TARGET + (0 if heals else roster.allies)]
            free = heals or float(units.cooldown[i]) > 0
            shift = free and float(np.hypot(*offsets[i])) > LEAST_OFFSET
            if shift:
                goal = here + offsets[i]
                out.append(Command(ABILITIES["move"], tag, point=(float(goal[0]), float(goal[1]))))
            out.append(Command(ABILITIES["heal" if heals else "attack"], tag, target=target, queued=shift))
    return out


def to_message(command: Command, raw: Any, common: Any, api: Any) -> Any:
    """A protocol message, with the protocol's modules raw_pb2, common_pb2 and sc2api_pb2 given."""
    fields: dict[str, Any] = {
        "ability_id": command.ability,
        "unit_tags": [command.tag],
        "queue_command": command.queued,
    }
    if command.point is not None:
        fields["target_world_space_pos"] = common.Point2D(x=command.point[0], y=command.point[1])
    if command.target is not None:
        fields["target_unit_tag"] = command.target
    return api.Action(action_raw=raw.ActionRaw(unit_command=raw.ActionRawUnitCommand(**fields)))


@dataclass(frozen=True)
class Game:
    """What the adapter needs of a running game; raw unit messages of both players, [ours], [theirs]."""

    restart: Callable[[], tuple[Sequence[Any], Sequence[Any]]]
    advance: Callable[[list[Command]], tuple[Sequence[Any], Sequence[Any]]]
    """Send the commands, run eight game loops, observe."""


def from_smac(env: Any) -> Game:
    """The game of a `StarCraft2Env` (github.com/oxwhirl/smac), which starts it, restarts the map and kills leftovers.

    Its own `step`, with discrete actions and its own reward, is not used: commands go straight to its controller. If
    the connection breaks, the error comes through; the next `restart` lets the package launch the game anew.
    """
    raw, common, api = (import_module(f"s2clientprotocol.{name}_pb2") for name in ("raw", "common", "sc2api"))

    def armies() -> tuple[list[Any], list[Any]]:
        seen = env._obs.observation.raw_data.units
        return [m for m in seen if m.owner == 1], [m for m in seen if m.owner == 2]

    def restart() -> tuple[list[Any], list[Any]]:
        env.reset()
        env._episode_count += 1  # it counts in `step`; at zero, `reset` launches another game
        return armies()

    def advance(orders: list[Command]) -> tuple[list[Any], list[Any]]:
        messages = [to_message(order, raw, common, api) for order in orders]
        env._controller.actions(api.RequestAction(actions=messages))
        env._controller.step(TICKS)
        env._obs = env._controller.observe()
        env.update_units()  # `reset` kills those that it believes to be alive
        return armies()

    return Game(restart, advance)


class Sc2Smac:
    """The words of `Smac`, on NumPy arrays and with a game instead of the engine. One instance, one game."""

    def __init__(self, game: Game, config: SmacConfig):
        self.game, self.twin = game, Smac(config)
        self.config, self.spec, self.physics = config, self.twin.spec, self.twin.physics
        self._reward_and_costs = jax.jit(self.twin.reward_and_costs)

    def reset(self) -> tuple[SmacState, TimeStep]:
        ours, theirs = self.game.restart()
        kinds = ally_kinds(self.config, (m.unit_type for m in ours))
        self.tags = muster(self.config, True, ours, kinds) + muster(self.config, False, theirs, ENEMY_KINDS)
        units = read_units(self.config, self.tags, [*ours, *theirs], None)
        a, n = self.config.roster.allies, self.config.roster.size
        fire = Fire(jnp.zeros(n), jnp.full(n, NOBODY, jnp.int32))
        state = SmacState(units, jnp.int32(0), jnp.ones(a, jnp.int32), jnp.zeros((a, 2)), fire)
        first = jax.device_get(self._reward_and_costs(units, state))
        nothing = jax.tree.map(np.zeros_like, (first.reward, first.cost, first.metrics))
        return state, first._replace(reward=nothing[0], cost=nothing[1], metrics=nothing[2])

    def step(self, state: SmacState, action: HybridAction) -> tuple[SmacState, TimeStep]:
        ours, theirs = self.game.advance(commands(self.config, self.tags, state.units, action))
        units = read_units(self.config, self.tags, [*ours, *theirs], state.units)
        action = HybridAction(jnp.asarray(action.mode, jnp.int32), jnp.asarray(action.params, jnp.float32))
        offset = ally_orders(self.config, state.units.x, state.units.y, action)[-1]
        after = state._replace(units=units, t=state.t + 1, mode=action.mode, offset=offset)
        return after, jax.device_get(self._reward_and_costs(state.units, after))
