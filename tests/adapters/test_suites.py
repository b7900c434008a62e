"""JaxMARL and CAMAR: what is played is what they play, and it is compiled into the round."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trident
from trident import HybridAction
from trident.adapters import adapt
from trident.adapters.suites import FromSuite
from trident.errors import TridentError
from trident.training.names import make


class Box:
    def __init__(self, low, high, shape):
        self.low, self.high, self.shape = low, high, shape


class Discrete:
    def __init__(self, n):
        self.n, self.shape = n, ()


class MultiDiscrete: ...


class Chase:
    """JaxMARL's interface: a hunter of three modes, prey with a push of two numbers that dies when it stands still."""

    agents = ("prey", "hunter")
    max_steps = 5
    name = "chase"

    def observation_space(self, agent):
        return Box(-1, 1, (2, 2) if agent == "prey" else (3,))

    def action_space(self, agent):
        return Box(-2.0, np.array([2.0, 4.0]), (2,)) if agent == "prey" else Discrete(3)

    def reset(self, key):
        state = jnp.float32(1.0) + 0 * jax.random.uniform(key)
        return self.look(state), state

    def look(self, state):
        return {"prey": jnp.full((2, 2), state), "hunter": jnp.full(3, -state)}

    def get_avail_actions(self, state):
        return {"hunter": jnp.array([1, 0, 1]), "prey": jnp.ones(2)}

    def step_env(self, key, state, actions):
        after = state + actions["prey"].sum() + 10.0 * actions["hunter"]
        dead = actions["prey"].sum() == 0.0
        over = after > 100.0
        rewards = {"prey": after, "hunter": 1.0}
        return self.look(after), after, rewards, {"prey": dead | over, "hunter": over, "__all__": over}, {"far": after}


def act(push, mode):
    return HybridAction(jnp.array([0, mode]), jnp.array([push, [0.0, 0.0]], jnp.float32))


def test_unequal_agents_masks_deaths_and_ends():
    far = lambda before, given, after, info: jnp.array([info["far"] > 20.0, before > 20.0])  # noqa: E731
    env = trident.from_suite(
        Chase(), costs={"far": far}, limits={"far": 0.1}, metrics={"hunted": lambda b, given, a, i: given["hunter"]}
    )
    spec = env.spec
    assert (spec.num_agents, spec.obs_dim, spec.state_dim, spec.horizon, spec.kinds) == (2, 4, 8, 5, (0, 1))
    assert spec.action.low.tolist() == [[[-2, -2], [0, 0], [0, 0]], [[0, 0]] * 3]
    assert spec.action.high[0, 0].tolist() == [2, 4]
    assert not spec.action.used[1].any()
    s, first = env.reset(jax.random.key(0))
    assert first.obs.tolist() == [[1, 1, 1, 1], [-1, -1, -1, 0]]
    assert first.mode_mask.tolist() == [[True, False, False], [True, False, True]]
    step = jax.jit(env.step)
    s, out = step(jax.random.key(1), s, act([1.0, 2.0], 2))
    assert (float(out.reward), out.cost.tolist()) == (12.5, [0.5])
    assert out.cost_attribution.tolist() == [[True], [False]]
    assert float(out.margin[0]) == 0.0
    assert float(out.metrics["hunted"]) == 2.0
    s, out = step(jax.random.key(1), s, act([0.0, 0.0], 0))
    assert out.alive.tolist() == [False, True]
    _, over = step(jax.random.key(1), s, act([2.0, 4.0], 9))  # 24 + 6 + 10 * 2: modes beyond its own are its last
    assert float(over.reward) == 25.5
    s = s._replace(theirs=jnp.float32(95.0))
    _, over = step(jax.random.key(1), s, act([2.0, 4.0], 0))
    assert (bool(over.terminated), bool(over.truncated), over.alive.tolist()) == (True, False, [False, True])
    late = step(jax.random.key(1), s._replace(theirs=jnp.float32(0.0), t=jnp.int32(4)), act([1.0, 1.0], 0))[1]
    assert (bool(late.terminated), bool(late.truncated)) == (False, True)
    assert trident.check_env(env) is None


def test_what_cannot_be_is_one_line():
    with pytest.raises(TridentError, match=r"'x' has one of them: limits=\{'x': \.\.\.\}"):
        trident.from_suite(Chase(), costs={"x": lambda *_: 0.0})
    with pytest.raises(TridentError, match=r"'x' has one of them: costs=\{'x': function\}"):
        trident.from_suite(Chase(), limits={"x": 1.0})
    with pytest.raises(TridentError, match="unknown declaration 'limit' of an environment: did you mean 'limits'"):
        trident.from_suite(Chase(), limit={})
    endless = Chase()
    endless.max_steps = None
    with pytest.raises(TridentError, match=r"chase does not say how long an episode is: declare horizon=\.\.\."):
        trident.from_suite(endless)
    odd = Chase()
    odd.action_space = lambda agent: MultiDiscrete()
    with pytest.raises(TridentError, match="the action space of prey is MultiDiscrete"):
        trident.from_suite(odd)
    with pytest.raises(TridentError, match="nor the interface of PettingZoo, Gymnasium, JaxMARL or CAMAR"):
        adapt(SimpleNamespace(), "mine")
    assert isinstance(adapt(Chase(), "mine"), FromSuite)


# --- the suites themselves ------------------------------------------------------------------------


@pytest.mark.adapters
def test_jaxmarl_by_name_plays_what_jaxmarl_plays():
    jaxmarl = pytest.importorskip("jaxmarl", reason="make test-adapters")
    env, theirs = make("jaxmarl:MPE_simple_spread_v3"), jaxmarl.make("MPE_simple_spread_v3")
    assert (env.spec.name, env.spec.action.num_modes, env.spec.horizon) == ("jaxmarl:MPE_simple_spread_v3", 5, 25)
    key = jax.random.key(4)
    s, out = env.reset(key)
    obs, state = theirs.reset(key)
    for t in range(3):
        mode = jnp.array([t, 4 - t, 2])
        given = {agent: mode[i] for i, agent in enumerate(theirs.agents)}
        obs, state, rewards, *_ = theirs.step_env(jax.random.key(t), state, given)
        s, out = env.step(jax.random.key(t), s, HybridAction(mode, jnp.zeros((3, 0))))
        np.testing.assert_array_equal(out.obs, jnp.stack([obs[a] for a in theirs.agents]))
        assert float(out.reward) == pytest.approx(float(np.mean([rewards[a] for a in theirs.agents])), rel=1e-6)
    with pytest.raises(TridentError, match=r"jaxmarl:MPE_spread cannot be made: ValueError: MPE_spread is not in"):
        make("jaxmarl:MPE_spread")


@pytest.mark.adapters
def test_camar_by_name_is_compiled_into_the_round(tmp_path, monkeypatch):
    pytest.importorskip("camar", reason="make test-adapters")
    monkeypatch.chdir(tmp_path)
    args = {"num_agents": 3, "num_rows": 6, "num_cols": 6, "max_steps": 8}
    env = make("camar:random_grid", args)
    assert (env.spec.num_agents, env.spec.horizon, env.spec.kinds) == (3, 8, (0, 0, 0))
    assert [(c.name, c.limit) for c in env.spec.constraints] == [("collision", 0.01)]
    s, _ = env.reset(jax.random.key(0))
    _, theirs, reward, *_ = env.env.step(jax.random.key(1), s.theirs, jnp.ones((3, 2)))
    after, out = env.step(jax.random.key(1), s, HybridAction(jnp.zeros(3, jnp.int32), jnp.ones((3, 2))))
    np.testing.assert_array_equal(after.theirs.physical_state.agent_pos, theirs.physical_state.agent_pos)
    assert float(out.cost[0]) == pytest.approx(float(theirs.is_collision.mean()))
    assert float(out.reward) == pytest.approx(float((reward[:, 0] + theirs.is_collision).mean()), abs=1e-6)
    config = {"envs": 2, "steps": 8, "hidden": (8, 8)}
    run = trident.train("camar:random_grid", "mappo", env_args=args, episodes=4, seeds=1, eval_episodes=2, video=False,
                        config=config, check_env=False, out="run")  # fmt: skip
    assert np.isfinite(run.records[-1]["values"]["cost/collision"][0])
    assert trident.load("run").setup.spec.num_agents == 3
    with pytest.raises(TridentError, match="camar has no map 'maze': there are "):
        make("camar:maze")
