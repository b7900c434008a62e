"""The trust-region step under K linearised constraints, solved exactly in the (1+K)-dimensional Gram space.

    maximise g'x   subject to   b_k'x <= c_k (k = 1..K),   x'Hx / 2 <= delta

A solution lies in the span of H^-1 [g, b_1 .. b_K], so with V = [g, B], x = H^-1 V w and gram = V'H^-1 V everything
is said by w: the changes v_i'x are gram @ w and the length x'Hx is w' gram w. Nothing below sees a parameter vector.
Axes: V = 1 + K vectors.

For every one of the 2^K sets A of constraints held with equality the best point is known in closed form: the
shortest y_A with B_A'y = c_A, plus a move along g made orthogonal to B_A up to the trust region. The optimum is one of
these 2^K points (or of the y_A alone, where g lies in the span of B_A), so the best primal-feasible one is the answer;
no multiplier's sign is needed, which is what makes it robust in single precision.

Vectors are scaled to unit H^-1-norm and the trust region to radius 1 first: tolerances then have one meaning, and
constraint gradients of any magnitude are treated alike.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

Scalar = float | Float[Array, ""]

# Beyond this many radii a bound neither binds nor can be met.
FAR = 4.0


class Step(NamedTuple):
    """x = H^-1 [g, B] @ weights."""

    weights: Float[Array, "1+K"]
    feasible: Bool[Array, ""]  # False: the linearised set inside the trust region is empty, and weights are 0
    change: Float[Array, "1+K"]  # predicted first-order change of every signal, v_i'x
    size: Float[Array, ""]  # x'Hx / 2, to be compared with delta


class _Faces(NamedTuple):
    """For each of the 2^K active sets A (rows), in scaled units. y: shortest point with B_A'y = c_A; d: g made
    orthogonal to B_A."""

    usable: Array  # [A] B_A is linearly independent
    y: Array  # [A, K, C] weights of y on B, one column per right-hand side c
    d: Array  # [A, K] weights of B that take g to d, i.e. d = g - B @ d
    slack: Array  # [A, K, C] c_k - b_k'y where inactive
    slope: Array  # [A, K] b_k'd where inactive
    dd: Array  # [A] d'd
    yy: Array  # [A, C, C] inner products of the y of two right-hand sides
    gy: Array  # [A, C] g'y


def constrained_step(
    gram: Float[Array, "V V"],
    budgets: Float[Array, "V-1"],
    delta: Scalar,
    own_length: bool | Bool[Array, ""] = False,
    reach: Scalar = jnp.inf,
) -> Step:
    """The optimum of the problem above; the shortest feasible x where g vanishes. K may be 0.

    With `own_length` x0 = H^-1 g is itself the step that is wished for, and the result is the point of the set that is
    nearest to it: maximise g'x - x'Hx / 2. (Without, a short g is followed as far as the trust region allows, or for
    `reach` of its radius beyond what the budgets ask for.)
    """
    gram = _finite_or_zero(gram)
    radius = jnp.sqrt(2.0 * jnp.asarray(delta, gram.dtype))
    unit, scale = _correlation(gram)
    bounds = _scaled_bounds(budgets, scale[1:], radius)
    f = _faces(unit, bounds[:, None])
    tol = _tolerance(gram.dtype)

    yy, gy, slack = f.yy[:, 0, 0], f.gy[:, 0], f.slack[:, :, 0]
    moves = f.dd > tol  # otherwise g lies in the span of B_A and every point of the face is as good
    stride = jnp.where(moves, jnp.sqrt(jnp.maximum(1.0 - yy, 0.0) / jnp.where(moves, f.dd, 1.0)), 0.0)
    wish = jnp.sqrt(jnp.maximum(gram[0, 0], 0.0)) / jnp.maximum(radius, jnp.finfo(gram.dtype).tiny)  # |x0| in radii
    wish = jnp.where(own_length, wish, jnp.inf)
    stride = jnp.minimum(stride, jnp.minimum(wish, reach / jnp.sqrt(jnp.where(moves, f.dd, 1.0))))
    stride = jnp.concatenate([stride, jnp.zeros_like(stride)])  # all y_A + stride d_A, then all y_A

    def twice(a: Array) -> Array:
        return jnp.concatenate([a, a])

    inside = jnp.all(twice(slack) - stride[:, None] * twice(f.slope) >= -tol, axis=1)
    valid = inside & twice(f.usable & (yy <= 1.0 + tol)) & jnp.all(jnp.isfinite(budgets) | (budgets > 0))
    length = twice(yy) + stride**2 * twice(f.dd)
    gain = jnp.where(valid, twice(gy) + stride * twice(f.dd) - 0.5 * length / jnp.maximum(wish, 1e-3), -jnp.inf)
    # among equally good points the shortest
    near_best = valid & (gain >= jnp.max(gain) - 10.0 * jnp.finfo(gram.dtype).eps)
    best = jnp.argmin(jnp.where(near_best, length, jnp.inf))

    on_b = twice(f.y[:, :, 0]) - stride[:, None] * twice(f.d)
    found = jnp.any(valid)
    scaled = jnp.where(found, jnp.concatenate([stride[best][None], on_b[best]]), 0.0)
    return _step(gram, radius * scale * scaled, found)


def recovery(gram: Float[Array, "V V"], budgets: Float[Array, "V-1"], delta: Scalar) -> Step:
    """The natural step that lowers the violated costs (budget < 0), for when asking for the budgets is hopeless.

        maximise  - sum_violated b_k'x / |b_k|   subject to   b_k'x <= max(c_k, 0) for all k,   x'Hx / 2 <= delta

    then shortened to where every violated cost has reached its target c_k, if that is nearer than the trust region.
    Satisfied costs keep their budgets, and no violated cost is traded for another.
    """
    gram = _finite_or_zero(gram)
    _, scale = _correlation(gram)
    violated = budgets < 0
    descent = jnp.where(violated, -scale[1:], 0.0)
    basis = jnp.eye(gram.shape[0], dtype=gram.dtype).at[0, 0].set(0.0).at[1:, 0].set(descent)
    step = constrained_step(basis.T @ gram @ basis, jnp.maximum(budgets, 0.0), delta)
    weights = basis @ step.weights
    change = (gram @ weights)[1:]
    can_fall = violated & (scale[1:] > 0)
    # share of the step at which each target is met; never (inf) if the step does not lower that cost
    needed = jnp.where(change < 0, budgets / jnp.where(change < 0, change, -1.0), jnp.inf)
    share = jnp.minimum(jnp.max(jnp.where(can_fall, needed, 0.0), initial=0.0), 1.0)
    return _step(gram, share * weights, step.feasible)


def single_clip(
    gram_bb: Float[Array, "K K"], budgets: Float[Array, "K"], delta: Scalar, margin: Scalar
) -> Float[Array, "K"]:
    """No demand above what its own gradient can give: c_k >= -(1 - margin) sqrt(2 delta b_k'H^-1 b_k).

    Without it one hopeless demand takes the common share of `joint_clip` from all others.
    """
    reach = jnp.sqrt(2.0 * delta * jnp.maximum(jnp.diagonal(gram_bb), 0.0))
    return jnp.maximum(budgets, -(1.0 - margin) * reach)


def joint_clip(
    gram_bb: Float[Array, "K K"], budgets: Float[Array, "K"], delta: Scalar, margin: Scalar
) -> tuple[Float[Array, ""], Float[Array, "K"]]:
    """(t, clipped budgets): the largest common share t in [0, 1] of the demanded decreases (budgets c_k < 0) for which

        { x : b_k'x <= t c_k if c_k < 0 else c_k }  meets  { x : sqrt(x'Hx) <= (1 - margin) sqrt(2 delta) }.

    Exact, not a bisection: the set of such t is an interval from 0, its end is attained by the shortest point of some
    active set, and for each active set that point is linear in t. A demand whose gradient vanishes is dropped, since
    nothing this agent does can meet it.
    """
    gram_bb = _finite_or_zero(gram_bb)
    radius = jnp.sqrt(2.0 * jnp.asarray(delta, gram_bb.dtype)) * (1.0 - margin)
    unit, scale = _correlation(jnp.pad(gram_bb, ((1, 0), (1, 0))))
    budgets = jnp.where(scale[1:] > 0, budgets, jnp.maximum(budgets, 0.0))
    # demands may be any number of radii large; the share of unit-sized demands is found first
    demands = jnp.where(budgets < 0, budgets, 0.0)
    bound = jnp.maximum(demands * scale[1:] / jnp.maximum(radius, jnp.finfo(gram_bb.dtype).tiny), -1e12)
    largest = jnp.maximum(jnp.max(-bound, initial=0.0), 1.0)
    fixed = _scaled_bounds(jnp.where(budgets > 0, budgets, 0.0), scale[1:], radius)
    f = _faces(unit, jnp.stack([fixed, bound / largest], axis=1))

    tol = _tolerance(gram_bb.dtype)
    start, slope = f.slack[:, :, 0] + tol, f.slack[:, :, 1]
    crossing = -start / jnp.where(slope == 0, 1.0, slope)
    upper = jnp.min(jnp.where(slope < 0, crossing, jnp.inf), axis=1, initial=jnp.inf)
    lower = jnp.max(jnp.where(slope > 0, crossing, 0.0), axis=1, initial=0.0)
    never = jnp.any((slope == 0) & (start < 0), axis=1)
    # |y(t)|^2 = a t^2 + 2 b t + c + 1 <= 1; a = 0 only if no demand is active, and then b = 0 as well
    a, b, c = f.yy[:, 1, 1], f.yy[:, 0, 1], f.yy[:, 0, 0] - 1.0
    curved = a > jnp.finfo(gram_bb.dtype).tiny
    reachable = jnp.where(curved, b * b >= a * c, c <= 0)
    root, a = jnp.sqrt(jnp.maximum(b * b - a * c, 0.0)), jnp.where(curved, a, 1.0)
    upper = jnp.minimum(upper, jnp.where(curved, (root - b) / a, jnp.inf))
    lower = jnp.maximum(lower, jnp.where(curved, (-root - b) / a, 0.0))
    valid = f.usable & ~never & reachable & (lower <= upper)
    share = jnp.clip(jnp.max(jnp.where(valid, upper, 0.0)) / largest, 0.0, 1.0)
    return share, jnp.where(budgets < 0, share * budgets, budgets)


def multipliers(gram: Float[Array, "V V"], budgets: Float[Array, "V-1"], delta: Scalar) -> Float[Array, "V-1"]:
    """What a unit of each cost is worth in reward where the policy stands: the non-negative p with the smallest

        (g - B p)' H^-1 (g - B p),        p_k = 0 where no step within the trust region can use budget k up.

    At a constrained optimum the remainder vanishes and p are its Lagrange multipliers. They are those of the step for
    budgets of zero, and unlike its own stay defined where g and B are parallel, as they are there.
    """
    gram = _finite_or_zero(gram)
    unit, scale = _correlation(gram)
    near = _scaled_bounds(budgets, scale[1:], jnp.sqrt(2.0 * jnp.asarray(delta, gram.dtype))) < 1.0
    f = _faces(unit, jnp.zeros((unit.shape[0] - 1, 1), unit.dtype))
    valid = f.usable & jnp.all((f.d == 0.0) | ((f.d > 0.0) & near), axis=1)
    best = jnp.argmin(jnp.where(valid, f.dd, jnp.inf))
    of_unit = jnp.where(scale[0] > 0, 1.0 / jnp.where(scale[0] > 0, scale[0], 1.0), 0.0)
    return f.d[best] * scale[1:] * of_unit


def _faces(unit: Float[Array, "V V"], bounds: Float[Array, "V-1 C"]) -> _Faces:
    """Sweep the bordered matrix [[B'B, B'g, c], [g'B, g'g, 0], [c', 0, 0]] on each active set.

    Sweeping the rows A replaces, in one pass, B_A'B_A by its inverse, the borders by the solutions of the normal
    equations, and the corners by Schur complements: all that a face needs.
    """
    num = bounds.shape[0]
    table = jnp.block(
        [
            [unit[1:, 1:], unit[1:, :1], bounds],
            [unit[:1, 1:], unit[:1, :1], jnp.zeros((1, bounds.shape[1]), unit.dtype)],
            [bounds.T, jnp.zeros((bounds.shape[1], 1 + bounds.shape[1]), unit.dtype)],
        ]
    )
    active = (np.arange(2**num)[:, None] >> np.arange(num)) % 2 == 1
    tol = _tolerance(unit.dtype)

    def sweep(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        table, usable = carry
        wanted, column = jnp.asarray(active)[:, k], table[:, k]
        pivot = column[:, k]  # what is left of b_k after the active ones before it
        swept = wanted & (pivot > tol)
        # one symmetric rank-one update does it all: m_ij - m_ik m_kj / p, m_ik / p, and -1 / p at the pivot
        mark = (jnp.arange(table.shape[1]) == k).astype(unit.dtype)
        column = column - mark
        inverse = jnp.where(swept, 1.0 / jnp.where(swept, pivot, 1.0), 0.0)[:, None, None]
        update = inverse * column[:, :, None] * column[:, None, :]
        corner = jnp.where(swept, 2.0, 0.0)[:, None, None] * mark[:, None] * mark
        return table - update - corner, usable & (swept == wanted)

    table, usable = jnp.broadcast_to(table, (2**num, *table.shape)), jnp.ones(2**num, bool)
    if num > 0:
        table, usable = jax.lax.fori_loop(0, num, sweep, (table, usable))
    on, off = table[:, :num, num + 1 :], table[:, :num, num]
    return _Faces(
        usable=usable,
        y=jnp.where(active[:, :, None], on, 0.0),
        d=jnp.where(active, off, 0.0),
        slack=jnp.where(active[:, :, None], 0.0, on),
        slope=jnp.where(active, 0.0, off),
        dd=jnp.maximum(table[:, num, num], 0.0),
        yy=-table[:, num + 1 :, num + 1 :],
        gy=-table[:, num, num + 1 :],
    )


def _correlation(gram: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, "n"]]:
    """(gram of the unit vectors, their scale 1 / |v|); a vanishing vector has scale 0 and stays zero."""
    square = jnp.diagonal(gram)
    alive = square > jnp.finfo(gram.dtype).tiny
    scale = jnp.where(alive, 1.0 / jnp.sqrt(jnp.where(alive, square, 1.0)), 0.0)
    unit = 0.5 * (gram + gram.T) * scale[:, None] * scale
    off_diagonal = jnp.clip(unit, -1.0, 1.0) * (1.0 - jnp.eye(len(scale), dtype=gram.dtype))
    return off_diagonal + jnp.diag(alive.astype(gram.dtype)), scale


def _scaled_bounds(budgets: Array, scale: Array, radius: Array) -> Array:
    """Budgets as signed distances in units of the radius; a vanishing gradient cannot bind, nor meet a demand."""
    tiny = jnp.finfo(scale.dtype).tiny
    distance = jnp.where(scale > 0, budgets * scale / jnp.maximum(radius, tiny), jnp.where(budgets < 0, -FAR, FAR))
    return jnp.clip(distance, -FAR, FAR)


def _step(gram: Array, weights: Array, feasible: Array) -> Step:
    change = gram @ weights
    return Step(weights, feasible, change, 0.5 * weights @ change)


def _finite_or_zero(gram: Array) -> Array:
    """A solver that blew up gives no information: treat every gradient as vanished rather than pass on a NaN."""
    return jnp.where(jnp.all(jnp.isfinite(gram)), gram, 0.0)


def _tolerance(dtype: np.dtype) -> float:
    """7e-5 in single, 4e-10 in double precision, in units of unit vectors and the trust region's radius."""
    return float(jnp.finfo(dtype).eps) ** 0.6
