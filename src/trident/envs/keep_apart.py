"""A shield for UAVs that must keep a distance from each other and from round obstacles.

A fleet is safe if the ways that full braking takes (`physics.flight`: segments) keep `least` from each other, and from
every obstacle's rim. One after another, UAVs choose among their tries the first after which the fleet is safe with
everyone behind them still braking; the last try is to brake. From a safe fleet braking keeps everybody on the rest of
its own segment, so that braking is always possible; every choice has been checked against all final ones by whoever
chose later; so safety is an invariant.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trident.physics import flight, polygons

SPARE = 0.02
"""Distance beyond the least, m: what rounding may take away."""


def ways_apart(place: Float[Array, "N 2"], stop: Float[Array, "N 2"]) -> Float[Array, "N N"]:
    """Distance of every two segments; a UAV is far from itself."""
    apart = polygons.segments_apart(place[:, None], stop[:, None], place[None], stop[None])
    return jnp.where(jnp.eye(place.shape[0], dtype=bool), jnp.inf, apart)


def is_safe(
    place: Float[Array, "N 2"],
    velocity: Float[Array, "N 2"],
    accel: Float[Array, "N"] | float,
    dt: float,
    least: float,
    discs: Float[Array, "B 3"],
) -> Bool[Array, ""]:
    """Whether all braking ways are far enough from each other and from obstacles (x, y, radius)."""
    stop = flight.stop_place(place, velocity, accel, dt)
    rims = polygons.to_segment(discs[:, :2], place[:, None], stop[:, None]) - discs[:, 2]
    return (ways_apart(place, stop) >= least + SPARE).all() & (rims >= SPARE).all()


def first_safe(
    place: Float[Array, "N 2"],
    velocity: Float[Array, "N 2"],
    tries: Float[Array, "N C 2"],
    accel: Float[Array, "N"] | float,
    dt: float,
    least: float,
    discs: Float[Array, "B 3"],
) -> Int[Array, "N"]:
    """For every UAV the number of the first of its tries (velocities after the step) that is safe; C if none is, which
    means to brake."""
    count = place.shape[0]
    accel = jnp.broadcast_to(jnp.asarray(accel, jnp.float32), (count,))
    braked = flight.accelerate(velocity, jnp.zeros_like(velocity), accel, dt)
    options = jnp.concatenate([tries, braked[:, None]], 1)
    there = flight.travel(place[:, None], velocity[:, None], options, dt)
    stop = flight.stop_place(there, options, accel[:, None], dt)
    rims = polygons.to_segment(discs[:, :2], there[:, :, None], stop[:, :, None]) - discs[:, 2]
    clear = (rims >= SPARE).all(-1)  # [N, C + 1]

    def choose(carry: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], Array]:
        ahead, end = carry  # the way that everyone has chosen, or would brake along
        apart = polygons.segments_apart(there[i][:, None], stop[i][:, None], ahead[None], end[None])
        alone = (apart >= least + SPARE) | (jnp.arange(count) == i)
        fine = (alone.all(1) & clear[i]).at[-1].set(True)
        best = jnp.argmax(fine)
        return (ahead.at[i].set(there[i, best]), end.at[i].set(stop[i, best])), best

    start = (there[:, -1], stop[:, -1])
    return jax.lax.scan(choose, start, jnp.arange(count))[1].astype(jnp.int32)
