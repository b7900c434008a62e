"""Maps of no-fly zones, drawn on the host from a seed, and the shortest ways through them.

Zones are star-shaped around their centre, half of them convex, and lie in discs that are `passage` apart from each
other and from the border, so that there is a way of that width to everywhere. Shortest ways are over the grid of
waypoint cells, eight neighbours each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.errors import TridentError
from trident.physics import polygons

NEIGHBOURS = np.array([(1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1)])
"""In the order of the modes, from east against the clock."""
THROUGH = 5.0
"""A metre within a zone counts as so many: the field leads out of zones, and never through one."""
TRIES = 400
"""Places tried for a zone before a map is begun anew."""


class Maps(NamedTuple):
    zones: Float[np.ndarray, "maps Z V 2"]
    goal: Float[np.ndarray, "maps 2"]
    allowed: Bool[np.ndarray, "maps G G 9"]  # modes in every cell, by column (east) and row (north)
    to_go: Float[np.ndarray, "maps G G"]  # length of the shortest way from a cell to the goal, m


@lru_cache(maxsize=8)
def draw_maps(config: NoFlyConfig) -> Maps:
    """All maps of a config, with the tables of their cells. The same seed gives the same maps."""
    c = config
    rng = np.random.default_rng(c.map_seed)
    if c.zones:
        zones = np.array([[padded(np.array(zone), c.corners) for zone in c.zones]])
    else:
        zones = np.stack([draw_zones(c, rng) for _ in range(c.num_maps)])
    zones = zones.astype(np.float32)
    north = rng.uniform(c.passage, c.area - c.passage, len(zones))
    goal = np.stack([np.full(len(zones), c.area - 0.5 * c.strip), north], 1).astype(np.float32)

    @jax.jit
    def tables(rows: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        free, ways = free_ways(c, rows[0])
        to_go, outside = way_lengths(c, ways, rows[1])
        starts = outside[int(0.5 * c.strip / c.cell), start_rows(c)]
        return allowed_modes(c, free, ways), to_go, starts.all()

    allowed, to_go, fine = jax.device_get(jax.lax.map(tables, (zones, goal)))
    if not fine.all():
        raise TridentError(
            "uav-nofly: the zones block every way from the western strip to the goal: make them smaller, or leave "
            f"passages of {c.passage:g} m"
        )
    return Maps(zones, goal, allowed, to_go)


# --- zones ----------------------------------------------------------------------------------------


def draw_zones(config: NoFlyConfig, rng: np.random.Generator) -> Float[np.ndarray, "Z V 2"]:
    """The zones of one map."""
    for _ in range(50):
        discs = place_discs(config, rng)
        if discs is not None:
            return np.stack([draw_zone(config, rng, *disc) for disc in discs])
    raise TridentError(
        f"uav-nofly: {config.num_zones} zones of {config.zone_radius[0]:g} to {config.zone_radius[1]:g} m do not fit "
        f"into {config.area:g} m with passages of {config.passage:g} m: take fewer or smaller ones"
    )


def place_discs(config: NoFlyConfig, rng: np.random.Generator) -> list[tuple[np.ndarray, float]] | None:
    """Centres and radii, the largest first; None if one finds no place."""
    c = config
    radii = np.sort(rng.uniform(*c.zone_radius, c.num_zones))[::-1]
    placed: list[tuple[np.ndarray, float]] = []
    for r in radii:
        low, high = np.array([c.strip + r, c.passage + r]), np.array([c.area - c.strip - r, c.area - c.passage - r])
        if (low > high).any():
            return None
        tries = rng.uniform(low, high, (TRIES, 2))
        fine = np.ones(TRIES, bool)
        for centre, radius in placed:
            fine &= np.hypot(*(tries - centre).T) >= radius + r + c.passage
        if not fine.any():
            return None
        placed.append((tries[fine.argmax()], float(r)))
    return placed


def draw_zone(config: NoFlyConfig, rng: np.random.Generator, centre: np.ndarray, radius: float) -> np.ndarray:
    """Convex: corners on the disc's rim. Otherwise every second corner is drawn in towards the centre."""
    convex = rng.random() < 0.5
    count = int(rng.integers(3, 8)) if convex else 2 * int(rng.integers(3, config.corners // 2 + 1))
    count = min(count, config.corners)
    turn = 2.0 * np.pi * (np.arange(count) + rng.uniform(-0.25, 0.25, count)) / count + rng.uniform(0.0, 2.0 * np.pi)
    depth = np.ones(count) if convex else np.where(np.arange(count) % 2, rng.uniform(0.3, 0.6, count), 1.0)
    corners = centre + radius * depth[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
    return padded(corners, config.corners)


def padded(corners: np.ndarray, count: int) -> np.ndarray:
    """The last corner repeated: the polygon stays the same."""
    return np.concatenate([corners, np.repeat(corners[-1:], count - len(corners), axis=0)])


# --- cells ----------------------------------------------------------------------------------------


def centres(config: NoFlyConfig) -> Float[np.ndarray, "G G 2"]:
    """Of the waypoint cells, by column (east) and row (north)."""
    middle = config.cell * (np.arange(config.grid) + 0.5)
    return np.stack(np.meshgrid(middle, middle, indexing="ij"), -1).astype(np.float32)


def neighbours_within(config: NoFlyConfig) -> Bool[np.ndarray, "G G 8"]:
    """Whether the neighbour in each direction is within the area."""
    here = np.indices((config.grid, config.grid)).transpose(1, 2, 0)[:, :, None] + NEIGHBOURS
    return np.asarray(((here >= 0) & (here < config.grid)).all(-1))


def free_ways(config: NoFlyConfig, zones: Float[Array, "Z V 2"]) -> tuple[Bool[Array, "G G"], Bool[Array, "G G 8"]]:
    """Cells that are free, and from each the free straight ways to its neighbours: the tube of the autopilot around
    them touches no zone."""
    c, middle = config, centres(config)
    free = jax.vmap(jax.vmap(lambda p: polygons.signed_distances(p, zones).min()))(jnp.asarray(middle)) >= c.tube
    a, b = zones.reshape(-1, 2), jnp.roll(zones, -1, axis=1).reshape(-1, 2)

    def clear(p: Array, q: Array) -> Array:
        """The ends are free, so a way is if no outline crosses it and no corner is near."""
        return ~polygons.crosses(p, q, a, b).any() & (polygons.to_segment(a, p, q).min() >= c.tube)

    ahead = middle[:, :, None] + c.cell * NEIGHBOURS[:4]  # the other four are the same ways back
    half = jax.vmap(jax.vmap(jax.vmap(clear, (None, 0))))(jnp.asarray(middle), jnp.asarray(ahead, jnp.float32))
    back = [jnp.roll(half[..., k], tuple(NEIGHBOURS[k]), (0, 1)) for k in range(4)]
    both_free = jnp.stack([free & jnp.roll(free, tuple(-n), (0, 1)) for n in NEIGHBOURS], -1)
    ways = jnp.concatenate([half, jnp.stack(back, -1)], -1) & both_free & neighbours_within(c)
    return free, ways


def way_lengths(
    config: NoFlyConfig, ways: Bool[Array, "G G 8"], goal: Float[Array, "2"]
) -> tuple[Float[Array, "G G"], Bool[Array, "G G"]]:
    """Length of the shortest way from every cell to the goal, and whether it keeps to free ways (Bellman-Ford)."""
    c = config
    step = c.cell * np.hypot(*NEIGHBOURS.T).astype(np.float32)
    toll = jnp.where(ways, step, jnp.where(neighbours_within(c), THROUGH * step, jnp.inf))
    cost = jnp.stack([toll, jnp.where(ways, step, jnp.inf)])  # with and without ways through zones
    at = jnp.clip((goal / c.cell).astype(jnp.int32), 0, c.grid - 1)
    start = jnp.full((2, c.grid, c.grid), jnp.inf).at[:, at[0], at[1]].set(0.0)

    def relax(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        length, _ = carry
        onward = [jnp.roll(length, tuple(-n), (1, 2)) + cost[..., k] for k, n in enumerate(NEIGHBOURS)]
        shorter = jnp.minimum(length, jnp.stack(onward).min(0))
        return shorter, (shorter < length).any()

    (whole, outside), _ = jax.lax.while_loop(lambda carry: carry[1], relax, (start, jnp.array(True)))
    return whole, jnp.isfinite(outside)


def allowed_modes(config: NoFlyConfig, free: Bool[Array, "G G"], ways: Bool[Array, "G G 8"]) -> Bool[Array, "G G 9"]:
    """Hold, and neighbours to which the way is free. A UAV whose own cell is none, or who has no free way, may try all
    free neighbours, and whatever there is if there is none."""
    there = jnp.asarray(neighbours_within(config))
    to_free = there & jnp.stack([jnp.roll(free, tuple(-n), (0, 1)) for n in NEIGHBOURS], -1)
    some = jnp.where(to_free.any(-1, keepdims=True), to_free, there)
    out = jnp.where(ways.any(-1, keepdims=True), ways, some)
    return jnp.concatenate([jnp.ones_like(out[..., :1]), out], -1)


def start_rows(config: NoFlyConfig) -> slice:
    """Rows of the western strip in which flights begin."""
    edge = int(config.passage / config.cell)
    return slice(edge, config.grid - edge)
