"""Hybrid actors: modes and their parameters from one network per kind of agents, on top of a base policy if there is
one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.algos.common.kinds import Kinds, actor_input, per_agent
from trident.maths import hybrid
from trident.maths.batching import map_batches
from trident.maths.hybrid import HybridDist
from trident.nets import Params, mlp_apply, mlp_init
from trident.types import ActionSpec, BasePolicy, HybridAction, View, decode_params


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


BaseOffset = tuple[Float[Array, "*rows M"], Float[Array, "*rows M P"]]
BASE_EDGE = 0.95
"""Suggested parameters nearer to the edge of their box than this are pulled in: the edge is at infinity before tanh."""


def actor_apply(params: Params, obs: Float[Array, "*batch O"], base: BaseOffset | None = None) -> HybridDist:
    """The network's output, or its correction of what physics suggests for the observation (`base_offset`)."""
    heads, num_params = params["log_std"].shape
    out = mlp_apply(params["trunk"], obs)
    num_modes = out.shape[-1] - heads * num_params
    mean = out[..., num_modes:].reshape(*out.shape[:-1], heads, num_params)
    mean = jnp.broadcast_to(mean, (*out.shape[:-1], num_modes, num_params))
    log_std = jnp.clip(params["log_std"], -4.0, 1.0)
    dist = HybridDist(out[..., :num_modes], mean, jnp.broadcast_to(log_std, mean.shape))
    if base is None:
        return dist
    return dist._replace(logits=dist.logits + base[0], mean=dist.mean + base[1])


ROWS = 1024
"""Of an actor's inputs that are worked through at once where there are many, and gradients are taken again and
again."""


def actor_by_parts(params: Params, obs: Float[Array, "B O"], base: BaseOffset | None = None) -> HybridDist:
    """`actor_apply` of many rows; its derivatives are taken part by part as well."""
    return map_batches(lambda rows: actor_apply(params, *rows), (obs, base), ROWS)


def base_offset(base_policy: BasePolicy | None, obs: Float[Array, "*batch O"]) -> BaseOffset | None:
    """What a base policy, if there is one, adds to the logits and, before the squash, to the means. It depends on
    nothing
    that is learned: wherever a policy is looked at again and again, once is enough."""
    if base_policy is None:
        return None
    preference, unit = jnp.vectorize(base_policy, signature="(o)->(m),(m,p)")(jax.lax.stop_gradient(obs))
    return preference, jnp.arctanh(jnp.clip(unit, -BASE_EDGE, BASE_EDGE))


def actors_init(key: Any, count: int, *args: Any) -> Params:
    """Separate parameters for each kind of agents, stacked on a leading axis."""
    return jax.vmap(lambda k: actor_init(k, *args))(jax.random.split(key, count))


def actors_apply(
    params: Params, obs: Float[Array, "*batch N O"], base: BaseOffset | None = None, kinds: Kinds | None = None
) -> HybridDist:
    """Stacked actors on stacked observations; the agent axis of the result stands where it stood in `obs`."""
    return per_agent(kinds, actor_apply, params, actor_input(kinds, obs), base, axis=obs.ndim - 2)


def act(
    params: Params,
    spec: ActionSpec,
    view: View,
    key: Any,
    deterministic: bool,
    base_policy: BasePolicy | None = None,
    kinds: Kinds | None = None,
) -> tuple[HybridAction, dict[str, Any]]:
    """Stacked actors choose for one environment; extras hold what an on-policy learner needs, per agent."""
    dist, used = actors_apply(params, view.obs, base_offset(base_policy, view.obs), kinds), jnp.asarray(spec.used)
    if deterministic:
        mode, raw = hybrid.most_likely(dist, view.mode_mask, used)
    else:
        mode, raw = hybrid.sample(key, dist, view.mode_mask, used)
    log_prob = hybrid.log_prob(dist, view.mode_mask, used, mode, raw)
    action = HybridAction(mode, decode_params(spec, mode, jnp.tanh(raw)))
    return action, {"raw": raw, "log_prob": log_prob}
