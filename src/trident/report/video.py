"""An episode as a video (GIF) and as a chart (PNG)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from trident.errors import TridentError
from trident.report.figures import STYLE
from trident.report.palette import LIMIT, SERIES, agent_name, mode_colour
from trident.run_directory import fresh

MAX_FRAMES = 100


Draw = Callable[[Figure, int], None]
"""Paints step t of an episode on an empty figure."""


def write_gif(path: Path, draw: Draw, frames: int, seconds: float = 12.0) -> None:
    """Long episodes are thinned; the last frame stays for a while."""
    shown = np.unique(np.linspace(0, frames - 1, min(frames, MAX_FRAMES)).astype(int))
    images = []
    with _figure(90) as figure:
        for t in shown:
            figure.clear()
            draw(figure, int(t))
            figure.canvas.draw()
            pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # pyright: ignore[reportAttributeAccessIssue]
            images.append(Image.fromarray(pixels.copy()))
    # One palette for all frames: otherwise the colours flicker. It covers rare ones too: a thin line has a meaning.
    palette = images[-1].quantize(160, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    pause = max(30, round(1000 * seconds / len(images)))
    durations = [pause] * (len(images) - 1) + [1500]
    images[0].save(fresh(path), save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)


def write_frame(path: Path, draw: Draw, t: int) -> None:
    with _figure(140) as figure:
        draw(figure, t)
        figure.savefig(fresh(path))


def check_ffmpeg() -> None:
    """One line where there is no ffmpeg, before anything is played."""
    if shutil.which("ffmpeg") is None:
        raise TridentError("--mp4 needs ffmpeg, which is not installed: the GIF is written without it")


def write_mp4(path: Path, draw: Draw, frames: int, seconds: float = 12.0) -> Path:
    """Every frame, by ffmpeg."""
    rate = min(max(round(frames / seconds), 4), 30)
    with _figure(120) as figure:
        width, height = (int(side) // 2 * 2 for side in figure.get_size_inches() * figure.dpi)
        command = ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgba"]
        command += ["-s", f"{width}x{height}", "-r", str(rate), "-i", "-", "-pix_fmt", "yuv420p", str(fresh(path))]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            for t in range(frames):
                figure.clear()
                draw(figure, t)
                figure.canvas.draw()
                pixels = np.asarray(figure.canvas.buffer_rgba())[:height, :width]  # pyright: ignore[reportAttributeAccessIssue]
                process.stdin.write(np.ascontiguousarray(pixels).tobytes())
    if process.returncode:
        raise TridentError(f"ffmpeg could not write {path}: its message is above")
    return path


PRINT = {"font.family": "DejaVu Sans", "pdf.fonttype": 42, "svg.fonttype": "none", "savefig.bbox": "tight"}
"""Letters stay letters, so that they can be searched and edited."""


def write_figure(stem: Path, draw: Callable[[Figure], None]) -> list[Path]:
    """A figure for print, as PDF and SVG, and as PNG."""
    with mpl.rc_context(PRINT):  # pyright: ignore[reportArgumentType]
        figure = plt.figure(figsize=(7.2, 4.0))
        draw(figure)
        files = [stem.with_suffix(f".{kind}") for kind in ("pdf", "svg", "png")]
        for file in files:
            figure.savefig(fresh(file), dpi=200, metadata={"Date": None} if file.suffix == ".svg" else None)
        plt.close(figure)
    return files


def draw_snapshots(figure: Figure, draw: Callable[[Any, int], None], last: int) -> None:
    """An episode at four even times, the last at its end: whole frames, two by two."""
    figure.set_size_inches(17.0, 9.6)
    parts: Any = figure.subfigures(2, 2)
    for k, part in enumerate(parts.flat):
        draw(part, round(last * (k + 1) / 4))


@contextmanager
def _figure(dpi: int) -> Iterator[Figure]:
    """In matplotlib's own style: how an environment looks is the environment's business."""
    figure = plt.figure(figsize=(10.6, 5.6), dpi=dpi)
    yield figure
    plt.close(figure)


def write_chart(
    path: Path,
    title: str,
    mode_names: list[str],
    modes: np.ndarray,  # [T, N]
    reward: np.ndarray,  # [T]
    costs: dict[str, np.ndarray],  # [T] each
    limits: dict[str, float],
) -> None:
    """Which mode each agent was in, the reward and the running mean of each cost against its limit, over time."""
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        rows = 2 + len(costs)
        figure, axes = plt.subplots(rows, 1, figsize=(9.0, 2.0 * rows), sharex=True, squeeze=False)
        strip, first, *rest = axes[:, 0]
        _mode_strip(strip, mode_names, modes)
        time = np.arange(len(reward))
        first.plot(time, reward, color=SERIES[0], lw=1.3)
        first.set_title("reward of the step")
        for i, (ax, (name, cost)) in enumerate(zip(rest, costs.items(), strict=True)):
            colour = SERIES[(i + 1) % len(SERIES)]
            ax.fill_between(time, cost, step="mid", color=colour, alpha=0.25, lw=0)
            ax.plot(time, np.cumsum(cost) / (time + 1), color=colour, lw=1.8, label="mean so far")
            ax.axhline(limits[name], color=LIMIT, ls="--", lw=1.2, label=f"limit {limits[name]:g}")
            ax.set_title(f"cost {name} of the step")
            ax.set_ylim(bottom=min(0.0, float(cost.min())))
            ax.legend(loc="upper right", ncols=2)
        axes[-1, 0].set_xlabel("step of the episode")
        axes[-1, 0].set_xlim(-0.5, len(reward) - 0.5)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5)
        figure.tight_layout()
        figure.savefig(fresh(path))
        plt.close(figure)


def _mode_strip(ax: Axes, mode_names: list[str], modes: np.ndarray) -> None:
    count, agents = len(mode_names), modes.shape[1]
    colours = [mode_colour(m) for m in range(count)]
    ax.imshow(
        modes.T, aspect="auto", interpolation="nearest", vmin=-0.5, vmax=count - 0.5, cmap=ListedColormap(colours)
    )
    ax.set(title="mode of each agent", ylabel="agent")
    shown = range(0, agents, -(-agents // 8))
    ax.set_yticks(shown, [agent_name(i) for i in shown])
    ax.grid(False)
    patches = [Patch(color=c, label=n) for c, n in zip(colours, mode_names, strict=True)]
    used = [patches[m] for m in np.unique(modes)]
    ax.legend(handles=used, loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=7.5)
