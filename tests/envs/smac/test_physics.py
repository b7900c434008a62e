"""Closed-form physics of hybrid SMAC: against realised steps, finite differences and hand-worked scenes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.smac.actions import FIRST_TARGET, allowed_modes
from trident.envs.smac.config import Map, SmacConfig
from trident.envs.smac.env import Smac
from trident.envs.smac.physics import assemble, pack, unpack
from trident.types import HybridAction

ARMY = (("stalker", 1), ("zealot", 1), ("marine", 2))
CONFIG = SmacConfig(map=Map(ARMY, ARMY, 60, (12.0, 16.0), (20.0, 16.0)), safe=True)
ENV, A = Smac(CONFIG), CONFIG.roster.allies
SIGNALS = jax.jit(ENV.physics.signals)


@pytest.fixture(scope="module")
def walk():
    """48 battles of focus-nearest or random, 30 steps: what physics said before each step, and what came."""

    def one(key):
        state, first = ENV.reset(key)

        def advance(carry, key):
            state, array = carry
            pick = jax.random.bernoulli(key, 0.7)
            both = [ENV.scripted[name](key, state) for name in ("focus-nearest", "random")]
            action = jax.tree.map(lambda a, b: jnp.where(pick, a, b), *both)
            said = ENV.physics.signals(array, action), ENV.physics.predict(array, action)
            after, out = ENV.step(key, state, action)
            over = ~((state.units.health[:A] > 0).any() & (state.units.health[A:] > 0).any())
            true = jnp.concatenate([out.reward[None], out.cost])
            nominal = ENV.physics.nominal(array)
            return (after, out.state), (*said, true, out.state, array, action, over, nominal, state)

        return jax.lax.scan(advance, (state, first.state), jax.random.split(key, 30))[1]

    out = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 48))
    flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), out)
    running = ~flat[6]
    return jax.tree.map(lambda x: x[running], flat)


def test_the_array_holds_the_state(walk):
    *_, array, _, _, _, state = walk
    for row in (0, 40, 400):
        u = jax.tree.map(lambda x: jnp.asarray(x[row]), state.units)  # noqa: B023
        scene = unpack(CONFIG, jnp.asarray(array[row]))
        for field in ("health", "shield", "cooldown", "energy"):
            np.testing.assert_allclose(getattr(scene, field), getattr(u, field), rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(scene.x, u.x)  # exactly: masks are computed from it
        np.testing.assert_array_equal(scene.y, u.y)
        np.testing.assert_allclose(
            assemble(CONFIG, scene), pack(CONFIG, u, jnp.asarray(state.t[row])), rtol=1e-5, atol=1e-6
        )


def test_signals_explain_what_happens(walk):
    said, _, true, *_ = walk
    explained = 1.0 - (said - true).var(0) / true.var(0)
    assert explained[0] > 0.35
    assert explained[1] > 0.35
    assert explained[3] > 0.5
    np.testing.assert_allclose(said.mean(0)[:2], true.mean(0)[:2], rtol=0.35)
    assert (said[:, 1:] >= 0).all()


def test_prediction_is_nearer_to_what_came_than_the_present(walk):
    _, predicted, _, came, array, *_ = walk
    n = CONFIG.roster.size
    for block in range(5):  # places, health, shield, cooldown
        part = slice(block * n, (block + 1) * n)
        assert np.abs(predicted - came)[:, part].mean() < 0.75 * np.abs(array - came)[:, part].mean(), block


def test_nominal_is_allowed_and_attacks_the_nearest(walk):
    *_, nominal, state = walk
    u = state.units
    mask = jax.vmap(lambda x, y, h: allowed_modes(CONFIG, ENV.spec.action.num_modes, x, y, h > 0))(u.x, u.y, u.health)
    assert np.take_along_axis(np.asarray(mask), nominal.mode[..., None], -1).all()
    gap = np.hypot(u.x[:, :A, None] - u.x[:, None, A:], u.y[:, :A, None] - u.y[:, None, A:])
    gap = np.where(u.health[:, None, A:] > 0, gap, np.inf)
    attacks = nominal.mode >= FIRST_TARGET
    assert attacks.mean() > 0.2
    chosen = np.take_along_axis(gap, np.maximum(nominal.mode - FIRST_TARGET, 0)[..., None], -1)[..., 0]
    np.testing.assert_allclose(chosen[attacks], gap.min(-1)[attacks])


def test_gradient_in_the_offset(walk):
    *_, array, action, _, _, _ = walk
    value = jax.jit(lambda s, m, p: ENV.physics.signals(s, HybridAction(m, p)))
    slope = jax.jit(jax.jacrev(lambda s, m, p: ENV.physics.signals(s, HybridAction(m, p)), argnums=2))
    used = 0
    for row in range(0, len(array), 97):
        s, m = jnp.asarray(array[row]), jnp.asarray(action.mode[row])
        p = jnp.full((A, 2), 0.3)
        d = jax.random.normal(jax.random.key(row), p.shape)
        step = 2e-3
        numeric = (value(s, m, p + step * d) - value(s, m, p - step * d)) / (2 * step)
        exact = jnp.einsum("kap,ap->k", slope(s, m, p), d)
        np.testing.assert_allclose(exact, numeric, atol=0.02, rtol=0.1)
        used += float(jnp.abs(exact).sum()) > 1e-3
    assert used > 2


def scene(gap, **changes):
    """One stalker and one enemy stalker `gap` apart from edge to edge; the others are dead."""
    n = CONFIG.roster.size
    alive = np.isin(np.arange(n), (0, A))
    base = unpack(CONFIG, jnp.zeros(ENV.spec.state_dim))._replace(
        x=jnp.asarray(np.where(np.arange(n) == A, 10 + 1.25 + gap, 10.0), jnp.float32),
        y=jnp.full(n, 16.0),
        health=jnp.asarray(np.where(alive, 80.0, 0.0), jnp.float32),
        calm=jnp.full(n, 160.0),
    )
    return assemble(CONFIG, base._replace(**{k: jnp.asarray(v, jnp.float32) for k, v in changes.items()}))


def attack_first():
    return HybridAction(jnp.array([FIRST_TARGET, 0, 0, 0], jnp.int32), jnp.zeros((A, 2)))


def test_a_shot_that_will_fall_is_expected_and_one_that_cannot_is_not():
    """A stalker's hit on an unshielded stalker is 18 - 1; half a step of walking is no obstacle, a long way is."""
    most = float(CONFIG.roster.pool[A:].sum()) + 40 + 200
    near, far = SIGNALS(scene(5.0), attack_first()), SIGNALS(scene(9.0), attack_first())
    cooling = SIGNALS(scene(5.0, cooldown=np.full(2 * A, 20.0)), attack_first())
    assert float(near[0] - cooling[0]) * most / 20 == pytest.approx(17.0, rel=0.04)
    assert abs(float(far[0] - cooling[0])) * most / 20 < 2.0
    assert float(near[1]) * CONFIG.roster.pool[:A].sum() == pytest.approx(17.0, rel=0.05)  # the enemy shoots as well
    assert float(cooling[1]) == pytest.approx(0.0, abs=1e-4)


def test_strength_raises_the_odds():
    weak = scene(9.0, health=[20, 0, 0, 0, 80, 0, 0, 0])
    strong = scene(9.0, health=[80, 0, 0, 0, 20, 0, 0, 0])
    assert float(SIGNALS(strong, attack_first())[0]) > 3 * float(SIGNALS(weak, attack_first())[0])


MEDICS = SmacConfig(
    map=Map((("medivac", 1), ("marine", 2)), (("medivac", 1), ("marine", 2)), 60, (10.0, 16.0), (26.0, 16.0))
)


def test_a_healer_pays_for_its_own_beam_and_the_enemys_does_not():
    env, roster = Smac(MEDICS), MEDICS.roster
    state, _ = env.reset(jax.random.key(0))
    units = state.units._replace(health=state.units.health.at[1].set(20.0))
    heal = HybridAction(jnp.array([FIRST_TARGET + 1, 1, 1], jnp.int32), jnp.zeros((3, 2)))
    after, _ = env.step(jax.random.key(1), state._replace(units=units), heal)
    said = unpack(MEDICS, env.physics.predict(pack(MEDICS, units, state.t), heal))
    np.testing.assert_allclose(said.energy, after.units.energy, atol=0.2)
    assert roster.heals.sum() == 2
    assert said.energy[0] < units.energy[0] - 1.0
    assert said.energy[3] > units.energy[3]
    np.testing.assert_allclose(said.health[1], after.units.health[1], atol=0.5)


def test_a_march_towards_the_enemy_is_worth_more_than_one_away():
    env = Smac(MEDICS)
    array = env.reset(jax.random.key(0))[1].state

    def go(mode):
        return HybridAction(jnp.full(3, mode, jnp.int32), jnp.zeros((3, 2)))

    stop, east, west = (float(env.physics.signals(array, go(mode))[0]) for mode in (1, 4, 5))
    assert east > 1.05 * stop > 1.1 * west
