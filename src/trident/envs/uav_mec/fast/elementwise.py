"""Functions of one number, whose gradient is found once however many directions it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.envs.uav_mec.fast.no_inline import no_inline

Elementwise = Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]]


def elementwise(f: Elementwise, gradient: Elementwise | None = None) -> Elementwise:
    """f, applied number by number; its derivative along any direction is f'(x) times that direction.

    Differentiated step by step, a long formula multiplies every direction at each of its steps. `gradient` is f', where
    a shorter way to it is known than the formula's derivative."""

    @no_inline  # or the compiler would put it into the loop over directions
    def both(x: Any) -> tuple[Any, Any]:
        return (f(x), gradient(x)) if gradient else jax.jvp(f, (x,), (jnp.ones_like(x),))

    @jax.custom_jvp
    def g(x: Any) -> Any:
        return f(x)

    @g.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        (x,), (direction,) = primals, tangents
        value, steep = both(x)
        return value, steep * direction

    return g
