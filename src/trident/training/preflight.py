"""Environments from elsewhere are checked before anything is compiled for them; one that was found good is not checked
again until its source changes."""

from __future__ import annotations

import hashlib
import inspect
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import trident
from trident.envs.checks import find_doubts, find_faults
from trident.errors import TridentError
from trident.report.progress import Progress
from trident.training.registry import BUILT_IN_ENVS
from trident.training.settings import Setup

STEPS = 40
"""Of the episodes that are looked at: the longer look is `trident.check_env`."""


def check(setup: Setup, progress: Progress) -> None:
    """A TridentError with the first fault of an environment that is not trident's own."""
    env: Any = setup.env
    if not setup.settings.check_env or _is_ours(setup):
        return
    mark = _mark(env)
    if mark is not None and mark.exists():
        return
    progress.doing(f"checking {setup.spec.name} (--no-check-env leaves it out)")
    faults = find_faults(env, steps=STEPS)
    if faults:
        rest = f" (and {len(faults) - 1} more: `trident.check_env(env)` lists them)" if len(faults) > 1 else ""
        raise TridentError(f"{setup.spec.name} breaks the environment contract: {faults[0]}{rest}")
    for doubt in find_doubts(env, steps=STEPS):
        progress.say(f"doubt: {doubt}")
    if mark is not None:
        with suppress(OSError):  # it will be checked again, that is all
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def _is_ours(setup: Setup) -> bool:
    return setup.spec.name in BUILT_IN_ENVS and type(setup.env).__module__.startswith("trident.")


def _mark(env: Any) -> Path | None:
    """A file named by everything that decides what the check finds; None where the source cannot be read."""
    digest = hashlib.sha256(f"{trident.__version__} {env.spec} {getattr(env, 'config', None)!r}".encode())
    try:
        for kind in type(env).__mro__[:-1]:
            digest.update(Path(inspect.getsourcefile(kind) or "").read_bytes())
    except (OSError, TypeError):
        return None
    for name, value in sorted(getattr(env, "__dict__", {}).items()):
        digest.update(name.encode() + (value.tobytes() if hasattr(value, "tobytes") else repr(value).encode()))
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "trident" / "checked" / digest.hexdigest()
