"""An episode's drawing as plain data: what an environment says once, and GIF, PNG, SVG and the page are made from.

    scene = Scene(Plane(view=(0, 0, 10, 10), frames=[[Dot((1.0, t))] for t in range(5)]))

A scene has a map and may have panels beside it. Each is a `Plane`: a window on two coordinates and, for every step, a
list of marks in the order in which they are painted. Frame 0 is the state after the reset, frame t that after step t.
Coordinates are the plane's own; widths, sizes and offsets are in points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from trident.report.palette import FRAME, INK, PAPER, QUIET

Point = Any
"""Two numbers, in whatever holds two numbers."""
Box = tuple[float, float, float, float]
"""left, bottom, right, top"""


# --- marks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    points: Any
    """Of them a list, or an array [points, 2]. None or NaN in place of a coordinate is a gap."""
    colour: str = INK
    width: float = 1.5
    alpha: float = 1.0
    dash: str = ""
    """"-" dashed, "--" with long dashes, ":" dotted."""
    fade: bool = False
    """Its beginning is nearly transparent."""


@dataclass(frozen=True)
class Area:
    """A polygon."""

    points: Any
    fill: str = ""
    edge: str = ""
    width: float = 0.0
    alpha: float = 1.0


@dataclass(frozen=True)
class Disc:
    """A circle whose radius is a length of the plane."""

    at: Point
    radius: float
    fill: str = ""
    edge: str = ""
    width: float = 1.0
    alpha: float = 1.0


@dataclass(frozen=True)
class Dot:
    """A sign of the same size whatever the window."""

    at: Point
    colour: str = INK
    shape: str = "o"
    """o, s (square), h (hexagon), x, X (bold), P (bold plus), * (star), > and ^ (triangles)"""
    size: float = 6.0
    edge: str = ""
    width: float = 1.0
    alpha: float = 1.0


@dataclass(frozen=True)
class Label:
    at: Point
    text: str
    colour: str = INK
    size: float = 7.5
    bold: bool = False
    offset: tuple[float, float] = (0.0, 0.0)
    align: str = "center"
    """center, left or right"""
    box: str = ""
    """Colour of a rounded box behind it."""
    turned: bool = False
    """Read from below."""


@dataclass(frozen=True)
class Arrow:
    at: Point
    by: Point
    colour: str = INK
    width: float = 1.5


@dataclass(frozen=True)
class Raster:
    """Cells of a box: rows from the top, each a list of numbers of `colours`."""

    box: Box
    cells: Sequence[Sequence[int]]
    colours: Sequence[str]


Mark = Line | Area | Disc | Dot | Label | Arrow | Raster


def rectangle(
    left: float, bottom: float, right: float, top: float, fill: str, alpha: float = 1.0, edge: str = ""
) -> Area:
    corners = [(left, bottom), (right, bottom), (right, top), (left, top)]
    return Area(corners, fill, edge, 0.8 if edge else 0.0, alpha)


# --- planes and scenes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Plane:
    frames: Sequence[Sequence[Mark]]
    """The marks of every step."""
    view: Box | Sequence[Box] = (0.0, 0.0, 1.0, 1.0)
    """The window, the same at all steps or one for each."""
    backdrop: Sequence[Mark] = ()
    """Below everything, at all steps."""
    history: Sequence[Mark] = ()
    """Of a panel over time: marks of the whole episode, of which a step shows what lies at or before its `clock`."""
    clock: Sequence[float] = ()
    """Where each step lies on the horizontal axis, if that is time."""
    title: str | Sequence[str] = ""
    alert: str | Sequence[str] = ""
    """What has gone wrong, in the colour of limits."""
    x_label: str = ""
    x_ticks: Sequence[tuple[float, str]] | None = None
    y_ticks: Sequence[tuple[float, str]] | None = None
    """None: as the painter likes it."""
    paper: str = PAPER
    unit: str = ""
    """Of lengths: a map has a scale bar."""

    def view_at(self, t: int) -> Box:
        return self.view if isinstance(self.view[0], int | float) else self.view[t]  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class Key:
    """What a sign means."""

    text: str
    mark: Mark


@dataclass(frozen=True)
class Scene:
    map: Plane
    panels: Sequence[Plane] = ()
    key: Sequence[Key] = ()
    agents: Sequence[Sequence[Point | None]] = ()
    """[T + 1][N]: where to click to see more of an agent; None where it is not."""
    ink: str = INK
    paper: str = "#FFFFFF"
    """Of titles and what they stand on."""
    frame: str = FRAME
    axis: str = QUIET
    dark: Mapping[str, str] = field(default_factory=dict)
    """Colours to be replaced where a page is dark; those of the common palette are replaced anyway."""
    widths: tuple[float, float] = (2.0, 1.0)
    """Of the map and of the panels in a picture."""
    heights: tuple[float, ...] = ()
    """Of the panels among each other."""
    key_columns: int = 4

    @property
    def length(self) -> int:
        """Frames: one more than steps."""
        return len(self.map.frames)


def text_at(text: str | Sequence[str], t: int) -> str:
    return text if isinstance(text, str) else text[t]


def until(mark: Mark, now: float) -> Mark | None:
    """The part of a mark that lies at or before `now` on the horizontal axis; None if there is none."""
    match mark:
        case Line(points=points):
            kept = [p for p in points if p[0] is not None and p[0] <= now]
            return replace(mark, points=kept) if kept else None
        case Area(points=points):
            if min(p[0] for p in points) > now:
                return None
            return replace(mark, points=[(min(p[0], now), p[1]) for p in points])
        case Raster(box=(left, bottom, right, top), cells=cells):
            count = len(cells[0]) if cells else 0
            shown = round((min(now, right) - left) / (right - left) * count) if count else 0
            if shown < 1:
                return None
            box = (left, bottom, left + (right - left) * shown / count, top)
            return replace(mark, box=box, cells=[row[:shown] for row in cells])
        case _:
            return mark if mark.at[0] <= now else None


# --- as the page gets it --------------------------------------------------------------------------


def packed(scene: Scene) -> dict[str, Any]:
    """The scene as JSON: every look is told once, a mark is the number of its look and its coordinates, and coordinates
    are rounded to a four-thousandth of the window."""
    looks: dict[Any, int] = {}
    map_, panels = _packed_plane(scene.map, looks), [_packed_plane(p, looks) for p in scene.panels]
    key = [[k.text, _packed_mark(k.mark, looks, 1e-4)] for k in scene.key]
    digits = _digits(scene.map)
    agents = [[None if p is None else _rounded(p, digits) for p in row] for row in scene.agents]
    return {"map": map_, "panels": panels, "key": key, "agents": agents, "dark": dict(scene.dark), "ink": scene.ink,
            "paper": scene.paper, "looks": [dict(look) for look in looks]}  # fmt: skip


def _packed_plane(plane: Plane, looks: dict[Any, int]) -> dict[str, Any]:
    unit = _digits(plane)
    marks = lambda found: [_packed_mark(m, looks, unit) for m in found]  # noqa: E731
    whole = {f.name: getattr(plane, f.name) for f in fields(plane)}
    whole |= {"frames": [marks(f) for f in plane.frames], "backdrop": marks(plane.backdrop)}
    return whole | {"history": marks(plane.history), "clock": list(plane.clock)}


def _digits(plane: Plane) -> float:
    """The least difference that could be seen."""
    views = [plane.view_at(t) for t in range(max(len(plane.frames), 1))]
    return max(min(min(v[2] - v[0], v[3] - v[1]) for v in views) / 4000.0, 1e-9)


def _rounded(values: Any, unit: float) -> list[Any]:
    return [None if v is None or v != v else float(f"{round(v / unit) * unit:.6g}") for v in values]


COORDINATES = {"points", "at", "radius", "by", "box", "cells"}


def _packed_mark(mark: Mark, looks: dict[Any, int], unit: float) -> list[Any]:
    kind = type(mark).__name__.lower()
    here = COORDINATES if not isinstance(mark, Label) else COORDINATES - {"box"}
    look = {f.name: getattr(mark, f.name) for f in fields(mark) if f.name not in here}
    usual = {f.name: f.default for f in fields(mark)}
    plain = {"kind": kind} | {
        k: list(v) if isinstance(v, tuple | list) else v for k, v in look.items() if v != usual[k]
    }
    hashed = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in plain.items())
    number = looks.setdefault(hashed, len(looks))
    return [number, *_coordinates(mark, unit)]


def _coordinates(mark: Mark, unit: float) -> list[Any]:
    match mark:
        case Line(points=points) | Area(points=points):
            return _rounded([v for p in points for v in p], unit)
        case Disc(at=at, radius=radius):
            return _rounded([*at, radius], unit)
        case Arrow(at=at, by=by):
            return _rounded([*at, *by], unit)
        case Raster(box=box, cells=cells):
            return [*_rounded(box, unit), len(cells), *(int(c) for row in cells for c in row)]
        case _:
            return _rounded(mark.at, unit)
