"""SHA: the surrogate of one agent's hybrid policy, seen through the critics (pathwise) and through advantages (score).

    L_j(theta) = E_s[ sum_r w_r(theta) Q_j(s, (y_r(theta), x_r(theta)), a_-i) ] + E_D[ rho(theta) W_j ],    j = 0..K

(w_r, y_r) are weighted relaxations of agent i's mode by a discrete-gradient estimator, x_r the squashed parameters
that go with them; the other agents act as their current policies do. rho = pi_theta / pi_old on the rollout and W_j
an advantage (zero for the purely pathwise surrogate). All J = 1 + K surrogates share every forward pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trident.critics import Critics, PhysicsFit, critic_input, physics_parts, q_phys, residual
from trident.maths import hybrid
from trident.maths.discrete_gradient import relaxations
from trident.nets import actor_apply
from trident.types import ActionSpec, HybridAction, Physics, decode_params


class Scene(NamedTuple):
    """A batch of states in which one agent's policy is judged; noise is fixed, so that old and new policy share it."""

    state: Float[Array, "B S"]
    obs: Float[Array, "B N O"]
    mode_mask: Array  # [B, N, M]
    alive: Array  # [B, N]
    gumbel: Float[Array, "B N M"]
    noise: Float[Array, "B N P"]
    mode: Int[Array, "B N"]  # what was really done there, and how likely it was
    raw: Float[Array, "B N P"]
    log_prob: Float[Array, "B N"]
    advantage: Float[Array, "B J"]  # W, zero for the purely pathwise surrogate


class Joint(NamedTuple):
    """What all agents do in a scene: their actions, and the same as the critics read them."""

    action: HybridAction
    encoded: Float[Array, "B N A"]


class Choice(NamedTuple):
    """What agent i's policy offers the critics: R weighted relaxations and the parameters of every mode."""

    weight: Float[Array, "B R"]
    sample: Float[Array, "B R M"]
    unit: Float[Array, "B M P"]


class CriticView(NamedTuple):
    """How agent i's choice is valued: closures over critics, physics and the other agents' actions."""

    value: Any  # Choice -> [B, J]
    slope: Any  # Choice -> ([B, J], d value_j / d Choice for every j)


def act_with_noise(spec: ActionSpec, dist: hybrid.HybridDist, scene: Scene) -> Joint:
    """The agents' sampled actions as a smooth function of their policies' parameters, given the scene's noise."""
    perturbed = jnp.where(scene.mode_mask, dist.logits + scene.gumbel, -jnp.inf)
    mode = jnp.argmax(perturbed, axis=-1)
    onehot = jax.nn.one_hot(mode, spec.num_modes)
    unit = jnp.tanh(dist.mean + jnp.exp(dist.log_std) * scene.noise[..., None, :]) * spec.used
    unit = jnp.sum(unit * onehot[..., None], axis=-2)
    return Joint(HybridAction(mode, decode_params(spec, mode, unit)), jnp.concatenate([onehot, unit], axis=-1))


def choose(
    estimator: str, tau: Any, tau0: float, kappa: float, used: Any, agent: Any, scene: Scene, actor: Any
) -> Choice:
    """Agent i's policy -> the relaxations of its mode and the parameters of each mode."""
    dist = actor_apply(actor, scene.obs[:, agent])
    unit = jnp.tanh(dist.mean + jnp.exp(dist.log_std) * scene.noise[:, agent, None, :]) * used
    relax = lambda l, m, g: relaxations(estimator, l, m, g, tau, tau0=tau0, kappa=kappa)  # noqa: E731
    weight, sample = jax.vmap(relax)(dist.logits, scene.mode_mask[:, agent], scene.gumbel[:, agent])
    return Choice(weight, sample, unit)


def through_advantages(
    used: Any, scene: Scene, agent: Any, others_log_prob: Float[Array, "B N"], actor: Any
) -> Float[Array, "B J"]:
    """rho_i M W: agent i's ratio on the actions of the rollout, times M, those of all others as they are now."""
    log_prob = hybrid.log_prob(
        actor_apply(actor, scene.obs[:, agent]),
        scene.mode_mask[:, agent],
        used,
        scene.mode[:, agent],
        scene.raw[:, agent],
    )
    drift = jnp.where(scene.alive, others_log_prob - scene.log_prob, 0.0).at[:, agent].set(0.0)
    ratio = jnp.exp(log_prob - scene.log_prob[:, agent] + jnp.sum(drift, axis=-1))
    return ratio[:, None] * scene.advantage


def through_critics(
    critics: Critics,
    fit: PhysicsFit,
    physics: Physics | None,
    spec: ActionSpec,
    discount: float,
    scene: Scene,
    joint: Joint,
    agent: Int[Array, ""],
    num_signals: int,
) -> CriticView:
    """Value (and slope) of agent i's choice, everyone else acting as in `joint`.

    The residual network reads the relaxed mode and the parameters mixed accordingly; the closed form is evaluated at
    every mode and mixed linearly. The slope costs one backward pass of each network, however many signals there are.
    """
    phys = lambda unit: _physics_of_modes(  # noqa: E731
        physics, fit, spec, discount, scene.state, joint.action, agent, unit, num_signals
    )

    def networks_input(choice: Choice) -> Array:
        mixed = jnp.einsum("brm,bmp->brp", choice.sample, choice.unit)
        mine = jnp.concatenate([choice.sample, mixed], axis=-1)  # [B, R, A]
        encoded = jnp.broadcast_to(joint.encoded[:, None], (*mine.shape[:2], *joint.encoded.shape[1:]))
        encoded = encoded.at[:, :, agent].set(mine)
        wide = lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], mine.shape[1], *x.shape[1:]))  # noqa: E731
        return critic_input(wide(scene.state), wide(scene.obs), encoded)

    def total(choice: Choice, learned: Array, closed: Array) -> Array:
        mixed = learned + jnp.einsum("brm,bmj->brj", choice.sample, closed)
        return jnp.einsum("br,brj->bj", choice.weight, mixed)

    def value(choice: Choice) -> Array:
        return total(choice, residual(critics, networks_input(choice)) * fit.unit, phys(choice.unit))

    def slope(choice: Choice) -> tuple[Array, Choice]:
        x, back = jax.vjp(networks_input, choice)
        learned, dq_dx = _residual_slopes(critics, x)
        learned, dq_dx = learned * fit.unit, dq_dx * fit.unit[:, None, None, None]
        closed, dclosed = _physics_slopes(phys, choice.unit)
        out, pull = jax.vjp(total, choice, learned, closed)

        def of_signal(j: Array) -> Choice:
            cotangent = jnp.zeros_like(out).at[:, j].set(1.0)
            direct, d_learned, d_closed = pull(cotangent)
            (via_x,) = back(d_learned[..., j, None] * dq_dx[j])
            via_phys = d_closed[..., j, None] * dclosed[j]
            summed = jax.tree.map(jnp.add, direct, via_x)
            return summed._replace(unit=summed.unit + via_phys)

        return out, jax.vmap(of_signal)(jnp.arange(num_signals))

    return CriticView(value, slope)


def _residual_slopes(critics: Critics, x: Array) -> tuple[Array, Array]:
    """Q_res [B, R, J] and d Q_res,j / dx [J, B, R, X]. Rows are independent: the gradient of the sum is all of them."""
    value_and_slope = lambda net: jax.value_and_grad(lambda y: _summed(net, y), has_aux=True)(x)  # noqa: E731
    (_, reward), d_reward = value_and_slope(critics.reward)
    if critics.cost is None:
        return reward[..., None], d_reward[None]
    (_, cost), d_cost = jax.vmap(value_and_slope)(critics.cost)
    stacked = jnp.concatenate([reward[None], cost])
    return jnp.moveaxis(stacked, 0, -1), jnp.concatenate([d_reward[None], d_cost])


def _summed(net: Any, x: Array) -> tuple[Array, Array]:
    q = residual(Critics(net, None), x)[..., 0]
    return jnp.sum(q), q


def _physics_of_modes(
    physics: Physics | None, fit: PhysicsFit, spec: ActionSpec, discount: float,
    state: Array, action: HybridAction, agent: Any, unit: Array, num_signals: int,
) -> Array:  # fmt: skip
    """Q_phys of every mode of agent i with that mode's parameters, [B, M, J]."""
    if physics is None:
        level = discount / (1.0 - discount) * fit.level
        return jnp.broadcast_to(level, (*unit.shape[:2], num_signals))
    modes = jnp.arange(spec.num_modes)

    def one(s: Array, a: HybridAction, mode: Array, u: Array) -> Array:
        joint_mode = a.mode.at[agent].set(mode)
        mine = decode_params(spec, joint_mode, jnp.broadcast_to(u, a.params.shape))[agent]
        changed = HybridAction(joint_mode, a.params.at[agent].set(mine))
        return q_phys(fit, *physics_parts(physics, num_signals, s, changed), discount)

    per_state = jax.vmap(one, in_axes=(None, None, 0, 0))
    return jax.vmap(per_state, in_axes=(0, 0, None, 0))(state, action, modes, unit)


def _physics_slopes(phys: Any, unit: Array) -> tuple[Array, Array]:
    """Q_phys [B, M, J] and d Q_phys,j / d unit [J, B, M, P]: one forward derivative per parameter, since rows are
    independent; the value is computed along with them."""

    def along(p: Array) -> tuple[Array, Array]:
        tangent = jnp.zeros_like(unit).at[..., p].set(1.0)
        return jax.jvp(phys, (unit,), (tangent,))

    if unit.shape[-1] == 0:
        closed = phys(unit)
        return closed, jnp.zeros((closed.shape[-1], *unit.shape))
    closed, slopes = jax.vmap(along, out_axes=(None, -1))(jnp.arange(unit.shape[-1]))
    return closed, jnp.moveaxis(slopes, 2, 0)
