"""A warm start: fit stacked actors to the actions a scripted policy took."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from trident.algos.common.actor import BaseOffset, actors_apply, base_offset
from trident.algos.common.kinds import Kinds
from trident.maths import hybrid
from trident.types import ActionSpec, BasePolicy, Metrics, Transition, encode_params

WARM_STEPS, WARM_ROWS, WARM_LR = 1500, 512, 1e-3
"""Minibatches of a warm start, their rows and their learning rate."""
WARM_LOG_STD = -1.6
"""Log standard deviation afterwards, at most: exploration that a feasible policy survives."""
EDGE = 0.97
"""Parameters nearer to the edge of their box than this are pulled in: the edge itself is at infinity before tanh."""


def imitation_loss(
    actors: Any,
    spec: ActionSpec,
    rows: Transition,
    base: BaseOffset | None = None,
    kinds: Kinds | None = None,
    spread: float = 0.3,
) -> tuple[Float[Array, ""], Metrics]:
    """- log p(mode) + |mean(mode) - raw|^2 / (2 spread^2) over the used parameters, averaged over living agents.

    The policy's own standard deviation takes no part: a scripted policy without noise would drive it to zero.
    """
    dist = actors_apply(actors, rows.obs, base, kinds)
    mode = rows.executed.mode
    log_p = jnp.take_along_axis(hybrid.mode_log_probs(dist.logits, rows.mode_mask), mode[..., None], -1)[..., 0]
    unit = jnp.clip(encode_params(spec, *rows.executed), -EDGE, EDGE)
    mean = jnp.take_along_axis(dist.mean, mode[..., None, None], -2)[..., 0, :]
    onehot = jax.nn.one_hot(mode, spec.num_modes)
    used = jnp.einsum("...nm,nmp->...np", onehot, jnp.asarray(spec.used, jnp.float32))
    miss = jnp.sum(used * (mean - jnp.arctanh(unit)) ** 2, axis=-1)
    alive = rows.alive / jnp.maximum(jnp.sum(rows.alive), 1.0)
    right = jnp.sum(alive * (jnp.argmax(jnp.where(rows.mode_mask, dist.logits, -jnp.inf), -1) == mode))
    loss = jnp.sum(alive * (0.5 * miss / spread**2 - log_p))
    return loss, {"imitation/mode_agreement": right, "imitation/parameter_error": jnp.sqrt(jnp.sum(alive * miss))}


def imitate(
    actors: Any, spec: ActionSpec, rollout: Transition, key: Any, steps: int, batch: int, lr: float, log_std: float,
    base_policy: BasePolicy | None = None, kinds: Kinds | None = None,
) -> tuple[Any, Metrics]:  # fmt: skip
    """Adam on random rows of the rollout [T, E, ...]; the actors leave with the given log-std in every mode."""
    total = rollout.reward.size
    rows = jax.tree.map(lambda x: x.reshape(total, *x.shape[2:]), rollout._replace(metrics={}, extras={}))
    base = base_offset(base_policy, rows.obs)
    adam = optax.adam(optax.cosine_decay_schedule(lr, steps))
    frozen = lambda a: {**a, "log_std": jax.lax.stop_gradient(a["log_std"])}  # noqa: E731

    def step(carry: Any, step_key: Any) -> Any:
        actors, opt = carry
        pick = jax.random.randint(step_key, (batch,), 0, total)
        some = jax.tree.map(lambda x: x[pick], (rows, base))
        grads, metrics = jax.grad(lambda a: imitation_loss(frozen(a), spec, *some, kinds=kinds), has_aux=True)(actors)
        updates, opt = adam.update(grads, opt, actors)
        return (optax.apply_updates(actors, updates), opt), metrics

    (actors, _), metrics = jax.lax.scan(step, (actors, adam.init(actors)), jax.random.split(key, steps))
    actors = {**actors, "log_std": jnp.full_like(actors["log_std"], log_std)}
    last = max(steps // 10, 1)
    return actors, jax.tree.map(lambda m: jnp.mean(m[-last:]), metrics)
