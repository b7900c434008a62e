"""Old names of environments: runs are read under today's, say so, and go on."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from support.records import write_run

import trident
from trident.envs.probes import PROBES
from trident.envs.uav_mec import VARIANTS
from trident.errors import TridentError
from trident.renamed import BY_VELOCITY, former_env, modern_env, modern_identity, modern_run
from trident.run_directory import RUN_SCHEMA
from trident.sealed import read_sealed
from trident.training.registry import has_env, make_env
from trident.training.settings import Settings, make_setup, setup_of


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (("uav-mec", 1), ("uav-mec-velocity", 1)),
        (("uav-mec-n16", 1), ("uav-mec-n16-velocity", 1)),
        (("uav-mec-course", 1), ("uav-mec", 2)),
        (("uav-mec-polar", 1), ("uav-mec-polar", 2)),
        (("uav-mec", 2), ("uav-mec", 2)),
        (("uav-mec-velocity", 1), ("uav-mec-velocity", 1)),
        (("intersection", 1), ("intersection", 1)),
    ],
)
def test_what_environments_are_called_today(was, now):
    assert modern_env(*was) == now


def test_every_variant_of_version_1_has_its_name():
    assert all(has_env(f"{name}-velocity") for name in BY_VELOCITY)
    assert {*BY_VELOCITY, "uav-mec-velocity", "uav-mec-polar"} == {*VARIANTS}


@pytest.mark.parametrize("name", ["uav-mec", "uav-mec-hard"])
def test_version_1_is_there_by_name_and_version_2_flies_by_speed_and_direction(name):
    now, before = make_env(name), make_env(f"{name}-velocity")
    assert (now.spec.version, before.spec.version) == (2, 1)
    assert now.spec.action.param_names == ("speed", "east", "north", "ratio")
    assert before.spec.action.param_names == ("vx", "vy", "ratio")
    assert before.config == replace(now.config, flight="cartesian")


def test_the_old_name_of_the_flight_command_is_understood():
    with pytest.warns(FutureWarning, match="uav-mec-course is now called uav-mec"):
        env = make_env("uav-mec-course")
    assert env.config == make_env("uav-mec").config
    with pytest.warns(FutureWarning, match="uav-mec-course is now called uav-mec"):
        setup = make_setup("uav-mec-course", "random", Settings())
    assert setup.spec.name == "uav-mec"


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    """A run of version 1 as it was written when that was `uav-mec`."""
    env = PROBES["probe-mode"]()
    env = replace(env, spec=replace(env.spec, name="uav-mec", version=1))  # of a shape that compiles at once
    out = tmp_path_factory.mktemp("old") / "run"
    policy = next(iter(env.scripted))
    trident.train(env, policy, episodes=1, seeds=1, eval_episodes=1, references=False, video=False, out=out)
    written = read_sealed(out / "run.json", RUN_SCHEMA)
    assert (written["env"], written["env_version"], written["identity"]["env"]) == ("uav-mec", 1, "uav-mec")
    return out, env


WORDS = "a run of uav-mec version 1, now called uav-mec-velocity version 1"


def test_a_run_of_version_1_is_read_evaluated_and_compared_as_such_and_says_so(old_run):
    out, env = old_run
    assert setup_of(out).env.config.flight == "cartesian"
    run = trident.load(out, env=env)
    (note,) = run.notes
    assert note.startswith(f"{out}: {WORDS} (version 2 flies by speed and direction")
    assert run.evaluate(1, references=False)["policies"] == run.result["policies"]
    assert WORDS.replace("a run", "A run") in trident.compare(out)


def test_a_run_of_version_1_goes_on_and_keeps_its_records(old_run, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(old_run[0], out)
    rounds = trident.load(out, env=old_run[1]).rounds
    longer = trident.resume(out, env=old_run[1], episodes=10**4)
    assert longer.rounds > rounds
    assert [r["round"] for r in longer.records] == list(range(1, longer.rounds + 1))
    assert read_sealed(out / "run.json", RUN_SCHEMA)["env"] == "uav-mec", "with which its records' digests begin"


def test_runs_of_two_versions_stand_in_no_table_together(old_run, tmp_path):
    out = write_run(tmp_path / "new", algo="mappo", seeds=1)
    with pytest.raises(TridentError, match="different environments: uav-mec, uav-mec-velocity"):
        trident.compare(old_run[0], out)


def test_a_run_without_old_names_has_nothing_to_say():
    run = {"env": "uav-mec", "env_version": 2, "identity": {"env": "uav-mec", "version": 2}}
    assert former_env(modern_run(run)) is None
    assert modern_identity({"env": "uav-mec-n8", "version": 1, "jax": "1"}) == {
        "env": "uav-mec-n8-velocity", "version": 1, "jax": "1",
    }  # fmt: skip
