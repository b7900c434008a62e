"""What the compiler may not do: change the result. jaxlib 0.10.2 and 0.11.0 did on CPUs (jax-ml/jax#39103): products
that several right-hand sides share were wrong by percents beyond a thousand rows, silently. They are excluded in
pyproject.toml; these tests guard against the next ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.algos.common.actor import actor_apply, actor_init
from trident.maths import fisher
from trident.nets import mlp_apply, mlp_init


@pytest.mark.parametrize("rows", [512, 3200])
def test_pulling_several_vectors_at_once_gives_the_same_as_one_by_one(rows: int) -> None:
    net = mlp_init(jax.random.key(0), [8, 64, 4])
    x, vectors = jax.random.normal(jax.random.key(1), (rows, 8)), jax.random.normal(jax.random.key(2), (3, rows, 4))
    _, pull = jax.vjp(lambda x: mlp_apply(net, x), x)
    together = jax.jit(jax.vmap(lambda v: pull(v)[0]))(vectors)
    apart = np.stack([pull(v)[0] for v in vectors])
    np.testing.assert_allclose(together, apart, rtol=1e-3, atol=1e-5)


def test_a_row_of_a_long_batch_is_what_it_is_alone() -> None:
    rows, matrix = jnp.arange(32_769.0)[:, None] * jnp.array([1.0, 0.0, 0.0]), jnp.eye(3)
    squares = jax.jit(jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2)))(rows)
    np.testing.assert_allclose(squares, np.arange(32_769.0) ** 2, rtol=1e-6)


def test_fisher_products_of_a_long_batch_do_not_depend_on_their_number() -> None:
    rows, used = 3200, jnp.ones((3, 2), bool)
    actor = actor_init(jax.random.key(0), 8, (64, 64), 3, 2, -0.5)
    obs, mask, weight = (
        jax.random.normal(jax.random.key(1), (rows, 8)),
        jnp.ones((rows, 3), bool),
        jnp.full(rows, 1 / rows),
    )
    product = fisher.fisher_product(lambda p: actor_apply(p, obs), actor, mask, used, weight)
    several = jax.tree.map(lambda x: jax.random.normal(jax.random.key(2), (3, *x.shape)), actor)
    together = jax.jit(jax.vmap(product))(several)
    for i in range(3):
        alone = product(jax.tree.map(lambda x, i=i: x[i], several))
        jax.tree.map(lambda t, a, i=i: np.testing.assert_allclose(t[i], a, rtol=1e-3, atol=1e-5), together, alone)
