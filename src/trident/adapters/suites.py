# pyright: reportMissingImports=false
"""Suites written in JAX, as environments that are compiled into the round like our own: JaxMARL and CAMAR.

jaxmarl:MPE_simple_spread_v3        by its id there
camar:random_grid                   by the name of a map; agents that collide are the constraint `collision`
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.errors import TridentError
from trident.types import ActionSpec, Constraint, EnvSpec, HybridAction, Key, Metric, Physics, TimeStep

OfStep = Callable[[Any, Any, Any, Any], Any]
"""(their state before, their actions, their state after, their info) -> a number per agent, or one"""
LIMITS_OF_TIME = ("max_steps", "max_episode_steps", "num_inner_steps")
COLLISION_LIMIT = 0.01


@dataclass(frozen=True)
class Declared:
    """What an environment of a suite does not say of itself. Every field may be left out."""

    costs: Mapping[str, OfStep] = field(default_factory=dict)
    """name -> cost >= 0 of each agent, or of all of them."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """name -> bound on its mean per step."""
    cost_over_agents: Literal["mean", "sum", "max"] = "mean"
    """How the costs of the agents become the cost of a step; max: whether it happened to anyone."""
    reward: Literal["mean", "sum"] = "mean"
    """How their rewards become the team's."""
    margins: Mapping[str, OfStep] = field(default_factory=dict)
    """name of a cost -> distance to it, positive where it is zero; the least over the agents counts. Left out: limit
    minus cost."""
    metrics: Mapping[str, OfStep] = field(default_factory=dict)
    """name -> as a cost; reported, not limited. The mean over the agents."""
    horizon: int | None = None
    """Longest episode, in steps. Left out: the environment's own limit of time."""
    kinds: tuple[int, ...] | None = None
    """The kind of each agent. Left out: agents with equal action and observation spaces are of a kind."""
    physics: Physics | None = None
    """Closed-form knowledge, on the global state."""
    name: str | None = None
    version: int = 1


class Seen(NamedTuple):
    """What a suite says of a moment."""

    obs: Any  # [N, O]
    state: Any  # [S]
    mode_mask: Any  # [N, M]
    alive: Any  # [N]
    rewards: Any  # [N]
    over: Any  # the episode has ended by itself
    info: Any


class Moment(NamedTuple):
    """The private state of an environment from a suite."""

    theirs: Any
    t: Any
    alive: Any  # [N]


class FromSuite:
    """Shared by the suites: signals, ends and declarations."""

    scripted: Mapping[str, Any] = {}
    shield = None
    spec: EnvSpec

    def __init__(self, declared: Declared):
        self.declared = declared

    @property
    def physics(self) -> Physics | None:
        return self.declared.physics

    def _spec(
        self, name: str, action: ActionSpec, obs_dim: int, state_dim: int, kinds: tuple[int, ...], own: int | None
    ) -> EnvSpec:
        d, name = self.declared, self.declared.name or name
        horizon = d.horizon or own
        if horizon is None:
            raise TridentError(f"{name} does not say how long an episode is: declare horizon=...")
        if lost := set(d.costs) ^ set(d.limits):
            one = min(lost)
            want = f"limits={{{one!r}: ...}}" if one in d.costs else f"costs={{{one!r}: function}}"
            raise TridentError(f"{name}: a cost needs a limit and a limit a cost; {one!r} has one of them: {want}")
        unit = "rate" if d.cost_over_agents == "max" else "per step"
        return EnvSpec(
            name=name, version=d.version, num_agents=len(action.low), obs_dim=obs_dim, state_dim=state_dim,
            action=action, horizon=int(horizon), kinds=d.kinds or kinds,
            constraints=tuple(Constraint(k, float(d.limits[k]), unit) for k in d.costs),
            metrics=tuple(Metric(k) for k in d.metrics),
        )  # fmt: skip

    # --- what a suite provides --------------------------------------------------------------------

    def _start(self, key: Key) -> tuple[Any, Seen]:
        raise NotImplementedError

    def _advance(self, key: Key, before: Moment, action: HybridAction) -> tuple[Any, Any, Seen]:
        """(their state, their actions, what is seen then)"""
        raise NotImplementedError

    # --- an environment -----------------------------------------------------------------------------

    def reset(self, key: Key) -> tuple[Moment, TimeStep]:
        theirs, seen = self._start(key)
        zeros = jnp.zeros((self.spec.num_agents, self.spec.num_constraints))
        margin = jnp.maximum(jnp.asarray(self.spec.limits), 0.5)
        metrics = {m.name: jnp.float32(0) for m in self.spec.metrics}
        s = Moment(theirs, jnp.int32(0), seen.alive)
        return s, self._look(seen, s, jnp.float32(0), zeros, margin, metrics, jnp.bool_(False))

    def step(self, key: Key, s: Moment, action: HybridAction) -> tuple[Moment, TimeStep]:
        d, n = self.declared, self.spec.num_agents
        theirs, given, seen = self._advance(key, s, action)
        each = lambda of: jnp.broadcast_to(jnp.asarray(of(s.theirs, given, theirs, seen.info), jnp.float32), (n,))  # noqa: E731
        costs = jnp.stack([each(of) for of in d.costs.values()], -1) if d.costs else jnp.zeros((n, 0))
        spare = jnp.maximum(jnp.asarray(self.spec.limits), 0.5) - self._over_agents(costs)
        margin = [jnp.min(each(d.margins[k])) if k in d.margins else spare[i] for i, k in enumerate(d.costs)]
        rewards = jnp.sum(seen.rewards) / (n if d.reward == "mean" else 1)
        metrics = {name: jnp.mean(each(of)) for name, of in d.metrics.items()}
        after = Moment(theirs, s.t + 1, jnp.where(seen.over, s.alive, seen.alive))
        return after, self._look(
            seen, after, rewards, costs, jnp.stack(margin) if margin else spare, metrics, seen.over
        )

    def _over_agents(self, costs: Any) -> Any:
        return {"mean": jnp.mean, "sum": jnp.sum, "max": jnp.max}[self.declared.cost_over_agents](costs, axis=0)

    def _look(
        self, seen: Seen, s: Moment, reward: Any, costs: Any, margin: Any, metrics: dict[str, Any], over: Any
    ) -> TimeStep:
        late, cost = s.t >= self.spec.horizon, self._over_agents(costs)
        number = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
        return TimeStep(
            number(seen.obs), number(seen.state), seen.mode_mask, s.alive, number(reward), number(cost),
            number(margin), over & ~late, late, jax.tree.map(number, metrics), costs > 0,
        )  # fmt: skip


# --- JaxMARL --------------------------------------------------------------------------------------


class FromJaxMarl(FromSuite):
    """A MultiAgentEnv: actions Discrete or Box, observations and masks of unequal agents padded."""

    def __init__(self, env: Any, declared: Declared):
        super().__init__(declared)
        self.env, self.agents = env, list(env.agents)
        name = declared.name or str(getattr(env, "name", type(env).__name__))
        spaces = [env.action_space(a) for a in self.agents]
        self.counts = [_modes(space, a, name) for space, a in zip(spaces, self.agents, strict=True)]
        self.boxes = [None if self.counts[i] > 1 else _box(space) for i, space in enumerate(spaces)]
        self.shapes = [getattr(space, "shape", ()) for space in spaces]
        self.sizes = [int(np.prod(env.observation_space(a).shape)) for a in self.agents]
        self.has = np.arange(max(self.counts)) < np.array(self.counts)[:, None]
        labels = [(self.counts[i], str(self.shapes[i]), self.sizes[i]) for i in range(len(self.agents))]
        own = next((v for k in LIMITS_OF_TIME if isinstance(v := getattr(env, k, None), int) and v > 0), None)
        seen = jax.eval_shape(lambda: self._see(*env.reset(jax.random.key(0))))
        kinds = tuple(labels.index(label) for label in labels)
        self.spec = self._spec(name, self._action_spec(), max(self.sizes), seen.state.shape[0], kinds, own)

    def _action_spec(self) -> ActionSpec:
        params = max((len(box[0]) for box in self.boxes if box is not None), default=0)
        low, high = (np.zeros((*self.has.shape, params), np.float32) for _ in range(2))
        for i, box in enumerate(self.boxes):
            if box is not None:
                low[i, 0, : len(box[0])], high[i, 0, : len(box[0])] = box
        return ActionSpec(low, high, high > low)

    def _see(self, obs: Any, state: Any) -> Seen:
        flat = [jnp.ravel(obs[a]) for a in self.agents]
        padded = jnp.stack([jnp.pad(x, (0, max(self.sizes) - len(x))) for x in flat])
        whole = obs.get("world_state", padded)
        alive = jnp.ones(len(self.agents), bool)
        return Seen(padded, jnp.ravel(whole), self._masks(state), alive, jnp.zeros(len(self.agents)), False, {})

    def _masks(self, state: Any) -> Any:
        if not any(count > 1 for count in self.counts):
            return jnp.asarray(self.has)
        try:
            masks = self.env.get_avail_actions(state)
        except NotImplementedError:  # it has none
            return jnp.asarray(self.has)
        rows = []
        for agent, count, has in zip(self.agents, self.counts, self.has, strict=True):
            row = jnp.ravel(jnp.asarray(masks[agent])) > 0
            rows.append(jnp.pad(row, (0, len(has) - count)) if count > 1 else jnp.asarray(has))
        allowed = jnp.stack(rows)
        return jnp.where(allowed.any(-1, keepdims=True), allowed, self.has)

    def _start(self, key: Key) -> tuple[Any, Seen]:
        obs, state = self.env.reset(key)
        return state, self._see(obs, state)

    def _advance(self, key: Key, before: Moment, action: HybridAction) -> tuple[Any, Any, Seen]:
        given = {agent: self._native(i, action) for i, agent in enumerate(self.agents)}
        obs, state, rewards, dones, info = self.env.step_env(key, before.theirs, given)
        done = jnp.stack([jnp.asarray(dones[a], bool) for a in self.agents])
        rewarded = jnp.stack([jnp.asarray(rewards[a], jnp.float32).reshape(()) for a in self.agents])
        seen = self._see(obs, state)._replace(
            rewards=rewarded, alive=before.alive & ~done, over=jnp.asarray(dones["__all__"], bool), info=info
        )
        return state, given, seen

    def _native(self, i: int, action: HybridAction) -> Any:
        box = self.boxes[i]
        if box is None:
            return jnp.minimum(action.mode[i], self.counts[i] - 1)
        return jnp.clip(action.params[i, : len(box[0])], *box).reshape(self.shapes[i])


def _modes(space: Any, agent: str, name: str) -> int:
    kind = type(space).__name__
    if kind not in ("Discrete", "Box"):
        raise TridentError(f"{name}: the action space of {agent} is {kind}; an adapter for Discrete and Box is there")
    return int(space.n) if kind == "Discrete" else 1


def _box(space: Any) -> tuple[np.ndarray, np.ndarray] | None:
    if type(space).__name__ != "Box":
        return None
    low, high = (np.broadcast_to(np.asarray(end, np.float32), space.shape).ravel() for end in (space.low, space.high))
    return low, high


# --- CAMAR ----------------------------------------------------------------------------------------


class FromCamar(FromSuite):
    """Agents that drive to goals past obstacles and each other. Collisions are the constraint `collision`, and no part
    of the reward any more."""

    def __init__(self, env: Any, declared: Declared):
        collision = {"collision": lambda before, given, after, info: after.is_collision}
        arrived = {"arrived": lambda before, given, after, info: after.on_goal}
        super().__init__(
            replace(
                declared,
                costs=collision | dict(declared.costs),
                limits={"collision": COLLISION_LIMIT} | dict(declared.limits),
                metrics=arrived | dict(declared.metrics),
            )
        )
        self.env, n = env, env.num_agents
        ends = np.ones((n, 1, env.action_size), np.float32)
        action = ActionSpec(-ends, ends, np.ones_like(ends, bool))
        size = env.observation_size
        name = f"camar:{type(env.map_generator).__name__}"
        self.spec = self._spec(name, action, size, n * size, (0,) * n, env.max_steps)

    def _see(self, obs: Any, state: Any, rewards: Any, over: Any) -> Seen:
        n = self.env.num_agents
        return Seen(obs, jnp.ravel(obs), jnp.ones((n, 1), bool), jnp.ones(n, bool), rewards, over, {})

    def _start(self, key: Key) -> tuple[Any, Seen]:
        obs, state = self.env.reset(key)
        state = jax.tree.map(jnp.asarray, state)  # their step count begins as a plain number
        return state, self._see(obs, state, jnp.zeros(self.env.num_agents), False)

    def _advance(self, key: Key, before: Moment, action: HybridAction) -> tuple[Any, Any, Seen]:
        obs, state, reward, _, _ = self.env.step(key, before.theirs, action.params)
        rewards = jnp.ravel(reward) + state.is_collision  # which it has deducted
        return state, action.params, self._see(obs, state, rewards, state.on_goal.all())


# --- from names and objects -----------------------------------------------------------------------


def adapt_suite(env: Any, **declared: Any) -> FromCamar | FromJaxMarl:
    from trident.fields import check_name

    for name in declared:
        check_name("declaration", name, Declared.__dataclass_fields__, "an environment")
    kind = FromCamar if hasattr(env, "map_generator") else FromJaxMarl
    return kind(env, Declared(**declared))


def make_jaxmarl(name: str, args: Mapping[str, Any]) -> Any:
    with redirect_stdout(sys.stderr):  # it greets
        import jaxmarl

        return jaxmarl.make(name, **args)


def make_camar(name: str, args: Mapping[str, Any]) -> Any:
    """Arguments that are not the environment's own are the map's."""
    import camar
    import camar.maps
    from camar.registry import MAP_REGISTRY

    if name not in MAP_REGISTRY:
        raise TridentError(f"camar has no map {name!r}: there are {', '.join(MAP_REGISTRY)}")
    own = inspect.signature(camar.camar_v0).parameters
    inner = {k: v for k, v in args.items() if k not in own}
    outer = {k: v for k, v in args.items() if k in own}
    return camar.camar_v0(name, map_kwargs=inner, **outer)
