"""The closed-form value of an action, Q_phys, and its few weights.

    Q_phys,j  = immediate_j + gamma / (1 - gamma) (k_j next_step_j + h_j current_j + l_j),   j = 0 (reward), 1..K
    immediate = signals(s, a)
    next_step = signals(s', nominal(s')),   s' = predict(s, a)
    current   = signals(s, nominal(s))

The closed form of one step is exact about the action's immediate effect. What follows is valued by how well the system
stands under the nominal controller, after the action (`next_step`) and in any case (`current`). Two weights, because
they answer different questions: good places stay good for long, but what one action gains in place could be had a
little later too. With `next_step` alone the value's level would be right and its gradient in the action exaggerated
several times. Data cannot tell the two apart, for one action moves a system by little and `next_step` is nearly
`current`. The closed form can: if a share rho of what an action changes one step on is still there two steps on under
the nominal controller, then what it changes is worth gamma (1 + gamma rho + ...) times the change, and k is at most (1
- gamma) / (1 - gamma rho); so it is where the reward's direction is the closed form's alone (source=closed-form). k, h,
l are fitted by least squares on early data, then frozen. Without physics only the level l_j remains. As printed
(`OneStep`) Q_phys is `immediate` alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trident.maths.batching import map_batches
from trident.maths.returns import discounted_tail
from trident.types import BulkPhysics, HybridAction, Physics

Discount = Float[Array, "J"]
"""Of the reward and of every cost: costs that follow at once from an action are better valued at a short horizon."""


class OneStep(Physics):
    """A closed form of this step alone: nothing is said of what follows, and nothing of it is computed."""


class PhysicsFit(NamedTuple):
    """Weights of the closed form, frozen after the first rounds; [1 + K] each."""

    next_step: Float[Array, "J"]
    current: Float[Array, "J"]
    level: Float[Array, "J"]
    unit: Float[Array, "J"]


class Parts(NamedTuple):
    """The closed form of one state and joint action."""

    immediate: Float[Array, "*batch J"]
    next_step: Float[Array, "*batch J"]
    current: Float[Array, "*batch J"]


class FitSums(NamedTuple):
    """Normal equations of the least-squares fit and of how long changes last, summed over rounds."""

    gram: Float[Array, "J 3 3"]
    moment: Float[Array, "J 3"]
    lasting: Float[Array, "J 2"]


def physics_parts(
    physics: Physics | None, num_signals: int, state: Float[Array, "B S"], action: HybridAction, current: bool = True
) -> Parts:
    """Of B states and joint actions, or of several actions in every state [B, M]; zeros without physics. `current` is
    the
    same for every action, so whoever compares actions, or knows it already, may leave it out (it is zero then)."""
    zeros = jnp.zeros((*action.mode.shape[:-1], num_signals))
    if physics is None:
        return Parts(zeros, zeros, zeros)
    bulk, one_step = in_bulk(physics), isinstance(physics, OneStep)

    def some(rows: tuple[Array, HybridAction]) -> Parts:
        # Three calls instead of one on concatenated rows: what they have in common (who serves whom here, say) is
        # found once, and no operation must ask of every number which of the parts it comes from.
        place = bulk.read(rows[0])

        def of_action(action: HybridAction) -> Parts:
            done = bulk.take(place, action)
            immediate = bulk.signals(place, done)
            nothing = jnp.zeros_like(immediate)
            if one_step:
                return Parts(immediate, nothing, nothing)
            next_step = _nominal_signals(bulk, bulk.predict(place, done))
            return Parts(immediate, next_step, _nominal_signals(bulk, place) if current else nothing)

        several = rows[1].mode.ndim == 3
        return jax.vmap(of_action, 1, 1)(rows[1]) if several else of_action(rows[1])

    return map_batches(some, (state, action), bulk.rows * state.shape[0] // zeros[..., 0].size, bulk.group)


def current_signals(physics: Physics | None, num_signals: int, state: Float[Array, "B S"]) -> Float[Array, "B J"]:
    """The part that no action changes."""
    if physics is None or isinstance(physics, OneStep):
        return jnp.zeros((state.shape[0], num_signals))
    bulk = in_bulk(physics)
    return map_batches(lambda rows: _nominal_signals(bulk, bulk.read(rows)), state, bulk.rows, bulk.group)


def in_bulk(physics: Physics) -> BulkPhysics:
    """As the environment says it for many rows, or row by row."""
    p = physics
    by_row = BulkPhysics(lambda s: s, lambda s, a: a, jax.vmap(p.signals), jax.vmap(p.predict), jax.vmap(p.nominal))
    return physics.bulk or by_row


def _nominal_signals(bulk: BulkPhysics, place: Any) -> Float[Array, "B J"]:
    return bulk.signals(place, bulk.nominal(place))


FEW = 512
"""States that are enough where nothing is random."""


def q_phys(fit: PhysicsFit, parts: Parts, discount: Discount) -> Float[Array, "*batch J"]:
    return parts.immediate + discount / (1.0 - discount) * (
        fit.next_step * parts.next_step + fit.current * parts.current + fit.level
    )


def persistence_sums(
    physics: Physics | None, num_signals: int, state: Array, action: HybridAction
) -> Float[Array, "J 2"]:
    """Over B states: what actions change in comparison with nominal ones two steps on and one step on, d2 d1 and d1^2,
    if everyone follows the nominal controller after them."""
    if physics is None or isinstance(physics, OneStep):
        return jnp.zeros((num_signals, 2))
    batch = min(state.shape[0], FEW)
    stride = state.shape[0] // batch
    rows = jax.tree.map(lambda x: x[::stride][:batch], (state, action))
    bulk = in_bulk(physics)

    start = bulk.read(rows[0])

    def follow_nominal(carry: list[tuple[Any, Any]], _: None) -> tuple[list[tuple[Any, Any]], Array]:
        places = [bulk.predict(place, doing) for place, doing in carry]
        carry = [(place, bulk.nominal(place)) for place in places]
        after, otherwise = (bulk.signals(*standing) for standing in carry)
        return carry, after - otherwise

    _, (first, second) = jax.lax.scan(
        follow_nominal, [(start, bulk.take(start, rows[1])), (start, bulk.nominal(start))], length=2
    )
    return jnp.stack([(second * first).sum(0), (first * first).sum(0)], axis=-1)


def fit_sums(
    signals: Float[Array, "T E J"],
    ended: Bool[Array, "T E"],
    parts: Parts,
    discount: Discount,
    lasting: Float[Array, "J 2"] | float = 0.0,
) -> FitSums:
    """Of the regression of (return - immediate) on w (next_step, current, 1), w the discounted number of future steps
    in the return:
    rollouts end before their returns do, and the fit must not mistake that for a small weight."""
    total, weight = discounted_tail(signals, ended, discount)
    features = jnp.stack([parts.next_step, parts.current, jnp.ones_like(parts.next_step)], axis=-1) * weight[..., None]
    return FitSums(
        jnp.einsum("teja,tejb->jab", features, features),
        jnp.einsum("teja,tej->ja", features, total - parts.immediate),
        jnp.broadcast_to(lasting, (signals.shape[-1], 2)),
    )


def max_next_weight(sums: FitSums, discount: Discount) -> Float[Array, "J"]:
    """(1 - gamma) / (1 - gamma rho), the weight of `next_step` whose gradient is right if changes last as long as the
    closed form says; 1 if actions change nothing there."""
    change, last = sums.lasting[:, 1], sums.lasting[:, 0]
    rho = jnp.clip(last / jnp.where(change > 0.0, change, 1.0), 0.0, 1.0)
    return jnp.where(change > 0.0, (1.0 - discount) / (1.0 - discount * rho), 1.0)


def fit_physics(sums: FitSums, unit: Float[Array, "J"], discount: Discount) -> PhysicsFit:
    """Least squares with both weights between 0 and 1: physics may be worth little, never less than nothing; and that
    of `next_step` no larger than what actions change lasts."""
    diagonal = jnp.diagonal(sums.gram, axis1=-2, axis2=-1)
    ridge = jax.vmap(jnp.diag)(1e-4 * diagonal + 1e-6)
    gram = sums.gram + ridge

    def solve(free: int, known: Array) -> Array:
        """The first of the unknowns from `free` on, those before it being known."""
        right = sums.moment[:, free:] - jnp.einsum("jab,jb->ja", gram[:, free:, :free], known)
        return jnp.linalg.solve(gram[:, free:, free:], right[..., None])[:, 0, 0]

    next_step = jnp.clip(solve(0, sums.moment[:, :0]), 0.0, max_next_weight(sums, discount))
    current = jnp.clip(solve(1, next_step[:, None]), 0.0, 1.0)
    level = solve(2, jnp.stack([next_step, current], axis=-1))
    return PhysicsFit(next_step, current, level, unit)


def spread(signals: Float[Array, "T E J"], ended: Bool[Array, "T E"], discount: Discount) -> Float[Array, "J"]:
    """Standard deviation of the returns, never below what one rare event is worth."""
    total, _ = discounted_tail(signals, ended, discount)
    return jnp.maximum(jnp.std(total[: max(total.shape[0] // 2, 1)], axis=(0, 1)), 0.1)


def r2_phys(
    fit: PhysicsFit, signals: Float[Array, "T E J"], ended: Bool[Array, "T E"], parts: Parts, discount: Discount
) -> Float[Array, "J"]:
    """1 - Var[G - Q_phys] / Var[G] on the first half of the rollout, G and Q_phys cut at the same horizon.

    A return is the longer the earlier it starts, and that is nothing which physics explains: of G what a constant
    mean signal would give over the same steps is taken off, so that such a closed form has an R2 of zero.
    """
    total, weight = discounted_tail(signals, ended, discount)
    future = fit.next_step * parts.next_step + fit.current * parts.current + fit.level
    error = total - parts.immediate - weight * future
    varying = total - (1.0 + weight) * jnp.mean(signals, axis=(0, 1))
    half = max(signals.shape[0] // 2, 1)
    return 1.0 - jnp.var(error[:half], axis=(0, 1)) / jnp.maximum(jnp.var(varying[:half], axis=(0, 1)), 1e-8)
