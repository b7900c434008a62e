"""What the on-policy learners share, MAPPO-Lagrangian and MACPO: normalisers, prices, reductions, and the probes."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.learning import train

from trident.algos import macpo, ppo
from trident.algos.common import on_policy
from trident.algos.common.actor import actor_apply, actor_init
from trident.algos.common.central_critic import central_critic, state_input
from trident.algos.common.kinds import first_of_kind, kinds_of
from trident.algos.common.on_policy import AgentBatch
from trident.algos.macpo import MACPOConfig, update_agent
from trident.algos.ppo import LagrangianConfig, PPOConfig
from trident.envs.probes.chain import CHAINS, probe_chain
from trident.envs.probes.one_shot import PROBES
from trident.maths import hybrid
from trident.maths.lagrange import multipliers_init, multipliers_step
from trident.maths.trust_region import RECOVERY
from trident.simulation.rollout import rollout, start
from trident.training.loop import program
from trident.training.registry import ENVS, default_config, make_algorithm
from trident.types import Data

TINY = {"envs": 4, "steps": 6, "hidden": (8,), "critic_hidden": (8,), "epochs": 2, "minibatches": 1}
CENTRAL = central_critic(probe_chain().spec, "pooled", (8,))


def fake_rollout(algorithm, env):
    """Random numbers in the shape of a rollout: enough for an update, and nothing is compiled for it."""
    state = jax.eval_shape(program(env, algorithm, 4).init, jax.random.key(0))

    def play(algo, actors, key):
        policy = lambda k, _, t: algorithm.act(algo, t.view, k, False)  # noqa: E731
        return rollout(env, policy, key, actors, algorithm.plan.steps)[1]

    roll = jax.eval_shape(play, state.algo, state.actors, jax.random.key(0))
    draw = np.random.default_rng(0)

    def fill(x):
        if x.dtype == bool:
            return jnp.asarray(draw.random(x.shape) < 0.2)
        if jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.zeros(x.shape, x.dtype)
        return jnp.asarray(draw.normal(size=x.shape), x.dtype)

    roll = jax.tree.map(fill, roll)
    return roll._replace(mode_mask=jnp.ones_like(roll.mode_mask), alive=~roll.alive)


def updated(algorithm, env):
    roll = fake_rollout(algorithm, env)
    go = jax.jit(lambda k: algorithm.update(algorithm.init(k), Data(roll, None), k, jnp.float32(0.3))[0])
    return go(jax.random.key(0))


def assert_near(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


# --- prices ---------------------------------------------------------------------------------------


def test_multipliers_integrate_the_relative_excess_and_never_fall_below_zero():
    start = multipliers_init(3, 0.05)
    cost, limit = jnp.array([0.15, 0.05, 9.0]), jnp.array([0.1, 0.1, 0.1])
    after = multipliers_step(start, cost, limit, (0.0, 0.1, 0.0))
    np.testing.assert_allclose(after.value, [0.05 + 0.1 * 0.5, 0.0, 0.05 + 0.1], rtol=1e-5)
    for _ in range(30):  # a rate that really moves: from scratch to several exchange rates in a short run
        after = multipliers_step(after, cost, limit, (0.0, 0.1, 0.0))
    np.testing.assert_allclose(after.value[2], 3.15, rtol=1e-4)
    assert after.value[1] == 0.0


def test_pid_adds_the_present_and_the_rise():
    start = multipliers_init(1, 0.0)._replace(excess=jnp.array([0.2]))
    up = multipliers_step(start, jnp.array([0.15]), jnp.array([0.1]), (2.0, 0.1, 4.0))
    np.testing.assert_allclose(up.value, 2.0 * 0.5 + 0.1 * 0.5 + 4.0 * 0.3, rtol=1e-5)
    down = multipliers_step(up, jnp.array([0.12]), jnp.array([0.1]), (2.0, 0.1, 4.0))
    np.testing.assert_allclose(down.value, 2.0 * 0.2 + 0.1 * 0.7, rtol=1e-4)  # falls of the excess are not rewarded


# --- normalisers ----------------------------------------------------------------------------------


def test_the_first_values_are_the_mean_signal_for_ever():
    """So the level of the reward has no say in the first round's advantages, nor in the exchange rate they give."""
    env = probe_chain()
    algorithm = ppo.make(LagrangianConfig(**TINY), env.spec)
    roll = fake_rollout(algorithm, env)
    running = jnp.zeros_like(roll.terminated)
    roll = roll._replace(terminated=running, truncated=running)

    @jax.jit
    def measure(shift):
        data = roll._replace(reward=roll.reward + shift)
        values = on_policy.initialise_baseline(algorithm.init(jax.random.key(1)).critic, data, 0.95, 0.9)
        advantages, _, metrics = on_policy.advantages(CENTRAL, values, data, 0.95, 0.9, 0.95)
        state, _ = algorithm.update(algorithm.init(jax.random.key(1)), Data(data, None), jax.random.key(2), 0.3)
        again = on_policy.initialise_baseline(state.critic, data._replace(reward=data.reward + 7.0), 0.95, 0.9)
        told = on_policy.predict(CENTRAL, jax.tree.map(lambda x: x[0], values.cost), state_input(data))
        kept = state.critic.reward.stats, again.reward.stats
        return advantages, metrics["value"], ppo.scale_ratio(state.spread), told, *kept

    (advantages, value, exchange, told, *_), (shifted, high, same, _, stats, later) = measure(0.0), measure(-100.0)
    np.testing.assert_allclose(told, float(roll.cost[..., 0].mean()) / (1.0 - 0.9), atol=0.03)  # a cost's, everywhere
    np.testing.assert_allclose(advantages, shifted, atol=0.02)
    np.testing.assert_allclose(high.values[0] - value.values[0], -2000.0, rtol=1e-4)
    np.testing.assert_allclose(exchange, same, rtol=1e-2)
    np.testing.assert_array_equal(stats, later)  # only before the first round


def test_the_exchange_rate_is_the_mean_of_the_first_rounds():
    """A cost that does not occur in the first round has no spread there."""
    env = probe_chain()
    config, spec = LagrangianConfig(**TINY), env.spec
    state = ppo.make(config, spec).init(jax.random.key(0))
    rng = np.random.default_rng(0)
    size = 1 + spec.num_constraints
    scales = [np.ones(size), np.full(size, 3.0), np.full(size, 100.0)]
    noise, cost = rng.normal(size=(40, 50, size)), jnp.zeros((40, 50, spec.num_constraints))

    def after(state, count, scale):
        stats = (*state.critic.reward.stats[:2], jnp.float32(count))
        state = state._replace(critic=state.critic._replace(reward=state.critic.reward._replace(stats=stats)))
        return ppo._raise_multipliers(config, spec, state, cost, jnp.asarray(noise * scale))

    for count, scale in zip((0, 1, 8), scales, strict=True):
        state = after(state, count, scale)
    np.testing.assert_allclose(state.spread, 2.0, rtol=0.05)  # the mean of 1 and 3; the ninth round has no say
    np.testing.assert_allclose(ppo.scale_ratio(jnp.array([2.0, 0.0])), 2000.0, rtol=1e-5)


def test_rescaling_the_reward_changes_nothing_in_what_is_learned_about_costs():
    env = probe_chain()
    config = LagrangianConfig(**TINY)
    algorithm = ppo.make(config, env.spec)
    roll = fake_rollout(algorithm, env)
    adam = on_policy.adam(10.0)

    @jax.jit
    def learn(reward):
        values = algorithm.init(jax.random.key(1)).critic
        data = roll._replace(reward=reward)
        rows = on_policy.minibatch_rows(jax.random.key(2), 2, 2, roll.reward.size)
        advantages = None
        for _ in range(3):
            advantages, targets, _ = on_policy.advantages(CENTRAL, values, data, 0.9, 0.8, 0.95)
            values = on_policy.fit_values(CENTRAL, values, adam, data, targets, rows, 1e-2)
        return advantages, values

    (small, values), (large, scaled) = learn(roll.reward), learn(1000.0 * roll.reward + 50.0)
    np.testing.assert_array_equal(small[..., 1:], large[..., 1:])
    assert_near(values.cost, scaled.cost, rtol=0)
    assert np.abs(small[..., 0] - large[..., 0]).max() > 1.0
    means = values.cost.stats[0]
    assert len(np.unique(np.append(means, values.reward.stats[0]))) == 4  # one normaliser per signal


# --- reductions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
def test_without_constraints_mappo_lagrangian_is_mappo_bit_for_bit(order):
    """The two updates are the same program, instruction by instruction."""
    env = probe_chain(CHAINS["no-constraints"])
    texts = []
    for kind in (PPOConfig, LagrangianConfig):
        algorithm = ppo.make(kind(order=order, **TINY), env.spec)
        roll = fake_rollout(algorithm, env)
        traced = jax.make_jaxpr(lambda k, a=algorithm, r=roll: a.update(a.init(k), Data(r, None), k, 0.3))
        texts.append(re.sub(r"0x[0-9a-f]+", "", str(traced(jax.random.key(0)))))
    assert texts[0] == texts[1]


def test_one_agent_happo_is_one_agent_mappo():
    """With a single minibatch the order of the samples is immaterial."""
    env = probe_chain(CHAINS["one-agent"])
    orders = ("simultaneous", "sequential")
    mappo, happo = (updated(ppo.make(PPOConfig(order=o, **TINY), env.spec), env) for o in orders)
    assert_near(mappo.actors, happo.actors, rtol=1e-4, atol=1e-5)


def agent_batch(size=256, seed=0):
    """Samples of one agent with two modes and two parameters, drawn from its own policy; some are dead."""

    @jax.jit
    def draw(key):
        keys = jax.random.split(key, 5)
        actor = actor_init(keys[0], 3, (8,), 2, 2, -0.5)
        actor["trunk"][-1]["w"] *= 50.0
        obs = jax.random.normal(keys[1], (size, 3))
        mask, used = jnp.ones((size, 2), bool), jnp.array([[True, True], [True, False]])
        dist = actor_apply(actor, obs)
        mode, raw = hybrid.sample(keys[2], dist, mask, used)
        alive = jax.random.bernoulli(keys[3], 0.9, (size,))
        log_prob = hybrid.log_prob(dist, mask, used, mode, raw)
        advantages = jax.random.normal(keys[4], (size, 3)) + jnp.stack([raw[:, 0], mode, obs[:, 0]], -1)
        return actor, AgentBatch(obs, mask, alive, mode, raw, log_prob), used, advantages

    actor, batch, used, advantages = draw(jax.random.key(seed))
    return actor, batch, used, advantages - advantages.mean(0)


CPO = MACPOConfig(trust_region=1e-3, cg_steps=80, damping=0.05, fisher_batch=256)
FAR = 9.0  # a budget no step can spend


@pytest.fixture(scope="module")
def agent():
    """(actor, batch, used, advantages [B, 3] of reward and two costs, one compiled update)"""
    actor, batch, used, advantages = agent_batch()
    go = jax.jit(
        lambda advantages, factor, budget: update_agent(
            CPO, actor, batch, used, advantages, factor, budget, jnp.arange(256)
        )
    )
    return actor, batch, used, advantages, go


def test_macpo_with_nothing_in_its_way_is_the_trust_region_step(agent):
    """theta + sqrt(2 delta / g'H^-1 g) H^-1 g with H written out as a matrix: HATRPO (Kuba et al. 2022)."""
    actor, batch, used, advantages, go = agent
    theta, unravel = ravel_pytree(actor)
    factor = jnp.exp(0.1 * batch.obs[:, 1])
    after, info = go(advantages, factor, jnp.full(2, FAR))

    @jax.jit
    def by_hand(theta):
        weight = batch.alive / batch.alive.sum()
        old = actor_apply(actor, batch.obs)
        kl = lambda t: jnp.sum(weight * hybrid.kl(old, actor_apply(unravel(t), batch.obs), batch.mode_mask, used))  # noqa: E731
        gain = lambda t: jnp.mean(factor * on_policy.ratio(unravel(t), batch, used) * advantages[:, 0])  # noqa: E731
        g, h = jax.grad(gain)(theta), jax.hessian(kl)(theta) + CPO.damping * jnp.eye(theta.size)
        natural = jnp.linalg.solve(h, g)
        return jnp.sqrt(2.0 * CPO.trust_region / (g @ natural)) * natural

    expected = by_hand(theta)
    moved = ravel_pytree(after)[0] - theta
    np.testing.assert_allclose(moved, info.fraction * expected, atol=0.02 * float(np.abs(expected).max()))

    @jax.jit
    def unconstrained(factor):
        alone = advantages[:, :1]
        return update_agent(CPO, actor, batch, used, alone, factor, jnp.zeros(0), jnp.arange(256))

    after, info = unconstrained(factor)  # K = 0, which is another program
    moved = ravel_pytree(after)[0] - theta
    np.testing.assert_allclose(moved, info.fraction * expected, atol=0.02 * float(np.abs(expected).max()))
    assert info.change.shape == (1,)
    assert info.change[0] > 0


def test_first_update_of_an_unsafe_policy_recovers(agent):
    """The measured excess counts at once; public code treats the first step as safe."""
    *_, advantages, go = agent
    _, info = go(advantages, jnp.ones(256), jnp.array([-5.0, FAR]))
    assert info.kind == RECOVERY
    assert info.change[1] < 0


@pytest.mark.parametrize("method", ["macpo", "mappo-lag"])
def test_the_constraint_value_of_the_first_round_is_measured_in_it(method):
    """Neither zero nor one round old: public code steps before it has averaged the costs."""
    env = PROBES["probe-unsafe-start"]()
    made = {
        "macpo": macpo.make(MACPOConfig(trust_region=1e-3, cg_steps=4, **TINY), env.spec),
        "mappo-lag": ppo.make(LagrangianConfig(order="simultaneous", rate=0.1, **TINY), env.spec),
    }[method]
    whole = program(env, made, 4)
    state, metrics = jax.jit(lambda k: whole.round(whole.init(k), 0))(jax.random.key(0))
    limit = float(env.spec.limits[0])
    cost = float(metrics["cost"][0])  # of the policy before any update, in the middle of its boxes
    assert cost > 1.3 * limit
    if method == "macpo":
        np.testing.assert_allclose(metrics["budget_asked"].values, [limit - cost], rtol=1e-5)
        assert metrics["recovery"] > 0.0
    else:
        np.testing.assert_allclose(state.algo.multipliers.value, [0.1 * (cost - limit) / limit], rtol=1e-5)
        price = ppo.scale_ratio(state.algo.spread) * state.algo.multipliers.value
        np.testing.assert_allclose(metrics["multiplier"].values, price, rtol=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_agents_share_one_slack(agent, sign):
    """What earlier agents have spent, E[M A_k], is gone; what they have given back may be spent."""
    *_, advantages, go = agent
    cost, slack = advantages[:, 1], 0.005
    factor = 1.0 + sign * 0.002 * cost / jnp.var(cost)
    spent = float(jnp.mean(factor * cost))
    np.testing.assert_allclose(spent, sign * 0.002, rtol=1e-3)
    _, info = go(jnp.stack([cost, cost, advantages[:, 2]], -1), factor, jnp.array([slack, FAR]))  # greedy for cost
    np.testing.assert_allclose(info.change[1], info.fraction * (slack - spent), rtol=0.1)
    assert info.change[1] <= slack - spent + 1e-5


def test_ratio_is_the_joint_one_and_the_dead_have_none(agent):
    actor, batch, used, *_ = agent
    moved = jax.tree.map(lambda x: x + 0.05, actor)
    ratio, dist, new = jax.jit(
        lambda: (on_policy.ratio(moved, batch, used), actor_apply(actor, batch.obs), actor_apply(moved, batch.obs))
    )()
    mode, raw, alive = (np.asarray(x) for x in (batch.mode, batch.raw, batch.alive))
    rows = np.arange(256)

    def log_density(d):
        logits, mean, log_std = (np.asarray(x, np.float64) for x in d)
        of_mode = logits[rows, mode] - np.log(np.exp(logits).sum(-1))
        gauss = -0.5 * ((raw - mean[rows, mode]) / np.exp(log_std[rows, mode])) ** 2 - log_std[rows, mode]
        return of_mode + np.where(np.asarray(used)[mode], gauss, 0.0).sum(-1)

    expected = np.exp(log_density(new) - log_density(dist))
    np.testing.assert_allclose(ratio, np.where(alive, expected, 1.0), rtol=1e-3)


# --- learning -------------------------------------------------------------------------------------

PROBE = {"envs": 16, "steps": 32, "hidden": (16, 16), "critic_hidden": (32, 32), "discount": 0.8, "log_std": -1.2}
PPO_PROBE = PROBE | {"lr": 3e-3, "critic_lr": 3e-3, "entropy": 0.0}


@pytest.mark.learning
@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
@pytest.mark.parametrize("probe", ["probe-constrained", "probe-constrained-modes", "probe-unsafe-start"])
def test_lagrangian_reaches_the_optimum_and_the_price(order, probe):
    """On average over rounds: where the best feasible policy is a mixture of modes, the iterates go around it, once in
    about 45 rounds."""
    config = LagrangianConfig(order=order, **PPO_PROBE)
    env, _, _, history = train(probe, ppo.make, config, 400)
    reward, cost, price = (np.mean([h[k] for h in history[-320:]], axis=0) for k in ("reward", "cost", "multiplier"))
    np.testing.assert_allclose(cost, float(env.spec.limits[0]), rtol=0.15)
    np.testing.assert_allclose(price, env.multiplier, rtol=0.2)
    np.testing.assert_allclose(reward, env.optimum, atol=0.15)


@pytest.mark.learning
@pytest.mark.parametrize("probe", ["probe-constrained", "probe-constrained-modes", "probe-unsafe-start"])
def test_macpo_reaches_the_optimum_within_the_limit_and_the_price(probe):
    config = MACPOConfig(**PROBE, critic_lr=3e-3, trust_region=0.03, damping=0.01)
    env, results, _, history = train(probe, macpo.make, config, 120)
    np.testing.assert_allclose(np.mean([h["price"] for h in history[-40:]], axis=0), env.multiplier, rtol=0.1)
    for result in results:
        assert result[f"cost/{env.spec.constraints[0].name}"] <= 1.08 * float(env.spec.limits[0]) + 0.02
        assert abs(result["reward"] - env.optimum) < 0.2


@pytest.mark.learning
@pytest.mark.parametrize("method", ["mappo", "happo", "mappo-lag", "macpo"])
@pytest.mark.parametrize("probe", ["probe-mode", "probe-team"])
def test_solves_the_unconstrained_probes(method, probe):
    make, config = {
        "mappo": (ppo.make, PPOConfig(order="simultaneous", **PPO_PROBE)),
        "happo": (ppo.make, PPOConfig(order="sequential", **PPO_PROBE)),
        "mappo-lag": (ppo.make, LagrangianConfig(order="simultaneous", **PPO_PROBE)),
        "macpo": (macpo.make, MACPOConfig(**PROBE, critic_lr=3e-3, trust_region=0.03, damping=0.01)),
    }[method]
    env, results, _, _ = train(probe, make, replace(config), 120, deterministic=True)
    for result in results:
        assert result["reward"] > env.optimum - 0.15


@pytest.mark.parametrize("algo", ["mappo-lag-residual", "macpo-residual"])
def test_baselines_may_correct_the_base_policy_too(algo):
    """Before any update the policy is the base policy, and its samples have the probabilities that were recorded."""
    env = ENVS["uav-mec"].make()
    config = replace(default_config(algo, env), envs=2, steps=3, hidden=(8,), critic_hidden=(8,))
    learner, kinds = make_algorithm(algo, env, config=config), kinds_of(env.spec)

    @jax.jit
    def first(key):
        state = learner.init(key)
        act = lambda k, s, t: learner.act(state, t.view, k, False)  # noqa: E731
        roll = rollout(env, act, key, start(env, key, 2), 3)[1]
        batch = on_policy.agent_batches(roll, env.physics.base_policy, kinds)
        suggested = jax.vmap(env.physics.base_policy)(batch.obs.reshape(-1, env.spec.obs_dim)).preference.argmax(-1)
        dist = jax.vmap(on_policy.policy)(state.actors, batch)
        ratio = jax.vmap(on_policy.ratio)(state.actors, batch, first_of_kind(kinds, jnp.asarray(env.spec.action.used)))
        return suggested, dist.logits.argmax(-1).reshape(-1), ratio

    suggested, preferred, ratio = first(jax.random.key(0))
    np.testing.assert_array_equal(suggested, preferred)
    np.testing.assert_allclose(ratio, 1.0, rtol=1e-4)


@pytest.mark.parametrize("kind", ["mappo-lag", "macpo"])
def test_a_warm_start_imitates_and_values_what_it_imitates(kind):
    env = PROBES["probe-constrained"]()
    make, config = (ppo.make, LagrangianConfig()) if kind == "mappo-lag" else (macpo.make, MACPOConfig())
    algorithm = make(replace(config, hidden=(16,), critic_hidden=(16,), cost_discount=0.8), env.spec)
    script = env.scripted["optimal"]

    @jax.jit
    def prepared(key):
        state = algorithm.init(key)
        _, data = rollout(env, lambda k, s, t: (script(k, s), {}), key, start(env, key, 16), 32)
        return *algorithm.prepare(state, data, key), data

    state, metrics, data = prepared(jax.random.key(0))
    assert metrics["imitation/mode_agreement"] > 0.9
    assert float(state.actors["log_std"].max()) <= -1.6
    assert int(state.critic.reward.stats[2]) == 1, "as after one round: the scales are still to be found"
    level = on_policy.predict(
        central_critic(env.spec, config.critic_body, (16,)), state.critic.reward, state_input(data)
    )
    np.testing.assert_allclose(level.mean(), data.reward.mean() / 0.05, rtol=0.1)
