"""TRIDENT: safe multi-agent reinforcement learning with hybrid actions on physics-governed systems."""

import importlib
import os
from typing import Any

__version__ = "0.1.0"

# XLA would warn at length of CPU features that do not exist whenever it loads a program from the compilation cache.
# What really fails is raised. Read when jax is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_LAZY = {
    "train": "trident.api",
    "resume": "trident.api",
    "load": "trident.api",
    "Run": "trident.api",
    "check_env": "trident.envs.checks",
    "make_env": "trident.training.registry",
    "TridentError": "trident.errors",
}
__all__ = ["Run", "TridentError", "check_env", "load", "make_env", "resume", "train"]


def __getattr__(name: str) -> Any:
    """The public names are imported when first used: `import trident` alone stays light (types: __init__.pyi)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'trident' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
