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

from trident.maths import hybrid
from trident.maths.chunks import in_chunks
from trident.maths.hybrid import HybridDist
from trident.types import ActionSpec, HybridAction, ReflexOf, View, decode_params

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
        x = _activate(layer, x) @ following["w"] + following["b"]
    return x


def mlp_inputs(params: Params, x: Float[Array, "*batch I"]) -> list[Float[Array, "*batch _"]]:
    """What every layer's weights are multiplied with."""
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(_activate(layer, inputs[-1] @ layer["w"] + layer["b"]))
    return inputs


def _activate(layer: Params, x: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
    return jax.nn.relu(_layer_norm(x) * layer["scale"] + layer["shift"])


def _layer_norm(x: Float[Array, "*batch H"]) -> Float[Array, "*batch H"]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def actor_init(
    key: Any,
    obs_dim: int,
    hidden: Sequence[int],
    num_modes: int,
    num_params: int,
    log_std: float,
    conditional: bool = True,
) -> Params:
    """One agent's hybrid actor: a trunk, then logits and one Gaussian mean per mode (or one for all of them, if not
    `conditional`); log-std is free of the input.

    The last layer starts at 1 % scale, so that the first policy is uniform over modes and centred in every box.
    """
    heads = num_modes if conditional else 1
    return {
        "trunk": mlp_init(key, [obs_dim, *hidden, num_modes + heads * num_params], out_scale=0.01),
        "log_std": jnp.full((heads, num_params), log_std),
    }


Leaning = tuple[Float[Array, "*rows M"], Float[Array, "*rows M P"]]
REFLEX_EDGE = 0.95
"""Suggested parameters nearer to the edge of their box than this are pulled in: the edge is at infinity before tanh."""


def actor_apply(params: Params, obs: Float[Array, "*batch O"], towards: Leaning | None = None) -> HybridDist:
    """The network's output, or its correction of what physics suggests for the observation (`leaning`)."""
    heads, num_params = params["log_std"].shape
    out = mlp_apply(params["trunk"], obs)
    num_modes = out.shape[-1] - heads * num_params
    mean = out[..., num_modes:].reshape(*out.shape[:-1], heads, num_params)
    mean = jnp.broadcast_to(mean, (*out.shape[:-1], num_modes, num_params))
    log_std = jnp.clip(params["log_std"], -4.0, 1.0)
    dist = HybridDist(out[..., :num_modes], mean, jnp.broadcast_to(log_std, mean.shape))
    if towards is None:
        return dist
    return dist._replace(logits=dist.logits + towards[0], mean=dist.mean + towards[1])


ROWS = 1024
"""Of an actor's inputs that are worked through at once where there are many, and slopes are taken again and again."""


def actor_by_parts(params: Params, obs: Float[Array, "B O"], towards: Leaning | None = None) -> HybridDist:
    """`actor_apply` of many rows; its derivatives are taken part by part as well."""
    return in_chunks(lambda rows: actor_apply(params, *rows), (obs, towards), ROWS)


def leaning(reflex: ReflexOf | None, obs: Float[Array, "*batch O"]) -> Leaning | None:
    """What a reflex, if there is one, adds to the logits and, before the squash, to the means. It depends on nothing
    that is learned: wherever a policy is looked at again and again, once is enough."""
    if reflex is None:
        return None
    preference, unit = jnp.vectorize(reflex, signature="(o)->(m),(m,p)")(jax.lax.stop_gradient(obs))
    return preference, jnp.arctanh(jnp.clip(unit, -REFLEX_EDGE, REFLEX_EDGE))


def actors_init(key: Any, num_agents: int, *args: Any) -> Params:
    """Separate parameters per agent, stacked on a leading agent axis."""
    return jax.vmap(lambda k: actor_init(k, *args))(jax.random.split(key, num_agents))


def actors_apply(params: Params, obs: Float[Array, "*batch N O"], towards: Leaning | None = None) -> HybridDist:
    """Stacked actors on stacked observations; the agent axis of the result stands where it stood in `obs`."""
    axis = obs.ndim - 2
    dist = jax.vmap(actor_apply, in_axes=(0, axis, axis), out_axes=0)(params, obs, towards)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, axis), dist)


def act(
    params: Params, spec: ActionSpec, view: View, key: Any, deterministic: bool, reflex: ReflexOf | None = None
) -> tuple[HybridAction, dict[str, Any]]:
    """Stacked actors choose for one environment; extras hold what an on-policy learner needs, per agent."""
    dist, used = actors_apply(params, view.obs, leaning(reflex, view.obs)), jnp.asarray(spec.used)
    if deterministic:
        mode, raw = hybrid.most_likely(dist, view.mode_mask, used)
    else:
        mode, raw = hybrid.sample(key, dist, view.mode_mask, used)
    log_prob = hybrid.log_prob(dist, view.mode_mask, used, mode, raw)
    action = HybridAction(mode, decode_params(spec, mode, jnp.tanh(raw)))
    return action, {"raw": raw, "log_prob": log_prob}


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
