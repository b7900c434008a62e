"""Central critics: the pooled body knows who is alike, and what one agent does otherwise is found quickly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.algos.common.central_critic import CentralCritic, CriticInput
from trident.algos.common.kinds import Kinds
from trident.nets import mlp_apply

OBS, WIDTH, STATE, ROWS = 5, 3, 4, 6
KINDS = {"one": (0, 0, 0), "two": (0, 1, 0), "none alike": (0, 1, 2)}


def critic(body, of):
    return CentralCritic(Kinds(of), body, STATE, OBS, WIDTH, (16, 8))


def some(seed=0, agents=3):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = (ROWS, STATE), (ROWS, agents, OBS), (ROWS, agents, WIDTH)
    return CriticInput(*(jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)))


def lively(net, key=1):
    """With an output layer of ordinary size."""
    params = net.init(jax.random.key(key))
    last = params.trunk[-1]
    return params._replace(trunk=[*params.trunk[:-1], last | {"w": 50.0 * last["w"]}])


def test_agents_of_a_kind_may_change_places_and_others_may_not():
    net, x = critic("pooled", (0, 1, 0)), some()
    params = lively(net)

    def swapped(a, b):
        order = np.arange(3)
        order[[a, b]] = b, a
        return net.apply(params, x._replace(obs=x.obs[:, order], action=x.action[:, order]))

    np.testing.assert_allclose(swapped(0, 2), net.apply(params, x), rtol=1e-5, atol=1e-6)
    assert float(jnp.max(jnp.abs(swapped(0, 1) - net.apply(params, x)))) > 1e-3


def test_the_concatenated_body_is_one_network_of_everything_side_by_side():
    net, x = critic("concatenated", (0, 0, 0)), some()
    params = lively(net)
    flat = jnp.concatenate([x.state, x.obs.reshape(ROWS, -1), x.action.reshape(ROWS, -1)], axis=-1)
    assert jnp.array_equal(net.apply(params, x), mlp_apply(params.trunk, flat))


def test_one_agent_of_a_kind_pools_nothing():
    """With one member each, the pooled body is f(s, phi_1(x_1), .., phi_N(x_N)), worked out by hand."""
    net, x = critic("pooled", (0, 1, 2)), some()
    params = lively(net)
    hidden = []
    for i in range(3):
        layer = jax.tree.map(lambda w, i=i: w[i], params.encoder)
        total = jnp.concatenate([x.obs[:, i], x.action[:, i]], axis=-1) @ layer["w"] + layer["b"]
        centred = total - total.mean(-1, keepdims=True)
        hidden.append(jax.nn.relu(centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)))
    expected = mlp_apply(params.trunk, jnp.concatenate([x.state, *hidden], axis=-1))
    np.testing.assert_allclose(net.apply(params, x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("body", ["pooled", "concatenated"])
@pytest.mark.parametrize("of", KINDS.values(), ids=KINDS)
def test_a_slot_is_the_critic_with_one_action_replaced(body, of):
    net, x = critic(body, of), some()
    params = lively(net)
    mine = jax.random.normal(jax.random.key(5), (ROWS, 2, WIDTH))  # two candidates in each row

    def whole(agent, m):
        return jnp.stack(
            [net.apply(params, x._replace(action=x.action.at[:, agent].set(m[:, r])))[:, 0] for r in range(2)], axis=1
        )

    for agent in range(3):
        values, gradient = net.slot(params, x, jnp.int32(agent)).value_and_gradient(mine)
        np.testing.assert_allclose(values, whole(agent, mine), rtol=1e-4, atol=1e-5)
        expected = jax.grad(lambda m, a=agent: jnp.sum(whole(a, m)))(mine)
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)


def test_the_pooled_body_does_not_grow_with_the_team_but_for_the_state():
    few, many = (
        jax.tree.leaves(CentralCritic(Kinds((0,) * n), "pooled", STATE, OBS, WIDTH, (16,)).init(jax.random.key(0)))
        for n in (3, 30)
    )
    assert [x.shape for x in few] == [x.shape for x in many]
