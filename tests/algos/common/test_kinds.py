"""Agents of a kind share parameters: who is of which kind, and that sharing is what it says."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from trident.algos import macpo, ppo, trident
from trident.algos.common import on_policy
from trident.algos.common.actor import act, actor_apply, actors_apply, actors_init
from trident.algos.common.kinds import Kinds, actor_input, by_kind, kinds_of, real_members
from trident.algos.trident import cost_tracking, lcpo
from trident.algos.trident.batches import Members, member_batches
from trident.algos.trident.config import TridentConfig
from trident.algos.trident.critics import annotate
from trident.algos.trident.problem import Problem
from trident.algos.trident.surrogate import pathwise_change, pathwise_gradients
from trident.bench.fingerprint import digest
from trident.envs.probes.chain import ChainConfig, probe_chain
from trident.errors import TridentError
from trident.fields import change, flatten
from trident.maths.trust_region import TRUST_REGION
from trident.replay import Replay, block_of
from trident.simulation.rollout import rollout, start
from trident.training.loop import program
from trident.training.registry import ENVS, default_config, make_algorithm
from trident.types import Data, Physics, View

TWINS = Kinds((0, 1, 0))


def alike(agents=3):
    """A chain whose walkers are all of one kind: the same modes, boxes and speeds."""
    env = probe_chain(ChainConfig(agents=agents, modes=3, params=2, constraints=2))
    box = env.spec.action
    same = replace(box, low=np.tile(box.low[:1], (agents, 1, 1)), high=np.tile(box.high[:1], (agents, 1, 1)))
    same = replace(same, used=np.tile(box.used[:1], (agents, 1, 1)))
    env = replace(env, spec=replace(env.spec, action=same, kinds=None))
    return env


# --- who is of which kind -------------------------------------------------------------------------


def test_agents_with_equal_boxes_are_of_a_kind_unless_the_environment_says_otherwise():
    spec = alike().spec
    assert spec.kind_of.tolist() == [0, 0, 0]
    assert replace(spec, kinds=(7, 3, 7)).kind_of.tolist() == [0, 1, 0]
    high = spec.action.high.copy()
    high[1] += 1.0
    assert replace(spec, action=replace(spec.action, high=high)).kind_of.tolist() == [0, 1, 0]
    assert kinds_of(spec, share=False).separate
    assert kinds_of(spec) == Kinds((0, 0, 0))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("uav-mec", 1), ("intersection", 1), ("smac-3m", 1), ("smac-2s3z", 2), ("smac-MMM2", 3), ("probe-team", 2)],
)
def test_kinds_of_the_benchmarks(name, kinds):
    assert kinds_of(ENVS[name].make().spec).count == kinds


@pytest.mark.parametrize(
    ("kinds", "message"),
    [((0, 1), "2 entries for 3 agents"), ((0, 0, 0), "agents 0 and 1 are of a kind but have different boxes")],
)
def test_kinds_that_cannot_be_are_refused_in_one_line(kinds, message):
    env = probe_chain(ChainConfig(agents=3, modes=3, params=2, constraints=2))
    with pytest.raises(TridentError, match=message):
        kinds_of(replace(env.spec, kinds=kinds))


# --- parameters of a kind -------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [Kinds((0, 0, 0)), TWINS, Kinds((0, 1, 2)), Kinds((0, 1, 0), agent_id=True)])
def test_every_agent_acts_by_the_parameters_of_its_kind(kinds):
    obs = jax.random.normal(jax.random.key(1), (4, 3, 5))
    size = 5 + 3 * kinds.agent_id
    params = actors_init(jax.random.key(0), kinds.count, size, (8,), 3, 2, -0.5)
    together = actors_apply(params, obs, kinds=kinds)
    seen = actor_input(kinds, obs)
    for agent, kind in enumerate(kinds.of):
        alone = actor_apply(jax.tree.map(lambda x, k=kind: x[k], params), seen[:, agent])
        jax.tree.map(
            lambda a, b, i=agent: np.testing.assert_allclose(a[:, i], b, rtol=1e-4, atol=1e-6), together, alone
        )


def test_a_policy_of_one_kind_does_not_know_who_is_who():
    """Permuting agents permutes what they do; with the agent's number in sight it need not."""
    spec = alike().spec
    obs = jax.random.normal(jax.random.key(1), (3, spec.obs_dim))
    order = np.array([2, 0, 1])
    mask, alive = jnp.ones((3, spec.action.num_modes), bool), jnp.ones(3, bool)
    for agent_id in (False, True):
        kinds = kinds_of(spec, agent_id=agent_id)
        params = actors_init(jax.random.key(0), 1, spec.obs_dim + 3 * agent_id, (8,), 3, 2, -0.5)
        params = jax.tree.map(lambda x: 3.0 * x, params)
        of = lambda o, p=params, k=kinds: act(p, spec.action, View(o, mask, alive), None, True, None, k)[0].params  # noqa: E731
        assert np.allclose(of(obs)[order], of(obs[order]), atol=1e-5) != agent_id


def test_samples_of_a_kind_are_those_of_its_members_and_repeats_are_dead():
    x = jnp.arange(3 * 4.0).reshape(3, 4)
    np.testing.assert_array_equal(by_kind(TWINS, x), [[*range(4), *range(8, 12)], [*range(4, 8), *range(4, 8)]])
    np.testing.assert_array_equal(real_members(TWINS), [[True, True], [True, False]])


# --- one agent per kind is the former algorithm; members of a kind add up ----------------------------

LEARNERS = ["mappo", "happo", "mappo-lag", "macpo", "maddpg", "facmac", "qmix", "madac", "trident-scratch"]
TINY = {
    "envs": 4, "steps": 6, "hidden": (8,), "critic_hidden": (8,), "reward_hidden": (8,), "cost_hidden": (8,),
    "replay": 96, "policy_batch": 16, "epochs": 2, "minibatches": 2, "batch": 8, "levels": 2, "mixer_embed": 4,
    "mixer_hidden": 4, "fisher_batch": 8, "updates": 2, "cg_steps": 2,
}  # fmt: skip


def tiny(algo, env, **more):
    config = default_config(algo, env)
    paths = {path: path.rpartition(".")[2] for path in flatten(config)}
    sizes = TINY | more
    return change(config, {path: sizes[name] for path, name in paths.items() if name in sizes})


def one_round(env, algorithm):
    built = program(env, algorithm, 4)

    @jax.jit
    def run(key):
        state, metrics = built.round(built.init(key), 0)
        return state.algo, metrics

    return jax.tree.map(np.asarray, run(jax.random.key(0)))


@pytest.mark.parametrize("algo", LEARNERS)
def test_a_kind_for_every_agent_is_separate_actors(algo):
    """The same program to the last operation; so is every bit of its results."""
    env = alike()

    def traced(env, **fields):
        body = {"critic_body": "concatenated", "body": "concatenated"}  # pooled, critics know kinds whoever acts
        built = program(env, make_algorithm(algo, env, config=tiny(algo, env, **body, **fields)), 4)
        state = jax.eval_shape(built.init, jax.random.key(0))
        return digest(lambda s, i: built.round(s, i)[0], state, jnp.int32(0))

    separate = traced(env, share_actors=False)
    assert traced(replace(env, spec=replace(env.spec, kinds=(0, 1, 2)))) == separate
    assert traced(env) != separate


@pytest.mark.parametrize("algo", LEARNERS)
@pytest.mark.parametrize("kinds", [None, (0, 1, 0)])
def test_every_learner_shares(algo, kinds):
    """A round with shared actors is traced whole: one set of parameters per kind, and nothing else changes shape."""
    env = alike()
    env = replace(env, spec=replace(env.spec, kinds=kinds))
    built = program(env, make_algorithm(algo, env, config=tiny(algo, env)), 4)
    state = jax.eval_shape(built.init, jax.eval_shape(lambda: jax.random.key(0)))
    after, metrics = jax.eval_shape(built.round, state, 0)
    assert jax.tree.map(lambda x: x.shape, after.algo) == jax.tree.map(lambda x: x.shape, state.algo)
    count = 1 if kinds is None else 2
    trunk = state.algo
    for name in ("policy", "nets"):
        trunk = getattr(trunk, name, trunk)
    trunk = trunk.utility if algo == "qmix" else trunk.actors
    assert {leaf.shape[0] for leaf in jax.tree.leaves(trunk)} == {count}
    assert "reward" in metrics


def fake_rollout(env, algorithm, state, envs=4, steps=6):
    policy = lambda k, _, t: algorithm.act(state, t.view, k, False)  # noqa: E731
    return jax.jit(lambda key: rollout(env, policy, key, start(env, key, envs), steps)[1])(jax.random.key(1))


def test_a_shared_surrogate_is_the_sum_over_members_by_finite_differences():
    """PPO's gradient on the rows of all members, and MACPO's, against differences of each member's own surrogate."""
    env = alike()
    config = tiny("mappo", env, entropy=0.0)
    algorithm = make_algorithm("mappo", env, config=config)
    state, kinds = algorithm.init(jax.random.key(0)), kinds_of(env.spec)
    roll = fake_rollout(env, algorithm, state)
    used = jnp.asarray(env.spec.action.used)[0]
    theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], state.actors))
    advantage = jax.random.normal(jax.random.key(2), (roll.reward.size,))
    rows = jax.tree.map(lambda x: x[0], on_policy.agent_batches(roll, None, kinds))
    each = on_policy.agent_batches(roll)
    alive = np.asarray(each.alive, float)

    @jax.jit
    def members(t):
        """sum_i sum_rows ratio_i A, over the number of living rows."""
        ratios = jax.vmap(lambda b: on_policy.ratio(unravel(t), b, used))(each)
        return jnp.sum(ratios * alive * advantage) / alive.sum()

    shared = jax.jit(lambda t: ppo.surrogate(config, unravel(t), rows, jnp.tile(advantage, 3), used))
    joint = jax.jit(
        lambda t: jnp.mean(
            (on_policy.joint_ratio(on_policy.ratio(unravel(t), rows, used), advantage.size) - 1) * advantage
        )
    )
    for seed in range(3):
        way = jax.random.normal(jax.random.key(seed), theta.shape)
        way, h = way / jnp.linalg.norm(way), 1e-2
        by_hand = (members(theta + h * way) - members(theta - h * way)) / (2 * h)
        np.testing.assert_allclose(jax.grad(shared)(theta) @ way, by_hand, rtol=2e-2, atol=1e-4)
        whole = jax.grad(joint)(theta) @ way * advantage.size / alive.sum()
        np.testing.assert_allclose(whole, by_hand, rtol=2e-2, atol=1e-4)


def small_problem(env, physics, **fields):
    sizes = {"policy_batch": 48, "fisher_batch": 48, "estimator": "exact", "source": "pathwise", "hidden": (8,)}
    nets = {"reward_hidden": (16,), "cost_hidden": (8,), "envs": 4, "steps": 6, "replay": 96}
    return Problem(change(TridentConfig(), sizes | nets | fields), env.spec, physics)


def learner(env, physics=None, **fields):
    """(problem, actors, rough critics, data)"""
    problem = small_problem(env, physics or env.physics, **fields)
    algorithm = trident.make(problem.config, env.spec, problem.physics)
    state = algorithm.init(jax.random.key(0))
    roll = fake_rollout(env, algorithm, state)
    roll = roll._replace(extras=roll.extras | annotate(problem, roll))
    data = Data(roll, Replay(block_of(roll), jnp.int32(roll.reward.size)))
    rough = lambda w: w + 0.3 * jax.random.normal(jax.random.key(1), w.shape)  # noqa: E731
    return problem, state.policy.actors, state.critic._replace(critics=jax.tree.map(rough, state.critic.critics)), data


def test_tridents_gradient_for_a_kind_is_that_of_the_summed_surrogate():
    """Against finite differences of each member's own change, the others as they were."""
    problem, actors, critic, data = learner(alike())
    theta, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], actors))
    parts = (problem, critic, jnp.float32(0.5))

    @jax.jit
    def measure(way):
        members = member_batches(problem, data, jnp.int32(0), jax.random.key(3))
        _, weight = lcpo.own_rows(problem, members)
        gradient = lambda *m: jnp.sum(pathwise_gradients(*parts, actors, theta, unravel, *m), axis=(0, 1))  # noqa: E731
        change = lambda t, *m: pathwise_change(*parts, actors, unravel(theta), unravel(t), *m)  # noqa: E731
        ends = [lcpo._sum(lambda *m, h=h: change(theta + h * way, *m), members, weight) for h in (1e-2, -1e-2)]
        whole = members.size * lcpo._sum(gradient, members, weight) @ way
        return members, whole, members.size * (ends[0] - ends[1]) / 2e-2

    for seed in range(3):
        way = jax.random.normal(jax.random.key(seed), theta.shape)
        members, whole, by_hand = measure(way / jnp.linalg.norm(way))
        np.testing.assert_allclose(whole, by_hand, rtol=3e-2, atol=2e-4)
    assert sorted(members.agent.tolist()) == [0, 1, 2]
    assert float(members.size) == 3.0
    np.testing.assert_allclose(members.share, 1 / 3, rtol=1e-6)


def test_members_of_a_smaller_kind_stand_twice_with_half_the_weight():
    env = alike()
    env = replace(env, spec=replace(env.spec, kinds=(0, 1, 0)))
    problem, _, _, data = learner(env)
    members = jax.jit(lambda: member_batches(problem, data, jnp.int32(1), jax.random.key(3)))()
    assert members.agent.tolist() == [1, 1]
    np.testing.assert_allclose(members.share, [0.5, 0.5])
    assert float(members.size) == 1.0


def test_the_line_search_judges_what_members_do_together():
    """With physics that pays for the product of two agents' speeds, moving both is not the sum of moving each: the mean
    of the change among the others as they are and as they have become is the joint change exactly."""
    env = alike(agents=2)

    def signals(state, action):
        x = action.params[:, 0]
        return jnp.stack([x[0] * x[1], x[0] + x[1], 0.0 * x[0]])

    physics = Physics(signals, predict=lambda s, a: s, nominal=env.physics.nominal)
    problem, actors, critic, data = learner(env, physics, source="closed-form")
    parts, old = (problem, critic, jnp.float32(0.5)), jax.tree.map(lambda x: x[0], actors)

    @jax.jit
    def measure():
        one = member_batches(problem, data, jnp.int32(0), jax.random.key(3))
        same = jax.tree.map(lambda x: jnp.stack([x[0], x[0]]), one.batch)  # both members in the same states
        same = same._replace(mode_mask=jnp.broadcast_to(jnp.arange(3) == 1, same.mode_mask.shape))  # nothing to draw
        members = Members(jnp.arange(2), jnp.full(2, 0.5), jnp.float32(2.0), same)
        _, weight = lcpo.own_rows(problem, members)
        common = lcpo.Round(*parts[:2], None, jnp.ones(3), parts[2], jnp.float32(0.5), jnp.float32(0.0), jnp.zeros(2))
        opt = jax.tree.map(lambda x: x[0], lcpo.start(problem, actors).opt)
        free = jnp.full(2, cost_tracking.UNLIMITED)
        new, _, report = lcpo.kind_step(
            common, members, jnp.int32(0), jax.random.key(4), actors, opt, free, jnp.bool_(False)
        )
        moved = jax.tree.map(lambda x: x[None], new)
        first, second = (jax.tree.map(lambda x, i=i: x[i], (same, members.agent, 2.0 * weight)) for i in (0, 1))
        change = lambda others, member: pathwise_change(*parts, others, old, new, *member)  # noqa: E731
        one_after_another = change(actors, first) + change(moved, second)
        return report.info, one_after_another, change(actors, first) + change(actors, second)

    info, one_after_another, alone = measure()
    assert info.kind == TRUST_REGION
    np.testing.assert_allclose(info.change[0], one_after_another[0], rtol=1e-3, atol=1e-6)
    assert abs(float(alone[0] - info.change[0])) > 0.01 * abs(float(info.change[0]))  # what single changes do not see


def test_a_mixed_team_learns():
    """Two of one kind and one of another, one after another, dead members among them."""
    env = alike()
    env = replace(env, spec=replace(env.spec, kinds=(0, 1, 0)))
    algorithm = make_algorithm("happo", env, config=tiny("happo", env))
    state, metrics = one_round(env, algorithm)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert np.isfinite(metrics["reward"]).all()


def test_macpo_counts_all_members_in_the_budget():
    env = alike()
    config = tiny("macpo", env)
    _, metrics = one_round(env, macpo.make(config, env.spec))
    assert np.isfinite(metrics["budget_spent"].values).all()
    assert metrics["kl"] <= 1.3 * config.trust_region + 1e-6
