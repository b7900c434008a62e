"""TRIDENT: safe multi-agent reinforcement learning with hybrid actions on physics-governed systems."""

import importlib
import os
from typing import Any

__version__ = "0.1.0"

# XLA would warn at length of CPU features that do not exist whenever it loads a program from the compilation cache.
# What really fails is raised. Read when jax is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_PUBLIC = {
    "trident.adapters": "from_gymnasium from_pettingzoo from_suite to_gymnasium to_pettingzoo",
    "trident.api": "Run compare load resume train",
    "trident.closed_form": "least_change_shield search_base_policy",
    "trident.envs.checks": "check_env",
    "trident.errors": "TridentError",
    "trident.training.presets": "Preset",
    "trident.training.registry": "make_env",
    "trident.types": "ActionSpec Algorithm BaseAction BasePolicy BulkPhysics Constraint Data DataPlan Env EnvSpec "
    "FailSafe HostEnv HybridAction Metric Physics TimeStep Transition View decode_params encode_params follow",
}
_LAZY = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = [*_LAZY]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """The public names are imported when first used: `import trident` alone stays light (types: __init__.pyi)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'trident' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
