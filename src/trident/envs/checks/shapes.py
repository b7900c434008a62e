"""What an environment declares, and whether `reset`, `step` and the rest have the declared shapes and dtypes.

The first two rounds of `trident.envs.checks.values`: nothing here runs an environment, it is only traced.
Every finding is one line that names the place and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.errors import users_place
from trident.types import BaseAction, EnvSpec, HybridAction, TimeStep, kind_faults

LARGEST = 1e12
"""Of observations, rewards, costs: squares of larger numbers, and sums of these, overflow in float32."""

# --- first round: the declaration -----------------------------------------------------------------


def declaration_faults(env: Any) -> Iterator[str]:
    """Whatever stands in the place of numbers, names and arrays."""
    try:
        yield from _declaration(env)
    except Exception as error:  # an author's attributes may be anything
        yield f"the declaration cannot be read ({describe(error)})"


def _declaration(env: Any) -> Iterator[str]:
    for attribute in ("spec", "physics", "scripted", "shield", "reset", "step"):
        if not hasattr(env, attribute):
            yield f"has no attribute {attribute!r}; physics and shield may be None, scripted may be {{}}"
    spec = getattr(env, "spec", None)
    if not isinstance(spec, EnvSpec):
        yield "spec is not an EnvSpec"
        return
    readable = True
    for field, least in (("num_agents", 1), ("obs_dim", 1), ("state_dim", 1), ("horizon", 1)):
        value = getattr(spec, field)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            yield f"spec.{field} is {value!r}; it must be a whole number, at least {least}"
            readable = readable and isinstance(value, int | float)
    if not readable:
        return
    yield from _action_spec(spec)
    yield from _names(spec)
    for constraint in spec.constraints:
        limit = constraint.limit
        number = isinstance(limit, int | float | np.number) and not isinstance(limit, bool)
        if not (number and np.isfinite(limit) and limit >= 0):
            yield f"limit of constraint {constraint.name!r} is {limit!r}; give a finite one >= 0, as costs are"
    scripted = getattr(env, "scripted", {})
    if not (isinstance(scripted, Mapping) and all(callable(policy) for policy in scripted.values())):
        yield "scripted is not a mapping from names to functions (key, env state) -> HybridAction"


def _action_spec(spec: EnvSpec) -> Iterator[str]:
    arrays = {name: getattr(spec.action, name) for name in ("low", "high", "used")}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            yield f"action.{name} is a {type(array).__name__}; make it a NumPy array"
            return
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 3 for shape in shapes.values()):
        yield f"action.low, high and used must share one shape [agents, modes, parameters]; they have {shapes}"
        return
    if shapes["low"][0] != spec.num_agents or shapes["low"][1] < 1:
        yield f"action.low has shape {shapes['low']}; it needs {spec.num_agents} agents (spec.num_agents) and a mode"
    low, high, used = arrays.values()
    if used.dtype != bool:
        yield f"action.used has dtype {used.dtype}; make it bool"
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        yield "action.low or high is not finite; the policy squashes into the box, so bound it (pad with zeros)"
    elif (low > high).any():
        yield f"action.low > high at [agent, mode, parameter] {np.argwhere(low > high)[0].tolist()}; swap them"
    for kind, names, count in (
        ("mode", spec.action.mode_names, shapes["low"][1]),
        ("param", spec.action.param_names, shapes["low"][2]),
    ):
        if names and (len(names) != count or len(set(names)) != len(names)):
            yield f"action.{kind}_names {names} must be {count} different names, or ()"
    yield from kind_faults(spec)


def _names(spec: EnvSpec) -> Iterator[str]:
    if not isinstance(spec.name, str) or not spec.name or not spec.name.isprintable() or ".." in spec.name:
        yield f"spec.name is {spec.name!r}; give it a printable name, without '..'"
    for kind, named in (("constraint", spec.constraints), ("metric", spec.metrics)):
        names = [thing.name for thing in named]
        if len(set(names)) != len(names) or "" in names:
            yield f"{kind} names {names} must be different and not empty"
        for name in names:
            if not isinstance(name, str) or not name.isprintable() or name != name.strip() or set(name) & set("/="):
                yield f"{kind} name {name!r} must be printable, without '/', '=' or spaces at its ends"
    metrics = [metric.name for metric in spec.metrics]
    for metric in spec.metrics:
        if metric.per is not None and metric.per not in metrics:
            yield f"metric {metric.name!r} is per {metric.per!r}, which is not declared; declared: {metrics}"


# --- second round: shapes, by tracing alone -------------------------------------------------------


def shape_faults(env: Any) -> Iterator[str]:
    spec, key, action = env.spec, jax.eval_shape(lambda: jax.random.key(0)), action_shape(env.spec)
    state, out, fault = _trace("reset", env.reset, key)
    yield from fault
    if fault:
        return
    yield from timestep_faults("reset", spec, out)
    after, out, fault = _trace("step", env.step, key, state, action)
    yield from fault
    if not fault:
        yield from timestep_faults("step", spec, out)
        if _signature(after) != _signature(state):
            yield (
                f"step turns an env state of {_signature(state)} into {_signature(after)}; "
                "keep structure, shapes and dtypes the same so that a scan can carry it"
            )
    for name, policy in env.scripted.items():
        chosen, _, fault = _trace(f"scripted {name!r}", lambda k, s, f=policy: (f(k, s), None), key, state)
        yield from fault or _compare(f"scripted {name!r} returns", chosen, action)
    if env.shield is not None:
        shielded, changed, fault = _trace("shield", env.shield, state, action)
        yield from fault or _compare("shield returns", shielded, action)
        if not fault:
            yield from _compare("shield returns 'changed'", changed, jax.ShapeDtypeStruct((spec.num_agents,), bool))
    yield from _physics_shapes(env)


def _physics_shapes(env: Any) -> Iterator[str]:
    if env.physics is None:
        return
    state, action = jax.ShapeDtypeStruct((env.spec.state_dim,), jnp.float32), action_shape(env.spec)
    signals = jax.ShapeDtypeStruct((1 + env.spec.num_constraints,), jnp.float32)
    obs, modes = jax.ShapeDtypeStruct((env.spec.obs_dim,), jnp.float32), env.spec.action.low.shape[1:]
    base_policy = jax.eval_shape(lambda: BaseAction(jnp.zeros(modes[:1]), jnp.zeros(modes)))
    for name, arguments, expected in (
        ("signals", (state, action), signals),
        ("predict", (state, action), state),
        ("nominal", (state,), action),
        *([("base_policy", (obs,), base_policy)] if env.physics.base_policy else []),
    ):
        function = getattr(env.physics, name)
        result, _, fault = _trace(f"physics.{name}", lambda *a, f=function: (f(*a), None), *arguments)
        yield from fault or _compare(f"physics.{name} returns", result, expected)


def _trace(name: str, function: Callable, *arguments: Any) -> tuple[Any, Any, list[str]]:
    """Shapes of the function's two results, traced under vmap, or why it has none."""
    batched = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), arguments)
    try:
        first, second = jax.eval_shape(jax.vmap(function), *batched)
    except (Exception, SystemExit) as error:  # an author's code may raise anything
        remedy = "branch with jnp.where or lax.cond, not on values, and return what the contract says"
        return None, None, [f"{name} fails under jit and vmap ({describe(error)}); {remedy}"]
    first, second = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), (first, second))
    return first, second, []


def describe(error: BaseException) -> str:
    """Its type, the first line of its message, and the place in the author's own code."""
    place = users_place(error)
    text = f"{type(error).__name__}: {[*str(error).strip().splitlines(), 'no message'][0]}"
    return text if place is None else f"{text}; {place}"


def action_shape(spec: EnvSpec) -> HybridAction:
    """Shapes and dtypes of a joint action, by the contract."""
    agents, _, params = spec.action.low.shape
    mode = jax.ShapeDtypeStruct((agents,), jnp.int32)
    return HybridAction(mode, jax.ShapeDtypeStruct((agents, params), jnp.float32))  # pyright: ignore


def timestep_shape(spec: EnvSpec) -> TimeStep:
    """Shapes and dtypes of a time step, by the contract."""
    agents, costs = spec.num_agents, spec.num_constraints

    def number(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def flag(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, bool)

    return TimeStep(
        obs=number(agents, spec.obs_dim),
        state=number(spec.state_dim),
        mode_mask=flag(agents, spec.action.num_modes),
        alive=flag(agents),
        reward=number(),
        cost=number(costs),
        margin=number(costs),
        terminated=flag(),
        truncated=flag(),
        metrics={m.name: number() for m in spec.metrics},
        cost_attribution=flag(agents, costs),
    )


def timestep_faults(name: str, spec: EnvSpec, out: Any) -> Iterator[str]:
    if not isinstance(out, TimeStep):
        yield f"{name} must return (env state, TimeStep); the second is a {type(out).__name__}"
        return
    for field, shape in timestep_shape(spec)._asdict().items():
        if field != "metrics" and not (field == "cost_attribution" and out.cost_attribution is None):
            yield from _compare(f"{name} returns {field}", getattr(out, field), shape)
    if not isinstance(out.metrics, Mapping):
        yield f"{name} returns metrics as a {type(out.metrics).__name__}; make it a dict, {{}} if there are none"
        return
    declared = {metric.name for metric in spec.metrics}
    if set(out.metrics) != declared:
        yield f"{name} returns metrics {sorted(out.metrics)}; spec.metrics declares {sorted(declared)}"
    for metric, value in out.metrics.items():
        yield from _compare(f"{name} returns metric {metric!r}", value, jax.ShapeDtypeStruct((), jnp.float32))


def _compare(what: str, found: Any, expected: Any) -> Iterator[str]:
    if _signature(found) != _signature(expected):
        yield f"{what} as {_signature(found)}; the contract asks for {_signature(expected)}"


def _signature(tree: Any) -> str:
    """E.g. float32[3, 2], or HybridAction(int32[3], float32[3, 2])."""
    if not hasattr(tree, "shape") or not hasattr(tree, "dtype"):
        leaves, structure = jax.tree.flatten(tree)
        return str(jax.tree.unflatten(structure, [_Text(_signature(leaf)) for leaf in leaves])) if leaves else str(tree)
    return f"{tree.dtype}{list(tree.shape)}"


class _Text(str):
    __repr__ = str.__str__
