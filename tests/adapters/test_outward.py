"""Every environment of ours under the conformance tests of PettingZoo and Gymnasium."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="make test-adapters")
pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("ignore::UserWarning")]

from gymnasium import spaces  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402
from pettingzoo.test import parallel_api_test, parallel_seed_test  # noqa: E402

import trident  # noqa: E402
from trident.errors import TridentError  # noqa: E402
from trident.training.registry import ENVS, make_env  # noqa: E402

EACH = ["uav-mec", "intersection-n2", "simple-spread-hybrid", "navigation", "smac-3m"]
"""One of every package; the others vary them, and take as long to compile."""
PROBES = [name for name in ENVS if name.startswith("probe-") and name != "probe-nan"]
OTHERS = [name for name in ENVS if name not in (*EACH, *PROBES, "smarts-intersection", "probe-nan")]
NAMES = [*EACH, *PROBES, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
ONE_AGENT = [name for name in PROBES if ENVS[name].make().spec.num_agents == 1]


@pytest.mark.parametrize("name", NAMES)
def test_pettingzoo_finds_nothing_wrong(name):
    env = make_env(name)
    parallel_api_test(trident.to_pettingzoo(env), num_cycles=60)
    parallel_seed_test(lambda: trident.to_pettingzoo(env), num_cycles=5)


@pytest.mark.parametrize("name", ONE_AGENT)
def test_gymnasium_finds_nothing_wrong(name):
    check_env(trident.to_gymnasium(make_env(name)), skip_render_check=True)


def test_it_plays_the_episode_that_the_environment_plays():
    """Modes and unit parameters, taken through the spaces, do what the hybrid action does."""
    env = make_env("uav-mec")
    outside = trident.to_pettingzoo(env)
    outside.reset(seed=3)
    outside.action_space("agent_0").seed(0)
    seed = int(np.random.Generator(np.random.PCG64(3)).integers(2**31))  # as PettingZoo seeds
    key, first = jax.random.split(jax.random.key(seed))
    state, out = env.reset(first)
    for t in range(5):
        native = {a: outside.action_space(a).sample() for a in outside.agents}
        mode = jnp.array([native[a][0] for a in outside.possible_agents], jnp.int32)
        unit = np.stack([native[a][1] for a in outside.possible_agents])
        seen, rewards, _, _, infos = outside.step(native)
        key, step = jax.random.split(key)
        params = trident.decode_params(env.spec.action, mode, unit)
        state, out = env.step(step, state, trident.HybridAction(mode, params))
        np.testing.assert_allclose(np.stack(list(seen.values())), out.obs, atol=1e-4)
        assert rewards["agent_1"] == pytest.approx(float(out.reward), abs=1e-4), t
        assert infos["agent_2"]["cost"] == pytest.approx({"energy": float(out.cost[0]), "coverage": float(out.cost[1])})
        np.testing.assert_allclose(outside.state(), out.state, atol=1e-4)


def test_spaces_say_what_an_action_is():
    of = lambda name: trident.to_pettingzoo(make_env(name)).action_space("agent_0")  # noqa: E731
    assert of("simple-spread-discrete") == spaces.Discrete(5)
    assert of("simple-spread") == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert of("simple-spread-hybrid") == spaces.Tuple([spaces.Discrete(5), spaces.Box(-1.0, 1.0, (1,), np.float32)])


def test_pictures_and_what_cannot_be():
    env = trident.to_pettingzoo(make_env("simple-spread"), render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    for _ in range(3):
        env.step({a: env.action_space(a).sample() for a in env.agents})
    assert first.shape == (480, 640, 3)
    assert (env.render() != first).any()
    with pytest.raises(TridentError, match="probe-chain cannot be drawn: leave out render_mode"):
        trident.to_pettingzoo(make_env("probe-chain"), render_mode="rgb_array")
    with pytest.raises(TridentError, match="render_mode is one of rgb_array, human, not 'ascii'"):
        trident.to_pettingzoo(make_env("simple-spread"), render_mode="ascii")
    with pytest.raises(TridentError, match=r"hand in the environment itself: trident.make_env\('uav-mec'\)"):
        trident.to_pettingzoo("uav-mec")
    with pytest.raises(TridentError, match=r"simple-spread has 3 agents: trident.to_pettingzoo offers all of them"):
        trident.to_gymnasium(make_env("simple-spread"))


def test_out_and_in_again_is_the_same_system():
    env = make_env("probe-chain")
    back = trident.from_pettingzoo(
        trident.to_pettingzoo(env), limits={"heat": 0.3, "speeding": 0.1, "loss": 0.05}, horizon=env.spec.horizon
    )
    assert trident.check_env(back) is None
    assert back.spec.action.low.shape == env.spec.action.low.shape
    assert back.spec.state_dim == env.spec.state_dim
    out = back.reset(0)
    assert out.mode_mask.tolist() == env.reset(jax.random.key(0))[1].mode_mask.tolist()
