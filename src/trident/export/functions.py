"""The pure functions that a bundle carries, of one environment's arrays; and the inputs they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.randomised import Erring, as_thought
from trident.types import Algorithm, AnyEnv, EnvSpec, HybridAction, View, decode_params

Inputs = dict[str, tuple[tuple[int, ...], Any]]


class Function(NamedTuple):
    call: Callable[..., dict[str, Any]]
    """(weights, **inputs) -> outputs by name"""
    weights: Any
    inputs: Inputs


def policy(algorithm: Algorithm, state: Any, spec: EnvSpec, deterministic: bool, agent: int | None) -> Function:
    """The whole team's, or that of one agent on its own.

    An agent alone is the team with everybody standing where it stands: policies are decentralised, so its row is right
    whatever the others see."""
    shown = spec.num_agents if agent is None else 1

    def call(weights: Any, obs: Any, mask: Any, alive: Any, key: Any) -> dict[str, Any]:
        view = jax.tree.map(lambda x: jnp.broadcast_to(x, (spec.num_agents, *x.shape[1:])), View(obs, mask, alive))
        action = algorithm.act(weights, view, jax.random.wrap_key_data(key), deterministic)[0]
        own = slice(None) if agent is None else slice(agent, agent + 1)
        return {"mode": action.mode[own].astype(jnp.int32), "params": action.params[own]}

    return Function(call, state, {
        "obs": ((shown, spec.obs_dim), np.float32), "mask": ((shown, spec.action.num_modes), np.bool_),
        "alive": ((shown,), np.bool_), "key": ((2,), np.uint32),
    })  # fmt: skip


def base_policy(env: AnyEnv, spec: EnvSpec, agent: int | None) -> Function | None:
    """What the environment's laws suggest to every agent, among the allowed modes."""
    suggest = None if env.physics is None else env.physics.base_policy
    if suggest is None:
        return None
    own = slice(None) if agent is None else slice(agent, agent + 1)
    boxes = spec.action.__class__(spec.action.low[own], spec.action.high[own], spec.action.used[own])
    shown = boxes.low.shape[0]

    def call(weights: Any, obs: Any, mask: Any) -> dict[str, Any]:
        del weights
        suggested = jax.vmap(suggest)(obs)
        mode = jnp.argmax(jnp.where(mask, suggested.preference, -jnp.inf), axis=-1)
        unit = jnp.take_along_axis(suggested.unit, mode[:, None, None], axis=1)[:, 0]
        return {"mode": mode.astype(jnp.int32), "params": decode_params(boxes, mode, unit)}

    inputs = {"obs": ((shown, spec.obs_dim), np.float32), "mask": ((shown, spec.action.num_modes), np.bool_)}
    return Function(call, (), inputs)


def shield(env: AnyEnv, spec: EnvSpec) -> Function | None:
    """The environment's filter of joint actions; it reads the environment's own state, leaf by leaf."""
    env = as_thought(env)
    if env.shield is None:
        return None
    example = jax.eval_shape(env.reset, jax.random.key(0))[0]  # pyright: ignore[reportArgumentType]
    leaves = leaves_of(example)
    names, tree = list(leaves), jax.tree.structure(example)

    def call(weights: Any, mode: Any, params: Any, **state: Any) -> dict[str, Any]:
        del weights
        action, changed = env.shield(jax.tree.unflatten(tree, [state[n] for n in names]), HybridAction(mode, params))  # pyright: ignore[reportOptionalCall]
        return {"mode": action.mode.astype(jnp.int32), "params": action.params, "changed": changed}

    return Function(call, (), _actions(spec) | {name: (x.shape, x.dtype) for name, x in leaves.items()})


def leaves_of(env_state: Any) -> dict[str, Any]:
    """Arrays of an environment's private state by name, as a shield program takes them."""
    env_state = env_state.state if isinstance(env_state, Erring) else env_state
    paths = jax.tree_util.tree_flatten_with_path(env_state)[0]
    return {"state" + jax.tree_util.keystr(path): leaf for path, leaf in paths}


def foresee(env: AnyEnv, spec: EnvSpec, ahead: int) -> Function | None:
    """Costs that physics expects of an action now, and of its nominal controller in each of the steps after it."""
    physics = env.physics
    if physics is None or not spec.num_constraints or ahead < 0:
        return None

    def call(weights: Any, state: Any, mode: Any, params: Any) -> dict[str, Any]:
        del weights
        action = HybridAction(mode, params)
        costs = [physics.signals(state, action)[1:]]
        for _ in range(ahead):
            state = physics.predict(state, action)
            action = physics.nominal(state)
            costs.append(physics.signals(state, action)[1:])
        return {"cost": jnp.stack(costs)}

    return Function(call, (), {"state": ((spec.state_dim,), np.float32)} | _actions(spec))


def _actions(spec: EnvSpec) -> Inputs:
    n, params = spec.num_agents, spec.action.num_params
    return {"mode": ((n,), np.int32), "params": ((n, params), np.float32)}


def in_jax(function: Function) -> Callable[..., dict[str, Any]]:
    """Compiled for batches, by name."""
    names = list(function.inputs)

    @jax.jit
    def run(*rows: Any) -> Any:
        one = lambda *row: function.call(function.weights, **dict(zip(names, row, strict=True)))  # noqa: E731
        return jax.vmap(one)(*rows)

    return lambda **given: jax.device_get(run(*(given[name] for name in names)))
