"""The off-policy family: heads and grids, the equations against loops written out, reductions, and the probes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.chain_rows import CHAIN, make_rows, random_like
from support.learning import train

from trident.algos import off_policy
from trident.algos.common import action_heads
from trident.algos.common.action_heads import MEANT
from trident.algos.common.central_critic import CriticInput, central_critic
from trident.algos.common.kinds import kinds_of
from trident.algos.off_policy import Critic, Nets, Setup, actor_loss, policies, q_values, td_target
from trident.nets import mlp_apply
from trident.training.registry import ALGORITHMS
from trident.types import ActionSpec, View, encode_params

SPEC = CHAIN.spec
KINDS = kinds_of(SPEC)
FAMILY = [name for name, preset in ALGORITHMS.items() if preset.make is off_policy.make]
SMALL = {"hidden": (8,), "critic_hidden": (8,), "levels": 3, "mixer_embed": 4, "mixer_hidden": 4}


@pytest.fixture(scope="module")
def rows():
    """Random steps of the chain with walkers that die, flattened, with something meant by each."""

    flat = make_rows()
    width = SPEC.action.num_modes + SPEC.action.num_params
    point = jax.random.uniform(jax.random.key(4), (48, SPEC.num_agents, width), minval=-1.0)
    return flat._replace(extras={MEANT: point})


def small(name, **changes):
    return replace(ALGORITHMS[name].config, **SMALL, **changes)


def parts(config):
    """(head, networks) with random weights; nothing is compiled for them."""
    head = action_heads.make_head(config.actions, SPEC.action, config.levels, config.temperature)
    return head, random_like(lambda key: off_policy.make(config, SPEC).init(key).nets)


def setup(config, head):
    central = central_critic(SPEC, config.critic_body, config.critic_hidden, head.encoded)
    return Setup(config, KINDS, head, central)


values_of = jax.jit(q_values, static_argnums=0)
target_of = jax.jit(td_target, static_argnums=0)
plain_mlp = jax.jit(mlp_apply)


# --- heads ----------------------------------------------------------------------------------------


def test_grid_is_every_mode_with_every_combination_of_the_parameters_it_reads():
    used = np.array([[[True, True], [True, False]], [[False, False], [False, True]]])
    grid = action_heads.make_grid(ActionSpec(-np.ones((2, 2, 2)), np.ones((2, 2, 2)), used), 3)
    assert grid.mode.shape == (2, 9 + 3)
    assert grid.exists.sum(1).tolist() == [12, 1 + 3]
    first = {(int(m), *map(float, u)) for m, u in zip(grid.mode[0], grid.unit[0], strict=True)}
    axis = (-1.0, 0.0, 1.0)
    assert first == {(0, a, b) for a in axis for b in axis} | {(1, a, 0.0) for a in axis}
    allowed = action_heads.grid_mask(grid, jnp.array([[True, False], [True, True]]))
    np.testing.assert_array_equal(allowed.sum(1), [9, 4])


def test_a_grid_beyond_reason_is_refused_in_one_line():
    spec = ActionSpec(-np.ones((1, 2, 6)), np.ones((1, 2, 6)), np.ones((1, 2, 6), bool))
    with pytest.raises(ValueError, match=r"grid of 31,250 actions.*--algo.levels"):
        action_heads.make_grid(spec, 5)
    with pytest.raises(ValueError, match="at least one level"):
        action_heads.make_grid(spec, 0)


@pytest.mark.parametrize("form", ["hybrid", "discretised", "relaxed"])
def test_what_is_done_is_read_off_what_was_meant(form, rows):
    """Masks hold, unread parameters are zero, noise moves the parameters, and every kind of output gets a gradient."""
    head = action_heads.make_head(form, SPEC.action, 3, 0.5)
    modes, agents = SPEC.action.num_modes, np.arange(SPEC.num_agents)
    out = 2.0 * jax.random.normal(jax.random.key(0), (48, SPEC.num_agents, head.width))

    @jax.jit
    def both(out):
        decide = jax.vmap(lambda o, v, k: head.decide(o, v, k, 0.3))
        relax = lambda o, noise: head.relax(o, rows.mode_mask, jax.random.key(2), noise)  # noqa: E731
        gradient = jax.grad(lambda o: jnp.sum(jnp.sin(3.0 * relax(o, None))))(out)
        done, meant = decide(out, rows.view, jax.random.split(jax.random.key(1), 48))
        return done, meant[MEANT], relax(out, None), relax(out, action_heads.Noise(0.3, 0.5)), gradient

    done, meant, fresh, noisy, gradient = both(out)
    assert meant.shape == fresh.shape == (48, SPEC.num_agents, head.encoded)
    allowed = np.where(rows.mode_mask, meant[..., :modes], -np.inf)
    np.testing.assert_array_equal(done.mode, np.argmax(allowed, -1))
    used = SPEC.action.used[agents, np.asarray(done.mode)]
    unit = np.asarray(encode_params(SPEC.action, *done))
    assert np.all(unit[~used] == 0.0)
    rest = np.asarray(meant[..., modes:])
    if form == "discretised":
        rest = np.array([-1.0, 0.0, 1.0])[np.argmax(rest.reshape(*rest.shape[:2], -1, 3), -1)]
        np.testing.assert_allclose(meant[..., :modes].sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(unit[used], rest[used], atol=1e-5)
    assert (np.abs(noisy - fresh).max() > 0.1) == (form != "discretised")
    assert np.all(np.abs(noisy) <= 1.0)
    free = np.asarray(rows.mode_mask.sum(-1) > 1)
    assert np.mean(np.abs(gradient[free][:, :modes]).max(-1) > 0) > 0.9
    assert np.abs(gradient[..., modes:]).max() > 0


def test_relaxed_point_takes_the_allowed_argmax():
    head = action_heads.relaxed_head(SPEC.action)
    out = jnp.array([[0.5, 0.1, 2.0, 0.0, 0.3]] * 3)
    mask = jnp.array([[True, True, True], [True, True, False], [False, True, False]])
    view = View(jnp.zeros((3, SPEC.obs_dim)), mask, jnp.ones(3, bool))
    action, extras = head.decide(out, view, jax.random.key(0), None)
    np.testing.assert_array_equal(action.mode, [2, 0, 1])
    np.testing.assert_allclose(extras[MEANT], np.tanh(out), rtol=1e-6)


def test_exploration_is_a_mixture_with_the_uniform():
    logits, mask = jnp.array([5.0, 0.0, 0.0, 9.0]), jnp.array([True, True, True, False])
    explore = action_heads.explore
    draw = jax.jit(jax.vmap(lambda k, noise: jnp.argmax(explore(logits, mask, k, noise, 0.5)), in_axes=(0, None)))
    keys = jax.random.split(jax.random.key(0), 4000)
    p = np.exp([5.0, 0.0, 0.0]) / np.exp([5.0, 0.0, 0.0]).sum()
    for noise in (0.0, 0.3):
        share = np.bincount(draw(keys, noise), minlength=4) / 4000
        np.testing.assert_allclose(share, [*((1 - noise) * p + noise / 3), 0.0], atol=0.025)
    assert jnp.argmax(action_heads.explore(logits, mask, keys[0], None, 0.5)) == 0


# --- equations ------------------------------------------------------------------------------------


def test_central_value_reads_all_actions_but_those_of_the_dead(rows):
    config = small("matd3-hybrid")
    head, nets = parts(config)
    encoded = rows.extras[MEANT]
    values = values_of(setup(config, head), nets.critic, rows, encoded, rows.alive)
    living = encoded * rows.alive[..., None]
    for c in range(2):
        one = jax.tree.map(lambda x, c=c: x[c], nets.critic.q)
        expected = setup(config, head).central.apply(one, CriticInput(rows.state, rows.obs, living))[:, 0]
        np.testing.assert_allclose(values[c], expected, rtol=1e-5)
    other = jnp.where(rows.alive[..., None], encoded, 0.7)
    np.testing.assert_array_equal(values, values_of(setup(config, head), nets.critic, rows, other, rows.alive))


def test_facmac_with_a_sum_for_a_mixer_is_value_decomposition(rows):
    config = small("facmac-hybrid", mixer="sum")
    head, nets = parts(config)
    encoded = rows.extras[MEANT]
    values = values_of(setup(config, head), nets.critic, rows, encoded, rows.alive)
    total = jnp.zeros(48)
    for i in range(SPEC.num_agents):
        own = jax.tree.map(lambda x, i=i: x[0, i], nets.critic.q)
        x = jnp.concatenate([rows.obs[:, i], encoded[:, i] * rows.alive[:, i, None]], -1)
        total += plain_mlp(own, x)[:, 0] * rows.alive[:, i]
    np.testing.assert_allclose(values[0], total, rtol=1e-4, atol=1e-5)


def test_target_is_the_lower_twin_and_only_a_termination_ends_the_future(rows):
    config = small("matd3-hybrid", target_noise=0.0)
    head, nets = parts(config)
    level, unit, key = jnp.float32(-3.0), jnp.float32(2.0), jax.random.key(5)
    goal = target_of(setup(config, head), nets, rows, level, unit, key) * unit + level
    after = rows._replace(obs=rows.next_obs, state=rows.next_state)
    relax = jax.jit(lambda: head.relax(policies(KINDS, nets.actors, rows.next_obs), rows.next_mode_mask, key, None))
    action = relax()
    q = level + unit * values_of(setup(config, head), nets.critic, after, action, rows.next_alive)
    assert np.abs(q[0] - q[1]).max() > 0.1
    expected = rows.reward + np.where(rows.terminated, 0.0, config.discount * np.minimum(q[0], q[1]))
    np.testing.assert_allclose(goal, expected, rtol=1e-4, atol=1e-4)
    ended = rows.truncated & ~rows.terminated
    assert ended.any()
    assert np.abs(goal - rows.reward)[np.asarray(ended)].min() > 1e-3


def test_each_maddpg_policy_climbs_in_its_own_context(rows):
    """The gradient of the one loss is that of N losses, agent i's action new and the others' as replayed."""
    config = small("maddpg-hybrid", penalty=0.0)
    head, nets = parts(config)
    key = jax.random.key(6)
    gradient = jax.jit(jax.grad(lambda a: actor_loss(setup(config, head), a, nets.critic, rows, key)))(nets.actors)

    def own(i, actor):
        actors = jax.tree.map(lambda full, mine: full.at[i].set(mine), nets.actors, actor)
        new = head.relax(policies(KINDS, actors, rows.obs), rows.mode_mask, key, None)
        action = rows.extras[MEANT].at[:, i].set(new[:, i])
        return -jnp.mean(q_values(setup(config, head), nets.critic, rows, action, rows.alive)[0] * rows.alive[:, i])

    slope_of_own = jax.jit(jax.grad(own, argnums=1))
    for i in range(SPEC.num_agents):
        actor = jax.tree.map(lambda x, i=i: x[i], nets.actors)
        mine = slope_of_own(i, actor)
        same = lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-5)  # noqa: E731
        jax.tree.map(same, gradient, mine)


def test_facmac_policies_climb_together(rows):
    """Centralised gradient: with a mixer that is not a sum, one policy's gradient depends on the others' new
    actions."""
    config = small("facmac-hybrid")
    head, nets = parts(config)
    nets.critic.mixer["b1"][0]["b"] -= 3.0  # into the bend of the mixer's elu, which is straight above zero
    gradient = jax.jit(jax.grad(lambda a: actor_loss(setup(config, head), a, nets.critic, rows, jax.random.key(7))))
    moved = jax.tree.map(lambda x: x.at[1:].add(0.5), nets.actors)
    first = lambda tree: np.concatenate([np.ravel(x[0]) for x in jax.tree.leaves(tree)])  # noqa: E731
    before, after = first(gradient(nets.actors)), first(gradient(moved))
    assert np.abs(before - after).max() > 0.01 * np.abs(before).max()


def test_matd3_with_one_critic_no_delay_and_no_noise_is_maddpg(rows):
    for suffix in ("", "-hybrid"):
        plain = ALGORITHMS[f"maddpg{suffix}"].config
        reduced = replace(ALGORITHMS[f"matd3{suffix}"].config, twin=False, delay=1, target_noise=0.0)
        assert replace(reduced, actions=plain.actions) == plain
    # and the two critics' minimum really is the one critic's value when both are the same
    config = small("matd3-hybrid", target_noise=0.0)
    head, nets = parts(config)
    twins = jax.tree.map(lambda x: jnp.stack([x[0], x[0]]), nets.critic)
    single = jax.tree.map(lambda x: x[:1], nets.critic)
    args = (rows, jnp.zeros(()), jnp.ones(()), jax.random.key(0))
    a = target_of(setup(config, head), Nets(nets.actors, twins), *args)
    b = target_of(setup(small("maddpg-hybrid"), head), Nets(nets.actors, single), *args)
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)  # values of order one, in single precision


def test_critic_stack_has_the_shape_its_preset_says():
    for name, count in (("maddpg", 1), ("matd3", 2), ("facmac", 1)):
        critic: Critic = jax.eval_shape(off_policy.make(small(name), SPEC).init, jax.random.key(0)).nets.critic
        assert jax.tree.leaves(critic.q)[0].shape[0] == count
        assert (critic.mixer is not None) == (name == "facmac")


# --- learning -------------------------------------------------------------------------------------

PROBE = {
    "envs": 16, "steps": 16, "hidden": (16, 16), "critic_hidden": (32, 32), "replay": 4096, "updates": 32, "batch": 64,
    "discount": 0.8, "lr": 3e-3, "critic_lr": 3e-3, "levels": 5, "mixer_embed": 8, "mixer_hidden": 16,
}  # fmt: skip


@pytest.mark.learning
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("probe", ["probe-mode", "probe-team"])
def test_solves_the_probes(name, probe):
    """The grid of five levels holds the optima of both probes (x* is a quarter or three quarters of each box)."""
    env, results, _, _ = train(
        probe, off_policy.make, replace(ALGORITHMS[name].config, **PROBE), 100, deterministic=True
    )
    for result in results:
        assert result["reward"] > env.optimum - 0.15
