"""Braking in the plane: closed form against steps, and the segment that braking never leaves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trident.physics import flight

ACCEL, DT = 5.0, 0.5


def braked(place, velocity):
    """Places of full braking, step by step."""
    ways = [np.array(place, float)]
    v = np.array(velocity, float)
    while np.hypot(*v) > 1e-9:
        size = np.hypot(*v)
        after = v * max(1.0 - ACCEL * DT / size, 0.0)
        ways.append(ways[-1] + DT * (v + after) / 2)
        v = after
    return np.array(ways)


stop = jax.jit(lambda p, v: flight.stop_place(p, v, ACCEL, DT))
brake = jax.jit(lambda v: flight.accelerate(v, jnp.zeros(2), ACCEL, DT))


@settings(max_examples=60, deadline=None)
@given(st.floats(-20, 20, width=32), st.floats(-20, 20, width=32))
def test_braking_ends_where_the_closed_form_says(east, north):
    velocity = np.array([east, north], np.float32)
    ways = braked([3.0, -2.0], velocity)
    np.testing.assert_allclose(stop(jnp.array([3.0, -2.0]), velocity), ways[-1], atol=2e-3)


@settings(max_examples=60, deadline=None)
@given(st.floats(-20, 20, width=32), st.floats(-20, 20, width=32))
def test_after_a_step_of_braking_the_rest_of_the_way_is_left(east, north):
    place, velocity = jnp.array([3.0, -2.0]), jnp.array([east, north], jnp.float32)
    after = brake(velocity)
    there = flight.travel(place, velocity, after, DT)
    np.testing.assert_allclose(stop(there, after), stop(place, velocity), atol=2e-3)


def test_a_command_is_reached_as_fast_as_the_limit_allows():
    v = flight.accelerate(jnp.array([1.0, 0.0]), jnp.array([1.0, 2.0]), ACCEL, DT)
    np.testing.assert_allclose(v, [1.0, 2.0], atol=1e-6)
    v = flight.accelerate(jnp.array([1.0, 0.0]), jnp.array([1.0, 20.0]), ACCEL, DT)
    np.testing.assert_allclose(v, [1.0, 2.5], atol=1e-6)
    v = flight.accelerate(jnp.array([[1.0, 0.0]] * 2), jnp.array([[1.0, 20.0]] * 2), jnp.array([2.0, 4.0]), DT)
    np.testing.assert_allclose(v, [[1.0, 1.0], [1.0, 2.0]], atol=1e-6)
    np.testing.assert_allclose(flight.within(jnp.array([3.0, 4.0]), 10.0), [3.0, 4.0])
