"""The contracts everything stands on, and the one place that names the axes.

Axes: T time, E environments, N agents, K constraints, M modes, P parameters, S global state, O observation.
Environments and policies are written for ONE environment; the caller vmaps over E and over seeds.
Reward and the K costs travel together as a stack of 1 + K *signals*, reward first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

Key = Any  # a jax.random key
EnvState = Any  # an environment's private pytree
AlgoState = Any  # an algorithm's private pytree
Metrics = dict[str, Any]  # name -> a number, or one of the vectors below


class PerSignal(NamedTuple):
    """A metric of the reward and of every cost."""

    values: Any  # [1 + K]


class PerCost(NamedTuple):
    """A metric of every cost."""

    values: Any  # [K]


# --- what an environment declares -----------------------------------------------------------------


@dataclass(frozen=True)
class Constraint:
    """A bound on the mean cost per step: J_k = E[c_k] <= limit. An indicator cost makes J_k a rate in [0, 1]."""

    name: str
    limit: float
    """Bound on the mean cost per step, in `unit`."""
    unit: str = "rate"
    immediate: bool = False
    """The cost of an action falls in the same step (energy spent), not in later ones (a place badly chosen)."""
    help: str = ""
    formula: str = ""
    """What one step costs, e.g. "mean over UAVs of 1[energy > E_max]"."""


@dataclass(frozen=True)
class Metric:
    """A domain metric returned by every step, averaged over steps (or, with `per`, a ratio of sums)."""

    name: str
    better: Literal["higher", "lower", "neither"] = "neither"
    unit: str = ""
    per: str | None = None
    """Name of another metric: the reported value is sum(name) / sum(per)."""
    help: str = ""


@dataclass(frozen=True, eq=False)
class ActionSpec:
    """Each mode of each agent has its own box; agents are padded to the largest one."""

    low: np.ndarray  # [N, M, P]
    high: np.ndarray  # [N, M, P]
    used: np.ndarray  # [N, M, P] bool: parameters a mode does not read carry no log-prob, KL or gradient
    mode_names: tuple[str, ...] = ()
    param_names: tuple[str, ...] = ()
    param_units: tuple[str, ...] = ()

    @property
    def num_modes(self) -> int:
        return self.low.shape[1]

    @property
    def num_params(self) -> int:
        return self.low.shape[2]


@dataclass(frozen=True, eq=False)
class FailSafe:
    """What an agent does of which nothing is known: hover, brake, hold. It needs no observation."""

    name: str
    modes: tuple[int, ...]
    """In the order of preference; the first that is allowed is taken."""
    params: np.ndarray
    """Of every mode [M, P], in physical units, inside every agent's box."""
    keep_mode: bool = False
    """The mode of the last action is preferred to all of `modes`."""
    help: str = ""


@dataclass(frozen=True, eq=False)
class EnvSpec:
    name: str
    version: int
    num_agents: int
    obs_dim: int
    state_dim: int
    action: ActionSpec
    constraints: tuple[Constraint, ...]
    horizon: int
    metrics: tuple[Metric, ...] = ()
    kinds: tuple[int, ...] | None = None
    """The kind of each agent, by number. Agents of a kind are interchangeable (`check_env` says whether they are) and
    learn together. None: all agents with equal boxes are of a kind; `range(num_agents)`: every agent learns alone."""
    obs_names: tuple[str, ...] = ()
    """What the numbers of an observation are; for those who deploy a policy."""
    step_seconds: float | None = None
    """How long a step is, where that means something."""
    fail_safe: FailSafe | None = None

    @property
    def kind_of(self) -> np.ndarray:
        """The kind of each agent [N], numbered from 0 in the order of their first members."""
        boxes = np.concatenate([self.action.low, self.action.high, self.action.used], axis=-1) + 0.0  # -0.0 is 0.0
        labels = [b.tobytes() for b in boxes] if self.kinds is None else list(self.kinds)
        order = list(dict.fromkeys(labels))
        return np.array([order.index(label) for label in labels])

    @property
    def num_constraints(self) -> int:
        return len(self.constraints)

    @property
    def limits(self) -> np.ndarray:
        return np.array([c.limit for c in self.constraints], np.float32)

    def with_limits(self, limits: Mapping[str, float]) -> EnvSpec:
        known = [c.name for c in self.constraints]
        for name in limits:
            if name not in known:
                raise ValueError(
                    f"unknown constraint {name!r} of {self.name}; its constraints are: {', '.join(known) or 'none'}"
                )
        constraints = tuple(replace(c, limit=float(limits.get(c.name, c.limit))) for c in self.constraints)
        return replace(self, constraints=constraints)


# --- what flows between environment and policy ----------------------------------------------------


class HybridAction(NamedTuple):
    """A mode per agent, and parameters in physical units inside that mode's box (unused ones are zero)."""

    mode: Int[Array, "*batch N"]
    params: Float[Array, "*batch N P"]


class View(NamedTuple):
    """All that a decentralised policy may see."""

    obs: Float[Array, "*batch N O"]
    mode_mask: Bool[Array, "*batch N M"]
    alive: Bool[Array, "*batch N"]


class TimeStep(NamedTuple):
    """What `reset` and `step` return beside the environment's private state.

    `mode_mask` allows at least one mode per agent, the dead included (their action is ignored). `margin` > 0 is safe: a
    smooth state-wise companion of the cost, for state-wise methods and physics. `cost_attribution` (optional) tells
    which agents caused which cost of the step. It is never charged: it only shows a learner the states that an agent
    should look at. Without it every agent looks at every violation."""

    obs: Float[Array, "*batch N O"]
    state: Float[Array, "*batch S"]
    mode_mask: Bool[Array, "*batch N M"]
    alive: Bool[Array, "*batch N"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch K"]
    margin: Float[Array, "*batch K"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    metrics: dict[str, Float[Array, "*batch"]]
    cost_attribution: Bool[Array, "*batch N K"] | None = None

    @property
    def view(self) -> View:
        return View(self.obs, self.mode_mask, self.alive)


class Transition(NamedTuple):
    """One recorded step. `next_*` is what the step really led to: at an episode's end, the final observation."""

    obs: Float[Array, "*batch N O"]
    state: Float[Array, "*batch S"]
    mode_mask: Bool[Array, "*batch N M"]
    alive: Bool[Array, "*batch N"]
    action: HybridAction  # intended by the policy
    executed: HybridAction  # after the shield; equal to `action` without one
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch K"]
    margin: Float[Array, "*batch K"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    next_obs: Float[Array, "*batch N O"]
    next_state: Float[Array, "*batch S"]
    next_mode_mask: Bool[Array, "*batch N M"]
    next_alive: Bool[Array, "*batch N"]
    metrics: dict[str, Float[Array, "*batch"]]
    extras: dict[str, Any]  # what the policy wants to remember, e.g. log-probabilities
    cost_attribution: Bool[Array, "*batch N K"] | None = None

    @property
    def signals(self) -> Float[Array, "*batch 1+K"]:
        return jnp.concatenate([self.reward[..., None], self.cost], axis=-1)

    @property
    def view(self) -> View:
        return View(self.obs, self.mode_mask, self.alive)

    @property
    def next_view(self) -> View:
        return View(self.next_obs, self.next_mode_mask, self.next_alive)


# --- environments ---------------------------------------------------------------------------------

ScriptedPolicy = Callable[[Key, EnvState], HybridAction]
Shield = Callable[[EnvState, HybridAction], tuple[HybridAction, Bool[Array, "N"]]]


class BaseAction(NamedTuple):
    """What the laws suggest to one agent for what it sees, before anything is learned."""

    preference: Float[Array, "M"]
    """Logits of the modes."""
    unit: Float[Array, "M P"]
    """Parameters of every mode, each in [-1, 1] of that mode's box."""


BasePolicy = Callable[[Float[Array, "O"]], BaseAction]


@dataclass(frozen=True)
class BulkPhysics:
    """The functions of `Physics` for B rows at once, on whatever form of states and actions suits them best."""

    read: Callable[[Float[Array, "B S"]], Any]
    """State arrays -> states in that form."""
    take: Callable[[Any, HybridAction], Any]
    """States in that form, joint actions [B, N, ...] -> actions in that form, with whatever follows from them."""
    signals: Callable[[Any, Any], Float[Array, "B 1+K"]]
    predict: Callable[[Any, Any], Any]
    nominal: Callable[[Any], Any]
    rows: int = 2048
    """How many are best computed at once: enough for several cores, few enough that what lies between operations stays
    in the cache."""
    group: int | None = None
    """How many of them best lie side by side; the functions are vectorised over groups. None: all."""


@dataclass(frozen=True)
class Physics:
    """Closed-form knowledge of a system, on its *global state array*, so that replayed states and
    counterfactual actions can be evaluated. Pure, for one environment (callers vmap)."""

    signals: Callable[[Float[Array, "S"], HybridAction], Float[Array, "1+K"]]
    """Smooth one-step reward and costs; differentiable in the parameters, defined for every mode."""
    predict: Callable[[Float[Array, "S"], HybridAction], Float[Array, "S"]]
    """Mean successor state."""
    nominal: Callable[[Float[Array, "S"]], HybridAction]
    """The nominal controller: a sensible joint action in a state."""
    base_policy: BasePolicy | None = None
    """Optional: the same for one agent that knows only its own observation. Actors may learn corrections to it."""
    bulk: BulkPhysics | None = None
    """Optional: the first three for many rows at once, where that can be done faster than by vmap."""


class System(Protocol):
    """What every environment says of itself."""

    @property
    def spec(self) -> EnvSpec: ...
    @property
    def physics(self) -> Physics | None: ...
    @property
    def scripted(self) -> Mapping[str, ScriptedPolicy]: ...
    @property
    def shield(self) -> Shield | None: ...


@runtime_checkable
class Env(System, Protocol):
    """A pure JAX environment for one instance; callers vmap and jit. `step` never resets by itself."""

    def reset(self, key: Key) -> tuple[EnvState, TimeStep]: ...
    def step(self, key: Key, state: EnvState, action: HybridAction) -> tuple[EnvState, TimeStep]: ...


@runtime_checkable
class HostEnv(System, Protocol):
    """A simulator outside JAX: one plain Python object that keeps its own state, on NumPy arrays. `step` never resets
    by itself. It may also have `close()` and `draw(figure, states, t)`. Having `env_state` is what tells it apart."""

    @property
    def env_state(self) -> EnvState:
        """What scripted policies, the shield and drawings are given; None if there are none of them."""
        ...

    def reset(self, seed: int) -> TimeStep: ...
    def step(self, action: HybridAction) -> TimeStep: ...


AnyEnv = Env | HostEnv

# --- algorithms -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataPlan:
    """The data an algorithm wants in each round."""

    envs: int
    """Parallel environments."""
    steps: int
    """Steps of each environment per round."""
    replay: int = 0
    """Transitions kept for replay; 0 keeps none."""
    remember: tuple[str, ...] = ()
    """Extras of `act` and `annotate` that are kept with them."""


class Data(NamedTuple):
    """What `update` receives: this round's rollout [T, E, ...] and the replay buffer."""

    rollout: Transition
    replay: Any  # a replay.Replay, or None


class Moments(NamedTuple):
    """Situations, and what was done in them."""

    obs: Float[Array, "*batch N O"]
    state: Float[Array, "*batch S"]
    action: HybridAction  # executed


class Expectation(NamedTuple):
    """What a learner expects the discounted sums of the signals to be from some moments on, by who says so."""

    values: dict[str, Float[Array, "*batch 1+K"]]
    discount: Float[Array, "1+K"]


@dataclass(frozen=True)
class Algorithm:
    """Pure functions, built by a factory for one EnvSpec. Never sees an environment, a loop or a logger."""

    name: str
    plan: DataPlan
    init: Callable[[Key], AlgoState]
    act: Callable[[AlgoState, View, Key, bool], tuple[HybridAction, dict[str, Any]]]
    """(state, view of one environment, key, deterministic) -> (action, extras)"""
    update: Callable[[AlgoState, Data, Key, Float[Array, ""]], tuple[AlgoState, Metrics]]
    """(state, data, key, fraction of the run that is over, in [0, 1]) -> (state, metrics)"""
    prepare: Callable[[AlgoState, Transition, Key], tuple[AlgoState, Metrics]] | None = None
    """Optional warm start: fit the policy and critics to a scripted policy's rollout before the first round."""
    config: Any = field(default=None)
    sampled: bool = False
    """Evaluations draw from the policy instead of taking what it would most likely do. A policy that is best within
    limits is random in general, and its limits were kept while it drew."""
    annotate: Callable[[Transition], dict[str, Any]] = lambda rollout: {}
    """rollout [T, E, ...] -> more extras, worked out once and kept with every transition (DataPlan.remember)"""
    expect: Callable[[AlgoState, Moments], Expectation] | None = None
    """Optional, for whoever watches: what its critics expect."""


# --- small helpers on the contracts ---------------------------------------------------------------


def mode_names(spec: EnvSpec) -> list[str]:
    given = spec.action.mode_names
    return [given[m] if m < len(given) else str(m) for m in range(spec.action.num_modes)]


def kind_faults(spec: EnvSpec) -> Iterator[str]:
    """What makes the declared kinds impossible."""
    if spec.kinds is not None and not all(isinstance(kind, int | np.integer) for kind in spec.kinds):
        yield f"spec.kinds {spec.kinds!r} must be numbers: give each agent the number of its kind"
        return
    if spec.kinds is not None and len(spec.kinds) != spec.num_agents:
        yield f"spec.kinds has {len(spec.kinds)} entries for {spec.num_agents} agents; give each the number of its kind"
        return
    boxes, kinds = np.concatenate([spec.action.low, spec.action.high, spec.action.used], axis=-1), spec.kind_of
    for agent, kind in enumerate(kinds):
        first = int(np.argmax(kinds == kind))
        if not np.array_equal(boxes[agent], boxes[first]):
            yield f"agents {first} and {agent} are of a kind but have different boxes; give them different spec.kinds"
            return


def follow(spec: ActionSpec, base_policy: BasePolicy, obs: Float[Array, "N O"]) -> HybridAction:
    """What all agents do who follow their base policy: the mode it prefers, with that mode's parameters."""
    suggested = jax.vmap(base_policy)(obs)
    mode = jnp.argmax(suggested.preference, axis=-1)
    unit = jnp.take_along_axis(suggested.unit, mode[:, None, None], axis=1)[:, 0]
    return HybridAction(mode, decode_params(spec, mode, unit))


def encode_params(
    spec: ActionSpec, mode: Int[Array, "*batch N"], params: Float[Array, "*batch N P"]
) -> Float[Array, "*batch N P"]:
    """Physical parameters -> [-1, 1] in the box of their mode; unused ones -> 0."""
    low, high, used = (_of_mode(a, mode) for a in (spec.low, spec.high, spec.used))
    scaled = 2.0 * (params - low) / jnp.where(high > low, high - low, 1.0) - 1.0
    return jnp.where(used, scaled, 0.0)


def decode_params(
    spec: ActionSpec, mode: Int[Array, "*batch N"], unit: Float[Array, "*batch N P"]
) -> Float[Array, "*batch N P"]:
    """[-1, 1] -> physical parameters in the box of their mode; unused ones -> 0."""
    low, high, used = (_of_mode(a, mode) for a in (spec.low, spec.high, spec.used))
    return jnp.where(used, low + 0.5 * (unit + 1.0) * (high - low), 0.0)


def _of_mode(table: np.ndarray, mode: Int[Array, "*batch N"]) -> Array:
    """table [N, M, P] -> its rows for the chosen modes, [*batch, N, P]."""
    onehot = jax.nn.one_hot(mode, table.shape[1], dtype=jnp.float32)
    rows = jnp.einsum("...nm,nmp->...np", onehot, jnp.asarray(table, jnp.float32))
    return rows > 0.5 if table.dtype == bool else rows
