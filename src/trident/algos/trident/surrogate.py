"""SHA: the surrogate of one agent's hybrid policy, seen through the critics (pathwise), and the ratios of probabilities
that a surrogate of advantages is made of (score).

    L_j(theta) = E_s[ sum_r w_r(theta) Q_j(s, (y_r(theta), x_r(theta)), a_-i) ],    j = 0..K

(w_r, y_r) are weighted relaxations of agent i's mode by a discrete-gradient estimator, x_r the squashed parameters
that go with them; the other agents act as their current policies do. All J = 1 + K surrogates share every forward pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trident.algos.common.actor import BaseOffset, actor_apply, actors_apply
from trident.algos.common.inputs import q_input
from trident.algos.trident.critics import Critics
from trident.maths import hybrid
from trident.maths.discrete_gradient import relaxations
from trident.nets import mlp_after_first
from trident.physics_value import PhysicsFit, physics_parts, q_phys
from trident.types import ActionSpec, HybridAction, Physics, decode_params


class Scene(NamedTuple):
    """A batch of states in which one agent's policy is judged; noise is fixed, so that old and new policy share it."""

    state: Float[Array, "B S"]
    obs: Float[Array, "B N O"]
    mode_mask: Array  # [B, N, M]
    alive: Array  # [B, N]
    weight: Float[Array, "B"]  # sums to one
    gumbel: Float[Array, "B N M"]
    noise: Float[Array, "B N P"]
    base_offset: BaseOffset | None = None  # what a base policy adds to the policies in these states


class RolloutBatch(NamedTuple):
    """What was really done in a round, how likely it was, and how well it turned out."""

    obs: Float[Array, "B N O"]
    mode_mask: Array  # [B, N, M]
    alive: Array  # [B, N]
    mode: Int[Array, "B N"]
    raw: Float[Array, "B N P"]
    log_prob: Float[Array, "B N"]
    advantage: Float[Array, "B"]
    base_offset: BaseOffset | None = None


def policies(actors: Any, rows: Scene | RolloutBatch) -> hybrid.HybridDist:
    """Of all agents, [B, N, ...]."""
    return actors_apply(actors, rows.obs, rows.base_offset)


def policy(actor: Any, rows: Scene | RolloutBatch, agent: Any) -> hybrid.HybridDist:
    """Of one agent."""
    return actor_apply(actor, *jax.tree.map(lambda x: x[:, agent], (rows.obs, rows.base_offset)))


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
    action_grad: Any  # Choice -> ([B, J], d value_j / d Choice for every j)


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
    dist = policy(actor, scene, agent)
    unit = jnp.tanh(dist.mean + jnp.exp(dist.log_std) * scene.noise[:, agent, None, :]) * used
    relax = lambda l, m, g: relaxations(estimator, l, m, g, tau, tau0=tau0, kappa=kappa)  # noqa: E731
    weight, sample = jax.vmap(relax)(dist.logits, scene.mode_mask[:, agent], scene.gumbel[:, agent])
    return Choice(weight, sample, unit)


def ratios(used: Any, taken: RolloutBatch, actors: Any, agent: Any) -> tuple[Any, Float[Array, "B"]]:
    """pi_theta / pi_old of agent i as a function of (its parameters, rows), and that of all others as they are now."""
    now = hybrid.log_prob(policies(actors, taken), taken.mode_mask, used, taken.mode, taken.raw)
    drift = jnp.where(taken.alive, now - taken.log_prob, 0.0).at[:, agent].set(0.0)

    def mine(actor: Any, rows: RolloutBatch) -> Array:
        dist = policy(actor, rows, agent)
        new = hybrid.log_prob(dist, rows.mode_mask[:, agent], used[agent], rows.mode[:, agent], rows.raw[:, agent])
        return jnp.exp(new - rows.log_prob[:, agent])

    return mine, jnp.exp(jnp.sum(drift, axis=-1))


def through_critics(
    critics: Critics,
    fit: PhysicsFit,
    physics: Physics | None,
    spec: ActionSpec,
    discount: Float[Array, "J"],
    scene: Scene,
    joint: Joint,
    agent: Int[Array, ""],
    num_signals: int,
) -> CriticView:
    """Value (and gradient) of agent i's choice, everyone else acting as in `joint`.

    The residual networks read the relaxed mode, and the parameters mixed accordingly; the closed form is evaluated at
    every mode and mixed linearly. Only agent i's action differs between relaxations and candidates, so the first
    layers' sums over all other inputs are formed once; the gradient costs one backward pass of each network.
    """
    phys = lambda unit: physics_of_modes(  # noqa: E731
        physics, fit, spec, discount, scene.state, joint.action, agent, unit, num_signals
    )
    stack = _slots(critics, scene, joint, agent)

    def my_input(choice: Choice) -> Array:
        mixed = jnp.einsum("brm,bmp->brp", choice.sample, choice.unit)
        return jnp.concatenate([choice.sample, mixed], axis=-1)  # [B, R, A]

    def total(choice: Choice, learned: Array, closed: Array) -> Array:
        mixed = learned + jnp.einsum("brm,bmj->brj", choice.sample, closed)
        return jnp.einsum("br,brj->bj", choice.weight, mixed)

    def value(choice: Choice) -> Array:
        mine = my_input(choice)
        learned = jnp.concatenate([jax.vmap(_slot_value, in_axes=(0, None))(slot, mine) for slot in stack])
        return total(choice, jnp.moveaxis(learned, 0, -1) * fit.unit, phys(choice.unit))

    def action_grad(choice: Choice) -> tuple[Array, Choice]:
        closed, d_closed = physics_gradients(phys, choice.unit)
        mine, back = jax.vjp(my_input, choice)
        values, action_grads = zip(
            *(jax.vmap(_slot_gradient, in_axes=(0, None))(slot, mine) for slot in stack), strict=True
        )
        learned = jnp.moveaxis(jnp.concatenate(values), 0, -1) * fit.unit
        dq = jnp.concatenate(action_grads) * fit.unit[:, None, None, None]  # [J, B, R, A]
        out, pull = jax.vjp(total, choice, learned, closed)

        def of_signal(j: Array) -> Choice:
            direct, to_learned, to_closed = pull(jnp.zeros_like(out).at[:, j].set(1.0))
            (via_networks,) = back(to_learned[..., j, None] * dq[j])
            summed = jax.tree.map(jnp.add, direct, via_networks)
            via_physics = jnp.einsum("bmj,pbmj->bmp", to_closed, d_closed)
            return summed._replace(unit=summed.unit + via_physics)

        return out, jax.vmap(of_signal)(jnp.arange(num_signals))

    return CriticView(value, action_grad)


class Slot(NamedTuple):
    """One network as a function of agent i's action."""

    net: Any
    rest: Float[Array, "*stack B H"]  # the first layer's sum over everything else
    weight: Float[Array, "*stack A H"]  # the first layer's rows of agent i's action


def _slots(critics: Critics, scene: Scene, joint: Joint, agent: Int[Array, ""]) -> list[Slot]:
    """The reward's network and the costs', each as a stack."""
    agents, width = joint.encoded.shape[-2:]
    rest = q_input(scene.state, scene.obs, joint.encoded.at[:, agent].set(0.0))
    offset = rest.shape[-1] - agents * width + agent * width

    def slot(net: Any) -> Slot:
        first = net[0]
        mine = jax.lax.dynamic_slice_in_dim(first["w"], offset, width, axis=0)
        return Slot(net, rest @ first["w"] + first["b"], mine)

    one = jax.tree.map(lambda w: w[None], critics.reward)
    return [jax.vmap(slot)(stack) for stack in (one, critics.cost) if stack is not None]


def _slot_value(slot: Slot, mine: Float[Array, "B R A"]) -> Float[Array, "B R"]:
    return mlp_after_first(slot.net, slot.rest[:, None] + mine @ slot.weight)[..., 0]


def _slot_gradient(slot: Slot, mine: Float[Array, "B R A"]) -> tuple[Float[Array, "B R"], Float[Array, "B R A"]]:
    """Rows are independent: the gradient of the sum is the gradient of each."""

    def summed(m: Array) -> tuple[Array, Array]:
        q = _slot_value(slot, m)
        return jnp.sum(q), q

    action_grad, q = jax.grad(summed, has_aux=True)(mine)
    return q, action_grad


def physics_of_modes(
    physics: Physics | None, fit: PhysicsFit, spec: ActionSpec, discount: Float[Array, "J"],
    state: Array, action: HybridAction, agent: Any, unit: Array, num_signals: int,
) -> Float[Array, "B M J"]:  # fmt: skip
    """Every mode of agent i with that mode's parameters: Q_phys up to what no action changes."""
    batch, modes, _ = unit.shape
    if physics is None:
        level = discount / (1.0 - discount) * fit.level
        return jnp.broadcast_to(level, (batch, modes, num_signals))
    mode, params = (jnp.repeat(x[:, None], modes, axis=1) for x in action)
    mode = mode.at[:, :, agent].set(jnp.arange(modes))
    mine = decode_params(spec, mode, jnp.broadcast_to(unit[:, :, None], params.shape))
    mine = jax.lax.dynamic_index_in_dim(mine, agent, axis=2, keepdims=False)
    changed = HybridAction(mode, params.at[:, :, agent].set(mine))
    return q_phys(fit, physics_parts(physics, num_signals, state, changed, here=False), discount)


def physics_gradients(phys: Any, unit: Float[Array, "B M P"]) -> tuple[Float[Array, "B M J"], Float[Array, "P B M J"]]:
    """Q_phys, and its derivatives in the parameters: one forward derivative per parameter, since rows are independent;
    the values are computed along with them."""

    def along(p: Array) -> Any:
        tangent = jnp.zeros_like(unit).at[..., p].set(1.0)
        return jax.jvp(phys, (unit,), (tangent,))

    if unit.shape[-1] == 0:
        closed = phys(unit)
        return closed, jnp.zeros((0, *closed.shape))
    return jax.vmap(along, out_axes=(None, 0))(jnp.arange(unit.shape[-1]))
