"""PIRC: the closed form is fitted right, the TD target is the printed one, and the residual keeps the fixed point."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from trident import physics_value
from trident.algos.common.central_critic import CentralCritic, CriticInput
from trident.algos.common.kinds import Kinds
from trident.algos.trident import critics as pirc
from trident.algos.trident.critics import CriticBatch
from trident.maths.returns import discounted_tail
from trident.physics_value import Parts, PhysicsFit
from trident.types import HybridAction, Physics

T, E, GAMMA = 30, 4, 0.9


def gammas(num_signals):
    return jnp.full(num_signals, GAMMA)


RNG = np.random.default_rng(0)


@jax.jit
def fit_physics(signals, ended, parts):
    discount = gammas(signals.shape[-1])
    unit = physics_value.spread(signals, ended, discount)
    return physics_value.fit_physics(physics_value.fit_sums(signals, ended, parts, discount), unit, discount)


def bodies(size, hidden=(4,), cost_hidden=(4, 4)):
    """Critics of a state alone."""
    one = Kinds((0,))
    return pirc.Bodies(*(CentralCritic(one, "concatenated", size, 0, 0, h) for h in (hidden, cost_hidden)))


def seen(x):
    """What critics are told of a state and one agent that neither sees nor does anything."""
    nothing = jnp.zeros((*x.shape[:-1], 1, 0))
    return CriticInput(x, nothing, nothing)


@partial(jax.jit, static_argnums=(0, 1))
def make_nets(size, num_constraints):
    return pirc.init(jax.random.key(0), bodies(size), num_constraints)


@jax.jit
def residual(nets, x):
    return pirc.residual(bodies(x.shape[-1]), nets, seen(x))


def tail_by_hand(signals, ended):
    total, weight = np.zeros_like(signals), np.zeros(ended.shape)
    for t in reversed(range(T)):
        for e in range(E):
            last = t == T - 1 or ended[t, e]
            total[t, e] = signals[t, e] + (0 if last else GAMMA * total[t + 1, e])
            weight[t, e] = 0 if last else GAMMA * (1 + weight[t + 1, e])
    return total, weight


@pytest.mark.parametrize("batch", [6, 4096])
def test_parts_of_the_closed_form_are_those_of_the_page(batch):
    """immediate = signals(s, a), next_step = signals(s', nominal(s')), current = signals(s, nominal(s)), row by row."""
    physics = Physics(
        signals=lambda s, a: jnp.stack([s[0] * a.params[0, 0], s[1] + a.mode[0]]),
        predict=lambda s, a: s + jnp.array([a.params[0, 0], 3.0 * a.mode[0]]),
        nominal=lambda s: HybridAction((s[:1] > 0).astype(jnp.int32), s[None, 1:]),
    )
    draw = np.random.default_rng(1)
    state = draw.normal(size=(batch, 2)).astype(np.float32)
    mode, x = draw.integers(0, 2, (batch, 1)), draw.normal(size=(batch, 1, 1)).astype(np.float32)
    action = HybridAction(jnp.asarray(mode, jnp.int32), jnp.asarray(x))
    parts, few = jax.jit(
        lambda s, a: [physics_value.physics_parts(physics, 2, s, a, current=current) for current in (True, False)]
    )(state, action)

    signals = lambda s, m, x: np.stack([s[:, 0] * x, s[:, 1] + m], axis=-1)  # noqa: E731
    successor = state + np.stack([x[:, 0, 0], 3.0 * mode[:, 0]], axis=-1)
    carried_on = lambda s: signals(s, s[:, 0] > 0, s[:, 1])  # noqa: E731
    by_hand = Parts(signals(state, mode[:, 0], x[:, 0, 0]), carried_on(successor), carried_on(state))
    for got, expected in ((parts, by_hand), (few, by_hand._replace(current=np.zeros_like(by_hand.current)))):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


def test_the_gradient_of_later_is_that_of_a_linear_system():
    """s' = A s + b a under a = 0: what an action changes fades by A, and Q's gradient in it is known in closed form.
    One
    signal fades, one lasts for ever, one is not changed at all."""
    fade, gain = jnp.array([0.4, 1.0, 0.7]), jnp.array([2.0, -1.0, 0.0])
    physics = Physics(
        signals=lambda s, a: s,
        predict=lambda s, a: fade * s + gain * a.params[0, 0],
        nominal=lambda s: HybridAction(jnp.zeros(1, jnp.int32), jnp.zeros((1, 1))),
    )
    state, params = RNG.normal(size=(700, 3)).astype(np.float32), RNG.normal(size=(700, 1, 1)).astype(np.float32)
    action = HybridAction(jnp.zeros((700, 1), jnp.int32), params)
    lasting = jax.jit(lambda s, a: physics_value.persistence_sums(physics, 3, s, a))(state, action)
    weight = physics_value.max_next_weight(physics_value.FitSums(None, None, lasting), gammas(3))
    action_grad = [
        sum(GAMMA**h * float(f) ** (h - 1) for h in range(1, 2000)) for f in fade
    ]  # of the change one step on
    np.testing.assert_allclose(GAMMA / (1 - GAMMA) * weight[:2], action_grad[:2], rtol=1e-3)
    assert weight[2] == 1.0
    # data that would have it otherwise: every future step is `later`, and that does not change within an episode
    later = jnp.broadcast_to(jnp.asarray(RNG.normal(size=(1, E, 3)), jnp.float32), (T, E, 3))
    sums = physics_value.fit_sums(later, jnp.zeros((T, E), bool), Parts(later, later, later), gammas(3), lasting)
    fit = physics_value.fit_physics(sums, jnp.ones(3), gammas(3))
    np.testing.assert_allclose(fit.next_step[0], weight[0])
    np.testing.assert_allclose(fit.next_step + fit.current, 1.0, atol=0.02)  # the level is right none the less


def test_discounted_tail_stops_at_episode_ends():
    signals = RNG.normal(size=(T, E, 2)).astype(np.float32)
    ended = RNG.random((T, E)) < 0.1
    total, weight = jax.jit(discounted_tail)(jnp.asarray(signals), jnp.asarray(ended), gammas(2))
    expected_total, expected_weight = tail_by_hand(signals, ended)
    np.testing.assert_allclose(total, expected_total, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weight, np.broadcast_to(expected_weight[..., None], weight.shape), rtol=1e-4)


def test_fit_recovers_the_weights_it_was_made_from():
    """Signals of which every future step really is k later + h here + l, later and here constant within an episode."""
    k, h, level = np.array([0.6, 0.3]), np.array([0.2, 0.5]), np.array([-0.5, 0.1])
    later, here = (np.broadcast_to(RNG.normal(size=(1, E, 2)), (T, E, 2)).astype(np.float32) for _ in range(2))
    now = (k * later + h * here + level).astype(np.float32)
    ended = np.zeros((T, E), bool)
    fit = fit_physics(now, ended, Parts(now, later, here))
    np.testing.assert_allclose(fit.next_step, k, rtol=5e-3)
    np.testing.assert_allclose(fit.current, h, rtol=5e-3)
    np.testing.assert_allclose(fit.level, level, rtol=2e-2, atol=2e-3)
    r2 = jax.jit(physics_value.r2_phys)(fit, now, ended, Parts(now, later, here), gammas(2))
    np.testing.assert_allclose(r2, 1.0, atol=1e-3)


def test_a_constant_explains_nothing_of_the_returns():
    """Early returns sum up more steps than late ones; for knowing that, a level alone once had an R2 of 0.6."""
    signals = (-5.0 + RNG.normal(size=(T, E, 2))).astype(np.float32)
    level = signals.mean((0, 1))
    nothing = np.zeros_like(signals)
    fit = physics_value.PhysicsFit(jnp.zeros(2), jnp.zeros(2), jnp.asarray(level), jnp.ones(2))
    constant = Parts(nothing + level, nothing, nothing)
    r2 = jax.jit(physics_value.r2_phys)(fit, signals, np.zeros((T, E), bool), constant, gammas(2))
    np.testing.assert_allclose(r2, 0.0, atol=1e-3)


def test_weights_stay_between_nothing_and_all():
    """Returns that fall as `later` rises, and rise twice as fast as `here`."""
    later, here = (np.broadcast_to(RNG.normal(size=(1, E, 1)), (T, E, 1)).astype(np.float32) for _ in range(2))
    now = (-later + 2.0 * here).astype(np.float32)
    fit = fit_physics(now, np.zeros((T, E), bool), Parts(now, later, here))
    assert fit.next_step[0] == 0.0
    assert fit.current[0] == 1.0


def test_what_one_action_gains_is_told_from_what_the_place_is_worth():
    """A place is worth x for ever, an action's shift d lasts one step: `here` must carry the weight."""
    x, d = RNG.normal(size=(1, 64, 1)), 0.3 * RNG.normal(size=(T, 64, 1))
    here = np.broadcast_to(x, (T, 64, 1)).astype(np.float32)
    later = (x + d).astype(np.float32)
    signals = np.concatenate([here[:1], later[:-1]]).astype(np.float32)
    fit = fit_physics(signals, np.zeros((T, 64), bool), Parts(signals, later, here))
    assert fit.current[0] > 0.7
    assert fit.next_step[0] < 0.3


def test_without_physics_only_the_level_is_fitted():
    signals = (3.0 + 0.01 * RNG.normal(size=(T, E, 1))).astype(np.float32)
    zero = np.zeros_like(signals)
    fit = fit_physics(signals, np.zeros((T, E), bool), Parts(zero, zero, zero))
    assert fit.next_step[0] == 0.0
    assert fit.current[0] == 0.0
    assert 2.5 < fit.level[0] < 4.5  # the mean signal, up to the step that `now` would have explained


def test_target_is_the_printed_one_and_termination_cuts_it():
    nets = make_nets(3, 1)
    nets = jax.tree.map(lambda x: np.asarray(x) + np.float32(0.3), nets)
    fit = PhysicsFit(jnp.ones(2), jnp.zeros(2), jnp.zeros(2), jnp.array([2.0, 0.5]))
    x = jnp.asarray(RNG.normal(size=(2, 3)), jnp.float32)
    batch = CriticBatch(
        seen(x), jnp.ones((2, 2)), jnp.full((2, 2), 5.0), seen(x), jnp.full((2, 2), 7.0), jnp.array([False, True])
    )
    y = jax.jit(pirc.td_targets, static_argnums=0)(bodies(3), nets, fit, batch, gammas(2))
    following = 7.0 + np.array([2.0, 0.5]) * np.asarray(residual(nets, x))
    np.testing.assert_allclose(y[0], 5.0 + GAMMA * following[0], rtol=1e-5)
    np.testing.assert_allclose(y[1], 5.0, rtol=1e-6)


def test_stacked_cost_critics_equal_each_alone():
    nets = make_nets(3, 3)
    x = jnp.asarray(RNG.normal(size=(5, 3)), jnp.float32)
    together = residual(nets, x)
    for k in range(3):
        one = jax.tree.map(lambda w, i=k: w[i], nets.cost)
        alone = residual(pirc.Critics(one, None), x)[:, 0]
        np.testing.assert_allclose(together[:, 1 + k], alone, rtol=1e-5)


@pytest.mark.parametrize("q_phys", [0.0, 3.0, -40.0])
def test_residual_critic_keeps_the_bellman_fixed_point(q_phys):
    """A loop of two states with rewards 1 and 2 has Q = (r + gamma r') / (1 - gamma^2), whatever the frozen part is."""
    rewards = np.array([1.0, 2.0])
    answer = (rewards + GAMMA * rewards[::-1]) / (1 - GAMMA**2)
    x = jnp.eye(2)
    frozen = q_phys * jnp.array([[1.0], [-1.0]])
    batch = CriticBatch(
        seen(x), frozen, jnp.asarray(rewards[:, None], jnp.float32), seen(x[::-1]), frozen[::-1], jnp.zeros(2, bool)
    )
    fit = PhysicsFit(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), jnp.full(1, 10.0))
    adam = optax.adam(3e-3)
    body = bodies(2, (16,))
    nets = jax.jit(lambda k: pirc.init(k, body, 0))(jax.random.key(1))

    def step(carry, _):
        nets, target, opt = carry
        nets, target, opt, _ = pirc.td_step(body, nets, target, opt, adam, fit, batch, gammas(1), 0.1)
        return (nets, target, opt), None

    run = jax.jit(lambda n: jax.lax.scan(step, (n, n, adam.init(n)), None, length=3000)[0][0])
    q = frozen + fit.unit * pirc.residual(body, run(nets), seen(x))
    np.testing.assert_allclose(q[:, 0], answer, rtol=0.02)


def test_a_closed_form_of_one_step_says_nothing_of_what_follows():
    """`now` alone, and neither successor nor nominal action is ever asked for."""

    def never(*_):
        raise AssertionError("asked for what follows")

    signals = lambda s, a: jnp.stack([s[0] * a.params[0, 0], s[1] + a.mode[0]])  # noqa: E731
    physics = physics_value.OneStep(signals, never, never)
    state = jnp.asarray(RNG.normal(size=(6, 2)), jnp.float32)
    action = HybridAction(jnp.arange(6)[:, None] % 3, jnp.asarray(RNG.normal(size=(6, 1, 1)), jnp.float32))
    parts = physics_value.physics_parts(physics, 2, state, action)
    by_hand = np.stack([state[:, 0] * action.params[:, 0, 0], state[:, 1] + action.mode[:, 0]], axis=1)
    np.testing.assert_allclose(parts.immediate, by_hand, rtol=1e-6)
    assert not parts.next_step.any()
    assert not parts.current.any()
    assert not physics_value.current_signals(physics, 2, state).any()
    assert not physics_value.persistence_sums(physics, 2, state, action).any()
