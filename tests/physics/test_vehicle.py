"""The bicycle against circles, boxes against polygon clipping."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from oracles.boxes import common_area, corners_of

from trident.physics import vehicle
from trident.physics.vehicle import Pose


def test_boxes_overlap_exactly_when_clipping_leaves_an_area():
    rng = np.random.default_rng(0)
    n = 40
    x, y, heading = rng.uniform(-9, 9, n), rng.uniform(-9, 9, n), rng.uniform(-np.pi, np.pi, n)
    heading[:8] = np.arange(8) * np.pi / 4  # parallel and crossing boxes too
    parts = (jnp.asarray(v, jnp.float32) for v in (x, y, np.cos(heading), np.sin(heading)))
    clearance = np.asarray(vehicle.pair_clearance(*parts, 1.84, 0.735))
    np.testing.assert_array_equal(clearance, clearance.T)
    boxes = [corners_of(*pose, 1.84, 0.735) for pose in zip(x, y, heading, strict=True)]
    hits = 0
    for i in range(n):
        for j in range(i):
            if abs(clearance[i, j]) > 1e-4:
                touching = common_area(boxes[i], boxes[j]) > 1e-9
                assert (clearance[i, j] < 0) == touching, (i, j)
                hits += touching
    assert 30 < hits < 400


def test_clearance_of_boxes_in_line_is_their_distance():
    x = jnp.array([0.0, 5.0, 0.0])
    y = jnp.array([0.0, 0.0, 2.0])
    clearance = vehicle.pair_clearance(x, y, jnp.ones(3), jnp.zeros(3), 2.0, 0.75)
    np.testing.assert_allclose(clearance[0, 1:], [1.0, 0.5], rtol=1e-6)
    assert clearance[0, 0] < 0


@pytest.mark.parametrize("steer", [0.3, -0.12, 0.6])
def test_constant_steering_drives_a_circle(steer):
    """Radius L / tan(delta), in any number of steps; back at the start after one round."""
    radius = 3.0 / np.tan(steer)
    steps = 64
    zero = jnp.zeros(())
    pose = Pose(zero, zero, zero, zero + 1.0, zero)
    curvature = vehicle.curvature_of(jnp.float32(steer), 3.0)
    np.testing.assert_allclose(curvature, 1.0 / radius, rtol=1e-6)
    np.testing.assert_allclose(vehicle.steer_of(curvature, 3.0), steer, rtol=1e-6)
    for k in range(1, steps + 1):
        pose = vehicle.advance(pose, curvature, jnp.float32(2.0 * np.pi * abs(radius) / steps))
        angle = np.sign(radius) * 2.0 * np.pi * k / steps
        np.testing.assert_allclose(pose.x, radius * np.sin(angle), atol=2e-4 * abs(radius))
        np.testing.assert_allclose(pose.y, radius * (1.0 - np.cos(angle)), atol=2e-4 * abs(radius))
        np.testing.assert_allclose([pose.cos, pose.sin], [np.cos(angle), np.sin(angle)], atol=2e-5)
    np.testing.assert_allclose(pose.heading, np.sign(radius) * 2.0 * np.pi, rtol=1e-5)


def test_small_turn_is_cosine_and_sine():
    angle = jnp.linspace(-1.0, 1.0, 201)
    cos, sin = vehicle.small_turn(angle)
    np.testing.assert_allclose(cos, np.cos(angle), atol=4e-7)
    np.testing.assert_allclose(sin, np.sin(angle), atol=4e-7)


@pytest.mark.parametrize("speed", [13.0, 7.77, 0.31, 0.0])
def test_full_braking_takes_exactly_the_braking_distance(speed):
    v, way = jnp.float32(speed), 0.0
    for _ in range(40):
        v, d = vehicle.travel(v, jnp.float32(-6.0), 0.1, 13.0)
        way += float(d)
    assert float(v) == 0.0
    np.testing.assert_allclose(way, speed**2 / 12.0, rtol=2e-6)


def test_speed_stays_between_zero_and_top():
    v, d = vehicle.travel(jnp.array([12.9, 5.0]), jnp.array([3.0, 3.0]), 0.1, 13.0)
    np.testing.assert_allclose(v, [13.0, 5.3], rtol=1e-6)
    np.testing.assert_allclose(d, [1.295, 0.515], rtol=1e-6)


def test_beyond_the_grip_a_bend_is_not_held():
    curvature = vehicle.within_grip(jnp.array([0.1, 0.1, -0.1]), jnp.array([5.0, 13.0, 13.0]), 9.0)
    np.testing.assert_allclose(curvature, [0.1, 9.0 / 169.0, -9.0 / 169.0], rtol=1e-6)
