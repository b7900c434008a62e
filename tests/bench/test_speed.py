"""The record of `trident bench speed`: its structure with tiny sizes, its goals, and the page made from it."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from support import tiny

from trident.algos.trident.problem import Problem
from trident.bench import env_speed, round_speed, speed, speed_page, update_speed
from trident.bench.flops import count_flops
from trident.bench.overheads import PAIRS, closed_form_work, overheads, variants
from trident.bench.scaling import by_agents, by_constraints, by_modes, step_flops
from trident.bench.timing import interleave
from trident.cli import main
from trident.envs.uav_mec.env import UavMec
from trident.errors import TridentError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rounds():
    """A tiny learner stands for all: `w` is as good as critics."""
    env = tiny.TinyEnv()
    return round_speed.measure_training(env, tiny.make(tiny.TinyConfig(), env.spec, None), lambda s: s.w, repeats=2)


def test_training_rounds(rounds):
    assert rounds["steps_per_second"] == pytest.approx(rounds["env_steps_per_round"] / rounds["round_seconds"])
    assert sum(rounds["share"].values()) == pytest.approx(1.0)
    assert 0 < rounds["flops"]["critics"] < rounds["flops"]["update"]
    assert min(rounds["compile"]["round"].values()) > 0
    assert rounds["of_sgemm"] == pytest.approx(rounds["gflops"] / rounds["sgemm_gflops"])
    assert rounds["peak_rss_mib"] > 50


def test_record_becomes_a_page(rounds, monkeypatch):
    """Every part in its place, with the slow ones stood in for."""
    seconds = {"gs": 1.0, "stgc": 1.1, "exact": 1.2, "exact, no physics": 1.15, "rollout": 1.0}
    flops = {"gs": 10.0, "stgc": 12.0, "exact": 15.0, "exact, no physics": 15.0}
    paper = "exact, the paper's networks"
    seconds |= {paper: 4.5, f"{paper}, no physics": 4.0, f"{paper} and physics": 4.05}
    seconds["rollout, the paper's networks"] = 2.0
    flops |= {paper: 50.0, f"{paper}, no physics": 50.0, f"{paper} and physics": 50.0}
    costs = {"size": "tiny", "seconds": seconds, "flops": flops, "overhead": overheads(seconds, flops)}
    shares = {name: o["of_round"] for name, o in costs["overhead"].items()}
    assert shares["physics"] == pytest.approx(0.05 / 2.15)
    assert shares["physics, the paper's networks"] == pytest.approx(0.5 / 6.0)  # of rounds with those networks
    monkeypatch.setattr(speed, "measure_training", lambda *_: rounds)
    monkeypatch.setattr(speed, "measure_overheads", lambda *_: costs)
    monkeypatch.setattr(
        speed,
        "measure_env",
        lambda *_: {
            "envs": 4,
            "steps_per_second": {"jax": 300.0, "numpy one at a time": 2.0},
            "jax_over": {"numpy one at a time": 150.0},
            "missing": None,
        },
    )
    heard, saved = [], []
    plan = speed.Plan(parts=("env", "training", "overheads"), sizes=("tiny",), algos=("happo",))
    record = json.loads(json.dumps(speed.measure(plan, heard.append, saved.append, {})))
    assert len(heard) == 4
    names = ["env", "training: happo tiny", "overheads"]
    assert [list(r["about"]) for r in saved] == [names[:1], names[:2], names]
    again = speed.measure(replace(plan, parts=("env",)), heard.append, saved.append, record)
    assert again["training"] == record["training"]
    assert again["about"][names[1]] == record["about"][names[1]]
    met = {g["name"]: g["met"] for g in record["goals"]}
    assert met == {
        "env: JAX over NumPy, one at a time": True,
        "STGC over Gumbel-Softmax, share of a round": True,
        "physics, share of a round": False,
        "the same, the paper's networks": False,
        "the same, the paper's physics too": True,
    }
    assert costs["overhead"]["stgc over gs"] == pytest.approx({"of_round": 0.05, "of_update": 0.1, "of_flops": 0.2})
    text = speed_page.page(record)
    for heading in ("Goals", "The environment alone", "Training rounds", "What TRIDENT's parts cost", "Circumstances"):
        assert f"## {heading}" in text
    assert "| physics, share of a round | 0.0233 | <= 0.02 | NO |" in text


def test_every_variant_of_the_overheads_updates_a_state_of_its_own():
    for name, variant in variants(UavMec(), "tiny").items():
        after, _ = jax.eval_shape(variant.update, variant.shapes.algo, variant.shapes.data)
        same = jax.tree.map(lambda a, b: a.shape == b.shape, after, variant.shapes.algo)
        assert all(jax.tree.leaves(same)), name


def test_variants_of_the_overheads_differ_in_nothing_else():
    """Around a base policy the one without physics would take the reward's direction from elsewhere."""
    env = UavMec()
    configs = [v.algorithm.config for v in variants(env, "tiny").values()]
    assert len({Problem(c, env.spec, env.physics).source for c in configs}) == 1


def test_turns_are_interleaved_and_the_shortest_counts(monkeypatch):
    order, clock = [], iter([0.0, 5.0, 5.0, 6.0, 6.0, 8.0, 8.0, 12.0])
    monkeypatch.setattr("trident.bench.timing.time.perf_counter", lambda: next(clock))
    best = interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2)
    assert order == ["a", "b"] * 3
    assert best == {"a": 2.0, "b": 1.0}


def test_numpy_twin_runs():
    env, twin = UavMec(), env_speed.load_twin()
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    start = {name: np.zeros((2, *x.shape), x.dtype) for name, x in state._asdict().items()}
    reward = env_speed.numpy_steps(twin, env, start, 3)()
    assert reward.shape == (2,)
    assert np.all(reward < 0)


def test_without_a_checkout_the_twin_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(env_speed, "SOURCE", tmp_path)
    with pytest.raises(TridentError, match="needs a source checkout"):
        env_speed.load_twin()


def test_growth_environments():
    for n in (2, 5):
        assert (by_agents(n).spec.num_agents, by_agents(n).spec.action.num_modes) == (n, 3)
    assert by_modes(4).spec.action.num_modes == 4
    for k in range(4):
        env = by_constraints(k)
        _, step = jax.eval_shape(env.reset, jax.random.key(0))
        assert env.spec.num_constraints == k
        assert step.cost.shape == step.margin.shape == (k,)
        signals = jax.eval_shape(env.physics.signals, step.state, jax.eval_shape(env.physics.nominal, step.state))
        assert signals.shape == (1 + k,)
    assert step_flops(by_agents(4)) > 2 * step_flops(by_agents(2))


def test_the_update_is_measured_and_shown_without_torch(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIDENT_TORCH_PYTHON", str(tmp_path / "no-such-python"))
    size = update_speed.UpdateSize(hidden=(8,), batch=64, obs_dim=4, fisher=16)
    part = json.loads(json.dumps(update_speed.measure_update(size, 1)))
    assert part["jax_faster_by"] == {}
    whole, two, few = (part["results"][name] for name in ("jax", "jax preconditioned", "jax few"))
    assert two["change"] != few["change"], "a Fisher matrix of few states is another one"
    assert two["error"] < few["error"], "and its solution another"
    assert 0 < whole["error"] < 1
    text = speed_page.page({"update": part, "about": {}, "goals": []})
    assert "| jax, every state, 10 steps |" in text
    assert "| jax, every state, 2 preconditioned steps |" in text
    assert "| jax, 16 states, 2 preconditioned steps |" in text
    assert "install torch to compare" in text
    assert list(part["parts"]) == list(update_speed.jax_parts(update_speed.make_problem(size), PLAIN, 16))
    assert "| one trial of the line search |" in text


PLAIN = update_speed.WAYS["jax"]


@pytest.mark.parametrize("name", update_speed.WAYS)
def test_the_stages_of_an_update_make_up_the_update(name):
    problem = update_speed.make_problem(update_speed.UpdateSize(hidden=(8,), batch=64, obs_dim=4))
    way = update_speed.WAYS[name]
    update, theta = update_speed.jax_update(problem, way, 16)
    new, info = jax.jit(update)(theta, problem)
    stages = list(update_speed.jax_parts(problem, way, 16).values())
    (_, (_, _, g)), (step, (gram, budget)), (trial, _) = stages[1:]
    natural = jax.jit(stages[1][0])(theta, problem, g)
    made = theta + info.fraction * jax.jit(step)(gram, budget) @ natural
    np.testing.assert_allclose(made, new, rtol=1e-4, atol=1e-6)
    change, kl = jax.jit(trial)(theta, problem, made)
    np.testing.assert_allclose(change, info.change, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(kl, info.kl, rtol=1e-3)


def test_update_problem_binds_both_constraints():
    """The yardstick exercises the constrained solve: the cost that must fall falls, the other stays within its room."""
    problem = update_speed.make_problem(update_speed.UpdateSize(hidden=(8,), batch=64, obs_dim=4))
    update, theta = update_speed.jax_update(problem, PLAIN, 16)
    _, info = jax.jit(update)(theta, problem)
    assert info.kind == 1
    assert info.change[0] > 0
    assert info.change[1] <= problem.budget[0] + 1e-6
    assert info.change[2] < 0
    arrays = update_speed.plain_problem(problem)
    assert arrays["w0"].shape == (4, 8)
    assert arrays["layers"] == 2
    assert arrays["cg_steps"] == update_speed.RULE.cg_steps


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "sped"], "there are speed, fingerprint, devices, scenarios, table1"),
        (["bench", "speed", "--quik"], "did you mean --quick?"),
        (
            ["bench", "speed", "--algos", "hapo"],
            "unknown algorithm 'hapo': there are mappo, happo, trident",
        ),
        (["bench", "speed", "--show", "nowhere.json"], "nowhere.json is not a record"),
    ],
)
def test_mistakes_are_answered_in_one_line(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_help_teaches_by_example(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "speed", "--help"])
    assert "trident bench speed --quick" in capsys.readouterr().out


def test_the_page_is_made_from_the_record():
    record = speed.read_record(ROOT / "benchmarks/speed/record.json")
    assert (ROOT / "docs/speed.md").read_text(encoding="utf-8") == speed_page.page(record)


def test_an_update_measured_before_its_ways_took_their_own_steps_is_left_out(tmp_path):
    path = tmp_path / "speed.json"
    path.write_text(json.dumps({"update": {"cg_steps": 10}, "env": {"envs": 1}}), encoding="utf-8")
    assert speed.read_record(path) == {"env": {"envs": 1}}
    path.write_text("[1]", encoding="utf-8")
    with pytest.raises(TridentError, match="is not a record"):
        speed.read_record(path)


def test_work_timed_alone_is_a_share_of_the_plain_round():
    seconds = dict.fromkeys((name for pair in PAIRS.values() for name in pair), 1.0) | {"slopes": 0.08, "values": 0.02}
    flops = dict.fromkeys(seconds, 1.0)
    shares = overheads(seconds, flops, ["slopes", "values"])
    assert shares["physics, timed alone"] == pytest.approx({"of_round": 0.05, "of_update": 0.1, "of_flops": 0.0})
    assert "physics, timed alone" not in overheads(seconds, flops)


@pytest.fixture(scope="module")
def physics():
    """The variants of a small learner, and what its closed form is asked for."""
    env = UavMec()
    family = variants(env, "tiny")
    return family, closed_form_work(env, family["exact"].algorithm)


def test_the_closed_forms_work_is_what_a_round_asks_for(physics):
    family, work = physics
    c = family["exact"].algorithm.config
    values, gradients = work["closed form, gradients"]()
    passes = 1 + c.step.updates  # the first is on advantages
    assert values.shape == (passes, c.step.policy_batch, 3, 3)
    assert gradients.shape == (passes, 4, c.step.policy_batch, 3, 3)  # speed, two of direction, ratio
    assert np.isfinite(gradients).all()
    assert work["closed form, next actions"]().next_step.shape == (1, c.critic.minibatches * c.critic.batch, 3)


def test_nothing_that_the_closed_form_does_in_a_round_is_left_out_of_its_work(physics):
    """Its operations add up to what a round with physics has more than one without."""
    family, work = physics

    def update(v):
        return count_flops(v.update, v.shapes.algo, v.shapes.data)

    alone = sum(map(count_flops, work.values()))
    assert alone == pytest.approx(update(family["exact"]) - update(family["exact, no physics"]), rel=0.02)
