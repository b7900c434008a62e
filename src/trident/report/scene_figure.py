"""A scene painted with matplotlib: frames of a GIF, PNG, SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Polygon

from trident.report.palette import FILL, LIMIT
from trident.report.scale_bar import scale_bar
from trident.report.scene import Area, Arrow, Disc, Dot, Label, Line, Mark, Plane, Raster, Scene, text_at, until

DASHES: dict[str, Any] = {"": "-", "-": "--", "--": (0, (6, 6)), ":": ":"}


def can_be_drawn(env: Any) -> bool:
    return hasattr(env, "scene") or hasattr(env, "draw")


def draw_step(env: Any, where: Figure, states: Any, t: int) -> None:
    """Step t of an episode's states [T + 1, ...], as the environment draws itself."""
    if hasattr(env, "scene"):
        draw_scene(env.scene(states), where, t)
    else:
        env.draw(where, states, t)


def draw_scene(scene: Scene, where: Figure | Axes, t: int) -> None:
    """Frame t. On a figure: the map and its panels; on axes: the map alone."""
    if isinstance(where, Axes):
        draw_map(scene, where, t)
        return
    where.clear()
    where.patch.set_facecolor(scene.paper)
    if not scene.panels:
        draw_map(scene, where.add_axes((0.03, 0.12, 0.94, 0.8)), t)
        return
    rows = len(scene.panels)
    grid = where.add_gridspec(
        rows, 2, width_ratios=scene.widths, height_ratios=scene.heights or (1.0,) * rows, wspace=0.16,
        hspace=0.57 if rows > 2 else 0.42, left=0.02, right=0.975, top=0.93, bottom=0.13,
    )  # fmt: skip
    draw_map(scene, where.add_subplot(grid[:, 0]), t)
    for i, panel in enumerate(scene.panels):
        draw_panel(scene, panel, where.add_subplot(grid[i, 1]), t)


def draw_map(scene: Scene, ax: Axes, t: int) -> None:
    plane = scene.map
    left, bottom, right, top = plane.view_at(t)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", xticks=[], yticks=[], facecolor=plane.paper)
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_color(scene.frame)
    _paint_plane(plane, ax, t)
    ax.set_title(text_at(plane.title, t), loc="left", fontsize=10, color=scene.ink)
    if alert := text_at(plane.alert, t):
        ax.set_title(alert, loc="right", fontsize=10, color=LIMIT, weight="bold")
    if plane.unit:
        scale_bar(ax, plane.unit, scene.ink)
    if scene.key:
        ax.legend(
            handles=_handles(scene), loc="upper center", bbox_to_anchor=(0.5, -0.005), ncols=scene.key_columns,
            fontsize=7.5, frameon=False, labelcolor=scene.ink, handlelength=1.4, columnspacing=1.1, handletextpad=0.6,
        )  # fmt: skip


def draw_maps(
    scene: Scene, where: Figure, times: Sequence[int], titles: Sequence[str], size: tuple[float, float]
) -> None:
    """The map at several times side by side, with one key below all of them."""
    where.set_size_inches(*size)
    bare = replace(scene, key=())
    for k, (ax, t) in enumerate(zip(where.subplots(1, len(times)), times, strict=True)):
        draw_map(bare, ax, t)
        ax.set_title(f"({'abcdefgh'[k]})  {titles[k]}", loc="left", fontsize=10, color=scene.ink)
    shared_key(scene, where, scene.key_columns)
    where.subplots_adjust(left=0.01, right=0.99, top=0.93, bottom=0.09, wspace=0.04)


def shared_key(scene: Scene, where: Figure, columns: int) -> None:
    where.legend(handles=_handles(scene), loc="lower center", ncols=columns, fontsize=8, frameon=False)


def _handles(scene: Scene) -> list[Line2D | Patch]:
    return [_handle(key.text, key.mark) for key in scene.key]


def draw_panel(scene: Scene, plane: Plane, ax: Axes, t: int) -> None:
    left, bottom, right, top = plane.view_at(t)
    ax.set_facecolor(plane.paper)
    _paint_plane(plane, ax, t)
    ax.set(xlim=(left, right), ylim=(bottom, top))
    ax.set_title(text_at(plane.title, t), loc="left", fontsize=9, color=scene.ink)
    ax.tick_params(labelsize=7, length=2, colors=scene.ink)
    for name, spine in ax.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(scene.axis)
    for ticks, place in ((plane.x_ticks, ax.set_xticks), (plane.y_ticks, ax.set_yticks)):
        if ticks is not None:
            place([value for value, _ in ticks], [name for _, name in ticks])
    ax.set_xlabel(plane.x_label, fontsize=8, color=scene.ink)


def _paint_plane(plane: Plane, ax: Axes, t: int) -> None:
    past = [m for mark in plane.history if (m := until(mark, plane.clock[t])) is not None]
    for order, mark in enumerate([*plane.backdrop, *past, *plane.frames[t]]):
        _paint(ax, mark, 1.0 + 0.001 * order)


def _paint(ax: Axes, mark: Mark, z: float) -> None:
    match mark:
        case Line():
            _line(ax, mark, z)
        case Area():
            look = {"fc": mark.fill or "none", "ec": mark.edge or "none", "lw": mark.width, "alpha": mark.alpha}
            ax.add_patch(Polygon(np.asarray(mark.points, float), closed=True, zorder=z, **look))
        case Disc():
            look = {"fc": mark.fill or "none", "ec": mark.edge or "none", "lw": mark.width, "alpha": mark.alpha}
            ax.add_patch(Circle((mark.at[0], mark.at[1]), mark.radius, zorder=z, **look))
        case Dot():
            ax.scatter(*mark.at, marker=mark.shape, s=mark.size**2, zorder=z, **_sign(mark))
        case Label():
            _label(ax, mark, z)
        case Arrow():
            ax.quiver(
                mark.at[0], mark.at[1], mark.by[0], mark.by[1], angles="xy", scale_units="xy", scale=1.0,
                color=mark.colour, width=0.0032, headwidth=4.5, headlength=5, zorder=z,
            )  # fmt: skip
        case Raster():
            left, bottom, right, top = mark.box
            ax.imshow(
                np.asarray(mark.cells), aspect="auto", interpolation="nearest", extent=(left, right, bottom, top),
                cmap=ListedColormap(list(mark.colours)), vmin=-0.5, vmax=len(mark.colours) - 0.5, zorder=z,
            )  # fmt: skip


def _line(ax: Axes, mark: Line, z: float) -> None:
    points = np.array([[np.nan if v is None else v for v in p] for p in mark.points], float)
    if not mark.fade:
        look = {"color": mark.colour, "lw": mark.width, "alpha": mark.alpha, "ls": DASHES[mark.dash]}
        ax.plot(*points.T, solid_capstyle="butt", zorder=z, **look)
    elif len(points) > 1:
        parts = np.stack([points[:-1], points[1:]], 1)
        fade = np.linspace(0.03, mark.alpha, len(parts))
        ax.add_collection(LineCollection(list(parts), colors=mark.colour, linewidths=mark.width, alpha=fade, zorder=z))


def _sign(mark: Dot) -> dict[str, Any]:
    if mark.shape == "x":
        return {"c": mark.colour, "linewidths": mark.width, "alpha": mark.alpha}
    look = {"facecolors": mark.colour or "none", "edgecolors": mark.edge or "none"}
    return {**look, "linewidths": mark.width if mark.edge else 0.0, "alpha": mark.alpha}


def _label(ax: Axes, mark: Label, z: float) -> None:
    box = {"boxstyle": "round,pad=0.2", "fc": mark.box, "ec": "none"} if mark.box else None
    ax.annotate(
        mark.text, (mark.at[0], mark.at[1]), xytext=mark.offset, textcoords="offset points", ha=mark.align,
        va="center", fontsize=mark.size, color=mark.colour, weight="bold" if mark.bold else "normal", bbox=box,
        rotation=90 if mark.turned else 0, zorder=z, clip_on=True, annotation_clip=True,
    )  # fmt: skip


def _handle(text: str, mark: Mark) -> Line2D | Patch:
    match mark:
        case Line():
            look = {"color": mark.colour, "lw": mark.width, "alpha": mark.alpha, "ls": DASHES[mark.dash]}
            return Line2D([], [], label=text, **look)
        case Dot():
            edge = mark.colour if mark.shape == "x" else mark.edge or "none"
            fill = {"mfc": mark.colour or "none", "mec": edge, "mew": mark.width if edge != "none" else 0.0}
            return Line2D([], [], ls="", label=text, marker=mark.shape, ms=mark.size, **fill)
        case Label():
            return Line2D([], [], ls="", label=text, marker=f"${mark.text}$", color=mark.colour, ms=6)
        case Disc() | Area():
            fill = to_rgba(mark.fill or FILL, mark.alpha)
            return Patch(label=text, fc=fill, ec=mark.edge or "none")
        case _:
            return Patch(label=text, fc=FILL)
