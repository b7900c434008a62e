"""Tabular games: the optimum against a linear-programming solver, values against iteration, the update itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from trident.algos import macpo
from trident.algos.common import on_policy
from trident.verify import coupling, safety, shaping, single_round
from trident.verify.claim import CORRECTED, HOLDS, verdict
from trident.verify.tabular_game import evaluate, mix, nash_gap, optimum, playable_games, random_game, stack
from trident.verify.tabular_update import PLAYERS, Rule, Style, no_injection, side_by_side, update


def occupancy_optimum(game):
    p, r = np.asarray(game.transition), np.asarray(game.signals)
    states, actions = r.shape[:2]
    flow = np.repeat(np.eye(states), actions, axis=1) - game.discount * p.reshape(states * actions, states).T
    found = linprog(
        -r[..., 0].ravel(),
        A_ub=r[..., 1].reshape(1, -1),
        b_ub=np.asarray(game.limits),
        A_eq=flow,
        b_eq=np.asarray(game.start),
    )
    return -found.fun


@pytest.mark.parametrize("seed", range(4))
def test_optimum_is_that_of_the_linear_program(seed):
    with jax.enable_x64(True):
        game = random_game(seed, states=4, agents=2, modes=2)
        np.testing.assert_allclose(optimum(game).value, occupancy_optimum(game), rtol=1e-7)


def test_values_by_iteration():
    with jax.enable_x64(True):
        game = random_game(0, states=4, agents=2, modes=2)
        pis = np.random.default_rng(0).dirichlet(np.ones(2), size=(2, 4))
        policy = np.einsum("sa,sb->sab", *pis).reshape(4, 4)
        np.testing.assert_allclose(mix([jnp.asarray(p) for p in pis]), policy)
        moves, rewards = (
            np.einsum("sa,sat->st", policy, game.transition),
            np.einsum("sa,saj->sj", policy, game.signals),
        )
        v, d = np.zeros((4, 2)), np.zeros(4)
        for _ in range(400):
            v, d = rewards + 0.9 * moves @ v, np.asarray(game.start) + 0.9 * d @ moves
        found = evaluate(game, jnp.asarray(policy))
        np.testing.assert_allclose(found.state, v, rtol=1e-9)
        np.testing.assert_allclose(found.visits, d, rtol=1e-9)


def test_nash_gap_of_one_agent_is_its_gap_to_the_optimum():
    with jax.enable_x64(True):
        game = random_game(1, states=3, agents=1, modes=3)
        even = np.full((1, 3, 3), 1.0 / 3.0)
        gap = optimum(game).value - float(evaluate(game, jnp.asarray(even[0])).total[0])
        np.testing.assert_allclose(nash_gap(game, even), gap, rtol=1e-9)


@pytest.fixture(scope="module")
def one_round():
    """(styles, limit / cost of the uniform policy) -> (cost before, after, limit); one compiled program."""
    with jax.enable_x64(True):
        game = random_game(2, states=3, agents=2, modes=2)
        logits, wrong = jnp.zeros((2, 3, 2)), no_injection(2, 3, 2)
        cost = float(evaluate(game, mix(list(jax.nn.softmax(logits, axis=-1)))).total[1])
        run = jax.jit(jax.vmap(lambda s, g: update(Rule(), g, s, logits, 1e-3, wrong, jnp.zeros(1)), in_axes=(0, None)))

        def play(styles, limit):
            with jax.enable_x64(True):
                new, _ = run(side_by_side(styles), game._replace(limits=jnp.array([limit])))
                after = [float(evaluate(game, mix(list(jax.nn.softmax(t, axis=-1)))).total[1]) for t in new]
            return cost, np.array(after), limit

        yield play, cost


def test_excess_contracts_by_one_minus_alpha(one_round):
    play, cost = one_round
    before, after, limit = play([Style(alpha=0.1), Style(alpha=0.2)], cost / 1.03)
    np.testing.assert_allclose((after - limit) / (before - limit), [0.9, 0.8], atol=0.03)


def test_a_budget_for_every_agent_is_spent_twice(one_round):
    play, cost = one_round
    whole = Style(alpha=1.0)
    before, after, limit = play([whole, whole._replace(shared=0.0, sequential=0.0)], cost + 0.01)
    np.testing.assert_allclose((after - before) / (limit - before), [1.0, 2.0], atol=0.15)


def test_one_state_makes_the_printed_condition_say_nothing():
    found = single_round.per_state(0, count=60)
    assert found["misled"][0] > 0.2 * found["misled"][1] > 0
    assert found["unchanged"][0] > 0.2 * found["unchanged"][1] > 0


def test_residual_critic_keeps_the_fixed_point():
    with jax.enable_x64(True):
        errors = shaping._fixed_points(0, states=3, actions=2, steps=3000)
    assert max(errors.values()) < 1e-8
    assert set(errors) == {"none", "the truth", "wrong", "constant"}


def test_shaping_changes_optima_and_potentials_do_not(monkeypatch):
    monkeypatch.setattr(shaping, "GAMES", 40)
    changed = shaping._shaping(0)
    assert changed["potential"] == [0] * len(shaping.WEIGHTS)
    assert changed["rough Q*"][-1] > 10


def test_counterexample_to_additive_shaping():
    """One state, rewards 1 and 0.9, Q_phys 0 and 1: by hand 1 > 0.9, but 1 < 0.9 + 0.5."""
    found = shaping.counterexample(0.5)
    assert found == {"plain": 0, "additive": 1, "residual": 0, "potential": 0}
    assert shaping.counterexample(0.05)["additive"] == 0  # 0.95 < 1


def test_macpo_plays_by_the_rule_of_the_algorithm(monkeypatch):
    """What `algos.macpo` asks of the constrained update is what the lab's player asks of it."""
    seen = []

    def spy(rule, theta, gradients, *args):
        seen.append(rule)
        raise StopIteration

    player = PLAYERS["macpo"]
    monkeypatch.setattr(macpo, "constrained_update", spy)
    dist = on_policy.AgentBatch(*[jnp.ones((4, 2))] * len(on_policy.AgentBatch._fields))
    monkeypatch.setattr(on_policy, "ratio", lambda actor, batch, used: jnp.sum(actor) * jnp.ones(4))
    monkeypatch.setattr(macpo, "fisher_product", lambda *args: None)
    with pytest.raises(StopIteration):
        macpo.update_agent(
            macpo.MACPOConfig(),
            jnp.ones(2),
            dist._replace(alive=jnp.ones(4)),
            None,
            jnp.ones((4, 2)),
            jnp.ones(4),
            jnp.ones(1),
            jnp.arange(2),
        )
    assert (seen[0].recovery, seen[0].demands) == (player.rule.recovery, player.rule.demands)
    assert (player.style.alpha, player.style.shared, player.style.sequential) == (1.0, 1.0, 1.0)


def test_recovery_is_forced_through_its_own_branch_and_the_printed_one_does_nothing():
    with jax.enable_x64(True):
        games = [g for g, _ in playable_games(3, first=0, states=5, agents=2, modes=3)]
        found = single_round.forced_recovery(games)
    assert found["ours"]["recovered"] == found["printed"]["recovered"] == 1.0
    asked = np.array(single_round.ALPHAS)[:, None]
    np.testing.assert_allclose((1.0 - found["ours"]["factor"]) / asked, single_round.FORCED, atol=0.02)
    assert np.all(found["printed"]["factor"] > 0.999)


@pytest.mark.parametrize("way", coupling.WAYS)
def test_worst_errors_leak_more_than_printed_and_no_more_than_corrected(way):
    with jax.enable_x64(True):
        games = stack([random_game(20_000 + i, states=5, agents=2, modes=3) for i in range(6)])
        theta = jnp.asarray(np.random.default_rng(3).normal(size=(6, 30)))
        found = coupling._over_bounds(games, theta, way, np.zeros(6))
    assert found["printed"]["worst"] > 1.2
    assert found["both"]["worst"] < 1.01


def test_growth_counts_the_games_that_grow():
    points = np.array(coupling.POINTS, float)
    rows = np.stack([points, points, np.full_like(points, 2.0), np.minimum(points, 80.0)])
    data = {"points": list(coupling.POINTS), "lasting": {"trident": {"all": rows}}}
    assert coupling.growing(data, "trident", "all").value == 0.5
    np.testing.assert_allclose(coupling.growth(data, "trident", "all").value, 1.0, atol=0.01)


def test_one_game_that_grows_faster_is_not_hidden_by_the_mean():
    horizons, points = np.array(safety.HORIZONS, float), np.array(safety.POINTS, float)
    flat = {"violation": np.ones((20, len(horizons))), "gap": np.ones((20, len(horizons)))}
    wild = flat | {"violation": np.concatenate([flat["violation"][1:], horizons[None] / 64])}
    names = ("as analysed", "trident")
    data = {
        "points": list(safety.POINTS),
        "horizons": list(safety.HORIZONS),
        "constant": {n: {"violation": np.ones((20, len(points)))} for n in names},
    }
    judge = next(c.judge for c in safety.CLAIMS if c.name == "violation-rate")
    for first, wanted in ((flat, HOLDS), (wild, CORRECTED)):
        rows = {"as analysed": first, "trident": flat}
        found = data | {"schedules": dict.fromkeys(safety.SCHEDULES, rows)}
        assert safety.fit(found, "1/K", "as analysed", "violation").exponent.high < safety.STEEP
        assert verdict(judge(found)) == wanted
