"""Bias of the discrete-gradient estimators without sampling error, or with hardly any.

Two modes: only the difference L of the two Gumbels matters and L is logistic, so the expectation is an integral over a
line; the integrand is analytic in a strip of half-width pi tau and the equidistant rule with step tau / 2 is exact to
about exp(-4 pi^2). A hard forward pass puts a jump at L = -logit: half-way between two nodes, and a finer step. The
gradients at the nodes come from the estimator itself.

More modes: x(tau) = softmax((l + g) / tau) is the law of argmax(l + g + tau g') given g. With n independent g' the n-th
power of x_0 is the probability that all n choices fall on mode 0, and integrating over g first,

    E[x_0^n] = E[ q_0 ],   q = softmax(l + tau m),   m_k = max_r (g'^r_k - g'^r_0),
    E[1{0 chosen} d x_0 / d l_k] = -E[ 1{g'_k > g'_0} q_0 q_k ],   m_k = max(0, g'_k - g'_0)   (k != 0; hard forward)

which no small tau makes steep: the noise enters as tau m, m has mean H_{n-1} = 0, 1, 3/2, and all temperatures share
the draws.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from trident.maths.discrete_gradient import HARD_FORWARD
from trident.maths.hybrid import mode_probs

Relax = Callable[..., tuple[Array, Array]]
"""maths.discrete_gradient.relaxations, or whatever is to be tested in its place."""

OBJECTIVES: dict[str, Callable[[Any], Any]] = {
    "linear": lambda p: p,
    "square": lambda p: p**2,
    "cube": lambda p: p**3,
    "sine": lambda p: jnp.sin(3.0 * p),
}
LOGITS = (-3.0, -2.0, -1.0, -0.3, 0.7, 1.5, 2.5)
REACH, CHUNK = 32.0, 2048
TAU0 = 1.0
"""The printed reference temperature."""
MEAN_MAX = (0.0, 1.0, 1.5)
"""Mean of the largest of n logistic variables: the harmonic numbers H_{n-1}."""


class Line(NamedTuple):
    """Of one estimator and temperature, two modes; [logits, objectives]."""

    bias: np.ndarray
    second_moment: np.ndarray


def on_the_line(relax: Relax, name: str, tau: float, *, masked: int = 0, tau0: float = TAU0) -> Line:
    """Bias and second moment of d surrogate / d first logit; `masked` forbidden modes stand beside the two."""
    step = tau / (12.0 if name in HARD_FORWARD else 2.0)
    half = int(np.ceil(REACH / step / CHUNK * 2)) * CHUNK // 2
    offsets = ((np.arange(-half, half) + 0.5) * step).reshape(-1, CHUNK)
    gradient = _line_gradient(relax, name, masked)
    logits = np.array(LOGITS)
    first, second = np.zeros((2, len(logits), len(OBJECTIVES)))
    with jax.enable_x64(True):
        for chunk in offsets:
            differences = chunk - logits[:, None]  # the jump of a hard choice lies at offset 0
            density = step * 0.25 / np.cosh(0.5 * np.clip(differences, -700, 700)) ** 2
            values = np.asarray(gradient(jnp.asarray(logits), jnp.asarray(differences), tau, tau0))
            first += np.einsum("ln,lno->lo", density, values)
            second += np.einsum("ln,lno->lo", density, values**2)
        rise = np.array([float(h(jnp.float64(1.0)) - h(jnp.float64(0.0))) for h in OBJECTIVES.values()])
    p = 1.0 / (1.0 + np.exp(-logits))
    return Line(first - np.outer(p * (1.0 - p), rise), second)


@cache
def _line_gradient(relax: Relax, name: str, masked: int) -> Any:
    def surrogates(logit: Array, difference: Array, tau: Array, tau0: Array) -> Array:
        filler = jnp.full(masked, 5.0, logit.dtype)  # a forbidden mode must not matter, however attractive
        logits = jnp.concatenate([jnp.stack([logit, 0.0 * logit]), filler])
        gumbel = jnp.concatenate([jnp.stack([difference, 0.0 * difference]), filler])
        mask = jnp.arange(2 + masked) < 2
        weights, samples = relax(name, logits, mask, gumbel, tau, tau0=tau0)
        return jnp.stack([jnp.sum(weights * h(samples[:, 0])) for h in OBJECTIVES.values()])

    at_nodes = jax.vmap(jax.jacfwd(surrogates), (None, 0, None, None))
    return jax.jit(jax.vmap(at_nodes, (0, 0, None, None)))


# --- more modes -----------------------------------------------------------------------------------


class Recipe(NamedTuple):
    """An estimator as the theory sees it: sum_r weight_r x(temperature_r), padded to three with weights of 0."""

    weights: tuple[float, ...]
    temperatures: tuple[float, ...]
    hard: bool


def recipe(name: str, tau: float, tau0: float = TAU0) -> Recipe:
    match name:
        case "gs" | "st":
            return Recipe((1.0, 0.0, 0.0), (tau, tau, tau), name == "st")
        case "stgc":
            return Recipe((2.0, -1.0, 0.0), (tau, 2.0 * tau, tau), False)
        case "romberg":
            return Recipe((8.0 / 3.0, -2.0, 1.0 / 3.0), (tau, 2.0 * tau, 4.0 * tau), False)
        case "stgc-paper":
            extra = tau / (tau0 - tau)
            return Recipe((1.0 + extra, -extra, 0.0), (tau, tau0, tau), True)
    raise ValueError(f"no recipe for {name!r}")


def gumbels(seed: int, count: int, modes: int, powers: int = 3) -> np.ndarray:
    """[count, powers, modes]"""
    return np.random.default_rng([seed, modes]).gumbel(size=(count, powers, modes))


def mean_gradient(
    shape: Recipe, power: int, logits: Float[Array, "M"], mask: Bool[Array, "M"], noise: Float[Array, "Q n M"]
) -> tuple[np.ndarray, np.ndarray]:
    """(bias, standard error) [M] of the estimator's gradient of x_0^power, by the identities above.

    What is known of each draw's expansion at tau = 0 (its value; for soft estimators its slope too) is taken out and
    its exact mean put back, so that the error is of the order of the bias itself at every temperature.
    """
    found = _moments(
        shape.hard, power, jnp.asarray(shape.weights), jnp.asarray(shape.temperatures), logits, mask, noise
    )
    return np.asarray(found[0]), np.asarray(found[1])


@partial(jax.jit, static_argnums=(0, 1))
def _moments(
    hard: bool, power: int, weights: Array, taus: Array, logits: Array, mask: Array, noise: Array
) -> tuple[Array, Array]:
    one = _hard_draw if hard and power > 1 else _soft_draw
    draws = noise[:, : 1 if one is _hard_draw else power]
    scale = float(power) if hard else 1.0
    values = scale * _control(one, power, logits, mask, draws, weights, taus)
    p = mode_probs(logits, mask)
    exact = p[0] * (jnp.zeros_like(p).at[0].set(1.0) - p)
    return values.mean(axis=0) - exact, values.std(axis=0) / np.sqrt(len(values))


def _soft_draw(logits: Array, mask: Array, noise: Array, tau: Array) -> Array:
    """Gradient of q_0 [M] for one draw of n Gumbel vectors."""
    return _soft_slope(logits, mask, jnp.max(noise - noise[:, :1], axis=0), tau)


def _soft_slope(logits: Array, mask: Array, shift: Array, tau: Array) -> Array:
    q = mode_probs(logits + tau * shift, mask)
    return q[0] * (jnp.zeros_like(q).at[0].set(1.0) - q)


def _hard_draw(logits: Array, mask: Array, noise: Array, tau: Array) -> Array:
    """d x_0 / d l [M] where mode 0 is the hard choice too."""
    ahead = noise[0] - noise[0, 0]
    q = mode_probs(logits + tau * jnp.maximum(ahead, 0.0), mask)
    taken = jnp.where(ahead > 0, q[0] * q, 0.0)
    return jnp.zeros_like(q).at[0].set(jnp.sum(taken)) - taken


def _control(
    one: Any, power: int, logits: Array, mask: Array, noise: Array, weights: Array, taus: Array
) -> Float[Array, "Q M"]:
    """sum_r weight_r [draw(tau_r) - what is known of it + the known mean], per draw."""
    zero = jnp.zeros_like(logits[0])
    limit = _soft_slope(logits, mask, jnp.zeros_like(logits), zero)
    mean_shift = jnp.full_like(logits, MEAN_MAX[power - 1]).at[0].set(0.0)

    def slope_at(shift):
        return jax.jvp(lambda tau: _soft_slope(logits, mask, shift, tau), (zero,), (jnp.ones_like(zero),))[1]

    def of_draw(draw: Array) -> Array:
        raw = jax.vmap(lambda tau: one(logits, mask, draw, tau))(taus)  # [R, M]
        if one is _hard_draw:
            known = one(logits, mask, draw, zero) - 0.5 * limit
            return weights @ (raw - known)
        known = slope_at(jnp.max(draw - draw[:, :1], axis=0)) - slope_at(mean_shift)
        return weights @ (raw - taus[:, None] * known)

    return jax.vmap(of_draw)(noise)


def sampled_gradient(
    relax: Relax, name: str, powers: tuple[int, ...], logits: Array, mask: Array, tau: float, seed: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard error) [powers, M] of the estimator's own gradient over `count` Gumbel draws."""

    def surrogates(l: Array, gumbel: Array) -> Array:
        weights, samples = relax(name, l, mask, gumbel, tau, tau0=TAU0)
        return jnp.stack([jnp.sum(weights * samples[:, 0] ** power) for power in powers])

    noise = jnp.asarray(np.random.default_rng([seed, count]).gumbel(size=(count, len(logits))), logits.dtype)
    draws = jax.jit(jax.vmap(jax.jacrev(surrogates), (None, 0)))(logits, noise)
    return np.asarray(draws.mean(axis=0)), np.asarray(draws.std(axis=0)) / np.sqrt(count)
