"""QMIX: the grid's greedy choice, double Q-learning, exploration, and the probes."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.chain_rows import CHAIN, make_rows, random_like
from support.learning import train

from trident.algos import qmix
from trident.algos.common.action_heads import grid_mask, make_grid
from trident.algos.common.kinds import kinds_of
from trident.algos.qmix import CELL, QMIXConfig, best_cell, epsilon, td_target, total, utilities
from trident.types import View

SPEC = CHAIN.spec
KINDS = kinds_of(SPEC)
CONFIG = QMIXConfig(levels=2, hidden=(8,), mixer_embed=4, mixer_hidden=4)
GRID = make_grid(SPEC.action, CONFIG.levels)


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def nets():
    return random_like(lambda key: qmix.make(CONFIG, SPEC).init(key).nets)


def test_the_best_cells_of_each_agent_are_the_best_joint_choice(rows, nets):
    """Monotone mixing: among all joint cells that masks allow, no other has a larger total."""
    few = jax.tree.map(lambda x: x[:4], (rows.state, rows.obs, rows.mode_mask))
    joint = jnp.array(list(product(range(GRID.mode.shape[1]), repeat=SPEC.num_agents)))

    @jax.jit
    def compare(state, obs, mask):
        allowed = grid_mask(GRID, mask)
        alive = jnp.ones(SPEC.num_agents, bool)
        value = jax.vmap(lambda cell: total(KINDS, nets, state, obs, cell, alive))(joint)
        fine = jax.vmap(lambda cell: jnp.all(jnp.take_along_axis(allowed, cell[:, None], -1)))(joint)
        mine = best_cell(utilities(KINDS, nets, obs), allowed)
        return jnp.max(jnp.where(fine, value, -jnp.inf)), total(KINDS, nets, state, obs, mine, alive)

    best, mine = jax.vmap(compare)(*few)
    np.testing.assert_allclose(mine, best, rtol=1e-4)


def test_one_network_chooses_and_the_other_values(rows, nets):
    other = jax.tree.map(lambda x: x[::-1] if x.ndim > 1 else -x, nets)
    allowed = grid_mask(GRID, rows.next_mode_mask)
    level, unit = jnp.float32(-2.0), jnp.float32(3.0)

    @jax.jit
    def go():
        mine, theirs = utilities(KINDS, nets, rows.next_obs), utilities(KINDS, other, rows.next_obs)
        return td_target(CONFIG, KINDS, nets, other, rows, allowed, level, unit), mine, theirs

    y, mine, theirs = (np.asarray(x) for x in go())
    cell = np.where(allowed, mine, -np.inf).argmax(-1)
    assert (cell != np.where(allowed, theirs, -np.inf).argmax(-1)).any()
    chosen = np.take_along_axis(theirs, cell[..., None], -1)[..., 0] * np.asarray(rows.next_alive)
    mixed = jax.jit(lambda q: qmix.mixer_apply(other.mixer, rows.next_state, q))(jnp.asarray(chosen))
    following = np.where(rows.terminated, 0.0, level + unit * mixed)
    np.testing.assert_allclose(y, rows.reward + CONFIG.discount * following, rtol=1e-4, atol=1e-4)


def test_epsilon_falls_over_the_first_part_of_the_run():
    config = replace(CONFIG, epsilon=1.0, epsilon_final=0.1, anneal=0.5)
    np.testing.assert_allclose([epsilon(config, f) for f in (0.0, 0.25, 0.5, 1.0)], [1.0, 0.55, 0.1, 0.1], rtol=1e-5)
    at_once = replace(config, anneal=0.0)
    np.testing.assert_allclose([epsilon(at_once, jnp.float32(f)) for f in (0.0, 0.5)], 0.1, rtol=1e-5)


def test_exploration_is_uniform_over_allowed_cells(nets):
    algorithm = qmix.make(CONFIG, SPEC)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))._replace(nets=nets, epsilon=jnp.float32(1.0))
    mask = jnp.array([[True, True, False], [True, True, False], [False, True, True]])
    view = View(jnp.ones((3, SPEC.obs_dim)), mask, jnp.ones(3, bool))
    draw = jax.jit(jax.vmap(lambda k: algorithm.act(state, view, k, False)[1][CELL]))
    cells = np.asarray(draw(jax.random.split(jax.random.key(0), 3000)))
    for agent, allowed in enumerate(np.asarray(grid_mask(GRID, mask))):
        share = np.bincount(cells[:, agent], minlength=len(allowed)) / 3000
        np.testing.assert_allclose(share, allowed / allowed.sum(), atol=0.04)


@pytest.mark.learning
@pytest.mark.parametrize("probe", ["probe-mode", "probe-team"])
def test_solves_the_probes(probe):
    """A grid of five levels holds the optima."""
    config = QMIXConfig(
        levels=5, envs=16, steps=16, hidden=(32, 32), replay=4096, updates=32, batch=64, discount=0.8, lr=3e-3,
        mixer_embed=8, mixer_hidden=16,
    )  # fmt: skip
    env, results, _, _ = train(probe, qmix.make, config, 100, deterministic=True)
    for result in results:
        assert result["reward"] > env.optimum - 0.15
