"""One table: every registered algorithm x every property, on an environment with deaths, changing masks, unequal agents
and three constraints. The other shapes of the contract are checked by abstract evaluation, which compiles nothing."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.envs.probes.chain import CHAINS, probe_chain
from trident.fields import change, flatten
from trident.training import checkpoint
from trident.training.loop import program
from trident.training.registry import ALGORITHMS, ENVS
from trident.types import View

TINY = {
    "envs": 4, "steps": 6, "hidden": (8,), "critic_hidden": (8,), "reward_hidden": (8,), "cost_hidden": (8,),
    "replay": 96, "policy_batch": 16, "updates": 2, "cg_steps": 2, "epochs": 2,
    "minibatches": 2, "warm_steps": 4, "batch": 8, "levels": 3, "mixer_embed": 4, "mixer_hidden": 4,
}  # fmt: skip
CHAIN = probe_chain()


def tiny(name):
    config = ALGORITHMS[name].config
    paths = {path: path.rpartition(".")[2] for path in flatten(config)}
    return change(config, {path: TINY[field] for path, field in paths.items() if field in TINY})


def build(name, env):
    return ALGORITHMS[name].make(tiny(name), env.spec, env.physics)


# Presets that differ only in sizes are the same program here.
NAMES = list({(preset.make, tiny(name)): name for name, preset in reversed(ALGORITHMS.items())}.values())[::-1]
# Compiling is what tests pay for: one preset of each page, its richest, is run. All are traced with K = 0, 1, 3, though
# of TRIDENT's presets, which take a second each, those that leave its constraints alone only in the long suite.
RUN = ["happo-lag", "trident", "matd3-hybrid", "qmix", "macpo", "madac"]
WANTED = dict.fromkeys(NAMES, ("full", "one-constraint", "no-constraints"))
WANTED |= dict.fromkeys(RUN, ("full", "one-constraint", "smallest"))
WANTED["trident"] = tuple(CHAINS)
SAFETY = [f"trident-{name}" for name in ("paper", "lagrangian", "no-recovery", "no-trust-region", "unconstrained")]


def shape(name, chain):
    leisure = name.startswith("trident-") and name not in SAFETY and chain != "full"
    return pytest.param(name, chain, marks=[pytest.mark.slow] if leisure else [])


SHAPES = [shape(name, chain) for name, chains in WANTED.items() for chain in chains]


class Compiled:
    """One compilation per algorithm, shared by the tests of this module."""

    def __init__(self, name):
        self.algorithm = build(name, CHAIN)
        made = program(CHAIN, self.algorithm, total_rounds=4)
        self.init = jax.jit(jax.vmap(made.init))
        self.round = jax.jit(jax.vmap(made.round, in_axes=(0, None)))

    def start(self, *seeds):
        return self.init(jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0), i))(jnp.array(seeds)))

    def run(self, state, rounds):
        for i in rounds:
            state, metrics = self.round(state, i)
        return state, metrics


@pytest.fixture(scope="module", params=RUN)
def compiled(request):
    made = Compiled(request.param)
    made.first = made.start(0, 1)
    made.after, made.metrics = made.run(made.first, range(2))
    return made


def leaves(tree):
    data = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    return [np.asarray(data(x)) for x in jax.tree.leaves(tree)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def test_finite_and_learning(compiled):
    flags = {k: v for k, v in compiled.metrics.items() if k.startswith("bad/")}
    assert not any(bool(np.any(v)) for v in flags.values()), flags
    assert not np.any(compiled.after.diverged)
    assert not same(compiled.first.algo, compiled.after.algo)


def test_same_seed_same_bits_other_seed_other_bits(compiled):
    again, _ = compiled.run(compiled.start(0, 1), range(2))
    assert same(compiled.after, again)
    seed = lambda i: jax.tree.map(lambda x: x[i], compiled.after.algo)  # noqa: E731
    assert not same(seed(0), seed(1))


def test_second_call_does_not_compile_again(compiled):
    before = compiled.round._cache_size()
    compiled.round(compiled.after, 2)
    compiled.round(compiled.after, 3)
    assert compiled.round._cache_size() == before == 1


def test_save_load_continue_equals_uninterrupted(compiled, tmp_path):
    straight, _ = compiled.run(compiled.after, range(2, 4))
    checkpoint.save(tmp_path, compiled.after, 2, {})
    loaded = checkpoint.restore(tmp_path, compiled.first, {}).tree
    resumed, _ = compiled.run(loaded, range(2, 4))
    assert same(straight, resumed)


def test_forbidden_modes_are_never_chosen_and_boxes_hold(compiled):
    spec = CHAIN.spec
    state = jax.tree.map(lambda x: x[0], compiled.after.algo)
    keys = jax.random.split(jax.random.key(1), 64)
    allowed = jax.random.bernoulli(jax.random.key(2), 0.4, (64, spec.num_agents, spec.action.num_modes))
    allowed = allowed.at[..., 0].set(allowed[..., 0] | ~jnp.any(allowed, axis=-1))
    obs = jax.random.normal(jax.random.key(3), (64, spec.num_agents, spec.obs_dim))
    view = View(obs, allowed, jnp.ones((64, spec.num_agents), bool))
    for deterministic in (False, True):
        pick = jax.jit(jax.vmap(lambda v, k, d=deterministic: compiled.algorithm.act(state, v, k, d)[0]))
        action = pick(view, keys)
        assert np.take_along_axis(np.asarray(allowed), np.asarray(action.mode)[..., None], -1).all()
        agents = np.arange(spec.num_agents)
        tables = (spec.action.low, spec.action.high, spec.action.used)
        low, high, used = (table[agents, np.asarray(action.mode)] for table in tables)
        params = np.asarray(action.params)
        assert np.where(used, (params >= low - 1e-5) & (params <= high + 1e-5), params == 0).all()


def test_every_family_is_run():
    pages = {preset.make for preset in ALGORITHMS.values() if preset.make.__module__.startswith("trident.algos.")}
    assert {ALGORITHMS[name].make for name in RUN} == pages  # other tests register learners of their own


@pytest.mark.parametrize(("name", "chain"), SHAPES)
def test_every_shape_of_the_contract_traces(name, chain):
    """K = 0, 1, 3; one agent; one mode; no parameters; no physics."""
    env = probe_chain(CHAINS[chain])
    made = program(env, build(name, env), total_rounds=4)
    state = jax.eval_shape(made.init, jax.random.key(0))
    after, metrics = jax.eval_shape(made.round, state, jnp.int32(0))
    kind = lambda x: (x.shape, x.dtype, x.weak_type)  # noqa: E731  # all that a second call could differ in
    assert jax.tree.map(kind, after) == jax.tree.map(kind, state)
    assert metrics["cost"].shape == (env.spec.num_constraints,)


def test_behind_a_shield_the_round_traces_and_tells_how_often_it_was_needed():
    env = ENVS["uav-mec"].make()
    made = program(env, build("shielded", env), total_rounds=4, shielded=True)
    state = jax.eval_shape(made.init, jax.random.key(0))
    after, metrics = jax.eval_shape(made.round, state, jnp.int32(0))
    kind = lambda x: (x.shape, x.dtype, x.weak_type)  # noqa: E731
    assert jax.tree.map(kind, after) == jax.tree.map(kind, state)
    assert metrics["shielded"].shape == ()


@pytest.mark.slow
@pytest.mark.parametrize("chain", [*CHAINS, "infeasible"])
def test_trident_trains_on_every_shape(chain):
    """Two rounds on each shape of the contract, and under limits that nobody can keep: finite, moving if it can."""
    env = probe_chain(CHAINS["full" if chain == "infeasible" else chain])
    config = replace(tiny("trident"), slack=10.0 if chain == "infeasible" else 0.0)
    made = program(env, ALGORITHMS["trident"].make(config, env.spec, env.physics), total_rounds=2)
    state = first = jax.jit(made.init)(jax.random.key(0))
    step = jax.jit(made.round)
    for i in range(2):
        state, metrics = step(state, i)
    assert all(np.isfinite(x).all() for x in leaves(metrics))
    assert all(np.isfinite(x).all() for x in leaves(state.algo) if np.issubdtype(x.dtype, np.floating))
    actors = [leaves(s.algo.policy.actors) for s in (first, state)]
    moved = any((a != b).any() for a, b in zip(*actors, strict=True))
    assert moved == (chain != "smallest"), "one mode without parameters leaves nothing to learn"
    if chain == "infeasible":
        assert (np.asarray(metrics["budget_asked"]) < 0).all()
