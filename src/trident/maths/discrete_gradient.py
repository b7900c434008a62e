"""Gradients through a discrete choice, by name.

With Gumbel noise g the soft sample is x(tau) = softmax((logits + g) / tau) and the hard one the one-hot of
argmax(logits + g), which is an exact draw. Every estimator is a *surrogate*: a weighted sum of the objective h at
a few relaxed one-hots, differentiated with respect to the logits and to everything h closes over.

    name         surrogate                                            bias of the gradient as tau -> 0
    exact        sum_m p_m h(onehot_m)                                none; costs M evaluations
    stgc         [k h(x(tau)) - h(x(k tau))] / (k - 1), k = kappa     O(tau^2)
    romberg      8/3 h(x(tau)) - 2 h(x(2 tau)) + 1/3 h(x(4 tau))      O(tau^3)
    gs           h(x(tau))                                            O(tau); O(tau^2) if h is linear
    st           h at the hard sample, gradient of x(tau)                O(1) in general
    stgc-paper   h at the hard sample, gradient of                       O(1) in general; O(tau tau0) if h is linear
                 (1 + l) x(tau) - l x(tau0), l = tau / (tau0 - tau)
    relax        h(p): modes mixed as if they were continuous         O(1), whatever tau; exact if h is linear

`stgc` is Richardson extrapolation with the two temperatures in a fixed ratio and applied to the objective. With the
reference tau0 held fixed, as printed, the second-order remainder is exactly -tau tau0, first order in tau. A
straight-through forward pass evaluates the gradient of h at the corner instead of along the way, an error no
temperature removes (linear and quadratic h escape it). Orders are statements about small tau: above about 0.4 `gs`
can be the less biased one. All temperatures share one Gumbel draw, which is what keeps the variance down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.maths.hybrid import mode_probs

Estimator = Literal["exact", "stgc", "romberg", "gs", "st", "stgc-paper", "relax"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)
HARD_FORWARD = ("st", "stgc-paper")

Temperature = float | Float[Array, ""]


def default_estimator(num_modes: int) -> Estimator:
    """The marginal sum is unbiased and, up to 4 modes, hardly dearer than two relaxed evaluations."""
    return "exact" if num_modes <= 4 else "stgc"


def discrete_surrogate(
    name: str,
    objective: Callable[[Float[Array, "M"]], Float[Array, ""]],
    logits: Float[Array, "M"],
    mask: Bool[Array, "M"],
    gumbel: Float[Array, "M"],
    tau: Temperature,
    *,
    tau0: Temperature = 1.0,
    kappa: Temperature = 2.0,
) -> Float[Array, ""]:
    """A scalar whose VALUE is the objective at the hard sample (for `exact`: the marginal sum) and whose GRADIENT
    is the named estimator's. Batch it with vmap."""
    weights, samples = relaxations(name, logits, mask, gumbel, tau, tau0=tau0, kappa=kappa)
    surrogate = jnp.sum(weights * jax.vmap(objective)(samples))
    if name == "exact" or name in HARD_FORWARD:
        return surrogate
    value = jax.lax.stop_gradient(objective(hard_sample(logits, mask, gumbel)))
    return value + (surrogate - jax.lax.stop_gradient(surrogate))


def relaxations(
    name: str,
    logits: Float[Array, "*batch M"],
    mask: Bool[Array, "*#batch M"],
    gumbel: Float[Array, "*batch M"],
    tau: Temperature,
    *,
    tau0: Temperature = 1.0,
    kappa: Temperature = 2.0,
) -> tuple[Float[Array, "R *batch"], Float[Array, "R *batch M"]]:
    """(weights, relaxed one-hots) with surrogate = sum_r weights[r] * objective(samples[r]).

    R is 1, 2 or 3, and M for `exact`; a caller evaluates its critic on all R in one pass. The gradient may flow
    through both weights and samples. Forbidden modes are exactly 0 in every relaxed one-hot (for `exact` their
    weight is). `stgc-paper` uses min(tau, tau0 / 2): its weight tau / (tau0 - tau) is infinite at tau = tau0, where
    the printed schedule starts, and its theorem assumes tau < tau0 / 2.
    """
    tilted = logits + gumbel

    def soft(temperature: Temperature) -> Array:
        return mode_probs(tilted / temperature, mask)

    def straight_through(relaxed: Array) -> Array:
        return hard_sample(logits, mask, gumbel) + (relaxed - jax.lax.stop_gradient(relaxed))

    def combine(weights: list[Temperature], samples: list[Array]) -> tuple[Array, Array]:
        column = jnp.stack([jnp.asarray(w, logits.dtype) for w in weights])
        column = column.reshape(-1, *(1,) * (logits.ndim - 1))
        return jnp.broadcast_to(column, (len(weights), *logits.shape[:-1])), jnp.stack(samples)

    match name:
        case "exact":
            corners = jnp.eye(logits.shape[-1], dtype=logits.dtype)
            corners = corners.reshape(-1, *(1,) * (logits.ndim - 1), logits.shape[-1])
            samples = jnp.broadcast_to(corners, (logits.shape[-1], *logits.shape))
            return jnp.moveaxis(mode_probs(logits, mask), -1, 0), samples
        case "relax":
            return combine([1.0], [mode_probs(logits, mask)])
        case "gs":
            return combine([1.0], [soft(tau)])
        case "stgc":
            return combine([kappa / (kappa - 1.0), -1.0 / (kappa - 1.0)], [soft(tau), soft(kappa * tau)])
        case "romberg":
            return combine([8.0 / 3.0, -2.0, 1.0 / 3.0], [soft(tau), soft(2.0 * tau), soft(4.0 * tau)])
        case "st":
            return combine([1.0], [straight_through(soft(tau))])
        case "stgc-paper":
            tau = jnp.minimum(tau, 0.5 * tau0)
            extra = tau / (tau0 - tau)
            return combine([1.0], [straight_through((1.0 + extra) * soft(tau) - extra * soft(tau0))])
        case _:
            raise ValueError(f"unknown discrete-gradient estimator {name!r}; known: {', '.join(ESTIMATORS)}")


def hard_sample(
    logits: Float[Array, "*batch M"], mask: Bool[Array, "*#batch M"], gumbel: Float[Array, "*batch M"]
) -> Float[Array, "*batch M"]:
    """One-hot of the allowed mode with the largest logits + gumbel: an exact draw, without gradient."""
    chosen = jnp.argmax(jnp.where(mask, logits + gumbel, -jnp.inf), axis=-1)
    return jax.nn.one_hot(chosen, logits.shape[-1], dtype=logits.dtype)
