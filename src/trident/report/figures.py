from __future__ import annotations

from pathlib import Path


def draw_figures(out: Path) -> list[Path]:
    return []
