"""MADAC: the worst margin ahead, the region, multipliers, the hybrid entropy, and the probes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.chain_rows import CHAIN, make_rows, random_like
from support.learning import train

from trident.algos import madac
from trident.algos.common.action_heads import MEANT, hybrid_head
from trident.algos.common.actor import actors_apply
from trident.algos.common.central_critic import central_critic
from trident.algos.common.kinds import kinds_of
from trident.algos.madac import MADACConfig, actor_loss, distance, entropy, outputs, td_targets, twins, worst
from trident.maths import hybrid
from trident.training.loop import program

SPEC = CHAIN.spec
KINDS = kinds_of(SPEC)
CONFIG = MADACConfig(hidden=(8,), critic_hidden=(8,))
HEAD = hybrid_head(SPEC.action, CONFIG.temperature)
CENTRAL = central_critic(SPEC, CONFIG.critic_body, CONFIG.critic_hidden, HEAD.encoded)


@pytest.fixture(scope="module")
def rows():
    width = SPEC.action.num_modes + SPEC.action.num_params
    meant = jax.random.uniform(jax.random.key(4), (48, SPEC.num_agents, width), minval=-1.0)
    return make_rows()._replace(extras={MEANT: meant})


@pytest.fixture(scope="module")
def state():
    return random_like(lambda key: madac.make(CONFIG, SPEC).init(key)[:3])


def test_worst_margin_is_never_positive():
    margin = jnp.array([[0.3, -0.2, 0.1], [0.5, 0.1, 0.2]])
    np.testing.assert_allclose(worst(margin), [-0.2, 0.0], rtol=1e-6)
    np.testing.assert_array_equal(worst(jnp.zeros((4, 0))), 0.0)


def test_safety_target_is_the_worst_of_now_and_later(rows, state):
    actors, _, critics = state
    key, level, unit = jax.random.key(5), jnp.float32(1.0), jnp.float32(2.0)

    @jax.jit
    def go():
        y, y_h = td_targets(CONFIG, KINDS, HEAD, CENTRAL, (actors, critics), rows, level, unit, key)
        after = rows._replace(obs=rows.next_obs, state=rows.next_state)
        safe = HEAD.relax(
            outputs(KINDS, actors.safety, rows.next_obs, None), rows.next_mode_mask, jax.random.split(key, 3)[2], None
        )
        return y, y_h, twins(CENTRAL, critics.safety, after, safe, rows.next_alive)

    _, y_h, q = (np.asarray(x) for x in go())
    later = np.where(rows.terminated, 0.0, q.min(0))
    expected = CONFIG.safety_discount * np.minimum(np.minimum(rows.margin.min(-1), 0.0), later)
    np.testing.assert_allclose(y_h, expected, rtol=1e-4, atol=1e-6)
    assert (y_h <= 0).all()
    assert (y_h < 0).any()


@pytest.fixture(scope="module")
def slopes(rows, state):
    """region, multipliers -> (gradient of the task actors, new multipliers, gradient of the distance to safety)"""
    actors, _, critics = state
    key = jax.random.key(6)

    @jax.jit
    def go(shift, multipliers):
        """`shift` moves the safety critics up or down, and with them the border of the region."""
        trunk = critics.safety.trunk
        moved = critics.safety._replace(trunk=[*trunk[:-1], trunk[-1] | {"b": trunk[-1]["b"] + shift}])
        loss = lambda a: actor_loss(  # noqa: E731
            CONFIG, SPEC, KINDS, HEAD, CENTRAL, a, critics._replace(safety=moved), rows, multipliers, key
        )
        grads, (after, metrics) = jax.grad(loss, has_aux=True)(actors)
        safe = HEAD.relax(
            outputs(KINDS, actors.safety, rows.obs, None), rows.mode_mask, jax.random.split(key, 3)[2], None
        )
        to_safety = lambda task: jnp.mean(jnp.sum(distance(SPEC, KINDS, task, rows, safe) * rows.alive, -1))  # noqa: E731
        return grads.task, after, metrics["inside"], jax.grad(to_safety)(actors.task)

    return go


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_outside_the_region_task_policies_regress_to_the_safety_action(slopes):
    zeros = jnp.zeros(SPEC.num_agents)
    slope, after, inside, back = slopes(-100.0, zeros)
    assert inside == 0.0
    np.testing.assert_allclose(flat(slope), flat(back), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(after, zeros)  # nothing is learned about prices there
    slope, _, inside, back = slopes(100.0, zeros)
    assert inside == 1.0
    assert np.abs(flat(slope) - flat(back)).max() > 1e-3


def test_multipliers_fall_where_there_is_room(slopes):
    start = jnp.zeros(SPEC.num_agents) + 3.0
    _, after, _, _ = slopes(100.0, start)  # lambda - rho c < 0: the moving average goes to zero at its rate
    np.testing.assert_allclose(after, 3.0 * (1.0 - CONFIG.multiplier_rate / CONFIG.rho), rtol=1e-5)


def test_entropy_is_that_of_mode_and_squashed_parameters(rows, state):
    """Against the mean of -log density over many samples."""
    actors, one = state[0].task, jax.tree.map(lambda x: x[:2], rows)
    used = jnp.asarray(SPEC.action.used)

    @jax.jit
    def both(keys):
        dist = actors_apply(actors, one.obs)
        box = jnp.ones(used.shape)

        def surprise(key):
            mode, raw = hybrid.sample(key, dist, one.mode_mask, used)
            return -hybrid.log_prob_box(dist, one.mode_mask, used, mode, raw, -box, box)

        mean = lambda f: jnp.mean(jax.lax.map(f, keys, batch_size=500), axis=0)  # noqa: E731
        return mean(lambda k: entropy(SPEC, KINDS, actors, one, k)), mean(surprise)

    ours, sampled = both(jax.random.split(jax.random.key(0), 8000))
    np.testing.assert_allclose(ours, sampled, atol=0.1)


def test_entropy_of_parameters_does_not_move_the_modes(rows, state):
    """Its gradient in the logits is that of the modes' own entropy, d H / d logit_m = -p_m (log p_m + H)."""
    actors = state[0].task
    dist = actors_apply(actors, rows.obs)

    def bonus(shift):
        moved = jax.tree.map(lambda x: x, actors)
        moved["trunk"][-1]["b"] = moved["trunk"][-1]["b"].at[:, : SPEC.action.num_modes].add(shift)
        return jnp.sum(entropy(SPEC, KINDS, moved, rows, jax.random.key(0)), axis=0)  # [N]

    slope = jax.jit(jax.jacrev(bonus))(jnp.zeros((SPEC.num_agents, SPEC.action.num_modes)))
    p = np.asarray(hybrid.mode_probs(dist.logits, rows.mode_mask))
    log_p = np.log(np.where(p > 0, p, 1.0))
    h = -np.sum(p * log_p, -1, keepdims=True)
    expected = np.sum(-p * (log_p + h), axis=0)
    for agent in range(SPEC.num_agents):
        np.testing.assert_allclose(slope[agent, agent], expected[agent], rtol=1e-3, atol=1e-4)


def test_warm_up_draws_evenly_and_moves_only_the_critics(rows):
    algorithm = madac.make(replace(CONFIG, envs=4, steps=8, replay=64, updates=4, batch=8, warmup=2), SPEC)
    made = program(CHAIN, algorithm, 3)
    states = [jax.jit(made.init)(jax.random.key(0))]
    for i in range(3):
        states.append(jax.jit(made.round)(states[-1], i)[0])
    same = lambda a, b: all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))  # noqa: E731
    start, _, warm, after = (s.algo for s in states)
    assert same(start.actors, warm.actors)
    assert same(start.multipliers, warm.multipliers)
    assert not same(start.critics, warm.critics)
    assert not same(warm.actors, after.actors)

    def spread(algo):
        """Of the parameters that 2,000 actions read, against an even one's."""
        one = jax.tree.map(lambda x: x[0], rows).view
        keys = jax.random.split(jax.random.key(1), 2000)
        meant = jax.jit(jax.vmap(lambda k: algorithm.act(algo, one, k, False)[1][MEANT]))(keys)
        unit = np.asarray(meant[..., SPEC.action.num_modes :]).ravel()
        return np.abs(np.quantile(unit[unit != 0.0], [0.1, 0.25, 0.75, 0.9]) - [-0.8, -0.5, 0.5, 0.8]).max()

    assert spread(start) < 0.04
    assert spread(after) > 0.1


PROBE = MADACConfig(
    envs=16, steps=16, hidden=(16, 16), critic_hidden=(32, 32), replay=4096, updates=64, delay=2, batch=64,
    discount=0.8, lr=3e-3, critic_lr=3e-3, target_rate=0.05, log_std=-1.2, region=0.05, warmup=10,
)  # fmt: skip


@pytest.mark.learning
def test_finds_the_mode_of_every_context():
    env, results, _, _ = train("probe-mode", madac.make, PROBE, 120, deterministic=True)
    for result in results:
        assert abs(result["reward"] - env.optimum) < 0.25


@pytest.mark.learning
def test_solves_the_team():
    """Both pushing pays 0.6 and is an equilibrium too; before the warm-up every second seed ended there. Before the
    parameters' entropy was kept from the logits, one in eight rested, which has no parameters to be paid for."""
    env, results, _, _ = train("probe-team", madac.make, PROBE, 120, seeds=4, deterministic=True)
    for result in results:
        assert abs(result["reward"] - env.optimum) < 0.05


@pytest.mark.learning
@pytest.mark.parametrize(
    ("probe", "curvature"), [("probe-constrained", 2.0), ("probe-unsafe-start", 4.0)], ids=["one", "two"]
)
def test_reaches_the_closed_form_at_its_own_edge(probe, curvature):
    """Its constraint is Q_h >= -region, and in these one-shot probes Q_h = gamma_h (d - cost) where the limit is
    broken: the limit it keeps is d + region / gamma_h. There the price of cost is lower by the probe's curvature times
    the shift, the reward higher by the area under it; the multiplier prices Q_h, in units of the returns' spread."""
    env, results, states, history = train(probe, madac.make, PROBE, 160, deterministic=True)
    shift = PROBE.region / PROBE.safety_discount
    limit, price = float(env.spec.limits[0]) + shift, env.multiplier - curvature * shift
    optimum = env.optimum + env.multiplier * shift - 0.5 * curvature * shift**2
    for result in results:
        np.testing.assert_allclose(result[f"cost/{env.spec.constraints[0].name}"], limit, atol=0.02)
        np.testing.assert_allclose(result["reward"], optimum, atol=0.03)
    multiplier = np.mean([h["multiplier"] for h in history[-40:]], axis=0)
    np.testing.assert_allclose(multiplier * states.unit * PROBE.safety_discount, price, rtol=0.05)
