"""A base policy by search, a shield by least change and constants from data, on systems with known answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trident
from trident.closed_form.constants import Seen, fit_constants
from trident.errors import TridentError
from trident.types import ActionSpec, HybridAction, Physics, follow

BOX = np.array([[[0.0], [-2.0]]] * 2, np.float32)
SPEC = ActionSpec(BOX, np.array([[[0.0], [4.0]]] * 2, np.float32), np.array([[[False], [True]]] * 2))
"""Two agents: rest, or move by -2 to 4."""


def own_signals(obs, mode, params):
    """Go to 1, not beyond a wall at obs[1]; moving has a price."""
    place = obs[0] + jnp.where(mode == 1, params[0], 0.0)
    return jnp.array([-((place - 1.0) ** 2) - 0.3 * (mode == 1), jnp.maximum(place - obs[1], 0.0)])


@pytest.mark.parametrize(
    ("obs", "mode", "move"), [((0.0, 9.0), 1, 1.0), ((0.9, 9.0), 0, 0.0), ((0.0, 0.6), 1, 0.6), ((8.0, 9.0), 1, -2.0)]
)
def test_search_finds_the_best_mode_and_parameters(obs, mode, move):
    policy = trident.search_base_policy(SPEC, own_signals, limits=[0.0], price=100.0)
    action = jax.jit(lambda o: follow(SPEC, policy, o))(jnp.tile(jnp.array(obs), (2, 1)))
    assert action.mode.tolist() == [mode, mode]
    assert action.params[:, 0].tolist() == pytest.approx([move, move], abs=0.1)
    assert float(policy(jnp.array(obs)).preference.max()) == 4.0


def test_search_needs_equal_boxes_and_few_trials():
    other = ActionSpec(SPEC.low, SPEC.high * np.array([[[1.0]], [[2.0]]], np.float32), SPEC.used)
    with pytest.raises(TridentError, match="agents with equal boxes"):
        trident.search_base_policy(other, own_signals, [0.0])
    wide = ActionSpec(*(np.repeat(t, 6, axis=2) for t in (SPEC.low, SPEC.high, SPEC.used)))
    with pytest.raises(TridentError, match=r"5 points for 6 parameters are 15,625 trials"):
        trident.search_base_policy(wide, own_signals, [0.0])


def room(state, action):
    """The sum of two places stays below 3, each above -5."""
    places = state + jnp.where(action.mode == 1, action.params[:, 0], 0.0)
    return jnp.array([3.0 - places.sum(), 5.0 + places.min()])


def rest(state):
    return HybridAction(jnp.zeros(2, jnp.int32), jnp.zeros((2, 1)))


def test_the_shield_changes_as_little_as_it_must():
    shield = jax.jit(trident.least_change_shield(SPEC, room, rest))
    fine = HybridAction(jnp.array([1, 0]), jnp.array([[2.0], [0.0]]))
    action, changed = shield(jnp.array([0.0, 0.5]), fine)
    assert (action.params.tolist(), changed.tolist()) == ([[2.0], [0.0]], [False, False])
    both = HybridAction(jnp.array([1, 1]), jnp.array([[2.0], [3.0]]))
    action, changed = shield(jnp.array([0.0, 0.0]), both)
    assert action.params[:, 0].tolist() == pytest.approx([1.0, 2.0], abs=0.01)  # the projection: each gives half
    assert changed.tolist() == [True, True]
    assert room(jnp.zeros(2), action).min() >= 0.0
    one = HybridAction(jnp.array([1, 0]), jnp.array([[4.0], [0.0]]))
    action, changed = shield(jnp.array([0.0, 1.0]), one)
    assert (float(action.params[0, 0]), changed.tolist()) == (pytest.approx(2.0, abs=0.01), [True, False])


def test_where_no_parameter_helps_agents_fall_back():
    stuck = ActionSpec(np.zeros((2, 2, 1), np.float32), np.zeros((2, 2, 1), np.float32), np.zeros((2, 2, 1), bool))
    margin = lambda state, action: jnp.array([0.5 - jnp.sum(action.mode)])  # noqa: E731
    shield = trident.least_change_shield(stuck, margin, rest)
    action, changed = shield(jnp.zeros(2), HybridAction(jnp.array([1, 0]), jnp.zeros((2, 1))))
    assert (action.mode.tolist(), changed.tolist()) == ([0, 0], [True, False])


def cart(constants):
    """A cart with drag and a motor, whose reward is its speed; `ghost` is in no equation."""

    def predict(state, action):
        speed = state[1] * (1.0 - constants["drag"]) + constants["push"] * action.params[0, 0]
        return jnp.array([state[0] + 0.1 * state[1], speed])

    def signals(state, action):
        return jnp.array([predict(state, action)[1], 0.0 * constants["ghost"]])

    return Physics(signals, predict, lambda state: rest(state))


def seen(noise, episodes=20, steps=50, seed=0):
    dice = np.random.default_rng(seed)
    rows = []
    for e in range(episodes):
        state = dice.normal(size=2)
        for _ in range(steps):
            u = dice.uniform(-1, 1)
            after = np.array([state[0] + 0.1 * state[1], 0.75 * state[1] + 5.0 * 0.1 * u]) + noise * dice.normal(size=2)
            rows.append((state, u, after, [after[1], 0.0], e))
            state = after
    state, u, after, signals, episode = (np.array(x, np.float32) for x in zip(*rows, strict=True))
    return Seen(state, HybridAction(np.ones((len(u), 1), np.int32), u[:, None, None]), after, signals, episode)


def test_constants_are_found_with_error_bars_that_hold():
    inside = 0
    for seed in range(10):
        fit = fit_constants(cart, {"drag": 0.1, "push": 2.0, "ghost": 1.0}, seen(0.1, seed=seed), ["reward", "cost"])
        found = {c.name: c for c in fit.constants}
        inside += abs(found["drag"].value - 0.25) <= found["drag"].error
        inside += abs(found["push"].value - 0.5) <= found["push"].error
        assert found["push"].error < 0.05
        assert found["ghost"].error == np.inf
    assert inside >= 16  # of 20, where 19 are expected
    assert fit.unexplained["reward"] < 0.1 < fit.before["reward"]
    assert "cost" not in fit.unexplained  # it never changes


def test_what_states_do_not_tell_signals_do():
    def priced(constants):
        base = cart(constants | {"ghost": 0.0})
        worth = lambda s, a: jnp.array([constants["worth"] * base.predict(s, a)[1], 0.0])  # noqa: E731
        return Physics(worth, base.predict, base.nominal)

    fit = fit_constants(priced, {"drag": 0.1, "push": 2.0, "worth": 3.0}, seen(0.05), ["reward", "cost"])
    assert [c.value for c in fit.constants] == pytest.approx([0.25, 0.5, 1.0], abs=0.05)
    assert np.isfinite([c.error for c in fit.constants]).all()


def test_without_noise_nothing_is_left():
    fit = fit_constants(cart, {"drag": 0.0, "push": 1.0, "ghost": 0.0}, seen(0.0), ["reward", "cost"])
    assert [c.value for c in fit.constants[:2]] == pytest.approx([0.25, 0.5], abs=1e-4)
    assert max(fit.unexplained.values()) < 1e-6
    with pytest.raises(TridentError, match="there is no constant to fit"):
        fit_constants(cart, {}, seen(0.0), [])
