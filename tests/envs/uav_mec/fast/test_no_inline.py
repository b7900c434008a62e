"""What is computed apart is computed once, and is the same under every transformation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.uav_mec.fast.no_inline import no_inline


def costly(x):
    return jnp.where(x > 0.0, jnp.exp(x), jnp.sin(x))


def used_twice(f, x):
    y = f(x)
    return y.sum(0) + (y * y).sum(1)


X = jnp.linspace(-1.0, 1.0, 16).reshape(4, 4)


def test_the_compiler_leaves_it_apart():
    def text(f):
        return jax.jit(lambda x: used_twice(f, x)).lower(X).compile().as_text()

    assert text(no_inline(costly)).count(" call(") == 1  # and `where` inside it is no call of its own
    assert " call(" not in text(costly)


def test_values_and_derivatives_are_the_same():
    for transform in (
        lambda f: jax.jit(lambda x: used_twice(f, x)),
        lambda f: jax.jit(jax.grad(lambda x: used_twice(f, x).sum())),
        lambda f: jax.jit(
            lambda x: jax.vmap(lambda t: jax.jvp(lambda x: used_twice(f, x), (x,), (t,))[1])(X[None] + X)
        ),
        lambda f: jax.jit(lambda x: jax.lax.map(lambda row: used_twice(f, row[None] * jnp.ones((4, 1))), x)),
    ):
        np.testing.assert_allclose(transform(no_inline(costly))(X), transform(costly)(X), rtol=1e-6)


def test_derivatives_stay_apart():
    def along(x):
        return jax.vmap(lambda t: jax.jvp(lambda x: used_twice(no_inline(costly), x), (x,), (t,))[1])(X[None] + X)

    assert " call(" in jax.jit(along).lower(X).compile().as_text()


def test_settings_are_no_arrays():
    scaled = no_inline(lambda name, x: x * {"double": 2.0}[name], static_argnums=0)
    np.testing.assert_allclose(jax.jit(lambda x: scaled("double", x))(X), 2.0 * X)
