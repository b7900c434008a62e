"""Distances to polygons against plain Python, and against points along segments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import uav_nofly_numpy as twin

from trident.physics import polygons


def some_zones(rng, count=4, corners=7):
    """Star-shaped polygons, some with fewer corners than they have room for."""
    zones = []
    for k in range(count):
        used = corners - k % 3
        turn = np.sort(rng.uniform(0, 2 * np.pi, used))
        at = rng.uniform(-20, 20, 2) + rng.uniform(3, 12, (used, 1)) * np.stack([np.cos(turn), np.sin(turn)], 1)
        zones.append(np.concatenate([at, np.repeat(at[-1:], corners - used, 0)]))
    return np.array(zones, np.float32)


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(0)
    return jnp.asarray(some_zones(rng)), jnp.asarray(rng.uniform(-35, 35, (80, 2, 2)), jnp.float32)


def each(function):
    """For every case; the zones are an argument, as a constant they would be folded at length."""
    return jax.jit(jax.vmap(function, (0, None)))


def test_points_and_segments_agree_with_plain_python(cases):
    zones, ends = cases
    far = each(lambda e, z: polygons.signed_distances(e[0], z))(ends, zones)
    clear = each(lambda e, z: polygons.clearances(e[0], e[1], z))(ends, zones)
    plain = [twin.outline(z) for z in zones]
    want = np.array([[twin.distance(tuple(p), z) for z in plain] for p, _ in ends])
    np.testing.assert_allclose(far, want, atol=2e-4)
    assert (want < 0).any()
    want = np.array([[twin.clearance(tuple(p), tuple(q), z) for z in plain] for p, q in ends])
    np.testing.assert_allclose(clear, want, atol=2e-4)
    assert (want == -0.01).any()  # crossed with both ends outside


def test_a_segment_is_as_clear_as_its_points(cases):
    """The least signed distance of many points along it; where they lie within, both are negative."""
    zones, ends = cases
    share = jnp.linspace(0.0, 1.0, 400)[:, None]
    along = jax.vmap(lambda e: (1 - share) * e[0] + share * e[1])(jnp.asarray(ends[:30]))
    points = jax.jit(jax.vmap(jax.vmap(lambda p: polygons.signed_distances(p, zones))))(along).min(1)
    clear = jax.jit(jax.vmap(lambda e: polygons.clearances(e[0], e[1], zones)))(ends[:30])
    outside = np.asarray(points) > 0.1
    np.testing.assert_allclose(np.asarray(clear)[outside], np.asarray(points)[outside], atol=0.05)
    assert (np.asarray(clear)[np.asarray(points) < -0.01] < 0).all()


def test_two_segments_are_as_far_apart_as_their_points(cases):
    _, ends = cases
    share = jnp.linspace(0.0, 1.0, 300)[:, None]
    point = lambda e: (1 - share) * e[0] + share * e[1]  # noqa: E731

    def both(one, other):
        apart = jnp.linalg.norm(point(one)[:, None] - point(other)[None], axis=-1).min()
        return apart, polygons.segments_apart(one[0], one[1], other[0], other[1])

    sampled, exact = jax.jit(jax.vmap(both))(ends[:40], ends[40:])
    np.testing.assert_allclose(exact, sampled, atol=0.3)
    assert (np.asarray(exact) <= np.asarray(sampled) + 1e-4).all()
    assert (np.asarray(exact) == 0.0).any()


def test_the_nearest_outline_and_the_ranges_are_where_the_distance_says(cases):
    zones, ends = cases
    points = np.asarray(ends[:, 0])
    towards, away = jax.jit(jax.vmap(lambda p: polygons.nearest(p, zones)))(points)
    far = jax.jit(jax.vmap(lambda p: polygons.signed_distances(p, zones).min()))
    apart = np.asarray(far(points)) > 0  # within two zones the depths differ
    np.testing.assert_allclose(np.asarray(away)[apart], np.asarray(far(points))[apart], atol=1e-4)
    on_it = points + np.asarray(towards) * np.abs(np.asarray(away))[:, None]
    assert np.abs(np.asarray(far(on_it)))[apart].max() < 1e-3
    turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    rays = jnp.asarray(np.stack([np.cos(turn), np.sin(turn)], 1), jnp.float32)
    seen = np.asarray(jax.jit(jax.vmap(lambda p: polygons.ranges(p, rays, zones, 25.0)))(points))
    assert ((seen > 0) & (seen <= 25.0)).all()
    hits = (points[:, None] + rays * seen[..., None])[seen < 25.0]
    gap = jax.jit(jax.vmap(lambda p: polygons.nearest(p, zones)[1]))(hits)
    assert np.abs(np.asarray(gap)).max() < 1e-3
    free = jax.jit(jax.vmap(lambda p, q: polygons.clearances(p, q, zones).min()))
    start, end = (np.repeat(points[apart], 12, 0), (points[:, None] + 0.99 * rays * seen[..., None])[apart])
    assert (np.asarray(free(start, end.reshape(-1, 2))) > 0).all()


def test_gradients_are_finite_on_corners_and_at_no_length():
    zone = jnp.array([[[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [4.0, 3.0]]])
    slope = jax.jit(jax.grad(lambda q, p: polygons.clearances(p, q, zone).sum()))
    for p in ([4.0, 3.0], [2.0, 0.0], [9.0, 9.0], [3.0, 1.0]):
        assert np.isfinite(np.asarray(slope(jnp.array(p), jnp.array(p)))).all()
