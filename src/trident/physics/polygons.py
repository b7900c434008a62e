"""Distances to polygons, convex or not, in closed form.

A polygon is V corners in order; one with fewer repeats its last. Z polygons are an array [Z, V, 2]. Distances are
signed: positive outside, negative inside by how deep. All lengths in m.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.maths.stable_min import stable_min
from trident.physics.flight import length

CROSSED = 0.01
"""Least depth of a segment that crosses a polygon with both ends outside, m."""


def to_segment(point: Float[Array, "*p 2"], a: Float[Array, "*a 2"], b: Float[Array, "*b 2"]) -> Float[Array, "*n"]:
    """Distance of a point to the segment a-b; shapes broadcast."""
    along, rel = b - a, point - a
    share = jnp.clip((rel * along).sum(-1) / jnp.maximum((along * along).sum(-1), 1e-9), 0.0, 1.0)
    return length(rel - share[..., None] * along)


def cross(u: Float[Array, "*u 2"], v: Float[Array, "*v 2"]) -> Float[Array, "*n"]:
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


def crosses(
    p: Float[Array, "*p 2"], q: Float[Array, "*q 2"], a: Float[Array, "*a 2"], b: Float[Array, "*b 2"]
) -> Bool[Array, "*n"]:
    """Whether the segments p-q and a-b cross properly."""
    along, edge = q - p, b - a
    return (cross(along, a - p) * cross(along, b - p) < 0.0) & (cross(edge, p - a) * cross(edge, q - a) < 0.0)


def segments_apart(
    p: Float[Array, "*p 2"], q: Float[Array, "*q 2"], a: Float[Array, "*a 2"], b: Float[Array, "*b 2"]
) -> Float[Array, "*n"]:
    """Distance of two segments, zero if they cross."""
    pairs = [to_segment(p, a, b), to_segment(q, a, b), to_segment(a, p, q), to_segment(b, p, q)]
    return jnp.where(crosses(p, q, a, b), 0.0, stable_min(jnp.stack(jnp.broadcast_arrays(*pairs)), 0))


def inside(point: Float[Array, "2"], polygons: Float[Array, "Z V 2"]) -> Bool[Array, "Z"]:
    """Even-odd rule: a ray to the east crosses the outline an odd number of times."""
    a, b = polygons, jnp.roll(polygons, -1, axis=1)
    spans = (a[..., 1] > point[1]) != (b[..., 1] > point[1])
    rise = jnp.where(spans, b[..., 1] - a[..., 1], 1.0)
    east = a[..., 0] + (b[..., 0] - a[..., 0]) * (point[1] - a[..., 1]) / rise
    return ((spans & (point[0] < east)).sum(-1) % 2).astype(bool)


def signed_distances(point: Float[Array, "2"], polygons: Float[Array, "Z V 2"]) -> Float[Array, "Z"]:
    """Of a point to each polygon."""
    away = stable_min(to_segment(point, polygons, jnp.roll(polygons, -1, axis=1)), 1)
    return jnp.where(inside(point, polygons), -away, away)


def nearest(point: Float[Array, "2"], polygons: Float[Array, "Z V 2"]) -> tuple[Float[Array, "2"], Float[Array, ""]]:
    """Unit vector to the nearest place on an outline, and the signed distance to it."""
    a, b = polygons.reshape(-1, 2), jnp.roll(polygons, -1, axis=1).reshape(-1, 2)
    along, rel = b - a, point - a
    share = jnp.clip((rel * along).sum(-1) / jnp.maximum((along * along).sum(-1), 1e-9), 0.0, 1.0)
    to_edge = share[:, None] * along - rel
    closest = to_edge[jnp.argmin((to_edge * to_edge).sum(-1))]
    away = length(closest)
    return closest / away, jnp.where(inside(point, polygons).any(), -away, away)


def clearances(p: Float[Array, "2"], q: Float[Array, "2"], polygons: Float[Array, "Z V 2"]) -> Float[Array, "Z"]:
    """Signed distance of the segment p-q to each polygon: how far it keeps away, or minus how deep its ends are."""
    a, b = polygons, jnp.roll(polygons, -1, axis=1)
    from_p, from_q = (stable_min(to_segment(end, a, b), 1) for end in (p, q))
    away = jnp.minimum(jnp.minimum(from_p, from_q), stable_min(to_segment(a, p, q), 1))
    deep = jnp.maximum(jnp.where(inside(p, polygons), from_p, 0.0), jnp.where(inside(q, polygons), from_q, 0.0))
    through = (deep > 0.0) | crosses(p, q, a, b).any(1)
    return jnp.where(through, -jnp.maximum(deep, CROSSED), away)


def ranges(
    point: Float[Array, "2"], directions: Float[Array, "R 2"], polygons: Float[Array, "Z V 2"], most: float
) -> Float[Array, "R"]:
    """How far one sees in each direction (unit vectors) before an outline, at most `most`."""
    a = polygons.reshape(-1, 2)
    edge = jnp.roll(polygons, -1, axis=1).reshape(-1, 2) - a
    rel = a - point
    facing = cross(directions[:, None], edge)  # [R, edges]
    safe = jnp.where(jnp.abs(facing) > 1e-9, facing, 1.0)
    reach, share = cross(rel, edge) / safe, cross(rel[None], directions[:, None]) / safe
    hit = (jnp.abs(facing) > 1e-9) & (reach >= 0.0) & (share >= 0.0) & (share <= 1.0)
    return jnp.where(hit, reach, most).min(1, initial=most)
