"""A cheap inverse of an actor's Fisher matrix, layer by layer, for conjugate gradients (K-FAC: Martens, Grosse 2015).

With a layer's input a (and a one, for the bias), and s the score d log pi(action) / d (its output) of an action that
the policy drew, the layer's block of the Fisher matrix is E[aa' x ss'], about E[aa'] x E[ss'] (Kronecker product); so

    (F + d)^-1 of a layer   is about   (A + p r)^-1 x (S + r / p)^-1,   A = E[aa'],  S = E[ss'],  r = sqrt(d)

with p^2 the ratio of the two factors' mean eigenvalues. What stands beside the weights (LayerNorm, log-std) is taken
as diagonal. As an inverse it is rough; as a preconditioner it makes two or three conjugate-gradient steps come nearer
to the solution than ten without it (docs/speed.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.algos.common.actor import BaseOffset, actor_apply
from trident.maths import hybrid
from trident.nets import mlp_inputs
from trident.types import Key


class Seen(NamedTuple):
    """States in which one agent's policy is looked at."""

    obs: Float[Array, "B O"]
    mode_mask: Bool[Array, "B M"]
    base_offset: BaseOffset | None
    weight: Float[Array, "B"]  # sums to one


def kronecker_inverse(
    key: Key, actor: Any, seen: Seen, used: Bool[Array, "M P"], damping: float
) -> Callable[[Any], Any]:
    """tree of the actor's shape -> about (F + damping)^-1 times it."""
    score = _scores(key, actor, seen, used)
    inputs = [jnp.concatenate([a, jnp.ones((len(a), 1))], axis=-1) for a in mlp_inputs(actor["trunk"], seen.obs)]
    square = jax.tree.map(lambda s: jnp.einsum("b,b...->...", seen.weight, s**2), score)

    def moment(x: Float[Array, "B D"]) -> Float[Array, "D D"]:
        return (x * seen.weight[:, None]).T @ x

    inverses = [_inverses(moment(a), moment(s["b"]), damping) for a, s in zip(inputs, score["trunk"], strict=True)]

    def of_layer(layer: Any, diagonal: Any, inverse: tuple[Array, Array]) -> Any:
        left, right = inverse
        weights = left @ jnp.concatenate([layer["w"], layer["b"][None]]) @ right
        rest = {name: x / (diagonal[name] + damping) for name, x in layer.items() if name not in ("w", "b")}
        return rest | {"w": weights[:-1], "b": weights[-1]}

    def solve(tree: Any) -> Any:
        layers = [of_layer(*each) for each in zip(tree["trunk"], square["trunk"], inverses, strict=True)]
        return {"trunk": layers, "log_std": tree["log_std"] / (square["log_std"] + damping)}

    return solve


def _scores(key: Key, actor: Any, seen: Seen, used: Bool[Array, "M P"]) -> Any:
    """Slopes of the log-probability of one drawn action per state, in everything but the weights: [B, ...] each. A
    bias's gradient is that of its layer's output, so those of the weights follow."""
    mode, raw = hybrid.sample(key, actor_apply(actor, seen.obs, seen.base_offset), seen.mode_mask, used)
    weights = [layer["w"] for layer in actor["trunk"]]
    rest = actor | {"trunk": [{k: x for k, x in layer.items() if k != "w"} for layer in actor["trunk"]]}

    def log_prob(rest: Any, obs: Any, base_offset: Any, mask: Any, mode: Any, raw: Any) -> Any:
        trunk = [layer | {"w": w} for layer, w in zip(rest["trunk"], weights, strict=True)]
        return hybrid.log_prob(actor_apply(rest | {"trunk": trunk}, obs, base_offset), mask, used, mode, raw)

    of_rows = jax.vmap(jax.grad(log_prob), in_axes=(None, 0, 0, 0, 0, 0))
    return of_rows(rest, seen.obs, seen.base_offset, seen.mode_mask, mode, raw)


def _inverses(a: Float[Array, "I I"], s: Float[Array, "H H"], damping: float) -> tuple[Array, Array]:
    """Of both factors, each with its share of the damping."""
    size = lambda m: jnp.maximum(jnp.trace(m) / len(m), 1e-12)  # noqa: E731
    balance = jnp.sqrt(size(a) / size(s))
    root = damping**0.5
    return rough_inverse(a + balance * root * jnp.eye(len(a))), rough_inverse(s + root / balance * jnp.eye(len(s)))


DOUBLINGS = 10
"""Eigenvalues down to a thousandth of the largest."""


def rough_inverse(m: Float[Array, "D D"], doublings: int = DOUBLINGS) -> Float[Array, "D D"]:
    """(1 - (1 - c m)^(2^doublings)) m^-1 of a symmetric positive m, c its largest row sum's inverse (Newton-Schulz).

    Eigenvalues above 2^-doublings of the largest are inverted, smaller ones less: always symmetric and positive, which
    is all that a preconditioner must be. Nothing but matrix products: factorisations leave the compiled program on
    CPUs, and hang there when seeds run side by side.
    """
    two, c = 2.0 * jnp.eye(len(m)), 1.0 / jnp.max(jnp.sum(jnp.abs(m), axis=-1))
    return jax.lax.fori_loop(1, doublings, lambda _, x: x @ (two - m @ x), c * (two - c * m))
