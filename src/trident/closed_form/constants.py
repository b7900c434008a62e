"""Unknown constants of a closed form, by least squares on what was seen: (state, action) -> next state and signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.errors import TridentError
from trident.types import HybridAction, Physics

MOST_STEPS = 60
LEVEL = 1.96
"""Standard errors on each side of an estimate: 95 % if errors are normal."""
UNTOLD = 1e-7
"""A constant whose share of the curvature is less than this leaves no trace in the data."""


class Seen(NamedTuple):
    """B steps that were played, and the episode that each is of."""

    state: Any  # [B, S]
    action: HybridAction  # [B, N, ...]
    next_state: Any  # [B, S]
    signals: Any  # [B, 1+K]
    episode: Any  # [B]


class Constant(NamedTuple):
    name: str
    value: float
    error: float
    """Half the width of a 95 % interval; infinite if the data do not tell."""


class Fit(NamedTuple):
    constants: list[Constant]
    unexplained: dict[str, float]
    """Share of the variance that is left, of each signal and of what changes in each number of the state."""
    before: dict[str, float]
    """The same with the constants that one began with."""
    rows: int


def fit_constants(
    make: Callable[[Mapping[str, Any]], Physics], start: Mapping[str, float], seen: Seen, names: list[str]
) -> Fit:
    """The constants that bring `predict` of `make(constants)` nearest to what was seen, and `signals` for those that
    leave no trace in the states (a closed form of an indicator cost is a probability, and would bias the others).
    Levenberg and Marquardt's method, everything in units of its own standard deviation. Errors allow for steps of an
    episode that are alike (sandwich estimator, an episode being one piece of evidence). `names`: of the signals."""
    if not start:
        raise TridentError("there is no constant to fit: give their names and values to begin with")
    keys, first = list(start), np.array([float(v) for v in start.values()], np.float64)
    scale = np.where(first != 0.0, np.abs(first), 1.0)
    change = np.asarray(seen.next_state) - np.asarray(seen.state)
    wanted = np.concatenate([np.asarray(seen.signals), change], axis=1).astype(np.float64)
    spread = wanted.std(axis=0)
    varies = spread > 1e-9  # what never changes says nothing
    unit, of_state = np.where(varies, spread, 1.0), np.arange(wanted.shape[1]) >= len(names)

    @jax.jit
    def said(x: Any) -> Any:
        """[B, 1+K+S]"""
        physics = make(dict(zip(keys, jnp.asarray(scale) * x, strict=True)))
        signals = jax.vmap(physics.signals)(seen.state, seen.action)
        return jnp.concatenate([signals, jax.vmap(physics.predict)(seen.state, seen.action) - seen.state], axis=1)

    derivative = jax.jit(jax.jacfwd(said))

    def residual(x: np.ndarray) -> np.ndarray:
        return (np.asarray(said(jnp.asarray(x, jnp.float32)), np.float64) - wanted) / unit

    def jacobian(x: np.ndarray) -> np.ndarray:
        return np.asarray(derivative(jnp.asarray(x, jnp.float32)), np.float64) / unit[:, None]

    x, errors = first / scale, np.full(len(first), np.inf)
    if not np.isfinite(residual(x)).all():
        raise TridentError("the closed form is not finite on these states with the constants one begins with")
    for columns in (of_state & varies, ~of_state & varies):
        open_ = np.flatnonzero(np.isinf(errors))
        if not len(open_) or not columns.any():
            continue

        with_open = partial(_put, x, open_)
        part = partial(lambda where, pick, y: residual(where(y))[:, pick], with_open, columns)
        by = partial(lambda where, pick, free, y: jacobian(where(y))[:, pick][..., free], with_open, columns, open_)
        y = _minimum(part, by, x[open_])
        found = _errors(by(y), part(y), np.asarray(seen.episode))
        x = with_open(np.where(np.isinf(found), x[open_], y))
        errors[open_] = found
    constants = [Constant(k, float(v), float(e)) for k, v, e in zip(keys, x * scale, errors * scale, strict=True)]
    labels = [*names, *(f"state {i}" for i in range(change.shape[1]))]
    kept = [label for label, v in zip(labels, varies, strict=True) if v]
    left = lambda y: dict(zip(kept, residual(y)[:, varies].var(axis=0).tolist(), strict=True))  # noqa: E731
    return Fit(constants, left(x), left(first / scale), len(wanted))


def _put(x: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[places] = values
    return x


def _minimum(residual: Callable, jacobian: Callable, x: np.ndarray) -> np.ndarray:
    r, damping = residual(x), 1e-3
    loss = float((r**2).sum())
    for _ in range(MOST_STEPS):
        j = jacobian(x).reshape(-1, len(x))
        gram, gradient = j.T @ j, j.T @ r.ravel()
        ridge = damping * np.diag(np.maximum(np.diag(gram), 1e-12 * max(np.trace(gram), 1e-30)))
        step = np.linalg.lstsq(gram + ridge, -gradient, rcond=None)[0]
        tried = residual(x + step)
        better = float((tried**2).sum()) if np.isfinite(tried).all() else np.inf
        if better < loss:
            settled = loss - better < 1e-9 * loss
            x, r, loss, damping = x + step, tried, better, damping * 0.3
            if settled:
                break
        else:
            damping *= 10.0
            if damping > 1e9:
                break
    return x


def _errors(jacobian: np.ndarray, residual: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """Half widths; `jacobian` [B, D, C], `residual` [B, D]."""
    flat = jacobian.reshape(-1, jacobian.shape[-1])
    gram = flat.T @ flat
    size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    shares, axes = np.linalg.eigh(gram / np.outer(size, size))
    lost = (shares < UNTOLD) | (size.max() <= 1e-150)
    inverse = (axes[:, ~lost] / shares[~lost]) @ axes[:, ~lost].T / np.outer(size, size)
    scores = np.einsum("bdc,bd->bc", jacobian, residual)
    groups = [scores[episode == e].sum(axis=0) for e in np.unique(episode)]
    meat = sum(np.outer(g, g) for g in groups) * len(groups) / max(len(groups) - 1, 1)
    error = LEVEL * np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0))
    blind = (axes[:, lost] ** 2).sum(axis=1) > 0.01 if lost.any() else np.zeros(len(error), bool)
    silent = size < 1e-6 * np.sqrt(len(flat))
    return np.where(blind | silent, np.inf, error)
