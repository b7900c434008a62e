"""TRIDENT's own pieces: annealing, budgets, the measured contraction, safe start; and the probes it must solve."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.algos import trident
from trident.algos.trident import Gain, TridentConfig, round_budget, temperature, training_limits
from trident.envs.probes import PROBES
from trident.eval.evaluate import evaluate, summarise
from trident.rollout import rollout, start
from trident.train.loop import policy_of, program

SMALL = TridentConfig(
    envs=16, steps=16, hidden=(16, 16), critic_hidden=(32, 32), cost_hidden=(32, 32), replay=4096, critic_steps=16,
    critic_batch=64, policy_batch=128, updates=2, trust_region=0.05, tighten=1.0, discount=0.8,
    cost_discount=0.8, alpha=0.5,
    warm_steps=300,
)  # fmt: skip


def test_temperature_falls_over_the_first_part_of_the_run():
    config = TridentConfig()
    values = [float(temperature(config, f, 0)) for f in (0.0, 0.3, 0.6, 1.0)]
    np.testing.assert_allclose(values, [1.0, 0.1**0.5, 0.1, 0.1], rtol=1e-5)
    paper = replace(config, anneal="paper")
    np.testing.assert_allclose(temperature(paper, 0.9, 1000), 0.9995**1000, rtol=1e-4)


def test_budgets_spend_slack_and_give_excess_back():
    config = TridentConfig(alpha=0.2, alpha_back=0.5)
    excess = jnp.array([-0.1, 0.1])
    np.testing.assert_allclose(round_budget(config, excess), [0.02, -0.05], rtol=1e-6)
    # Predictions that came true only to a quarter are asked for four times as much, but slack is never stretched.
    np.testing.assert_allclose(round_budget(config, excess, 0.25), [0.02, -0.2], rtol=1e-6)
    np.testing.assert_allclose(round_budget(replace(config, budget="paper"), excess), [0.1, -0.1], rtol=1e-6)


def test_training_limits_are_tighter_than_the_declared_ones():
    spec = PROBES["probe-constrained"]().spec
    config = TridentConfig(tighten=0.5, slack=0.1)
    np.testing.assert_allclose(training_limits(config, spec), 0.5 * spec.limits - 0.1, rtol=1e-6)


def test_contraction_is_measured_against_later_costs():
    config = TridentConfig()
    gain = Gain(jnp.full(1, 1e-4), jnp.full(1, 1e-4), jnp.array([0.5]), jnp.zeros(1))
    cost = 0.5
    for _ in range(60):  # every round predicts -0.1 and gets -0.02
        gain = gain._replace(predicted=jnp.array([-0.1]))
        cost -= 0.02
        gain, share = trident._contraction(config, gain, jnp.array([cost]), False)
    np.testing.assert_allclose(share, 0.2, rtol=0.02)
    _, share = trident._contraction(replace(config, calibrate=False), gain, jnp.array([cost]), False)
    assert share[0] == 1.0
    rising = gain._replace(cross=jnp.array([-1.0]))
    _, share = trident._contraction(config, rising, jnp.array([cost]), False)
    assert share[0] == np.float32(0.05)  # never zero or negative: the demand stays finite


def train(name, config, rounds, seeds=2):
    env = PROBES[name]()
    algorithm = trident.make(config, env.spec, env.physics)
    made = program(env, algorithm, rounds)
    state = jax.jit(jax.vmap(made.init))(
        jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0), i))(jnp.arange(seeds))
    )
    step = jax.jit(jax.vmap(made.round, in_axes=(0, None)), donate_argnums=0)
    for i in range(rounds):
        state, metrics = step(state, i)
    play = jax.jit(lambda s, k: evaluate(env, policy_of(env, algorithm, s), k, 400))
    results = [
        summarise(env.spec, jax.device_get(play(jax.tree.map(lambda x, j=j: x[j], state.algo), jax.random.key(9))))
        for j in range(seeds)
    ]
    return env, results, metrics


@pytest.mark.learning
@pytest.mark.parametrize("name", ["probe-mode", "probe-team"])
@pytest.mark.parametrize("estimator", ["exact", "stgc", "gs"])
def test_solves_the_unconstrained_probes(name, estimator):
    env, results, _ = train(name, replace(SMALL, estimator=estimator), 80)
    for result in results:
        assert result["reward"] > env.optimum - 0.15


@pytest.mark.learning
@pytest.mark.parametrize("name", ["probe-constrained", "probe-constrained-modes", "probe-unsafe-start"])
@pytest.mark.parametrize("source", ["pathwise", "score", "both"])
def test_constrained_probes_reach_their_closed_form_optimum(name, source):
    env, results, _ = train(name, replace(SMALL, source=source), 120)
    limit = float(env.spec.limits[0])
    for result in results:
        cost = result[f"cost/{env.spec.constraints[0].name}"]
        assert cost <= 1.06 * limit + 0.02
        assert abs(result["reward"] - env.optimum) < 0.2


def test_safe_start_imitates_and_keeps_the_given_noise():
    env = PROBES["probe-mode"]()
    algorithm = trident.make(SMALL, env.spec, env.physics)
    script = env.scripted["optimal"]

    @jax.jit
    def prepared(key):
        state = algorithm.init(key)
        policy = lambda k, s, t: (script(k, s), {})  # noqa: E731
        _, data = rollout(env, policy, key, start(env, key, 16), 16)
        state, metrics = algorithm.prepare(state, data, key)
        sums = evaluate(env, policy_of(env, algorithm, state, deterministic=True), key, 200)
        return state, metrics, sums

    state, metrics, sums = prepared(jax.random.key(0))
    assert metrics["imitation/mode_agreement"] > 0.95
    np.testing.assert_allclose(state.actors["log_std"], SMALL.warm_log_std)
    assert summarise(env.spec, jax.device_get(sums))["reward"] > env.optimum - 0.1


@pytest.mark.parametrize("estimator", ["gs", "st", "stgc", "stgc-paper", "romberg", "exact"])
@pytest.mark.parametrize(
    "variant", [{}, {"budget": "paper", "recovery": "paper", "agent_order": "fixed", "anneal": "paper"}]
)
def test_every_named_variant_traces(estimator, variant):
    env = PROBES["probe-unsafe-start"]()
    made = program(env, trident.make(replace(SMALL, estimator=estimator, **variant), env.spec, None), 4)
    state = jax.eval_shape(made.init, jax.random.key(0))
    jax.eval_shape(made.round, state, jnp.int32(0))
