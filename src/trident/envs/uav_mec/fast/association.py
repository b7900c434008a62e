"""Who serves whom, for many rows at once: users and UAVs are leading axes, rows the last one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.fast.no_inline import no_inline
from trident.envs.uav_mec.physics import SAME_PLACE

FEW = 32
"""Users that are added one by one."""

step = partial(no_inline, static_argnums=0)
"""A step of the computation, (config, arrays) -> arrays that are stored."""


def length(vector: Float[Array, "2 *shape"]) -> Float[Array, "*shape"]:
    return jnp.sqrt(vector[0] * vector[0] + vector[1] * vector[1] + 1e-12)


def of_own(own: Int[Array, "*shape"], of_uav: Array, without: Array | float | int) -> Array:
    """Every user's entry of its own UAV."""
    for i in range(of_uav.shape[0]):
        without = jnp.where(own == i, of_uav[i], without)
    return jnp.asarray(without)


def add_up(count: int, term: Callable[[Any], Array]) -> Float[Array, "*shape B"]:
    """Sum of a term over UAVs or users; it is given one index, or all of them. A few are added one by one, which is
    vectorised, as XLA's own sums along such an axis are not."""
    return sum(map(term, range(1, count)), term(0)) if count <= FEW else term(slice(None)).sum(-2)


def mine(config: UavMecConfig, own: Int[Array, "U B"], user: int | slice) -> Bool[Array, "N *U B"]:
    """Whether a user, or each of several, is of a UAV: asked for all UAVs at once, which keeps programs short."""
    of = own[None, user]
    return of == np.arange(config.num_uavs).reshape(-1, *(1,) * (of.ndim - 1))


def by_uav(config: UavMecConfig, own: Int[Array, "U B"], of_user: Float[Array, "*shape U B"]) -> Array:
    """Sums over the users of every UAV, [*shape, N, B]."""
    return add_up(own.shape[0], lambda u: jnp.where(mine(config, own, u), of_user[..., None, u, :], 0.0))


@step
def distances(config: UavMecConfig, uav: Array, user: Array) -> Float[Array, "N U B"]:
    return length(uav[:, :, None] - user[:, None])


@step
def loads(config: UavMecConfig, own: Array) -> Float[Array, "N B"]:
    return how_many(config, own)


def how_many(config: UavMecConfig, own: Int[Array, "U B"]) -> Float[Array, "N B"]:
    return add_up(own.shape[0], lambda u: mine(config, own, u).astype(jnp.float32))


@step
def users_sum(config: UavMecConfig, own: Array, user: Array) -> Float[Array, "2 N B"]:
    """Of the own users' places."""
    return by_uav(config, own, user)


def associate(config: UavMecConfig, distance: Float[Array, "N U B"]) -> Int[Array, "U B"]:
    """As `offloading.associate`; who is too near the edge to be told from a user without a UAV counts as such."""
    c = config
    own = jnp.full(distance.shape[1:], c.num_uavs, jnp.int32)
    for _ in range(c.association_rounds):
        free = c.capacity - loads(c, own)
        queue = ask(c, own, free, distance)
        own = accept(c, own, last_places(c, free, queue), queue)
    return settle(c, own, distance)


def span(config: UavMecConfig) -> int:
    """Bits of a place in the queue that tell distances (to less than single precision does); those above tell UAVs."""
    return 31 - config.num_uavs.bit_length()


@step
def ask(config: UavMecConfig, own: Array, free: Array, distance: Array) -> Int[Array, "U B"]:
    """Users without a UAV ask the nearest that has a free place: everyone's place in a queue that goes by UAV, and then
    by distance."""
    c, none = config, config.num_uavs
    target, near = jnp.full(own.shape, none, jnp.int32), jnp.full(own.shape, jnp.inf, distance.dtype)
    for i in range(none):
        better = (distance[i] < near) & (distance[i] <= c.service_radius) & (free[i] > 0)
        target, near = jnp.where(better, i, target), jnp.where(better, distance[i], near)
    steps = jnp.minimum(near, c.service_radius) * (0.999 * 2 ** span(c) / c.service_radius)
    return (jnp.where(own == none, target, none) << span(c)) + steps.astype(jnp.int32)


@step
def accept(config: UavMecConfig, own: Array, last: Array, queue: Array) -> Int[Array, "U B"]:
    """Those who ask are taken in order of distance, equal ones in order of their index."""
    target, index = queue >> span(config), np.arange(own.shape[0])
    later = (index[:, None] > index).astype(np.int32)
    ahead = jnp.zeros(own.shape, jnp.int32)
    for k in index:
        ahead = ahead + (queue[k] - later[:, k, None] < queue).astype(jnp.int32)
    return jnp.where(ahead < of_own(target, last, 0), target, own)


@step
def last_places(config: UavMecConfig, free: Array, queue: Array) -> Int[Array, "N B"]:
    """The place in the queue from which on a UAV is full."""
    before, places, asking = 0.0, [], how_many(config, queue >> span(config))
    for i in range(config.num_uavs):
        places.append(before + free[i])
        before = before + asking[i]
    return jnp.stack(places).astype(jnp.int32)


@step
def settle(config: UavMecConfig, own: Array, distance: Array) -> Int[Array, "U B"]:
    c = config
    near = of_own(own, distance, c.service_radius) < c.service_radius - SAME_PLACE
    return jnp.where(near, own, c.num_uavs)
