"""Central critics, of states V(s, o) and of joint actions Q(s, o, a), with one body for every method.

    pooled         e_i = phi_G(o_i, a_i),   z_G = mean of e_i over the members of kind G,   f(s, z_1, .., z_G)
    concatenated   f(s, o_1, .., o_N, a_1, .., a_N)

The pooled body (Zaheer et al. 2017) gives the same value whichever of two agents of a kind comes first, its encoder phi
learns from all of them, and its size does not grow with the team but for the state's. What one agent does otherwise
costs one pass of phi (`Slot`). phi is one hidden layer, f has `hidden`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trident.algos.common.kinds import Kinds, per_agent
from trident.nets import activate, mlp_after_first, mlp_init
from trident.types import EnvSpec, Moments, Transition

Body = Literal["pooled", "concatenated"]


class CriticInput(NamedTuple):
    """What a central critic sees."""

    state: Float[Array, "*batch S"]
    obs: Float[Array, "*batch N O"]
    action: Float[Array, "*batch N A"]  # what everyone does, encoded; A = 0 for a value of states

    @property
    def agents(self) -> Float[Array, "*batch N O+A"]:
        return jnp.concatenate([self.obs, self.action], axis=-1)


def state_input(rows: Transition | Moments) -> CriticInput:
    """Of a value V(s, o)."""
    return CriticInput(rows.state, rows.obs, rows.obs[..., :0])


class CriticParams(NamedTuple):
    encoder: Any  # phi, one layer, stacked over kinds; None if concatenated
    trunk: Any  # f


@dataclass(frozen=True)
class CentralCritic:
    kinds: Kinds
    """Who is pooled with whom."""
    body: Body
    state_dim: int
    obs_dim: int
    action_dim: int
    hidden: tuple[int, ...]

    def init(self, key: Any) -> CriticParams:
        """The last layer starts at 1 % scale: the first critic is whatever its output is added to."""
        if self.body == "concatenated":
            size = self.state_dim + len(self.kinds.of) * (self.obs_dim + self.action_dim)
            return CriticParams(None, mlp_init(key, [size, *self.hidden, 1], out_scale=0.01))
        trunk_key, key = jax.random.split(key)
        width, keys = self.hidden[0], jax.random.split(key, self.kinds.count)
        encoder = jax.vmap(lambda k: mlp_init(k, [self.obs_dim + self.action_dim, width, 1])[0])(keys)
        size = self.state_dim + self.kinds.count * width
        return CriticParams(encoder, mlp_init(trunk_key, [size, *self.hidden, 1], out_scale=0.01))

    def apply(self, params: CriticParams, x: CriticInput) -> Float[Array, "*batch 1"]:
        first = params.trunk[0]
        if params.encoder is None:
            flat = [x.obs.reshape(*x.obs.shape[:-2], -1), x.action.reshape(*x.action.shape[:-2], -1)]
            joined = jnp.concatenate([x.state, *flat], axis=-1)
        else:
            encoded = per_agent(self.kinds, _encode, params.encoder, x.agents, axis=x.obs.ndim - 2)
            joined = jnp.concatenate([x.state, *self._pooled(encoded)], axis=-1)
        return mlp_after_first(params.trunk, joined @ first["w"] + first["b"])

    def _pooled(self, encoded: Float[Array, "*batch N H"]) -> list[Float[Array, "*batch H"]]:
        """The mean over each kind's members."""
        of = np.array(self.kinds.of)
        groups = [np.flatnonzero(of == kind) for kind in range(self.kinds.count)]
        return [jnp.sum(encoded[..., group, :], axis=-2) / len(group) for group in groups]

    def slot(self, params: CriticParams, x: CriticInput, agent: Int[Array, ""]) -> Slot:
        """As a function of one agent's action; everything else is worked out once."""
        first, width = params.trunk[0], self.action_dim
        if params.encoder is None:
            rest = x._replace(action=x.action.at[..., agent, :].set(0.0))
            flat = [rest.obs.reshape(*x.obs.shape[:-2], -1), rest.action.reshape(*x.action.shape[:-2], -1)]
            joined = jnp.concatenate([rest.state, *flat], axis=-1)
            offset = joined.shape[-1] - len(self.kinds.of) * width + agent * width
            mine = jax.lax.dynamic_slice_in_dim(first["w"], offset, width, axis=0)
            return Slot(params.trunk, joined @ first["w"] + first["b"], mine, None)
        kind = jnp.asarray(self.kinds.of)[agent]
        encoded = per_agent(self.kinds, _encode, params.encoder, x.agents, axis=x.obs.ndim - 2)
        joined = jnp.concatenate([x.state, *self._pooled(encoded.at[..., agent, :].set(0.0))], axis=-1)
        layer = jax.tree.map(lambda w: w[kind], params.encoder)
        seen = jnp.take(x.obs, agent, axis=-2) @ layer["w"][: self.obs_dim] + layer["b"]
        height = self.hidden[0]
        into = jax.lax.dynamic_slice_in_dim(first["w"], self.state_dim + kind * height, height, axis=0)
        into = into / jnp.asarray(self.kinds.sizes, jnp.float32)[kind]
        encode = Encode(layer, seen, layer["w"][self.obs_dim :])
        return Slot(params.trunk, joined @ first["w"] + first["b"], into, encode)


class Encode(NamedTuple):
    """phi as a function of one agent's action."""

    layer: Any
    seen: Float[Array, "*batch H"]  # its sum over what the agent sees
    weight: Float[Array, "A H"]


class Slot(NamedTuple):
    """A critic as a function of one agent's action, everything else being given."""

    trunk: Any
    rest: Float[Array, "*batch H"]  # the trunk's first sum over everything else
    weight: Float[Array, "_ H"]  # its rows of the agent's action, or of what the encoder makes of it
    encode: Encode | None

    def value(self, mine: Float[Array, "*batch R A"]) -> Float[Array, "*batch R"]:
        """Of R actions of the agent."""
        if self.encode is not None:
            mine = activate(self.encode.layer, self.encode.seen[..., None, :] + mine @ self.encode.weight)
        return mlp_after_first(self.trunk, self.rest[..., None, :] + mine @ self.weight)[..., 0]

    def value_and_gradient(
        self, mine: Float[Array, "*batch R A"]
    ) -> tuple[Float[Array, "*batch R"], Float[Array, "*batch R A"]]:
        """Rows are independent: the gradient of the sum is the gradient of each."""

        def summed(m: Array) -> tuple[Array, Array]:
            q = self.value(m)
            return jnp.sum(q), q

        gradient, q = jax.grad(summed, has_aux=True)(mine)
        return q, gradient


def central_critic(spec: EnvSpec, body: Body, hidden: Sequence[int], action_dim: int = 0) -> CentralCritic:
    """Of actions that are encoded in `action_dim` numbers an agent. Who is like whom is the environment's word, also
    where every agent has an actor of its own."""
    of = Kinds(tuple(int(k) for k in spec.kind_of))
    return CentralCritic(of, body, spec.state_dim, spec.obs_dim, action_dim, tuple(hidden))


def critic_of_vector(size: int, hidden: Sequence[int]) -> CentralCritic:
    """A plain network of one vector: the state of an agent that neither sees nor does anything."""
    return CentralCritic(Kinds((0,)), "concatenated", size, 0, 0, tuple(hidden))


def vector_input(x: Float[Array, "*batch S"]) -> CriticInput:
    nothing = jnp.zeros((*x.shape[:-1], 1, 0), x.dtype)
    return CriticInput(x, nothing, nothing)


def _encode(layer: Any, x: Float[Array, "*batch X"]) -> Float[Array, "*batch H"]:
    return activate(layer, x @ layer["w"] + layer["b"])
