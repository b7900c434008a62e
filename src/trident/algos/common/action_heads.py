"""Three ways to turn a network's output into a hybrid action, for learners that follow a critic's gradient.

                 a policy's output               what the critics read (A numbers)          what is done
    hybrid       logits; parameters of each mode Gumbel-softmax sample y of the mode,       argmax y and that mode's
                                                 parameters of mode argmax y                parameters
    discretised  logits of the mode and of       Gumbel-softmax samples of the mode and     argmax of each sample
                 `levels` values per parameter   of every parameter's level
    relaxed      M + P numbers                   the same in [-1, 1]                        argmax of the first M; rest

Critics read what the policy *meant* (recorded beside what was done), never a one-hot: they are trained where the
policies' gradients are taken. A critic that knows only one-hots is followed there by a straight-through estimator,
whose gradient at a corner need not point to the better corner; on the probe with three modes that failed in three runs
of four."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trident.maths.hybrid import mode_probs
from trident.types import ActionSpec, HybridAction, View, decode_params

MOST_CELLS = 4096


class Head(NamedTuple):
    width: int
    """Outputs an actor needs."""
    encoded: int
    """Numbers per agent that critics read (A)."""
    decide: Callable[[Float[Array, "N W"], View, Any, Any], tuple[HybridAction, dict[str, Any]]]
    """(outputs, view of one environment, key, noise) -> (action, what was meant); no noise (None): the best action."""
    relax: Callable[[Float[Array, "B N W"], Bool[Array, "B N M"], Any, Any], Float[Array, "B N A"]]
    """(outputs, mode mask, key, noise) -> what critics read, differentiable in the outputs; noise blurs parameters."""


MEANT = "meant"
"""The name among the extras under which a head records what its critics will read."""


class Noise(NamedTuple):
    """Of numbers in [-1, 1]: clip(scale * N(0, 1), -clip, clip)."""

    scale: Any
    clip: float = 10.0

    def added(self, key: Any, x: Float[Array, "*batch P"]) -> Float[Array, "*batch P"]:
        noise = jnp.clip(self.scale * jax.random.normal(key, x.shape), -self.clip, self.clip)
        return jnp.clip(x + noise, -1.0, 1.0)


def make_head(form: str, spec: ActionSpec, levels: int, temperature: float) -> Head:
    match form:
        case "hybrid":
            return hybrid_head(spec, temperature)
        case "discretised":
            return discretised_head(spec, levels, temperature)
        case "relaxed":
            return relaxed_head(spec)
    raise ValueError(f"unknown action form {form!r}; known: hybrid, discretised, relaxed")


def hybrid_head(spec: ActionSpec, temperature: float) -> Head:
    modes, params, used = spec.num_modes, spec.num_params, jnp.asarray(spec.used, jnp.float32)

    def split(out: Array) -> tuple[Array, Array]:
        return out[..., :modes], jnp.tanh(out[..., modes:].reshape(*out.shape[:-1], modes, params))

    def with_params(soft: Array, unit: Array, key: Any, noise: Noise | None) -> tuple[Array, Array]:
        """(mode, what critics read): the parameters of the mode that is done, those it does not read zero."""
        mode = jnp.argmax(soft, axis=-1)
        onehot = jax.nn.one_hot(mode, modes)
        mine = jnp.einsum("...m,...mp->...p", onehot, unit)
        mine = mine if noise is None else noise.added(key, mine)
        return mode, jnp.concatenate([soft, mine * jnp.einsum("...nm,nmp->...np", onehot, used)], axis=-1)

    def decide(out: Array, view: View, key: Any, noise: Any) -> tuple[HybridAction, dict[str, Any]]:
        mode_key, param_key = jax.random.split(key)
        logits, unit = split(out)
        soft = explore(logits, view.mode_mask, mode_key, noise, temperature)
        mode, meant = with_params(soft, unit, param_key, None if noise is None else Noise(noise))
        return HybridAction(mode, decode_params(spec, mode, meant[..., modes:])), {MEANT: meant}

    def relax(out: Array, mask: Array, key: Any, noise: Noise | None) -> Array:
        mode_key, param_key = jax.random.split(key)
        logits, unit = split(out)
        return with_params(gumbel_softmax(logits, mask, mode_key, temperature), unit, param_key, noise)[1]

    return Head(modes * (1 + params), modes + params, decide, relax)


def discretised_head(spec: ActionSpec, levels: int, temperature: float) -> Head:
    """A parameter's values are `levels` points of its mode's box, evenly spaced, ends included."""
    modes, params = spec.num_modes, spec.num_params
    if levels < 1:
        raise ValueError(f"a grid needs at least one level per parameter, not {levels}")
    values, width = jnp.asarray(level_values(levels)), modes + params * levels

    def split(out: Array) -> tuple[Array, Array]:
        return out[..., :modes], out[..., modes:].reshape(*out.shape[:-1], params, levels)

    def decide(out: Array, view: View, key: Any, noise: Any) -> tuple[HybridAction, dict[str, Any]]:
        mode_key, level_key = jax.random.split(key)
        logits, of_levels = split(out)
        soft = explore(logits, view.mode_mask, mode_key, noise, temperature)
        soft_levels = explore(of_levels, jnp.ones(of_levels.shape, bool), level_key, noise, temperature)
        mode, unit = jnp.argmax(soft, axis=-1), values[jnp.argmax(soft_levels, axis=-1)]
        meant = jnp.concatenate([soft, soft_levels.reshape(*soft.shape[:-1], -1)], axis=-1)
        return HybridAction(mode, decode_params(spec, mode, unit)), {MEANT: meant}

    def relax(out: Array, mask: Array, key: Any, noise: Noise | None) -> Array:
        """A grid has nothing to smooth."""
        mode_key, level_key = jax.random.split(key)
        logits, of_levels = split(out)
        soft = gumbel_softmax(logits, mask, mode_key, temperature)
        soft_levels = gumbel_softmax(of_levels, jnp.ones(of_levels.shape, bool), level_key, temperature)
        return jnp.concatenate([soft, soft_levels.reshape(*soft.shape[:-1], -1)], axis=-1)

    return Head(width, width, decide, relax)


def relaxed_head(spec: ActionSpec) -> Head:
    modes, width = spec.num_modes, spec.num_modes + spec.num_params

    def decide(out: Array, view: View, key: Any, noise: Any) -> tuple[HybridAction, dict[str, Any]]:
        point = jnp.tanh(out)
        point = point if noise is None else Noise(noise).added(key, point)
        mode = jnp.argmax(jnp.where(view.mode_mask, point[:, :modes], -jnp.inf), axis=-1)
        return HybridAction(mode, decode_params(spec, mode, point[:, modes:])), {MEANT: point}

    def relax(out: Array, mask: Array, key: Any, noise: Noise | None) -> Array:
        point = jnp.tanh(out)
        return point if noise is None else noise.added(key, point)

    return Head(width, width, decide, relax)


# --- discrete choices -----------------------------------------------------------------------------


def gumbel_softmax(
    logits: Float[Array, "*batch C"], mask: Bool[Array, "*#batch C"], key: Any, temperature: float
) -> Float[Array, "*batch C"]:
    """softmax((logits + g) / temperature) over allowed choices; the argmax is an exact draw from softmax(logits)."""
    return mode_probs((logits + jax.random.gumbel(key, logits.shape)) / temperature, mask)


def explore(
    logits: Float[Array, "*batch C"], mask: Bool[Array, "*#batch C"], key: Any, noise: Any, temperature: float
) -> Float[Array, "*batch C"]:
    """A Gumbel-softmax sample of (1 - noise) softmax(logits) + noise uniform; without noise (None) the
    softmax itself, whose argmax is the likeliest choice."""
    if noise is None:
        return mode_probs(logits / temperature, mask)
    coin_key, gumbel_key = jax.random.split(key)
    lost = jax.random.bernoulli(coin_key, noise, logits.shape[:-1])
    return gumbel_softmax(jnp.where(lost[..., None], 0.0, logits), mask, gumbel_key, temperature)


# --- the grid -------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """All actions of a grid, padded to the agent with most of them (G cells)."""

    mode: np.ndarray  # [N, G]
    unit: np.ndarray  # [N, G, P] in [-1, 1]
    exists: np.ndarray  # [N, G]


def level_values(levels: int) -> np.ndarray:
    """Evenly spaced in [-1, 1], ends included; a single level is the middle."""
    return np.linspace(-1.0, 1.0, levels, dtype=np.float32) if levels > 1 else np.zeros(1, np.float32)


def make_grid(spec: ActionSpec, levels: int) -> Grid:
    """Every mode with every combination of `levels` values of the parameters it reads."""
    if levels < 1:
        raise ValueError(f"a grid needs at least one level per parameter, not {levels}")
    agents, modes, params = spec.used.shape
    most = max(int(np.sum(levels ** spec.used[i].sum(-1, dtype=np.int64))) for i in range(agents))
    if most > MOST_CELLS:
        raise ValueError(
            f"{levels} levels of up to {int(spec.used.sum(-1).max())} parameters in {modes} modes make a grid of "
            f"{most:,} actions, more than {MOST_CELLS:,}: lower --algo.levels, or take a learner with hybrid actions"
        )
    values = level_values(levels)
    grid = Grid(
        np.zeros((agents, most), np.int32),
        np.zeros((agents, most, params), np.float32),
        np.zeros((agents, most), bool),
    )
    for i in range(agents):
        axes = lambda m, i=i: [values if used else np.zeros(1) for used in spec.used[i, m]]  # noqa: E731
        cells = [(m, unit) for m in range(modes) for unit in product(*axes(m))]
        for g, (m, unit) in enumerate(cells):
            grid.mode[i, g], grid.unit[i, g], grid.exists[i, g] = m, unit, True
    return grid


def grid_mask(grid: Grid, mode_mask: Bool[Array, "*batch N M"]) -> Bool[Array, "*batch N G"]:
    """Cells whose mode is allowed."""
    onehot = grid.mode[..., None] == np.arange(mode_mask.shape[-1])  # [N, G, M]
    return jnp.any(jnp.asarray(onehot) & mode_mask[..., None, :], axis=-1) & jnp.asarray(grid.exists)


def grid_action(spec: ActionSpec, grid: Grid, cell: Int[Array, "N"]) -> HybridAction:
    agents = jnp.arange(cell.shape[-1])
    mode, unit = jnp.asarray(grid.mode)[agents, cell], jnp.asarray(grid.unit)[agents, cell]
    return HybridAction(mode, decode_params(spec, mode, unit))
