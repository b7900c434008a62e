"""Braking, arrival and gaps against simulation and hand-worked numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trident.physics import braking, vehicle

speeds = st.floats(0.0, 13.0)


def test_braking_distance_by_hand():
    np.testing.assert_allclose(braking.braking_distance(jnp.array([12.0]), 6.0), [12.0])
    np.testing.assert_allclose(braking.braking_distance(jnp.array([12.0]), 6.0, reaction=0.5), [18.0])


@settings(max_examples=60, deadline=None)
@given(speed=speeds, distance=st.floats(0.0, 120.0))
def test_earliest_arrival_agrees_with_small_steps(speed, distance):
    v, way, time, dt = speed, 0.0, 0.0, 2e-3
    while way < distance:
        step = min(v + 3.0 * dt, 13.0)
        way, v, time = way + 0.5 * dt * (v + step), step, time + dt
    got = braking.earliest_arrival(jnp.float32(distance), jnp.float32(speed), 3.0, 13.0)
    assert abs(float(got) - time) < 1e-2


def test_earliest_arrival_has_finite_gradients():
    slope = jax.vmap(jax.grad(lambda d, v: braking.earliest_arrival(d, v, 3.0, 13.0), argnums=(0, 1)))
    places = jnp.array([-5.0, 0.0, 0.0, 50.0]), jnp.array([0.0, 0.0, 13.0, 13.0])
    assert np.isfinite(slope(*places)).all()


@settings(max_examples=100, deadline=None)
@given(speed=speeds, room=st.floats(0.0, 60.0), share=st.floats(0.0, 1.0))
def test_fastest_stoppable_speed_can_stop_and_nothing_faster_can(speed, room, share):
    room = speed**2 / 12.0 + room  # a state that can stop
    limit = float(braking.fastest_stoppable(jnp.float32(room), jnp.float32(speed), 6.0, 0.1))
    for target, fits in ((share * limit, True), (limit, True), (limit + 0.05, False)):
        accel = (target - speed) / 0.1
        if accel < -6.0 or (fits and target <= 0.0):  # nothing but full braking is left, which is always allowed
            accel = -6.0
        after, way = vehicle.travel(jnp.float32(speed), jnp.float32(accel), 0.1, 1e3)
        total = float(way + braking.braking_distance(after, 6.0))
        if accel == -6.0 or abs(total - room) < 1e-3:
            assert total <= room + 1e-3
        else:
            assert (total <= room) == fits


def test_gaps_by_hand():
    """At top speed 10 m/s: [2, 3] s and [4.5, 5] s leave 1.5 s; [2, 3] and [2.5, 4] overlap by half a second."""
    place, speed = jnp.float32(5.0), jnp.float32(10.0)
    enter, leave = (braking.earliest_arrival(end - place, speed, 3.0, 10.0) for end in (25.0, 35.0))
    np.testing.assert_allclose([enter, leave], [2.0, 3.0], rtol=1e-6)
    gap = braking.time_gap(enter, leave, jnp.float32(4.5), jnp.float32(5.0))
    np.testing.assert_allclose(gap, 1.5, rtol=1e-6)
    other = (jnp.float32(2.5), jnp.float32(4.0))
    np.testing.assert_allclose(braking.time_gap(enter, leave, *other), -0.5, rtol=1e-6)
    np.testing.assert_allclose(braking.time_gap(*other, enter, leave), -0.5, rtol=1e-6)


def test_following_room_is_what_is_left_when_both_have_stopped():
    room = braking.following_room(jnp.float32(10.0), jnp.float32(12.0), jnp.float32(6.0), 6.0)
    np.testing.assert_allclose(room, 10.0 - 12.0 + 3.0, rtol=1e-6)
