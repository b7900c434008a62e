"""Multi-layer perceptrons as init/apply pairs on plain pytrees: LayerNorm + ReLU hidden layers, linear output.

A *stack* is the same network with a leading axis (agents, constraints): `jax.vmap` of init and apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Params = Any


def mlp_init(key: Any, sizes: Sequence[int], out_scale: float = 1.0) -> Params:
    """Gaussian weights of variance gain^2 / fan-in (gain sqrt 2 before ReLU, `out_scale` on the output layer).

    Not orthogonal: LayerNorm makes the choice immaterial, and the QR takes longer to compile than a small learner.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    layers = []
    for i, k in enumerate(keys):
        last = i == len(keys) - 1
        gain = (out_scale if last else 2.0**0.5) / sizes[i] ** 0.5
        layer = {"w": gain * jax.random.normal(k, (sizes[i], sizes[i + 1])), "b": jnp.zeros(sizes[i + 1])}
        if not last:
            layer |= {"scale": jnp.ones(sizes[i + 1]), "shift": jnp.zeros(sizes[i + 1])}
        layers.append(layer)
    return layers


def mlp_apply(params: Params, x: Float[Array, "*batch I"]) -> Float[Array, "*batch O"]:
    return mlp_after_first(params, x @ params[0]["w"] + params[0]["b"])


def mlp_after_first(params: Params, x: Float[Array, "*batch H"]) -> Float[Array, "*batch O"]:
    """The rest of the network, given its first layer's linear output."""
    for layer, following in pairwise(params):
        x = activate(layer, x) @ following["w"] + following["b"]
    return x


def mlp_inputs(params: Params, x: Float[Array, "*batch I"]) -> list[Float[Array, "*batch _"]]:
    """What every layer's weights are multiplied with."""
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(activate(layer, inputs[-1] @ layer["w"] + layer["b"]))
    return inputs


def activate(layer: Params, x: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
    """What follows a hidden layer's sums."""
    return jax.nn.relu(_layer_norm(x) * layer["scale"] + layer["shift"])


def _layer_norm(x: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def mixer_init(key: Any, state_dim: int, num_agents: int, embed: int, hidden: int) -> Params:
    """Hypernetworks of the global state that make a monotonic mixing network (Rashid et al. 2018)."""
    keys = jax.random.split(key, 4)
    return {
        "w1": mlp_init(keys[0], [state_dim, hidden, num_agents * embed]),
        "b1": mlp_init(keys[1], [state_dim, embed]),
        "w2": mlp_init(keys[2], [state_dim, hidden, embed], out_scale=1.0 / embed),  # the first sum is of order one
        "b2": mlp_init(keys[3], [state_dim, embed, 1]),
    }


def mixer_apply(
    params: Params, state: Float[Array, "*batch S"], utilities: Float[Array, "*batch N"]
) -> Float[Array, "*batch"]:
    """Q_tot = |w2(s)|' elu(|W1(s)| q + b1(s)) + b2(s): no utility can lower the total by growing."""
    weights, bias, out, level = (mlp_apply(params[name], state) for name in ("w1", "b1", "w2", "b2"))
    weights = jnp.abs(weights).reshape(*utilities.shape, -1)  # [..., N, embed]
    hidden = jax.nn.elu(jnp.einsum("...n,...ne->...e", utilities, weights) + bias)
    return jnp.sum(jnp.abs(out) * hidden, axis=-1) + level[..., 0]


def count(params: Params) -> int:
    return sum(x.size for x in jax.tree.leaves(params))
