# pyright: reportMissingImports=false
"""Environments of PettingZoo and Gymnasium as TRIDENT's: simulators outside JAX, with what they do not say declared."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from trident.adapters.faces import OneAgent, TurnByTurn
from trident.adapters.spaces import action_map, action_spec, observe, observed_size
from trident.errors import TridentError
from trident.types import Constraint, EnvSpec, HybridAction, Metric, Physics, TimeStep

OfAgent = Callable[[Any, Any, dict[str, Any]], float]
"""(observation after the step, action, info) of one agent -> a number"""
MASK = "action_mask"
LIMITS_OF_TIME = ("max_cycles", "max_steps", "max_episode_steps", "_max_episode_steps")
OVER = {"mean": np.mean, "sum": np.sum, "max": np.max}


@dataclass(frozen=True)
class Declared:
    """What an environment of another interface does not say of itself. Every field may be left out."""

    costs: Mapping[str, str | OfAgent] = field(default_factory=dict)
    """name -> key of an agent's info, or a function of (observation after the step, action, info)."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """name -> bound on its mean per step. A limit without a cost is of the entry of that name in the infos."""
    cost_over_agents: Literal["mean", "sum", "max"] = "mean"
    """How the costs of the agents become the cost of a step; max: whether it happened to anyone."""
    reward: Literal["mean", "sum"] = "mean"
    """How their rewards become the team's."""
    margins: Mapping[str, OfAgent] = field(default_factory=dict)
    """name of a cost -> distance to it, positive where it is zero; the least over the agents counts. Left out: limit
    minus cost."""
    metrics: Mapping[str, str | OfAgent] = field(default_factory=dict)
    """name -> as a cost; reported, not limited. The mean over the agents."""
    horizon: int | None = None
    """Longest episode, in steps. Left out: the environment's own limit of time."""
    state: Literal["env", "observations"] | None = None
    """The global state: env.state(), or all observations. Left out: the former where there is one."""
    kinds: Sequence[int] | None = None
    """The kind of each agent. Left out: agents with equal spaces, and equal names but for a number, are of a kind."""
    action_bounds: tuple[float, float] | None = None
    """For actions that the environment does not bound."""
    physics: Physics | None = None
    """Closed-form knowledge, on the global state."""
    name: str | None = None
    version: int | None = None


def adapt_pettingzoo(env: Any, **declared: Any) -> FromParallel:
    if isinstance(env, type) or (callable(env) and not hasattr(env, "reset")):
        env = env()
    if hasattr(env, "agent_iter"):
        env = TurnByTurn(env) if not _is_parallelizable(env) else _parallel(env)
    return FromParallel(env, _declared(declared))


def adapt_gymnasium(env: Any, args: dict[str, Any], **declared: Any) -> FromParallel:
    import gymnasium

    if isinstance(env, str):
        env, declared = gymnasium.make(env, **args), {"name": env} | declared
    if hasattr(env, "num_envs"):
        raise TridentError(
            f"{declared.get('name') or env} is a vector of environments that reset themselves: hand in a single one, "
            "TRIDENT makes the copies"
        )
    return FromParallel(OneAgent(env), _declared(declared))


def _declared(given: dict[str, Any]) -> Declared:
    from trident.fields import check_name

    for name in given:
        check_name("declaration", name, Declared.__dataclass_fields__, "an environment")
    return Declared(**given)


def _is_parallelizable(env: Any) -> bool:
    return bool(getattr(env, "metadata", {}).get("is_parallelizable", False))


def _parallel(env: Any) -> Any:
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(env)


class FromParallel:
    """A ParallelEnv as a `trident.HostEnv`. Agents are those of `possible_agents`; who is not there is not alive."""

    scripted: Mapping[str, Any] = {}
    shield = None

    def __init__(self, env: Any, declared: Declared):
        self.env, self.declared = env, declared
        self.name = declared.name or _name_of(env)
        self.agents = list(getattr(env, "possible_agents", ()))
        if not self.agents:
            raise TridentError(f"{self.name} has no possible_agents: name all agents that can ever take part there")
        self.place = {agent: i for i, agent in enumerate(self.agents)}
        spaces = [env.observation_space(a) for a in self.agents]
        self.masked = [_has_mask(space) for space in spaces]
        self.spaces = [space["observation"] if mask else space for space, mask in zip(spaces, self.masked, strict=True)]
        acting = [env.action_space(a) for a in self.agents]
        pairs = zip(acting, self.agents, strict=True)
        self.maps = [action_map(space, agent, declared.action_bounds) for space, agent in pairs]
        self.sizes = [observed_size(space, agent) for space, agent in zip(self.spaces, self.agents, strict=True)]
        self.costs = {name: name for name in declared.limits} | dict(declared.costs)
        self.horizon = declared.horizon or _horizon_of(env)
        if self.horizon is None:
            raise TridentError(f"{self.name} does not say how long an episode is: declare horizon=...")
        if lost := [name for name in self.costs if name not in declared.limits]:
            text = f"limits={{{lost[0]!r}: ...}}"
            raise TridentError(f"{self.name} has no limit for the cost {lost[0]!r}: declare {text}")
        self.own_state = declared.state != "observations" and hasattr(env, "state")
        self.t = 0
        self.obs = np.zeros((len(self.agents), max(self.sizes)), np.float32)
        state_dim = self._start(0).size
        self.spec = self._spec(state_dim, [str(s) for s in acting])
        if getattr(env, "render_mode", None) == "rgb_array":
            self.draw = _draw

    @property
    def physics(self) -> Physics | None:
        return self.declared.physics

    @property
    def env_state(self) -> Any:
        """A picture, if the environment makes one."""
        return np.asarray(self.env.render()) if hasattr(self, "draw") else None

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    # --- what is declared -------------------------------------------------------------------------

    def _spec(self, state_dim: int, acting: list[str]) -> EnvSpec:
        action, self.has = action_spec(self.maps)
        d, n = self.declared, len(self.agents)
        alike = [
            (acting[i], str(self.spaces[i]), re.sub(r"[_\s-]*\d+$", "", str(agent)))
            for i, agent in enumerate(self.agents)
        ]
        kinds = tuple(alike.index(label) for label in alike) if d.kinds is None else tuple(d.kinds)
        unit = "rate" if d.cost_over_agents == "max" else "per step"
        return EnvSpec(
            name=self.name, version=_version_of(self.name) if d.version is None else d.version, num_agents=n,
            obs_dim=self.obs.shape[1], state_dim=state_dim, action=action, horizon=int(self.horizon or 0), kinds=kinds,
            constraints=tuple(Constraint(k, float(d.limits[k]), unit) for k in self.costs),
            metrics=tuple(Metric(name) for name in d.metrics),
        )  # fmt: skip

    # --- the loop ---------------------------------------------------------------------------------

    def reset(self, seed: int) -> TimeStep:
        state = self._start(seed)
        zero = np.zeros(len(self.costs), np.float32)
        limits = np.array([c.limit for c in self.spec.constraints], np.float32)
        return self._timestep(state, 0.0, zero, np.maximum(limits, 0.5), self._alive({}, {}), False, False, {}, None)

    def _start(self, seed: int) -> np.ndarray:
        seen, self.infos = self.env.reset(seed=seed)
        self.t, self.seen = 0, seen
        self.obs = np.zeros_like(self.obs)
        self._see(seen)
        return self._state()

    def step(self, action: HybridAction) -> TimeStep:
        acting = [a for a in self.env.agents if a in self.place]
        modes, params = np.asarray(action.mode), np.asarray(action.params)
        done = {a: self._native(self.place[a], int(modes[self.place[a]]), params) for a in acting}
        seen, rewards, terminations, truncations, self.infos = self.env.step(done)
        self.t, self.seen = self.t + 1, seen
        self._check_agents(seen)
        self.obs = np.zeros_like(self.obs)
        self._see(seen)
        terminated, truncated = self._ends(terminations, truncations)
        total = [float(rewards.get(a, 0.0)) for a in self.agents]
        reward = self._finite("the reward", sum(total) / (len(total) if self.declared.reward == "mean" else 1))
        each = np.array([[self._read("cost", k, of, a, done) for k, of in self.costs.items()] for a in acting])
        each = each.reshape(len(acting), len(self.costs))
        cost = OVER[self.declared.cost_over_agents](each, axis=0) if len(each) else np.zeros(len(self.costs))
        if (each < 0).any():
            raise TridentError(f"{self.name}: a cost is negative after step {self.t}; costs are >= 0")
        caused = np.zeros((len(self.agents), len(self.costs)), bool)
        caused[[self.place[a] for a in acting]] = each > 0
        metrics = {
            k: np.mean([self._read("metric", k, of, a, done) for a in acting] or [0.0])
            for k, of in self.declared.metrics.items()
        }
        alive = self._alive(terminations, truncations)
        margin = self._margins(cost, acting, done)
        return self._timestep(self._state(), reward, cost, margin, alive, terminated, truncated, metrics, caused)

    def _timestep(
        self, state: Any, reward: float, cost: Any, margin: Any, alive: Any, terminated: bool, truncated: bool,
        metrics: dict[str, Any], caused: Any,
    ) -> TimeStep:  # fmt: skip
        numbers = [np.float32(reward), np.asarray(cost, np.float32), margin, terminated, truncated]
        metrics = metrics or {m.name: 0.0 for m in self.spec.metrics}
        parts: list[Any] = [self.obs, state, self._masks(), alive, *numbers, metrics, caused]
        return TimeStep._make(parts)

    # --- its parts --------------------------------------------------------------------------------

    def _native(self, i: int, mode: int, params: np.ndarray) -> Any:
        return self.maps[i].native(min(mode, self.maps[i].num_modes - 1), params[i])

    def _see(self, seen: Mapping[Any, Any]) -> None:
        for agent, value in seen.items():
            if agent not in self.place:
                continue  # `_check_agents` tells
            i = self.place[agent]
            flat = observe(self.spaces[i], value["observation"] if self.masked[i] else value)
            if not np.isfinite(flat).all():
                place = int(np.argmin(np.isfinite(flat)))
                raise TridentError(
                    f"{self.name}: observation {place} of {agent} is {flat[place]} after step {self.t}; mend it in the "
                    "environment or in a wrapper, e.g. with numpy.nan_to_num"
                )
            self.obs[i, : len(flat)] = flat

    def _state(self) -> np.ndarray:
        if self.own_state:
            try:
                return self._finite("the state", np.asarray(self.env.state(), np.float32).ravel())
            except (NotImplementedError, AttributeError):
                if self.declared.state == "env":
                    raise TridentError(f'{self.name} has no env.state(): declare state="observations"') from None
                self.own_state = False
        return self.obs.ravel()

    def _masks(self) -> np.ndarray:
        masks = self.has.copy()
        for agent, i in self.place.items():
            value, info = self.seen.get(agent), self.infos.get(agent) or {}
            mask = value[MASK] if self.masked[i] and value is not None else info.get(MASK)
            if mask is not None:
                masks[i, : self.maps[i].num_modes] = self.maps[i].mode_mask(mask)
        return masks

    def _alive(self, terminations: Mapping[Any, bool], truncations: Mapping[Any, bool]) -> np.ndarray:
        """Who is there; and whose time was up, for whom values go on."""
        cut = {a for a in self.agents if truncations.get(a) and not terminations.get(a)}
        there = {a for a in self.env.agents if not terminations.get(a)}
        return np.array([a in there or a in cut for a in self.agents])

    def _ends(self, terminations: Mapping[Any, bool], truncations: Mapping[Any, bool]) -> tuple[bool, bool]:
        going_on = [a for a in self.env.agents if not (terminations.get(a) or truncations.get(a))]
        for info in self.infos.values():
            if isinstance(info, Mapping) and {"final_obs", "final_observation"} & info.keys():
                raise TridentError(
                    f"{self.name} resets itself at the end of an episode: make it without its autoreset wrapper"
                )
        if going_on:
            return False, self.t >= (self.horizon or 0)
        cut = any(truncations.values())
        return not cut, cut

    def _margins(self, cost: np.ndarray, acting: list[Any], done: dict[Any, Any]) -> np.ndarray:
        limits = [max(c.limit, 0.5) if c.limit == 0.0 else c.limit for c in self.spec.constraints]
        values = []
        for k, name in enumerate(self.costs):
            of = self.declared.margins.get(name)
            each = [self._read("margin", name, of, a, done) for a in acting] if of is not None else []
            values.append(min(each) if each else limits[k] - cost[k])
        return np.asarray(values, np.float32)

    def _read(self, what: str, name: str, of: str | OfAgent, agent: Any, done: dict[Any, Any]) -> float:
        """A number of one agent: an entry of its info, also in a dictionary called after the kind, or a function."""
        info = self.infos.get(agent) or {}
        if callable(of):
            value = of(self.seen.get(agent), done[agent], info)
        else:
            inner = info.get(what)
            value = inner.get(of) if isinstance(inner, Mapping) and of in inner else info.get(of)
            if value is None:
                raise TridentError(
                    f"{self.name}: the info of {agent} has no {of!r} after step {self.t} (it has "
                    f"{', '.join(map(str, info)) or 'nothing'}); declare {what}s={{{name!r}: key or function}}"
                )
        return self._finite(f"{what} {name!r} of {agent}", float(value))

    def _finite(self, what: str, value: Any) -> Any:
        if not np.isfinite(value).all():
            raise TridentError(f"{self.name}: {what} is not finite after step {self.t}")
        return value

    def _check_agents(self, seen: Mapping[Any, Any]) -> None:
        strange = next((a for a in [*seen, *self.env.agents] if a not in self.place), None)
        if strange is not None:
            raise TridentError(
                f"{self.name}: {strange!r} takes part after step {self.t} but is not among possible_agents; name there "
                "all agents that can ever join"
            )


def _draw(figure: Any, states: Any, t: int) -> None:
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(states[t])
    axes.axis("off")


def _has_mask(space: Any) -> bool:
    keys = set(getattr(space, "spaces", {})) if hasattr(space, "keys") else set()
    return {"observation", MASK} <= keys


def _name_of(env: Any) -> str:
    inner = getattr(env, "unwrapped", env)
    metadata = getattr(env, "metadata", None) or getattr(inner, "metadata", None) or {}
    return str(metadata.get("name") or type(inner).__name__)


def _version_of(name: str) -> int:
    """simple_spread_v3 -> 3"""
    found = re.search(r"[_-]v(\d+)", name)
    return int(found[1]) if found else 1


def _horizon_of(env: Any) -> int | None:
    inner = getattr(env, "unwrapped", env)
    spec = getattr(env, "spec", None)
    found = [getattr(spec, "max_episode_steps", None)]
    found += [getattr(where, name, None) for where in (env, inner) for name in LIMITS_OF_TIME]
    return next((int(value) for value in found if isinstance(value, int | np.integer) and value > 0), None)
