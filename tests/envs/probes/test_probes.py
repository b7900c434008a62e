"""The probes' answers, each confirmed by another road: linear programmes over action grids, rollouts, brute force."""

import itertools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from trident.envs.checks.shapes import shape_faults
from trident.envs.checks.values import check_env, find_faults
from trident.envs.probes.chain import CHAINS, ChainConfig, probe_chain
from trident.envs.probes.one_shot import PROBES, ProbeState, probe_discount, probe_nan, probe_value
from trident.types import HybridAction, decode_params

CONSTRAINED = ("probe-constrained", "probe-constrained-modes", "probe-unsafe-start")
ONE_SHOT = ("probe-mode", "probe-team", *CONSTRAINED)


# every program here runs once or twice on tiny arrays, so that compiling is what takes time
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
KEY = jax.random.key(0)


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", [name for name in PROBES if name != "probe-nan"])
def test_probes_pass_the_check(name):
    env = PROBES[name]()
    assert env.spec.name == name
    check_env(env)


@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_the_declared_shapes(name):
    env = probe_chain(CHAINS[name])
    assert list(shape_faults(env)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_chains_pass_the_check(name):
    check_env(probe_chain(CHAINS[name]), stochastic=True)


# --- one-shot probes against a linear programme ---------------------------------------------------


def joint_actions(env, points):
    """Every combination of existing modes and `points` values per read parameter, as one batched HybridAction."""
    spec, grid = env.spec.action, np.linspace(-1.0, 1.0, points)
    agents = []
    for i in range(env.spec.num_agents):
        choices = []
        for mode in np.flatnonzero(env.exists[i]):
            axes = [grid if used else [0.0] for used in spec.used[i, mode]]
            choices += [(mode, unit) for unit in itertools.product(*axes)]
        agents.append(choices)
    joint = list(itertools.product(*agents))
    mode = np.array([[mode for mode, _ in row] for row in joint], np.int32)
    unit = np.array([[unit for _, unit in row] for row in joint], np.float32)
    return mode, unit


def contexts(env):
    """Every state an episode of a one-shot probe can start in, [X]."""
    count = env.spec.state_dim
    return ProbeState(np.eye(count, dtype=np.float32), np.zeros(count, np.int32))


@pytest.mark.parametrize("name", ONE_SHOT)
def test_optimum_and_multiplier_against_a_linear_programme(name):
    """max_p sum_x sum_a p(a|x) r(x, a) / X subject to the mean cost: over all random policies on a grid of actions.

    The programme's dual is the multiplier. On the way: the physics is exact, and only one probe starts unsafe.
    """
    env = PROBES[name]()

    def pay(state, mode, unit):
        action = HybridAction(mode, decode_params(env.spec.action, mode, unit))
        after, out = env.step(KEY, state, action)
        agrees = (env.physics.predict(state.x, action) == after.x).all() & out.terminated
        return jnp.append(out.reward, out.cost), env.physics.signals(state.x, action), agrees

    # both grids contain the optimum
    grid = joint_actions(env, points=9 if name == "probe-team" else 41)
    every = jit(jax.vmap(jax.vmap(pay, (None, 0, 0)), (0, None, None)))
    paid, predicted, agrees = every(contexts(env), *grid)  # [X, A, ...]
    assert agrees.all()
    np.testing.assert_allclose(predicted, paid, rtol=1e-6)
    paid = np.asarray(paid, np.float64)
    x, a, signals = paid.shape
    # what a fresh network does: every mode equally likely, at the middle of its box
    fresh = paid[:, (grid[1] == 0).all((1, 2)), 1:].mean((0, 1))
    assert (fresh <= env.spec.limits).all() == (name != "probe-unsafe-start")
    result = linprog(
        -paid[..., 0].ravel() / x,
        A_ub=paid[..., 1:].reshape(x * a, -1).T / x if signals > 1 else None,
        b_ub=env.spec.limits if signals > 1 else None,
        A_eq=np.kron(np.eye(x), np.ones(a)),
        b_eq=np.ones(x),
    )
    assert result.status == 0
    np.testing.assert_allclose(-result.fun, env.optimum, atol=2e-5)
    if signals > 1:
        # at a kink of the grid's piecewise linear problem the dual is an interval, as wide as two grid steps
        np.testing.assert_allclose(-result.ineqlin.marginals, [env.multiplier], atol=0.11)


@pytest.mark.parametrize("name", ONE_SHOT)
def test_the_optimal_script_earns_the_optimum_within_the_limits(name):
    env, draws = PROBES[name](), 2000 if name == "probe-constrained-modes" else 1

    def play(state, key):
        return env.step(key, state, env.scripted["optimal"](key, state))[1]

    out = jit(jax.vmap(jax.vmap(play, (0, None)), (None, 0)))(contexts(env), jax.random.split(KEY, draws))
    noise = 3.5 * np.sqrt(0.4 * 0.6 / draws) if draws > 1 else 1e-5  # of a mode drawn with probability 0.4
    np.testing.assert_allclose(out.reward.mean(), env.optimum, atol=noise)
    np.testing.assert_allclose(out.cost.mean((0, 1)), env.spec.limits, atol=noise)


def test_the_unsafe_start_shares_one_limit():
    """Each agent alone with the whole limit would stop at x_i = d - 1; together they split it unevenly."""
    env = PROBES["probe-unsafe-start"]()
    action = env.scripted["optimal"](KEY, ProbeState(jnp.ones(1), jnp.int32(0)))
    np.testing.assert_allclose(action.params[:, 0], [-0.2, -0.6], atol=1e-6)


def test_contexts_are_drawn_at_random():
    probes = {"probe-mode": 3, "probe-discount": 2}
    keys = jax.random.split(KEY, 64)
    for name, count in probes.items():
        seen = np.asarray(jit(jax.vmap(PROBES[name]().reset))(keys)[1].state)
        assert len(np.unique(seen, axis=0)) == count


# --- values ---------------------------------------------------------------------------------------


def episodes(env, starts, steps):
    """TimeSteps [X, steps] after each step from the states x."""

    def episode(start):
        def step(state, _):
            return env.step(KEY, state, HybridAction(jnp.zeros(1, jnp.int32), jnp.zeros((1, 1))))

        return jax.lax.scan(step, ProbeState(start, jnp.int32(0)), None, steps)[1]

    return jax.tree.map(np.asarray, jit(jax.vmap(episode))(np.array(starts, np.float32)))


@pytest.mark.parametrize(
    ("env", "starts"),
    [(probe_value(), [[1]]), (probe_value(truncates=True), [[1]]), (probe_discount(), [[1, 0], [-1, 0]])],
    ids=["terminated", "truncated", "late"],
)
def test_values_solve_bellmans_equation(env, starts):
    """V(s) = signals + discount (1 - terminated) V(s') along an episode; truncation does not stop the value."""
    discount = 0.9
    out = episodes(env, starts, env.spec.horizon)
    states = np.concatenate([np.array(starts, np.float32)[:, None], out.state], axis=1)
    value = np.array([[env.value(jnp.asarray(x), discount) for x in row] for row in states])
    signals = np.concatenate([out.reward[..., None], out.cost], axis=-1)
    follow = discount * ~out.terminated[..., None] * value[:, 1:]
    np.testing.assert_allclose(value[:, :-1], signals + follow, rtol=1e-5, atol=1e-6)
    assert (out.terminated ^ out.truncated)[:, -1].all()
    assert not (out.terminated | out.truncated)[:, :-1].any()
    assert out.truncated.any() == (env.spec.name == "probe-value-truncated")


def test_values_in_numbers():
    np.testing.assert_allclose(probe_value().value(jnp.ones(1), 0.9), [1.0, 0.5])
    np.testing.assert_allclose(probe_value(truncates=True).value(jnp.ones(1), 0.9), [10.0, 5.0], rtol=1e-6)
    np.testing.assert_allclose(probe_discount().value(jnp.array([1.0, 0.0]), 0.9), [0.9, 0.9], rtol=1e-6)
    np.testing.assert_allclose(probe_discount().value(jnp.array([-1.0, 1.0]), 0.9), [-1.0, 0.0], rtol=1e-6)


# --- the chain ------------------------------------------------------------------------------------

QUIET = ChainConfig(noise=0.0)


@pytest.fixture(scope="module")
def chain():
    """reset and step of a chain without noise, and its physics, all compiled once."""
    env = probe_chain(QUIET)
    physics = jit(lambda x, action: (env.physics.signals(x, action), env.physics.predict(x, action)))
    return SimpleNamespace(reset=jit(env.reset), step=partial(jit(env.step), KEY), physics=physics)


def act(mode, params):
    return HybridAction(jnp.array(mode, jnp.int32), jnp.array(params, jnp.float32))


def test_chain_physics_follows_the_step_without_noise(chain):
    """Mean successor, reward and heat are exact; the smooth indicators agree with the sharp ones away from the edge."""
    state, out = chain.reset(KEY)
    for action in (
        act([2, 1, 0], [[0.35, 0.5], [0.1, 0.0], [0.0, 0.0]]),
        act([1, 0, 2], [[0.1, -1.0], [0.0, 0.0], [0.4, -1.0]]),  # the last walker dies of it
        act([0, 1, 0], [[0.0, 0.0], [0.2, 0.0], [0.0, 0.0]]),
    ):
        signals, successor = chain.physics(out.state, action)
        state, out = chain.step(state, action)
        np.testing.assert_allclose(successor, out.state, atol=1e-6)
        np.testing.assert_allclose(signals[:2], [out.reward, out.cost[0]], atol=1e-6)
        np.testing.assert_allclose(signals[2:], out.cost[1:], atol=0.3)
        assert ((signals[2:3] > 0.5) == (out.cost[1:2] > 0.5)).all()
    assert out.alive.tolist() == [True, True, False]


def test_chain_heat_costs_one_step_late(chain):
    start, _ = chain.reset(KEY)

    def costs(speed):
        after, now = chain.step(start, act([1, 1, 1], [[speed, 0.0]] * 3))
        return np.array([now.cost[0], chain.step(after, act([0, 0, 0], np.zeros((3, 2))))[1].cost[0]])

    now, later = (costs(0.15) - costs(0.05)) / 0.1
    assert now == 0.0
    np.testing.assert_allclose(later, 12 * 0.1, rtol=1e-4)  # d/dv of 6 v^2: central differences are exact


def test_chain_walkers_die_masks_change_and_episodes_end(chain):
    state, out = chain.reset(KEY)
    assert out.mode_mask.tolist() == [[True, True, True], [True, True, False], [True, True, True]]
    reckless = act([2, 1, 2], [[0.4, -1.0], [0.2, 0.0], [0.1, 0.0]])
    state, out = chain.step(state, reckless)
    assert out.alive.tolist() == [False, True, True]  # 6 * 0.4^2 * 1.5 > 1
    assert out.mode_mask[0].tolist() == [True, False, False]
    np.testing.assert_allclose(out.cost[1:], [1.0, 1 / 3], rtol=1e-6)
    assert out.margin[1] < 0
    place = state.place[0]
    state, out = chain.step(state, reckless)
    assert state.place[0] == place  # the dead stand still
    assert not out.mode_mask[2, 2]  # barred in every third step
    _, out = chain.step(state._replace(place=jnp.array([0.0, 1.5, 1.45])), reckless)
    assert (out.terminated, out.truncated) == (True, False)  # all that live have arrived
    _, out = chain.step(state._replace(alive=jnp.zeros(3, bool)), reckless)
    assert (out.terminated, out.truncated) == (True, False)  # nobody lives
    _, out = chain.step(state._replace(t=jnp.int32(11)), reckless)
    assert (out.terminated, out.truncated) == (False, True)


@pytest.mark.parametrize(
    ("mode", "params", "wrong"),
    [
        ([1, 1, 1], [[0.1, 0.5], [0.1, 0.0], [0.1, -0.5]], 0),
        ([1, 2, 1], [[0.1, 0.5], [0.0, 0.0], [0.1, -0.5]], 1),  # agent 1 has no third mode
        ([0, 1, 1], [[0.1, 0.0], [0.1, 0.0], [0.1, -0.5]], 1),  # standing still reads no parameter
        ([1, 1, 1], [[0.3, 0.5], [0.1, 0.7], [0.1, -1.5]], 3),  # too fast, care where there is none, too careful
    ],
)
def test_chain_counts_illegal_actions(chain, mode, params, wrong):
    state, _ = chain.reset(KEY)
    assert chain.step(state, act(mode, params))[1].metrics["illegal"] == wrong


def test_chain_configurations_differ_as_named():
    sizes = {}
    for name, config in CHAINS.items():
        spec = probe_chain(config).spec
        sizes[name] = (spec.num_agents, *spec.action.low.shape[1:], spec.num_constraints)
    assert sizes == {
        "full": (3, 3, 2, 3),
        "one-agent": (1, 3, 2, 3),
        "one-mode": (3, 1, 2, 3),
        "no-params": (3, 3, 0, 3),
        "one-constraint": (3, 3, 2, 1),
        "no-constraints": (3, 3, 2, 0),
        "no-physics": (3, 3, 2, 3),
        "smallest": (1, 1, 0, 0),
    }
    assert [name for name, config in CHAINS.items() if probe_chain(config).physics is None] == [
        "no-physics",
        "smallest",
    ]
    # unequal walkers: the odd one lacks a mode and a parameter
    assert probe_chain().spec.action.used.sum(axis=(1, 2)).tolist() == [4, 1, 4]
    limits = probe_chain().spec.with_limits({"heat": 0.1})
    assert replace(probe_chain(), spec=limits).spec.limits[0] == np.float32(0.1)


# --- broken on purpose ----------------------------------------------------------------------------


def test_nan_comes_after_the_given_step():
    struck, spared = np.isnan(episodes(probe_nan(after=2), [[1], [0]], 4).reward).tolist()
    assert struck == [False, False, True, True]
    assert not any(spared)
    (fault,) = find_faults(probe_nan(after=2), steps=5)
    assert "reward is not finite after step 3" in fault


def test_nan_strikes_a_share_of_the_episodes():
    struck = jit(jax.vmap(probe_nan(share=0.25).reset))(jax.random.split(KEY, 400))[0].x
    assert abs(np.mean(struck) - 0.25) < 0.08  # 3.5 standard errors
