"""Tuned values per (algorithm, environment), and nothing else: the defaults stand next to the code that reads them."""

from __future__ import annotations

from typing import Any

TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("happo", "uav-mec"): {"lr": 1e-3},
    ("mappo", "uav-mec"): {"lr": 1e-3},
}
