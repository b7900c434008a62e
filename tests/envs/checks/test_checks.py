"""Every message of the conformance check, each provoked by an environment broken in exactly one way."""

import re
import warnings
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.checks.shapes import declaration_faults, shape_faults
from trident.envs.checks.values import check_env, find_doubts, find_faults
from trident.envs.random_policy import random_action
from trident.errors import TridentError
from trident.types import (
    ActionSpec,
    BaseAction,
    BulkPhysics,
    Constraint,
    EnvSpec,
    HybridAction,
    Metric,
    Physics,
    TimeStep,
)

HORIZON = 4
LOW = np.array([[[0.0], [0.0]], [[-1.0], [0.0]]], np.float32)
HIGH = np.array([[[2.0], [0.0]], [[1.0], [0.0]]], np.float32)
ACTION = ActionSpec(LOW, HIGH, HIGH > LOW, ("go", "stay"), ("x",))
SPEC = EnvSpec(
    name="toy",
    version=1,
    num_agents=2,
    obs_dim=3,
    state_dim=2,
    action=ACTION,
    constraints=(Constraint("far", limit=0.5),),
    horizon=HORIZON,
    metrics=(Metric("walked"), Metric("effort", per="walked")),
)
OPEN = jnp.array([[True, True], [True, True]])


def nominal(state):
    return HybridAction(jnp.ones(2, jnp.int32), jnp.zeros((2, 1)))


def signals(state, action):
    x = action.params[:, 0]
    return jnp.stack([-(x**2).sum(), jax.nn.sigmoid(x[0] - 1.0)])


def shield(state, action):
    """Agent 0 may not exceed 1; agent 1 is left alone."""
    too_far = action.params[:, 0] > jnp.array([1.0, jnp.inf])
    return action._replace(params=jnp.where(too_far[:, None], 1.0, action.params)), too_far


def stay(key, state):
    return nominal(state)


@dataclass(frozen=True)
class Toy:
    """Two agents, deterministic, state = (clock, where agent 0 went). The hooks break it in one place."""

    spec: EnvSpec = SPEC
    physics: Any = None
    scripted: Any = field(default_factory=dict)
    shield: Any = None
    on_reset: Any = lambda env, state, out: (state, out)
    on_step: Any = lambda env, key, before, after, out: (after, out)

    def reset(self, key):
        state = jnp.zeros(2)
        out = self.observe(state, jnp.zeros(2))
        return self.on_reset(self, state, out)

    def step(self, key, state, action):
        x = action.params[:, 0]
        after = jnp.stack([state[0] + 1.0, x[0]])
        return self.on_step(self, key, state, after, self.observe(after, x))

    def observe(self, state, x):
        far = x[0] > 1.0
        return TimeStep(
            obs=jnp.broadcast_to(jnp.append(state, 1.0), (2, 3)),
            state=state,
            mode_mask=OPEN,
            alive=jnp.ones(2, bool),
            reward=-(x**2).sum(),
            cost=far.astype(jnp.float32)[None],
            margin=(1.0 - x[0])[None],
            terminated=jnp.bool_(False),
            truncated=state[0] >= HORIZON,
            metrics={"walked": jnp.abs(x).sum(), "effort": (x**2).sum()},
        )


def with_spec(**changes):
    return Toy(spec=replace(SPEC, **changes))


def with_action(**changes):
    return with_spec(action=replace(ACTION, **changes))


def at(step, **fields):
    """An env whose TimeStep has other `fields` (values, or functions of it) after the given step; 'all' for all."""

    def change(env, key, before, after, out):
        now = True if step == "all" else after[0] == step
        new = {name: f(out) if callable(f) else jnp.asarray(f) for name, f in fields.items()}
        return after, out._replace(**{name: jnp.where(now, value, getattr(out, name)) for name, value in new.items()})

    return Toy(on_step=change)


def counting():
    class Counting(Toy):
        def step(self, key, state, action):
            self.__dict__["seen"] = self.__dict__.get("seen", 0) + 1
            return super().step(key, state, action)

    return Counting()


def returning(**fields):
    """An env whose step returns these fields as they are."""
    return Toy(on_step=lambda env, key, before, after, out: (after, out._replace(**fields)))


def suggesting(preference, unit):
    def base_policy(obs):
        return BaseAction(jnp.full(2, preference), jnp.full((2, 1), unit))

    return Physics(signals, lambda s, a: s, nominal, base_policy)


def in_bulk(of_signals, predict, of_nominal):
    bulk = BulkPhysics(lambda s: s, lambda s, a: a, of_signals, predict, of_nominal)
    return Physics(placed, lambda s, a: s, nominal, bulk=bulk)


def placed(state, action):
    return signals(state, action) + state[0]


def wild(action):
    return action._replace(mode=1 - action.mode, params=action.params + 0.5)


def acting(mode, x):
    return {"odd": lambda key, state: HybridAction(jnp.full(2, mode, jnp.int32), jnp.full((2, 1), x))}


def test_a_sound_environment_has_neither_faults_nor_doubts():
    physics = Physics(
        signals, lambda state, action: state, nominal, lambda obs: BaseAction(jnp.ones(2), jnp.zeros((2, 1)))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(Toy(physics=physics, scripted={"stay": stay}, shield=shield))


DECLARATION = {
    "spec.kinds has 3 entries for 2 agents": with_spec(kinds=(0, 0, 1)),
    "agents 0 and 1 are of a kind but have different boxes": with_spec(kinds=(0, 0)),
    "has no attribute 'physics'": SimpleNamespace(spec=SPEC, reset=0, step=0, scripted={}, shield=None),
    "spec is not an EnvSpec": Toy(spec={"num_agents": 2}),
    "spec.horizon is 0; it must be a whole number, at least 1": with_spec(horizon=0),
    "spec.horizon is 2.5; it must be a whole number": with_spec(horizon=2.5),
    "spec.num_agents is '2'; it must be": with_spec(num_agents="2"),
    "spec.name is ''; give it a printable name": with_spec(name=""),
    "spec.name is '../../x'; give it a printable name, without '..'": with_spec(name="../../x"),
    "action.low is a list; make it a NumPy array": with_action(low=LOW.tolist()),
    "limit of constraint 'far' is '1'; give a finite one": with_spec(constraints=(Constraint("far", "1"),)),
    "limit of constraint 'far' is nan": with_spec(constraints=(Constraint("far", np.nan),)),
    "constraint name 'a/b\\nc' must be printable": with_spec(constraints=(Constraint("a/b\nc", 1.0),)),
    "constraint name 'a=b' must be printable, without '/', '='": with_spec(constraints=(Constraint("a=b", 1.0),)),
    "the declaration cannot be read (TypeError": with_spec(metrics=3),
    "must share one shape [agents, modes, parameters]": with_action(high=HIGH[0]),
    "it needs 3 agents (spec.num_agents)": with_spec(num_agents=3),
    "action.used has dtype float32; make it bool": with_action(used=HIGH),
    "action.low or high is not finite": with_action(high=HIGH + np.inf),
    "action.low > high at [agent, mode, parameter] [0, 0, 0]; swap them": with_action(low=HIGH, high=LOW),
    "action.mode_names ('go',) must be 2 different names": with_action(mode_names=("go",)),
    "action.param_names ('x', 'y') must be 1 different names": with_action(param_names=("x", "y")),
    "limit of constraint 'far' is -1": with_spec(constraints=(Constraint("far", -1.0),)),
    "constraint names ['far', 'far'] must be different": with_spec(constraints=(Constraint("far", 0.5),) * 2),
    "metric names ['walked', 'walked'] must be different": with_spec(metrics=(Metric("walked"),) * 2),
    "metric 'effort' is per 'time', which is not declared": with_spec(metrics=(Metric("effort", per="time"),)),
    "scripted is not a mapping": Toy(scripted=[nominal]),
}


@pytest.mark.parametrize("message", DECLARATION)
def test_declaration(message):
    (fault,) = declaration_faults(DECLARATION[message])
    assert message in fault


def branches(env, key, before, after, out):
    return (after, out) if after[0] > 1 else (before, out)


SHAPES = {
    "step fails under jit and vmap (TracerBoolConversionError": Toy(on_step=branches),
    "reset fails under jit and vmap (ZeroDivisionError": Toy(on_reset=lambda e, s, o: (s, 1 / 0)),
    "reset must return (env state, TimeStep); the second is a tuple": Toy(on_reset=lambda e, s, o: (s, tuple(o))),
    "step returns obs as float32[3]; the contract asks for float32[2, 3]": returning(obs=jnp.zeros(3)),
    "step returns state as int32[2]": returning(state=jnp.zeros(2, jnp.int32)),
    "step returns mode_mask as bool[2]": returning(mode_mask=jnp.ones(2, bool)),
    "step returns alive as float32[2]": returning(alive=jnp.ones(2)),
    "step returns reward as float32[2]; the contract asks for float32[]": returning(reward=jnp.zeros(2)),
    "step returns cost as float32[2]": returning(cost=jnp.zeros(2)),
    "step returns margin as float32[]": returning(margin=jnp.float32(0)),
    "step returns terminated as float32[]; the contract asks for bool[]": returning(terminated=jnp.float32(0)),
    "step returns truncated as bool[2]": returning(truncated=jnp.zeros(2, bool)),
    "step returns metrics ['walked']; spec.metrics declares ['effort', 'walked']": returning(
        metrics={"walked": jnp.float32(0)}
    ),
    "step returns metric 'effort' as int32[]": returning(metrics={"walked": jnp.float32(0), "effort": jnp.int32(0)}),
    "step turns an env state of float32[2] into float32[3]": Toy(
        on_step=lambda env, key, before, after, out: (jnp.zeros(3), out)
    ),
    "scripted 'odd' returns as HybridAction(mode=int32[3]": Toy(
        scripted={"odd": lambda key, state: HybridAction(jnp.zeros(3, jnp.int32), jnp.zeros((2, 1)))}
    ),
    "scripted 'odd' fails under jit and vmap (TypeError": Toy(scripted={"odd": lambda state: nominal(state)}),
    "shield returns 'changed' as bool[]; the contract asks for bool[2]": Toy(shield=lambda s, a: (a, jnp.bool_(False))),
    "shield fails under jit and vmap (TypeError": Toy(shield=lambda action: action),
    "shield returns as float32[2, 1]": Toy(shield=lambda s, a: (a.params, jnp.zeros(2, bool))),
    "physics.signals returns as float32[1]; the contract asks for float32[2]": Toy(
        physics=Physics(lambda s, a: jnp.zeros(1), lambda s, a: s, nominal)
    ),
    "physics.predict returns as float32[]": Toy(physics=Physics(signals, lambda s, a: s[0], nominal)),
    "physics.base_policy returns as float32[2]": Toy(
        physics=Physics(signals, lambda s, a: s, nominal, lambda o: jnp.ones(2))
    ),
    "physics.nominal returns as int32[2]": Toy(physics=Physics(signals, lambda s, a: s, lambda s: nominal(s).mode)),
}


@pytest.mark.parametrize("message", SHAPES)
def test_shapes(message):
    (fault,) = shape_faults(SHAPES[message])
    assert message in fault


@dataclass(frozen=True)
class Counter:
    """A step that remembers how often it was traced."""

    calls: list

    def __call__(self, env, key, before, after, out):
        self.calls.append(0)
        return after, out._replace(reward=out.reward + len(self.calls))


def resets_itself(env, key, before, after, out):
    done = out.truncated
    fresh, start = env.reset(key)
    return jnp.where(done, fresh, after), out._replace(obs=jnp.where(done, start.obs, out.obs))


def bent(state, action):
    """sqrt has no gradient at zero, which is the lower end of agent 0's box and what unread parameters are."""
    return jnp.stack([jnp.sqrt(jnp.abs(action.params[0, 0])), jnp.float32(0)])


def swerve(state, action):
    """The next place depends on the root of a parameter, which has no gradient at zero."""
    return state + jnp.sqrt(jnp.abs(action.params[0, 0]))


def far(state, action):
    return jnp.stack([state.sum(), jnp.float32(0)])


def sly(state, action):
    """Alters the action and does not say so."""
    return action._replace(mode=jnp.ones(2, jnp.int32), params=jnp.zeros((2, 1))), jnp.zeros(2, bool)


only_go = jnp.array([[True, False], [True, True]])
VALUES = {
    "TimeStep.reward differs between two calls with the same arguments": Toy(on_step=Counter([])),
    "reward is not finite after step 2": at(2, reward=jnp.nan),
    "obs is not finite after step 1": at(1, obs=lambda out: out.obs + jnp.inf),
    "cost is not finite after step 3": at(3, cost=lambda out: out.cost + jnp.nan),
    "parameters on the corners of their boxes": at("all", reward=lambda out: jnp.log(2.0 - out.state[1])),
    "metric 'effort' is not finite after step 1": returning(
        metrics={"walked": jnp.float32(0), "effort": jnp.float32(jnp.inf)}
    ),
    "mode_mask allows no mode after step 2": at(2, mode_mask=jnp.zeros((2, 2), bool)),
    "cost 'far' is negative after step 2": at(2, cost=[-1.0]),
    "cost is beyond 1e+12 after step 2": at(2, cost=[1e30]),
    "reward is beyond 1e+12 after step 1": at(1, reward=1e20),
    "reset or step changes self.seen; keep no state on self": counting(),
    "(SystemExit: 3; ": Toy(on_step=lambda *_: exit(3)),
    "reset returns an episode that has ended": Toy(
        on_reset=lambda e, s, o: (s, o._replace(terminated=jnp.bool_(True)))
    ),
    "truncated fires after step 2, before the horizon of 4": at(2, truncated=True),
    "truncated does not fire at the horizon; set it when 4 steps": at("all", truncated=False),
    "step resets by itself": Toy(on_step=resets_itself),
    "scripted 'odd' chooses a mode outside 0 .. 1": Toy(scripted=acting(2, 0.0)),
    "scripted 'odd' returns parameters outside the box of their mode": Toy(scripted=acting(0, 1.5)),
    "scripted 'odd' returns parameters that their mode does not read": Toy(scripted=acting(1, 0.5)),
    "scripted 'stay' chooses a mode that mode_mask forbids": replace(
        at("all", mode_mask=only_go), scripted={"stay": stay}
    ),
    "shield alters an action whose 'changed' flag is False": Toy(shield=sly),
    "shield returns parameters outside the box": Toy(
        shield=lambda s, a: (HybridAction(jnp.zeros(2, jnp.int32), jnp.full((2, 1), 9.0)), jnp.ones(2, bool))
    ),
    "the gradient of physics.signals in the parameters is not finite in mode [0, 1]": Toy(
        physics=Physics(bent, lambda s, a: s, nominal)
    ),
    "physics.signals is not finite in mode [1]": Toy(
        physics=Physics(lambda s, a: jnp.full(2, 1.0 / (1 - a.mode[0])), lambda s, a: s, nominal)
    ),
    "physics.predict is not finite in mode [0, 1]": Toy(physics=Physics(signals, lambda s, a: s / 0, nominal)),
    "the gradient in the parameters of physics.signals one step later": Toy(physics=Physics(far, swerve, nominal)),
    "physics.base_policy is not finite": Toy(physics=suggesting(jnp.inf, 0.0)),
    "physics.base_policy suggests parameters outside [-1, 1]": Toy(physics=suggesting(0.0, 1.5)),
    "physics.bulk.signals says something else than physics.signals in 100% of the rows": Toy(
        physics=in_bulk(lambda s, a: 0.1 + jax.vmap(placed)(s, a), lambda s, a: s, jax.vmap(nominal))
    ),
    "physics.bulk.nominal says something else than physics.nominal in 100% of the rows": Toy(
        physics=in_bulk(jax.vmap(placed), lambda s, a: s, lambda s: wild(jax.vmap(nominal)(s)))
    ),
    "physics.bulk.predict says something else than physics.predict in 100% of the rows": Toy(
        physics=in_bulk(jax.vmap(placed), lambda s, a: s + 1.0, jax.vmap(nominal))
    ),
    "physics.nominal chooses a mode that mode_mask forbids": replace(
        at("all", mode_mask=only_go), physics=Physics(signals, lambda s, a: s, nominal)
    ),
}


@pytest.fixture
def uncompiled():
    """Dozens of toys, each for a handful of steps: compiling them would take ten times as long."""
    with jax.disable_jit():
        yield


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("message", VALUES)
def test_values(message):
    (fault,) = find_faults(VALUES[message])
    assert message in fault


DOUBTS = {
    "margin of 'far' disagrees in sign with its 0/1 cost": at("all", margin=lambda out: -out.margin),
    "no random episode reached the horizon of 4": at(2, terminated=True),
    "the last observation of an episode looks like a fresh one": at(
        HORIZON, obs=jnp.array([[0.0, 0, 1]] * 2), state=jnp.zeros(2)
    ),
    "obs[2] tells agents 0 and 1 apart for ever": Toy(
        spec=replace(SPEC, action=replace(ACTION, low=0 * LOW, high=0 * HIGH + 1.0, used=np.ones_like(ACTION.used))),
        on_reset=lambda env, state, out: (
            state,
            out._replace(obs=out.obs * jnp.array([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]])),
        ),
        on_step=lambda env, key, before, after, out: (
            after,
            out._replace(obs=out.obs * jnp.array([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]])),
        ),
    ),
    "action.used is True for a box without width at [0, 1, 0]": with_action(used=np.ones_like(ACTION.used)),
}


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("message", DOUBTS)
def test_doubts_warn_and_do_not_raise(message):
    with pytest.warns(UserWarning, match=re.escape(message)) as caught:
        check_env(DOUBTS[message])
    assert len(caught) == 1


@pytest.mark.usefixtures("uncompiled")
def test_a_walk_shorter_than_the_horizon_says_so():
    endless = at("all", truncated=False)
    assert find_faults(endless, steps=HORIZON - 1) == []
    (doubt,) = find_doubts(endless, steps=HORIZON - 1)
    assert "reached the horizon" in doubt


@pytest.mark.usefixtures("uncompiled")
def test_stochastic_environments_must_use_the_key():
    (fault,) = find_faults(Toy(), stochastic=True)
    assert "different keys lead to equal resets and steps" in fault

    def noise(env, key, before, after, out):
        return after, out._replace(reward=jax.random.key_data(key)[1].astype(jnp.float32))

    noisy = Toy(on_step=noise)
    assert find_faults(noisy, stochastic=True) == []
    (fault,) = find_faults(noisy, stochastic=False)
    assert "said to be deterministic" in fault


@pytest.mark.usefixtures("uncompiled")
def test_the_dead_may_act_as_they_like_but_keep_a_mode():
    dying = at("all", alive=jnp.array([True, False]), mode_mask=jnp.array([[True, True], [False, False]]))
    (fault,) = find_faults(replace(dying, scripted=acting(1, 0.0)))
    assert "mode_mask allows no mode" in fault


def test_a_traced_value_left_on_the_environment_is_reported():
    left = []

    def leak(env, key, before, after, out):
        left.append(after)
        return left[0], out

    (fault,) = find_faults(Toy(on_step=leak))
    assert "episodes fail to run (UnexpectedTracerError" in fault
    assert "keep no state on self" in fault


def test_the_error_lists_all_faults_under_the_environments_name():
    broken = with_spec(horizon=0, name="lame")
    with pytest.raises(TridentError) as caught:
        check_env(replace(broken, scripted=None))
    title, *faults = str(caught.value).splitlines()
    assert title == "lame breaks the environment contract:"
    assert len(faults) == 2
    assert all(fault.startswith("- ") for fault in faults)


@pytest.mark.usefixtures("uncompiled")
def test_private_states_may_hold_random_keys():
    @dataclass(frozen=True)
    class Keyed(Toy):
        def reset(self, key):
            state, out = super().reset(key)
            return (state, key), out

        def step(self, key, state, action):
            after, out = super().step(key, state[0], action)
            return (after, jax.random.fold_in(state[1], 1)), out

    assert find_faults(Keyed(scripted={"stay": lambda key, state: nominal(state[0])})) == []


def test_random_actions_are_allowed_and_spread_over_modes_and_boxes():
    mask = jnp.array([[True, False], [True, True]])
    draw = jax.jit(
        jax.vmap(lambda key: random_action(key, ACTION, mask)),
        compiler_options={"xla_backend_optimization_level": 0},
    )
    mode, params = draw(jax.random.split(jax.random.key(1), 4000))
    assert (mode[:, 0] == 0).all()
    assert abs(mode[:, 1].mean() - 0.5) < 0.03
    assert (params[mode == 1] == 0).all()
    x = params[:, 0, 0]
    assert x.min() >= 0.0
    assert x.max() <= 2.0
    assert abs(x.mean() - 1.0) < 0.05
    assert abs(x.var() - 2.0**2 / 12) < 0.03  # of a uniform law on [0, 2]
