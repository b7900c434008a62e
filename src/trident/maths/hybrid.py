"""The policy of one agent: a categorical over modes and, for each mode, a diagonal Gaussian over its parameters.

    m ~ Cat(softmax(logits) over the allowed modes),   raw | m ~ N(mean_m, exp(log_std_m)^2),   unit = tanh(raw)

Parameters a mode does not use carry no density, no KL and no gradient. Densities are in `raw` space unless the
name says otherwise: KL and importance ratios are the same in every space, so only `log_prob_box` pays for the
change of variables. All functions accept any leading batch; `mask` [..., M] and `used` [..., M, P] broadcast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.types import Key

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

ModeMask = Bool[Array | np.ndarray, "*#batch M"]
UsedMask = Bool[Array | np.ndarray, "*#batch M P"]
Box = Float[Array | np.ndarray, "*#batch M P"]


class HybridDist(NamedTuple):
    logits: Float[Array, "*batch M"]
    mean: Float[Array, "*batch M P"]
    log_std: Float[Array, "*batch M P"]


def mode_log_probs(logits: Float[Array, "*batch M"], mask: ModeMask) -> Float[Array, "*batch M"]:
    """Log-softmax over the allowed modes (at least one). A forbidden mode gets the lowest finite number: its
    probability is exactly 0, its gradient exactly 0, and p log p or a difference of two of them is not NaN."""
    top = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True, where=mask, initial=-jnp.inf))
    shifted = jnp.where(mask, logits - top, 0.0)
    log_norm = jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True, where=mask))
    return jnp.where(mask, shifted - log_norm, jnp.finfo(logits.dtype).min)


def mode_probs(logits: Float[Array, "*batch M"], mask: ModeMask) -> Float[Array, "*batch M"]:
    return jnp.exp(mode_log_probs(logits, mask))


def sample(
    key: Key, dist: HybridDist, mask: ModeMask, used: UsedMask
) -> tuple[Int[Array, "*batch"], Float[Array, "*batch P"]]:
    """(mode, raw parameters of that mode); unused parameters are 0."""
    mode_key, param_key = jax.random.split(key)
    mode = jax.random.categorical(mode_key, mode_log_probs(dist.logits, mask))
    mean, log_std, is_used = _of_mode(dist, used, mode)
    noise = jax.random.normal(param_key, mean.shape, mean.dtype)
    return mode, jnp.where(is_used, mean + jnp.exp(log_std) * noise, 0.0)


def most_likely(
    dist: HybridDist, mask: ModeMask, used: UsedMask
) -> tuple[Int[Array, "*batch"], Float[Array, "*batch P"]]:
    """(most probable allowed mode, its Gaussian's mean): the deterministic policy."""
    mode = jnp.argmax(mode_log_probs(dist.logits, mask), axis=-1)
    mean, _, is_used = _of_mode(dist, used, mode)
    return mode, jnp.where(is_used, mean, 0.0)


def centre(dist: HybridDist, used: UsedMask, mode: Int[Array, "*batch"]) -> Float[Array, "*batch P"]:
    """The mean of a mode's Gaussian, as `sample` would give it without noise."""
    mean, _, is_used = _of_mode(dist, used, mode)
    return jnp.where(is_used, mean, 0.0)


def log_prob(
    dist: HybridDist, mask: ModeMask, used: UsedMask, mode: Int[Array, "*batch"], raw: Float[Array, "*batch P"]
) -> Float[Array, "*batch"]:
    """log pi(m, raw) = log p(m) + sum over the used parameters of mode m of log N(raw; mean_m, std_m).

    One number per agent: the ratio of two policies is exp of the difference, the product over all dimensions.
    """
    mean, log_std, is_used = _of_mode(dist, used, mode)
    z = (jnp.where(is_used, raw, 0.0) - mean) * jnp.exp(-log_std)
    gauss = -0.5 * z**2 - log_std - HALF_LOG_2PI
    chosen = _pick(mode_log_probs(dist.logits, mask)[..., None], mode)[..., 0]
    return chosen + jnp.sum(gauss, axis=-1, where=is_used)


def log_prob_box(
    dist: HybridDist,
    mask: ModeMask,
    used: UsedMask,
    mode: Int[Array, "*batch"],
    raw: Float[Array, "*batch P"],
    low: Box,
    high: Box,
) -> Float[Array, "*batch"]:
    """Log-density of the physical parameter a = low + (tanh(raw) + 1) (high - low) / 2 of the chosen mode:

        log pi(m, a) = log pi(m, raw) - sum_used [ log(1 - tanh(raw)^2) + log((high - low) / 2) ]

    log(1 - tanh(x)^2) = 2 (log 2 - |x| - softplus(-2|x|)) never takes the logarithm of a rounded zero.
    A parameter with an empty box (high = low) has no density; it gets no box term.
    """
    is_used = _pick(used, mode)
    x = jnp.abs(jnp.where(is_used, raw, 0.0))
    log_slope = 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))
    width = _pick(jnp.asarray(high, raw.dtype) - jnp.asarray(low, raw.dtype), mode)
    log_scale = jnp.where(width > 0, jnp.log(jnp.where(width > 0, 0.5 * width, 1.0)), 0.0)
    return log_prob(dist, mask, used, mode, raw) - jnp.sum(log_slope + log_scale, axis=-1, where=is_used)


def entropy(dist: HybridDist, mask: ModeMask, used: UsedMask) -> Float[Array, "*batch"]:
    """H(m) + sum_m p(m) H(raw | m), in raw space."""
    logp = mode_log_probs(dist.logits, mask)
    p = jnp.exp(logp)
    gauss = jnp.sum(jnp.where(used, dist.log_std + 0.5 + HALF_LOG_2PI, 0.0), axis=-1)
    return jnp.sum(p * (gauss - logp), axis=-1)


def kl(old: HybridDist, new: HybridDist, mask: ModeMask, used: UsedMask) -> Float[Array, "*batch"]:
    """KL(old || new) = sum_m p_old(m) [ log p_old(m) - log p_new(m) + KL(N_old,m || N_new,m) ], per agent.

    Both parts are weighted by the old policy's probabilities, so a mode that is never taken costs nothing.
    """
    logp = mode_log_probs(old.logits, mask)
    old, new = _without_unused(old, used), _without_unused(new, used)
    log_ratio = old.log_std - new.log_std
    shift = (old.mean - new.mean) * jnp.exp(-new.log_std)
    # expm1(2x) - 2x is the difference that vanishes at old = new; its square-sized value survives rounding better
    # than the textbook form (s_old^2 + d^2) / (2 s_new^2) - 1/2 - log(s_old / s_new)
    gauss = jnp.sum(0.5 * (jnp.expm1(2.0 * log_ratio) - 2.0 * log_ratio + shift**2), axis=-1)
    return jnp.sum(jnp.exp(logp) * (logp - mode_log_probs(new.logits, mask) + gauss), axis=-1)


def _without_unused(dist: HybridDist, used: UsedMask) -> HybridDist:
    """Standard normal in place of the unused parameters, whatever a network put there."""
    return dist._replace(mean=jnp.where(used, dist.mean, 0.0), log_std=jnp.where(used, dist.log_std, 0.0))


def _of_mode(dist: HybridDist, used: UsedMask, mode: Int[Array, "*batch"]) -> tuple[Array, Array, Array]:
    """mean, log_std and used [..., P] of the chosen mode."""
    dist = _without_unused(dist, used)
    return _pick(dist.mean, mode), _pick(dist.log_std, mode), _pick(used, mode)


def _pick(table: Array | np.ndarray, mode: Int[Array, "*batch"]) -> Array:
    """Rows [..., P] of table [..., M, P] at the chosen mode. A masked sum, because the transpose of a gather is a
    scatter, which is slow on CPU; M is small."""
    table = jnp.asarray(table)
    chosen = (mode[..., None] == jnp.arange(table.shape[-2]))[..., None]
    if table.dtype == bool:
        return jnp.any(chosen & table, axis=-2)
    return jnp.sum(jnp.where(chosen, table, 0.0), axis=-2)
