"""Agents of a kind learn together: one set of parameters for all of them.

Parameters are stacked over kinds [G, ...] and agents index into them. With a kind for every agent (G = N) that is one
set of parameters per agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trident.errors import TridentError
from trident.types import EnvSpec, kind_faults


@dataclass(frozen=True)
class Kinds:
    of: tuple[int, ...]
    """The kind of each agent, 0 .. G - 1."""
    agent_id: bool = False
    """Actors see which agent they act for."""

    @property
    def count(self) -> int:
        return max(self.of) + 1

    @property
    def separate(self) -> bool:
        """Whether every agent is a kind of its own."""
        return self.of == tuple(range(len(self.of)))

    @property
    def members(self) -> np.ndarray:
        """Agents of every kind [G, n]; a kind with fewer than n repeats its own."""
        groups = [np.flatnonzero(np.array(self.of) == kind) for kind in range(self.count)]
        size = max(map(len, groups))
        return np.stack([np.resize(group, size) for group in groups])

    @property
    def sizes(self) -> np.ndarray:
        """Agents in every kind [G]."""
        return np.bincount(self.of)


def kinds_of(spec: EnvSpec, share: bool = True, agent_id: bool = False) -> Kinds:
    """As the environment says, or, without sharing, every agent a kind of its own."""
    for fault in kind_faults(spec):
        raise TridentError(f"{spec.name}: {fault}")
    return Kinds(tuple(int(k) for k in spec.kind_of) if share else tuple(range(spec.num_agents)), agent_id)


def input_size(kinds: Kinds, obs_dim: int) -> int:
    """Of an actor."""
    return obs_dim + (len(kinds.of) if kinds.agent_id else 0)


def actor_input(kinds: Kinds | None, obs: Float[Array, "*batch N O"]) -> Float[Array, "*batch N I"]:
    """What actors see: their observations and, on request, who they are."""
    if kinds is None or not kinds.agent_id:
        return obs
    who = jnp.broadcast_to(jnp.eye(obs.shape[-2]), (*obs.shape[:-1], obs.shape[-2]))
    return jnp.concatenate([obs, who], axis=-1)


def per_agent(kinds: Kinds | None, function: Callable, params: Any, *rows: Any, axis: int) -> Any:
    """`function` of each agent's rows with the parameters of its kind; agents stand at `axis` of all rows and of the
    result. No kinds: one for every agent."""
    if kinds is None or kinds.separate:
        return jax.vmap(function, in_axes=(0, *[axis] * len(rows)), out_axes=axis)(params, *rows)
    of_kind = [jax.tree.map(lambda p, k=k: p[k], params) for k in range(kinds.count)]
    if kinds.count == 1:  # its agents are just more rows
        return function(of_kind[0], *rows)
    groups = [np.flatnonzero(np.array(kinds.of) == k) for k in range(kinds.count)]
    parts = [
        function(mine, *jax.tree.map(lambda x, group=group: jnp.take(x, group, axis=axis), rows))
        for mine, group in zip(of_kind, groups, strict=True)
    ]
    back = np.argsort(np.concatenate(groups))
    return jax.tree.map(lambda *x: jnp.take(jnp.concatenate(x, axis=axis), back, axis=axis), *parts)


def by_kind(kinds: Kinds | None, x: Array) -> Array:
    """[N, B, ...] -> rows of every kind's members, [G, n B, ...], member by member."""
    if kinds is None or kinds.separate:
        return x
    rows = x[kinds.members]
    return rows.reshape(len(rows), rows.shape[1] * rows.shape[2], *x.shape[2:])


def first_of_kind(kinds: Kinds, x: Any) -> Any:
    """[N, ...] of something that agents of a kind have in common -> [G, ...]."""
    return x if kinds.separate else x[kinds.members[:, 0]]


def real_members(kinds: Kinds) -> np.ndarray:
    """[G, n]: False where a kind repeats its members."""
    return np.arange(kinds.members.shape[1]) < kinds.sizes[:, None]
