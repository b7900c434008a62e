"""What may be asked of a policy outside an environment: everything in shape and finite, or one line that says what is
wrong. Whoever must go on whatever comes flies behind `trident.runtime.Guard`."""

from __future__ import annotations

from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.types import EnvSpec, HybridAction, View


def checked_view(spec: EnvSpec, obs: Any, mode_mask: Any = None, alive: Any = None) -> View:
    """Of NumPy arrays, for [N, O] or [batch, N, O]."""
    n, modes = spec.num_agents, spec.action.num_modes
    obs = _array("obs", obs, np.float32)
    if obs.ndim not in (2, 3) or obs.shape[-2:] != (n, spec.obs_dim):
        raise TridentError(
            f"obs must have shape [{n}, {spec.obs_dim}] or [batch, {n}, {spec.obs_dim}], not {list(obs.shape)}"
        )
    shape = obs.shape[:-1]
    mask = np.ones((*shape, modes), bool) if mode_mask is None else _array("mode_mask", mode_mask, np.bool_)
    living = np.ones(shape, bool) if alive is None else _array("alive", alive, np.bool_)
    for name, array, wanted in (("mode_mask", mask, (*shape, modes)), ("alive", living, shape)):
        if array.shape != wanted:
            raise TridentError(f"{name} must have shape {list(wanted)}, as obs has it, not {list(array.shape)}")
    if (blind := living & ~np.isfinite(obs).all(axis=-1)).any():
        raise TridentError(f"obs of {_agents(blind)} is not finite: leave such agents out by `alive`")
    if (idle := living & ~mask.any(axis=-1)).any():
        raise TridentError(f"mode_mask allows {_agents(idle)} no mode: allow at least one")
    # of the dead nothing is asked, and nothing may come from them either
    return View(np.where(living[..., None], obs, np.float32(0.0)), mask | ~mask.any(axis=-1, keepdims=True), living)  # pyright: ignore[reportArgumentType]


def rest_the_dead(spec: EnvSpec, action: HybridAction, view: View) -> HybridAction:
    """The environment's fail-safe for agents that take no part; without one, their parameters at the least of
    nothing."""
    alive, mask = np.asarray(view.alive), np.asarray(view.mode_mask)
    if alive.all():
        return action
    safe = spec.fail_safe
    order = np.arange(spec.action.num_modes) if safe is None else np.asarray(safe.modes)
    mode = order[mask[..., order].argmax(axis=-1)]
    agents = np.arange(spec.num_agents)
    low, high = spec.action.low[agents, mode], spec.action.high[agents, mode]
    params = np.clip(0.0, low, high) if safe is None else np.asarray(safe.params)[mode]
    params = np.where(spec.action.used[agents, mode], params, 0.0)
    modes = np.where(alive, action.mode, mode).astype(np.asarray(action.mode).dtype)
    return HybridAction(modes, np.where(alive[..., None], action.params, params).astype(np.float32))  # pyright: ignore[reportArgumentType]


def _array(name: str, value: Any, kind: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or (kind is np.bool_ and not np.isin(array, (0, 1)).all()):
            raise ValueError
        return array.astype(kind)
    except (ValueError, TypeError):
        wanted = "booleans" if kind is np.bool_ else "numbers"
        raise TridentError(f"{name} must be an array of {wanted}") from None


def _agents(which: np.ndarray) -> str:
    """agent 1, counted from 0 as the arrays are."""
    found = np.flatnonzero(which.reshape(-1, which.shape[-1]).any(axis=0))
    return f"agent{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
