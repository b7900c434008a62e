"""The drawing of an intersection episode: the junction from above, and what happens to safety beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.intersection.config import ARMS, IntersectionConfig
from trident.envs.intersection.dynamics import CRASHED, DRIVING, FINISHED, WAITING, Traffic, arms, boxes, reach
from trident.envs.intersection.right_of_way import relate
from trident.envs.intersection.roads import poses
from trident.physics import braking
from trident.report.palette import INK, LIMIT, QUIET, SAFE, SERIES, agent_name
from trident.report.scene import Area, Dot, Key, Label, Line, Mark, Plane, Scene, rectangle

ROAD, GRASS, LINE, KERB, CENTRE = "#d9dde2", "#eef3ea", "#fefefe", "#b8c0c8", "#e6a100"
NIGHT = {ROAD: "#3a434d", GRASS: "#1c2a20", LINE: "#aab4be", KERB: "#57626d"}
ROUTES = (SERIES[0], SERIES[4], SERIES[1])
ROUTE_NAMES = ("turns left", "goes straight", "turns right")
SHIELD, CRASH = "#c026d3", LIMIT
TIGHT, CLOSE, EASY = LIMIT, "#e6a100", SAFE
SIGHT = 50.0
"""Half side of the map, m."""
TENSE, STRONG = 2.5, 1.5
"""Only gaps below the first are drawn, only those below the second are named, s."""
FEW = 8
"""Vehicles up to which rows of a panel are named."""


@lru_cache
def measures(config: IntersectionConfig) -> Callable[[Traffic], Any]:
    """Boxes, stopping places and predicted gaps of a state: pairs whose occupancies of a conflict point come near."""

    def measure(t: Traffic) -> Any:
        rel = relate(config, t)
        pace = 1.0 / jnp.maximum(t.speed, 1.0)[:, None]
        enter, leave = (jnp.maximum(edge - t.s[:, None], 0.0) * pace for edge in (rel.enter, rel.leave))
        gap = braking.time_gap(enter, leave, enter.T, leave.T)
        soon = jnp.minimum(enter, enter.T) < 3.0
        return boxes(config, t), reach(config, t), jnp.where(rel.meets & soon, gap, jnp.inf)

    return jax.jit(jax.vmap(measure))


def scene(config: IntersectionConfig, states: Traffic, changed: np.ndarray | None = None) -> Scene:
    """Of an episode's states (NumPy arrays with a leading time axis); `changed` [T, N]: what a shield has altered."""
    states = jax.tree.map(np.asarray, states)
    box, stop, gap = jax.device_get(measures(config)(states))
    count, n = len(states.clock), config.num_vehicles
    acts = np.zeros((count, n), bool)  # of the step that led to each frame
    if changed is not None and len(changed):
        acts[1 : 1 + len(changed)] = changed[: count - 1]
    frames = [list(_map_marks(config, _at(states, t), _at(box, t), stop[t], gap[t], acts[t])) for t in range(count)]
    found = [_counts(states.phase[t]) for t in range(count)]
    plan = Plane(
        frames=frames,
        view=(-SIGHT, -SIGHT, SIGHT, SIGHT),
        backdrop=list(_roads(config)),
        title=[
            f"t = {clock * config.step:.1f} s    {arrived} arrived · {driving} driving · {waiting} to come"
            for clock, (arrived, driving, waiting, _) in zip(states.clock.tolist(), found, strict=True)
        ],
        alert=[f"{crashed} crashed" if crashed else "" for *_, crashed in found],
        paper=GRASS,
        unit="m",
    )
    time = states.clock * config.step
    panels = (_speeds(config, states, time), _gaps(config, gap, time), _vehicles(config, states, acts, time))
    there = states.phase == DRIVING
    agents = [
        [(x, y) if on else None for x, y, on in zip(*row, strict=True)]
        for row in zip(box.x.tolist(), box.y.tolist(), there, strict=True)
    ]
    return Scene(
        plan, panels, _keys(), agents, widths=(1.12, 1.0), heights=(1.0, 0.8, 1.0), key_columns=4, dark=NIGHT
    )  # fmt: skip


def _at(tree: Any, t: int) -> Any:
    return jax.tree.map(lambda x: x[t], tree)


def _counts(phase: Any) -> list[int]:
    return [int((phase == p).sum()) for p in (FINISHED, DRIVING, WAITING, CRASHED)]


def _keys() -> list[Key]:
    keys = [Key(name, Line([], colour, 5.0)) for colour, name in zip(ROUTES, ROUTE_NAMES, strict=True)]
    return [
        *keys,
        Key("way it needs to stop", Line([], QUIET, 4.5, alpha=0.5)),
        Key("shield acts", Dot((0, 0), "", "o", 9.0, edge=SHIELD, width=2.0)),
        Key("crashed", Dot((0, 0), CRASH, "X", 9.0, edge="#FFFFFF")),
        Key("will meet within 0.5 s", Line([], TIGHT, 2.0, dash=":")),
        Key("within 1.5 s", Line([], CLOSE, 2.0, dash=":")),
    ]


# --- the map --------------------------------------------------------------------------------------


def _roads(config: IntersectionConfig) -> Iterator[Mark]:
    """Asphalt with rounded corners, lane markings and stop lines."""
    c, h, half = config, config.half_box, 2.0 * config.lane_width
    far, outline, marks = c.approach + h, [], []
    turn = np.linspace(0.0, 0.5 * np.pi, 12)
    r = h - half
    corner = np.stack([h - r * np.sin(turn), h - r * np.cos(turn)], 1)  # from (h, half) to (half, h), north-east
    for k in range(ARMS):
        q = k * 0.5 * np.pi
        spin = np.array([[np.cos(q), -np.sin(q)], [np.sin(q), np.cos(q)]])
        turned = lambda points, spin=spin: np.asarray(points) @ spin.T  # noqa: E731
        outline.append(np.concatenate([[[far, -half], [far, half]], corner]) @ spin.T)
        marks.append(Line(turned([[h, 0.0], [far, 0.0]]), CENTRE, 1.6))
        for side in (-c.lane_width, c.lane_width):
            marks.append(Line(turned([[h, side], [far, side]]), LINE, 1.0, dash="--"))
        # traffic towards the junction keeps to its right: on the east arm that is y > 0
        marks.append(Line(turned([[h, 0.0], [h, half]]), LINE, 2.4))
    yield Area(np.concatenate(outline), ROAD, KERB, 0.8)
    yield from marks


def _map_marks(
    config: IntersectionConfig, now: Traffic, box: Any, stop: np.ndarray, gap: np.ndarray, acts: np.ndarray
) -> Iterator[Mark]:
    driving = np.flatnonzero(now.phase == DRIVING).tolist()
    for i in driving:
        yield _stopping_way(config, now, i, float(stop[i]))
    yield from _gap_links(box, gap)
    for i in driving:
        yield from _vehicle(config, now, box, i, bool(acts[i]))
    for i in np.flatnonzero(now.phase == CRASHED):
        yield Dot((box.x[i], box.y[i]), CRASH, "X", 11.4, edge="#FFFFFF")
    yield from _gap_names(box, gap)


def _stopping_way(c: IntersectionConfig, now: Traffic, i: int, stop: float) -> Mark:
    # Traffic.path works on jax arrays; here the lane and the movement are plain numbers
    lane, movement = int(now.lane[i]), int(now.movement[i])
    path = min(movement, 1) if lane == 0 else max(movement, 1) + 1
    way = np.linspace(float(now.s[i]) + c.front, max(stop, float(now.s[i])) + c.front, 12)
    x, y, _ = poses(c, way, path, int(arms(c)[i]), 0.0)
    return Line(np.stack([np.asarray(x), np.asarray(y)], 1), ROUTES[movement], 4.5, alpha=0.28)


def _vehicle(c: IntersectionConfig, now: Traffic, box: Any, i: int, shielded: bool) -> Iterator[Mark]:
    """Its box in the colour of its route."""
    x, y, cos, sin = (float(v[i]) for v in box)
    turn = np.array([[cos, -sin], [sin, cos]])
    l, w = 0.5 * c.length, 0.5 * c.width
    # 1.35 times its size: a car 3.7 m long is hard to see on a map of 100 m
    body = 1.35 * np.array([[-l, -w], [0.75 * l, -w], [l, -0.45 * w], [l, 0.45 * w], [0.75 * l, w], [-l, w]]) @ turn.T
    yield Area(body + np.array([x, y]), ROUTES[int(now.movement[i])], "#FFFFFF", 0.7)
    if shielded:
        yield Dot((x, y), "", "o", 16.1, edge=SHIELD, width=2.0)
    yield Label((x - 4.6 * sin, y + 4.6 * cos), agent_name(i), INK, 7.5, bold=True)


def _near(gap: np.ndarray) -> Iterator[tuple[int, int, float]]:
    for i, j in np.argwhere(np.triu(gap < TENSE, 1)):
        yield int(i), int(j), float(gap[i, j])


def _gap_links(box: Any, gap: np.ndarray) -> Iterator[Mark]:
    """A dotted line between two vehicles that will be at one point of the junction within a short time."""
    for i, j, seconds in _near(gap):
        ends = [(box.x[i], box.y[i]), (box.x[j], box.y[j])]
        yield Line(ends, gap_colour(seconds), 1.8 if seconds < STRONG else 1.0, dash=":")


def _gap_names(box: Any, gap: np.ndarray) -> Iterator[Mark]:
    for i, j, seconds in _near(gap):
        if seconds < STRONG:
            middle = 0.5 * (box.x[i] + box.x[j]), 0.5 * (box.y[i] + box.y[j])
            yield Label(middle, f"{seconds:.1f} s".replace("-0.0", "0.0"), "#FFFFFF", 7.0, box=gap_colour(seconds))


def gap_colour(gap: float) -> str:
    return TIGHT if gap < 0.5 else CLOSE if gap < STRONG else EASY


# --- the gauges -----------------------------------------------------------------------------------


def _over_time(config: IntersectionConfig, time: Any, low: float, high: float, **more: Any) -> Plane:
    view = (0.0, low, config.horizon * config.step, high)
    return Plane([[] for _ in time], view, clock=time.tolist(), paper="#FFFFFF", **more)


def _speeds(config: IntersectionConfig, states: Traffic, time: Any) -> Plane:
    speed = np.where(states.phase == DRIVING, states.speed, np.nan)
    lines = [
        Line(np.stack([time, speed[:, i]], 1), ROUTES[int(states.movement[-1, i])], 1.1, alpha=0.85)
        for i in range(config.num_vehicles)
    ]
    title = "speed of each vehicle, m/s"
    return _over_time(config, time, 0.0, 1.05 * config.top_speed, history=lines, title=title)


def _gaps(config: IntersectionConfig, gap: np.ndarray, time: Any) -> Plane:
    """The smallest predicted gap of all pairs over time."""
    end = config.horizon * config.step
    least = np.clip(gap.min((1, 2)), -1.5, 4.0)
    below = [rectangle(0.0, -1.5, end, 0.0, TIGHT, 0.12), Line([(0.0, 0.0), (end, 0.0)], TIGHT, 1.2, dash="-")]
    title = "smallest gap at a conflict point if nobody changed speed, s"
    return _over_time(
        config, time, -1.5, 4.1, backdrop=below, history=[Line(np.stack([time, least], 1), INK, 1.2)], title=title,
        y_ticks=[(0.0, "0"), (2.0, "2"), (4.0, "4+")],
    )  # fmt: skip


def _vehicles(config: IntersectionConfig, states: Traffic, acts: np.ndarray, time: Any) -> Plane:
    """Every vehicle's time on the road, with the shield's interventions and how it ended."""
    n, marks = config.num_vehicles, []
    for i in range(n):
        marks += _time_on_the_road(config, states.phase[:, i], int(states.movement[-1, i]), i)
        marks += [Line([((t - 1) * config.step, i - 0.3), ((t - 1) * config.step, i + 0.3)], SHIELD, 1.2)
                  for t in np.flatnonzero(acts[:, i])]  # fmt: skip
    so_far = np.cumsum(acts.sum(1)) / (n * np.maximum(np.arange(len(acts)), 1))
    text = "each vehicle's time on the road, \u25b6 arrived"
    return _over_time(
        config, time, n - 0.4, -0.6, history=marks, x_label="time, s",
        title=[text + (f"   (shield: {s:.0%} of actions)" if s else "") for s in so_far],
        y_ticks=[(float(i), agent_name(i)) for i in range(n if n <= FEW else 0)],
    )  # fmt: skip


def _time_on_the_road(config: IntersectionConfig, phase: Any, movement: int, row: int) -> Iterator[Mark]:
    on, dt = np.flatnonzero(phase == DRIVING), config.step
    if not len(on):
        return
    end = (on[-1] + 1) * dt
    yield rectangle(on[0] * dt, row - 0.3, end, row + 0.3, ROUTES[movement], 0.45)
    if phase[-1] == CRASHED:
        yield Dot((end, row), CRASH, "X", 6.7)
    elif phase[-1] == FINISHED:
        yield Dot((end, row), EASY, ">", 5.1)
