"""How the lab draws: a few panels in one figure, in the style of the reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from trident.report.figures import STYLE
from trident.report.palette import LIMIT, QUIET
from trident.report.palette import SERIES as COLOURS

mpl.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["COLOURS", "LIMIT", "panels", "slope_guide", "temperature_axis"]


def panels(
    path: Path, title: str, draws: Sequence[Callable[[Any], None]], *, legend: int | None = None, columns: int = 3
) -> None:
    """`legend`: the panel whose labels are shown once, below the figure; otherwise each panel keeps its own."""
    columns = min(columns, len(draws))
    rows = -(-len(draws) // columns)
    with mpl.rc_context(STYLE | {"figure.dpi": 100}):  # pyright: ignore[reportArgumentType]
        figure, axes = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.2 * rows + 0.6), squeeze=False)
        for ax, one in zip(axes.flat, draws, strict=False):
            one(ax)
        for ax in axes.flat[len(draws) :]:
            ax.set_axis_off()
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        if legend is None:
            for ax in axes.flat[: len(draws)]:
                if ax.get_legend_handles_labels()[1] and ax.get_legend() is None:
                    ax.legend()
            figure.tight_layout()
        else:
            handles, labels = axes.flat[legend].get_legend_handles_labels()
            lines = -(-len(labels) // 3)
            figure.tight_layout(rect=(0, 0.035 * lines * 4.0 / (3.2 * rows + 0.6) * 1.6, 1, 1))
            figure.legend(handles, labels, loc="lower center", ncols=min(3, len(labels)))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})
        plt.close(figure)


def slope_guide(ax: Any, x: np.ndarray, exponent: float, share: float = 0.04) -> None:
    """A dashed line of the given slope on logarithmic axes, labelled with it."""
    x = np.asarray(x, float)
    y = share * (x / x.max()) ** exponent
    ax.plot(x, y, ls="--", lw=1.0, color=QUIET, zorder=0)
    ax.annotate(
        f"slope {exponent:g}",
        (x.min(), y[np.argmin(x)]),
        color=QUIET,
        fontsize=8,
        ha="left",
        va="bottom",
        xytext=(0, 2),
        textcoords="offset points",
    )


def temperature_axis(ax: Any, taus: np.ndarray) -> None:
    ax.set_xticks(taus, [f"{t:g}" for t in taus])
    ax.minorticks_off()
    ax.set_xlabel("temperature")
