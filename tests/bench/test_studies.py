"""Tables 3 and 5: what is run, what four's policy sees of a larger fleet, what is fitted, how records become rows."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.run_files import write_files

from trident.bench import scalability, sensitivity, transfer
from trident.cli import main
from trident.envs.uav_mec import UavMec, UavMecConfig
from trident.envs.uav_mec.physics import pack
from trident.launch.job import Job, words
from trident.report.stats import Estimate, growth, relative_change
from trident.training.settings import Settings, make_setup
from trident.types import HybridAction

quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
SMALL, LARGE = UavMecConfig(), UavMecConfig(num_uavs=16)


def observation(config: UavMecConfig, seed: int = 0) -> np.ndarray:
    count = len(transfer.observation_names(config))
    return np.random.default_rng(seed).normal(size=(config.num_uavs, count)).astype(np.float32)


def test_a_fleet_of_four_is_seen_as_it_is():
    obs = observation(SMALL)
    seen, chosen = transfer.few_fogs(SMALL, SMALL, jnp.asarray(obs))
    np.testing.assert_array_equal(seen, obs)
    np.testing.assert_array_equal(chosen, np.tile([0, 1], (4, 1)))


def test_of_many_fogs_the_nearest_of_each_kind_is_seen_in_metres():
    obs, names = observation(LARGE), transfer.observation_names(LARGE)
    seen, chosen = map(np.asarray, transfer.few_fogs(SMALL, LARGE, jnp.asarray(obs)))
    mine = transfer.observation_names(SMALL)
    assert seen.shape == (16, len(mine))
    for i in range(16):
        at = {name: obs[i, names.index(name)] for name in names}
        for k in (0, 1):
            f = min(range(k, 8, 2), key=lambda f: np.hypot(at[f"fog {f + 1} x"], at[f"fog {f + 1} y"]))
            assert chosen[i, k] == f
            for trait, scale in (("x", 2.0), ("y", 2.0), ("efficiency", 1.0), ("load", 1.0)):  # 1,200 m and 600 m
                value = seen[i, mine.index(f"fog {k + 1} {trait}")]
                np.testing.assert_allclose(value, scale * at[f"fog {f + 1} {trait}"], rtol=1e-6)
        for name in ("place x", "user 3 y", "UAV 2 load"):
            assert seen[i, mine.index(name)] == at[name]


def test_fours_policy_chooses_among_the_fogs_it_was_shown():
    small, large = UavMec(SMALL), UavMec(LARGE)

    def act(state, view, key, deterministic):
        assert view.obs.shape == (4, small.spec.obs_dim)
        return HybridAction(jnp.array([0, 1, 2, 2]), jnp.full((4, 4), 0.5)), {}

    algorithm = replace(make_setup(small, "mappo", Settings()).algorithm, act=act)
    policy = transfer.fleet_policy(small, large, algorithm, None, True)
    action, _ = quickly(lambda key: policy(key, None, large.reset(key)[1]))(jax.random.key(0))
    mode = np.asarray(action.mode).reshape(4, 4)
    assert action.params.shape == (16, 4)
    assert (mode[:, 0] == 0).all()
    assert (mode[:, 1] % 2 == 1).all(), "fogs 1, 3, 5, ...: the fast ones"
    assert (mode[:, 2:] % 2 == 0).all()
    assert (mode[:, 2:] > 0).all()


def test_the_closed_form_may_weigh_energy_otherwise_while_the_reward_stays():
    plain, other, told = UavMec(SMALL), UavMec(SMALL, omega=2.0), UavMec(replace(SMALL, energy_weight=0.005))

    @quickly
    def look(key):
        state, _ = plain.reset(key)
        action = HybridAction(jnp.zeros(4, jnp.int32), jnp.full((4, 4), 0.5))
        reward = [env.step(key, state, action)[1].reward for env in (plain, other)]
        return reward, [env.physics.signals(pack(SMALL, state), action)[0] for env in (plain, other, told)]

    reward, valued = look(jax.random.key(0))
    assert reward[0] == reward[1]
    assert valued[1] == valued[2] != valued[0]


def test_growth_is_the_exponent_by_least_squares_and_changes_are_relative():
    sizes, means = [4, 8, 16, 32], [1.4, 2.7, 5.9, 12.4]
    exponent = np.polyfit(np.log(sizes), np.log(means), 1)[0]
    e = growth(sizes, [[0.9 * m, 1.1 * m] for m in means])
    np.testing.assert_allclose(e.value, exponent)
    assert e.low < exponent < e.high
    np.testing.assert_allclose(scalability.paper_exponent("trident", 1), exponent)
    np.testing.assert_allclose(relative_change([-5.5], [-5.0]), [-0.1] * 3)


def test_the_claim_is_judged_by_intervals():
    assert sensitivity.verdict([Estimate(0.0, -0.02, 0.02), Estimate(0.01, -0.01, 0.04)]) == "yes"
    assert sensitivity.verdict([Estimate(0.0, -0.02, 0.02), Estimate(-0.2, -0.3, -0.1)]) == "no"
    assert sensitivity.verdict([Estimate(0.0, -0.02, 0.02), Estimate(0.04, 0.0, 0.08)]) == "undecided"


def test_settings_are_changed_one_at_a_time_and_share_the_runs_of_the_defaults(tmp_path):
    jobs = sensitivity.plan(list(sensitivity.KNOBS), tmp_path, 8, 2)
    runs = {job.folder.name: job for levels in jobs.values() for job in levels.values()}
    assert len(runs) == 22  # four settings at five values, and two learners' defaults
    assert jobs["delta_TR"]["default"] == jobs["alpha_k"]["default"] == jobs["omega_1:omega_2"]["default"]
    assert runs["alpha_k-50"].config == {"safety.alpha": 0.1, "safety.alpha_back": 0.15}
    assert runs["omega_1-90"].env == "uav-mec-omega-90"
    said = words(runs["tau_0-200"])
    assert said[said.index("--algo.actor.tau-start") + 1] == "2.0"
    assert said[said.index("--algo") + 1] == "trident-stgc"


def write_run(job, reward: float, rounds: int = 2) -> Path:
    seeds = list(range(job.seeds))
    run = {
        "env": job.env, "env_version": 2, "algo": job.algo, "horizon": 200, "rounds": rounds, "metrics": [],
        "constraints": [{"name": "energy", "limit": 0.01, "unit": "rate"}],
        "settings": {"episodes": job.episodes, "seeds": seeds},
    }  # fmt: skip
    score = {"metric/ev": 0.01, "metric/cv": 0.02, "cost/energy": 0.01}
    policies = {job.algo: [{"reward": reward - 0.01 * s, **score} for s in seeds]}
    rows = [
        {"round": i, "env_steps": 3200 * i, "seconds": 4.0 * i, "values": {"reward": [reward] * len(seeds)}}
        for i in range(1, rounds + 1)
    ]  # fmt: skip
    write_files(job.folder, run, {"policies": policies, "seeds": seeds}, rows)
    return job.folder


def test_the_sensitivity_table_has_ours_the_papers_and_the_claim(tmp_path, capsys):
    jobs = sensitivity.plan(["delta_TR"], tmp_path, 8, 2)["delta_TR"]
    for level, job in jobs.items():
        write_run(job, -6.0 if level == "high" else -5.0)
    assert main(f"bench table5 --settings delta_TR --episodes 8 --seeds 2 --out {tmp_path} --markdown".split()) == 0
    said = capsys.readouterr().out
    row, claim = (line for line in said.splitlines() if line.startswith("| delta_TR |"))
    assert "| -5.00 [-5.01, -5.00] (-4.81) |" in row
    assert "| -6.00 [-6.01, -6.00] (-4.92) | 3.00" in row
    assert claim.endswith("| yes |")
    assert (tmp_path / "sensitivity.png").stat().st_size > 10_000


def test_the_scaling_table_counts_as_the_paper_does_and_fits_exponents(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scalability, "round_flops", lambda env, algo: 1e9 * scalability.agents_of(env) ** 2)
    for n, reward in ((4, -5.0), (8, -12.0)):
        job = Job(scalability.env_of(n), "macpo", tmp_path / scalability.env_of(n) / "macpo", 8, 2)
        write_run(job, reward)
    command = f"bench table3 --agents 4 8 --methods macpo --episodes 8 --seeds 2 --out {tmp_path} --markdown"
    assert main(command.split()) == 0
    said = capsys.readouterr()
    rewards, violations, seconds, operations = (line for line in said.out.splitlines() if line.startswith("| macpo |"))
    assert "-1.25 [-1.25, -1.25] (-1.4)" in rewards
    assert "| 3.00 (5.9) | 6.00 (11.4) | 1.00 (1.10) |" in violations
    assert "| 2.00 | 2.00 | 0.00 |" in seconds  # four seconds a round for two seeds
    assert operations.endswith("| 1.60e+10 | 6.40e+10 | 2.00 |")
    assert "no checkpoint of N = 4" in said.err
    assert json.loads((tmp_path / "operations.json").read_text())["uav-mec-n8 macpo"] == 6.4e10
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


@pytest.mark.slow
def test_operations_of_a_round_grow_with_the_fleet():
    few, many = (scalability.round_flops(scalability.env_of(n), "mappo") for n in (4, 8))
    assert 1.2 < many / few < 4.5
