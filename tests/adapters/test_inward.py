"""Environments of PettingZoo and Gymnasium as ours: what is inferred, what is declared, what is refused."""

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="make test-adapters")
pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("ignore")]

import gymnasium  # noqa: E402
from gymnasium import spaces  # noqa: E402
from pettingzoo import ParallelEnv  # noqa: E402

import trident  # noqa: E402
from trident import HybridAction  # noqa: E402
from trident.adapters import adapt  # noqa: E402
from trident.adapters.spaces import action_map, action_spec  # noqa: E402
from trident.errors import TridentError  # noqa: E402
from trident.training.registry import make_env  # noqa: E402
from trident.training.settings import Settings, make_setup  # noqa: E402

BOX = lambda *shape, low=-1.0, high=1.0: spaces.Box(low, high, shape, np.float32)  # noqa: E731


class Herd(ParallelEnv):
    """Two sheep and a dog of unequal spaces. sheep_1 joins at the third step, sheep_0 leaves at the fourth, the end is
    at the sixth. Its parts can be replaced, to break it."""

    metadata = {"name": "herd_v2"}  # noqa: RUF012
    max_cycles = 6

    def __init__(self, **parts):
        self.possible_agents = ["sheep_0", "sheep_1", "dog_0"]
        self.parts, self.given = parts, []

    def observation_space(self, agent):
        return BOX(2) if agent != "dog_0" else spaces.Dict({"observation": BOX(3), "action_mask": BOX(4)})

    def action_space(self, agent):
        return spaces.Discrete(4) if agent == "dog_0" else spaces.Tuple([spaces.Discrete(2), BOX(1, low=0.0, high=3.0)])

    def reset(self, seed=None, options=None):
        self.t, self.dice, self.agents = 0, np.random.default_rng(seed), ["sheep_0", "dog_0"]
        return self._seen(), self._infos()

    def step(self, actions):
        self.given.append(actions)
        self.t += 1
        out = dict.fromkeys(self.agents, False)
        if self.t == 3:
            self.agents = ["sheep_0", "sheep_1", "dog_0"]
        if self.t == 4:
            out["sheep_0"] = True
        over = self.parts.get("over", self.t == 6)
        cut = dict.fromkeys(self.agents, over)
        seen, infos = self._seen(), self._infos()
        self.agents = [] if over else [a for a in self.agents if not out.get(a)]
        self.agents += self.parts.get("strangers", [])
        return seen, {a: float(self.t) for a in actions}, out, cut, infos

    def _seen(self):
        number = self.parts.get("number", 0.5)
        plain = {a: np.full(2, number if self.t == 2 else 0.1, np.float32) for a in self.agents if a != "dog_0"}
        mask = np.array([1, 0, 1, 1], np.int8)
        return plain | {"dog_0": {"observation": self.dice.uniform(-1, 1, 3).astype(np.float32), "action_mask": mask}}

    def _infos(self):
        return {a: self.parts.get("info", {"cost": {"bite": float(a == "dog_0")}}) for a in self.agents}


def act(env, out):
    low, high = env.spec.action.low, env.spec.action.high
    mode = out.mode_mask.argmax(-1)
    rows = np.arange(len(mode))
    return HybridAction(mode, ((low + high) / 2)[rows, mode])


def play(env, steps=6):
    seen = [env.reset(1)]
    for _ in range(steps):
        seen.append(env.step(act(env, seen[-1])))
    return seen


def test_unequal_agents_that_join_and_leave():
    env = trident.from_pettingzoo(Herd(), limits={"bite": 0.1})
    spec = env.spec
    assert (spec.name, spec.version, spec.num_agents, spec.obs_dim, spec.horizon) == ("herd_v2", 2, 3, 3, 6)
    assert (spec.kinds, spec.action.low.shape, spec.state_dim) == ((0, 0, 2), (3, 4, 1), 9)
    assert spec.action.used[:, :2, 0].tolist() == [[True, True], [True, True], [False, False]]
    steps = play(env)
    assert [s.alive.tolist() for s in steps[:-1]] == [
        [True, False, True], [True, False, True], [True, False, True], [True, True, True], [False, True, True],
        [False, True, True],
    ]  # fmt: skip
    assert steps[-1].alive.tolist() == [False, True, True]  # their time is up: values go on
    assert [bool(s.truncated) for s in steps] == [False] * 6 + [True]
    assert not any(s.terminated for s in steps)
    assert steps[0].mode_mask.tolist() == [[True, True, False, False]] * 2 + [[True, False, True, True]]
    assert steps[1].cost == pytest.approx([0.5])  # of two who act
    assert steps[1].cost_attribution[:, 0].tolist() == [False, False, True]
    assert steps[1].margin == pytest.approx([-0.4])
    assert steps[2].reward == pytest.approx(2 * 2.0 / 3)
    assert steps[2].obs[0].tolist() == [0.5, 0.5, 0.0]
    assert env.env.given[0] == {"sheep_0": (0, pytest.approx([1.5])), "dog_0": 0}
    assert trident.check_env(env) is None


def test_costs_by_function_and_how_they_are_joined():
    near = lambda obs, action, info: float(np.size(obs) == 2)  # noqa: E731 (a sheep)
    for over, wanted in (("mean", 0.5), ("sum", 1.0), ("max", 1.0)):
        env = trident.from_pettingzoo(
            Herd(), costs={"near": near}, limits={"near": 0.1, "bite": 0.2}, cost_over_agents=over, reward="sum",
            metrics={"sheep": near}, margins={"near": lambda obs, action, info: 0.25}, kinds=(0, 1, 2),
        )  # fmt: skip
        out = play(env, 1)[1]
        named = dict(zip([c.name for c in env.spec.constraints], out.cost.tolist(), strict=True))
        assert named == {"near": wanted, "bite": wanted}
        assert out.reward == 2.0
        assert out.metrics == {"sheep": 0.5}
        assert out.margin[[c.name for c in env.spec.constraints].index("near")] == 0.25
        assert env.spec.kinds == (0, 1, 2)


REFUSED = {
    "observation 0 of sheep_0 is nan after step 2; mend it": (Herd(number=np.nan), {}),
    "the info of sheep_0 has no 'bite' after step 1 (it has nothing); declare costs=": (
        Herd(info={}), {"limits": {"bite": 0.1}},
    ),
    "has no limit for the cost 'bite': declare limits={'bite': ...}": (Herd(), {"costs": {"bite": "bite"}}),
    "'wolf' takes part after step 1 but is not among possible_agents": (Herd(strangers=["wolf"]), {}),
    "resets itself at the end of an episode": (Herd(info={"final_obs": 1}), {}),
    "a cost is negative after step 1": (Herd(), {"costs": {"x": lambda *_: -1.0}, "limits": {"x": 0.1}}),
    "cost 'x' of sheep_0 is not finite after step 1": (Herd(), {"costs": {"x": lambda *_: np.inf}, "limits": {"x": 1}}),
    "unknown declaration 'limit' of an environment: did you mean 'limits'?": (Herd(), {"limit": {}}),
    'herd_v2 has no env.state(): declare state="observations"': (Herd(), {"state": "env"}),
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_is_one_line(line):
    env, declared = REFUSED[line]
    with pytest.raises(TridentError) as error:
        play(trident.from_pettingzoo(env, **declared))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_length_that_nobody_says_must_be_declared():
    env = Herd()
    env.max_cycles = None
    with pytest.raises(TridentError, match=r"herd_v2 does not say how long an episode is: declare horizon=\.\.\."):
        trident.from_pettingzoo(env)
    short = trident.from_pettingzoo(env, horizon=2)
    assert [bool(s.truncated) for s in play(short, 2)] == [False, False, True]


D = spaces.Discrete
SPACES = {
    "discrete": (D(3, start=1), 3, 0, 2, 3),
    "multi": (spaces.MultiDiscrete([2, 3]), 6, 0, 5, [1, 2]),
    "binary": (spaces.MultiBinary(2), 4, 0, 2, [1, 0]),
    "box": (BOX(2, 2), 1, 4, 0, [[0.1, 0.2], [0.3, 0.4]]),
    "tuple": (spaces.Tuple([D(2), BOX(2)]), 2, 2, 1, (1, [0.1, 0.2])),
    "dict": (spaces.Dict({"gear": D(2), "pedal": BOX(1), "wheel": BOX(1)}), 2, 2, 1,
             {"gear": 1, "pedal": [0.1], "wheel": [0.2]}),
    "a box each": (spaces.Tuple([D(2), spaces.Tuple([BOX(2), BOX(1)])]), 2, 2, 1, (1, ([0, 0], [0.1]))),
}  # fmt: skip


@pytest.mark.parametrize("name", SPACES)
def test_every_kind_of_action_space(name):
    space, modes, params, mode, wanted = SPACES[name]
    found = action_map(space, "it")
    assert (found.num_modes, found.num_params) == (modes, params)
    native = found.native(mode, np.array([0.1, 0.2, 0.3, 0.4], np.float32)[:params])
    np.testing.assert_equal(_rounded(native), wanted)
    assert space.contains(native)
    natives = [str(_rounded(found.native(m, np.zeros(params, np.float32)))) for m in range(modes)]
    assert len(set(natives)) == modes


def _rounded(value):
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    return np.round(np.asarray(value, float), 5).tolist()


def test_a_mode_with_its_own_box_reads_no_other():
    spec, has = action_spec([action_map(SPACES["a box each"][0], "a"), action_map(D(1), "b")])
    assert spec.used[0].tolist() == [[True, True], [True, False]]
    assert has.tolist() == [[True, True], [True, False]]


def test_spaces_that_cannot_be_mapped():
    open_ended = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    with pytest.raises(TridentError, match=r"of a is unbounded: say what is sensible, e\.g\. action_bounds"):
        action_map(open_ended, "a")
    assert action_map(open_ended, "a", (-2.0, 3.0)).bounds(0)[1].tolist() == [3.0, 3.0]
    with pytest.raises(TridentError, match="neither discrete nor a Box of floats"):
        action_map(spaces.Text(5), "a")
    with pytest.raises(TridentError, match=r"2,000 combinations of discrete choices, more than 1,024 modes"):
        action_map(spaces.MultiDiscrete([20, 100]), "a")


def test_agents_that_take_turns():
    """Tic-tac-toe: in every step the one whose turn it is; masks forbid taken fields."""
    tictactoe = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    env = trident.from_pettingzoo(tictactoe.env(), horizon=9, state="observations")
    out = env.reset(0)
    assert (env.spec.num_agents, env.spec.action.num_modes) == (2, 9)
    for t, field in enumerate([0, 1, 4, 2, 8]):  # the first to move wins
        assert out.alive.tolist() == [t % 2 == 0, t % 2 == 1]
        assert out.mode_mask[t % 2, field]
        out = env.step(HybridAction(np.full(2, field), np.zeros((2, 0))))
        assert not out.mode_mask[:, field].all() or out.terminated
    assert out.terminated
    assert trident.check_env(env) is None


def test_gymnasium_by_id_by_name_and_as_an_object():
    by_id = trident.from_gymnasium("Pendulum-v1")
    assert (by_id.spec.num_agents, by_id.spec.horizon, by_id.spec.version) == (1, 200, 1)
    assert by_id.spec.action.high.tolist() == [[[2.0]]]
    named = make_env("gymnasium:CartPole-v1", {"sutton_barto_reward": True})
    assert (named.spec.name, named.spec.action.num_modes) == ("gymnasium:CartPole-v1", 2)
    assert adapt(gymnasium.make("CartPole-v1"), "mine").spec.horizon == 500
    fallen = by_hand = named.reset(0)
    while not fallen.terminated:
        fallen = named.step(HybridAction(np.zeros(1, int), np.zeros((1, 0))))
    assert fallen.reward == -1.0  # as its argument asks
    assert not by_hand.terminated
    with pytest.raises(TridentError, match="vector of environments that reset themselves"):
        trident.from_gymnasium(gymnasium.make_vec("CartPole-v1", 2))


def test_mpe_by_its_name_trains_and_is_seeded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "mpe2.simple_spread_v3:parallel_env"
    env = make_env(name)
    assert (env.spec.num_agents, env.spec.state_dim, env.spec.kinds) == (3, 54, (0, 0, 0))
    assert trident.check_env(env) is None
    config = {"envs": 2, "steps": 25, "hidden": (8, 8)}
    keywords = {"episodes": 4, "seeds": 1, "eval_episodes": 2, "video": False, "config": config}
    run = trident.train(name, "mappo", out="run", env_args={"max_cycles": 10}, **keywords)
    assert (run.setup.spec.horizon, run.info["env"]) == (10, name)
    assert trident.load("run", trust=True).setup.spec.horizon == 10


def test_pictures_of_others():
    from matplotlib.figure import Figure

    env = trident.from_gymnasium("CartPole-v1", {"render_mode": "rgb_array"})
    env.reset(0)
    figure = Figure()
    env.draw(figure, np.stack([env.env_state]), 0)
    assert figure.axes[0].images[0].get_array().shape[-1] == 3
    assert not hasattr(trident.from_gymnasium("CartPole-v1"), "draw")


def test_a_setup_asks_for_the_declared_limits():
    env = trident.from_pettingzoo(Herd(), limits={"bite": 0.1})
    setup = make_setup(env, "mappo-lag", Settings(limit={"bite": 0.3}))
    assert setup.spec.limits.tolist() == pytest.approx([0.3])
