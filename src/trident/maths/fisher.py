"""Products with the Fisher matrix of a hybrid policy, and the linear systems solved with them.

The mean KL of the hybrid policy at the old parameters has zero gradient and the Hessian F = J' M J, with J the
Jacobian of the distribution's parameters and M their Fisher matrix, known in closed form. One linearisation of
theta -> HybridDist therefore serves every product: a tangent pass, M, a transposed pass. No second derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.maths.hybrid import HybridDist, ModeMask, UsedMask, mode_probs

Product = Callable[[Any], Any]


def fisher_product(
    dist: Callable[[Any], HybridDist],
    params: Any,
    mask: ModeMask,
    used: UsedMask,
    weight: Float[Array, "*batch"],
) -> Product:
    """v -> F v, F the Hessian at `params` of sum_batch weight * KL(dist(params) || dist(.)).

    `dist` maps the parameters (any pytree) to the distributions of a batch; a weight of 0 leaves a sample out (a
    dead agent), and weights that sum to one make it the mean KL.
    """
    at, push = jax.linearize(dist, params)
    pull = jax.linear_transpose(push, params)

    def product(v: Any) -> Any:
        (out,) = pull(dist_fisher(at, push(v), mask, used, weight))
        return out

    return product


def dist_fisher(
    dist: HybridDist, tangent: HybridDist, mask: ModeMask, used: UsedMask, weight: Float[Array, "*batch"]
) -> HybridDist:
    """The Fisher matrix of the distribution's own parameters times a tangent, per sample and weighted:

        logits    p * (t - p't)
        mean      p(m) t / std^2     where used
        log_std   2 p(m) t           where used

    Modes are independent given their choice, so a mode's Gaussian counts as often as the mode is taken.
    """
    p = mode_probs(dist.logits, mask)
    of_logits = p * (tangent.logits - jnp.sum(p * tangent.logits, axis=-1, keepdims=True))
    share = jnp.where(used, (weight[..., None] * p)[..., None], 0.0)
    precision = jnp.exp(-2.0 * jnp.where(used, dist.log_std, 0.0))
    return HybridDist(weight[..., None] * of_logits, share * precision * tangent.mean, 2.0 * share * tangent.log_std)


def conjugate_gradient(
    product: Product, rhs: Any, iters: int, damping: float | Float[Array, ""], precondition: Product = lambda r: r
) -> Any:
    """x with (F + damping I) x = b, for each b along the leading axis of `rhs` (a pytree of [R, ...]) at once.

    From x = 0, `iters` steps at most; a right-hand side stops by itself when its residual has fallen to rounding
    level, so a zero gradient gives exactly zero. `precondition` multiplies with some symmetric positive matrix: the
    nearer it is to the inverse, the fewer steps are needed.
    """
    return jax.vmap(lambda b: _solve_one(product, b, iters, damping, precondition))(rhs)


def _solve_one(product: Product, b: Any, iters: int, damping: float | Array, precondition: Product) -> Any:
    def iterate(i: Any, carry: tuple[Any, Any, Any, Array, Array]) -> tuple[Any, Any, Any, Array, Array]:
        x, residual, direction, before, floor = carry
        ahead = precondition(residual)
        square = _dot(residual, ahead)
        floor = jnp.where(i == 0, square * jnp.finfo(square.dtype).eps ** 2, floor)
        direction = _add(ahead, jnp.where(before > 0, square / jnp.where(before > 0, before, 1.0), 0.0), direction)
        image = jax.tree.map(lambda f, d: f + damping * d, product(direction), direction)
        curvature = _dot(direction, image)
        go = (square > floor) & (curvature > 0)
        length = jnp.where(go, square / jnp.where(go, curvature, 1.0), 0.0)
        residual = _add(residual, -length, image)
        return _add(x, length, direction), residual, direction, jnp.where(go, square, 0.0), floor

    nothing = jax.tree.map(jnp.zeros_like, b)
    zero = jnp.zeros((), jax.tree.leaves(b)[0].dtype)
    return jax.lax.fori_loop(0, iters, iterate, (nothing, b, nothing, zero, zero))[0]


def _add(a: Any, scale: Array, b: Any) -> Any:
    return jax.tree.map(lambda x, y: x + scale * y, a, b)


def _dot(a: Any, b: Any) -> Array:
    return sum(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)), start=jnp.zeros(()))
