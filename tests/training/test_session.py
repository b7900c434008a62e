"""A run is recorded, checkpointed, interrupted, resumed and ended in good order."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

from trident.errors import TridentError
from trident.report import records as recording
from trident.report.progress import Silent
from trident.run_directory import alone, ask_to_stop, read_run, write_json
from trident.training import checkpoint, memory, session
from trident.training.loop import RunState
from trident.training.settings import Settings, Setup, make_setup, setup_of

REAL_BUILD = session.build
EPISODES, ROUNDS = 20, 10  # 20 episodes x 8 steps / (4 environments x 4 steps)


class Watch(Silent):
    """Remembers what was said and acts at a given round."""

    def __init__(self, at: int = -1, act: Any = None) -> None:
        self.said: list[str] = []
        self.at, self.act = at, act

    def say(self, text: str) -> None:
        self.said.append(text)

    def update(self, record: Any) -> None:
        if record["round"] == self.at:
            self.act()


def setup(env: str = "tiny", algo: str = "tiny", config: Any = None, **settings: Any) -> Setup:
    return make_setup(env, algo, Settings(**{"episodes": EPISODES, "seeds": 2} | settings), config)


def bits(state: RunState) -> list[bytes]:
    def typed(x):
        return jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)

    return [np.asarray(jax.random.key_data(x) if typed(x) else x).tobytes() for x in jax.tree.leaves(state)]


def records(out: Path) -> list[dict[str, Any]]:
    """Without the wall time, the one thing that may differ."""
    return [{k: v for k, v in r.items() if k != "seconds"} for r in recording.read(out / "records.jsonl")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> session.Outcome:
    """An uninterrupted run."""
    return session.train(setup(), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module", autouse=True)
def _shared(whole) -> Any:
    """All other runs in this process share programs; children build their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build", tiny.share_builds())
        yield


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> session.Outcome:
    """A run that got Ctrl-C in round 4."""
    return session.train(
        setup(), tmp_path_factory.mktemp("stopped") / "run", Watch(4, lambda: interrupt(signal.SIGINT))
    )


@pytest.fixture
def copy(stopped, tmp_path) -> Path:
    return Path(shutil.copytree(stopped.out, tmp_path / "run"))


def interrupt(number: int) -> None:
    os.kill(os.getpid(), number)


def test_the_number_of_rounds_follows_from_the_episodes():
    assert setup().rounds == ROUNDS
    assert setup(episodes=1).rounds == 1
    assert setup(episodes=21).rounds == math.ceil(21 * 8 / 16)


def test_one_record_per_round_with_sums_that_add_up(whole):
    rows = records(whole.out)
    assert [r["round"] for r in rows] == list(range(1, ROUNDS + 1))
    assert [r["env_steps"] for r in rows] == [16 * n for n in range(1, ROUNDS + 1)]
    assert rows[-1]["episodes"] == EPISODES
    for name, limit in (("use", 0.4), ("noise", 2.0)):
        cost = np.array([r["values"][f"cost/{name}"] for r in rows])
        violation = np.array([r["values"][f"cumulative_violation/{name}"] for r in rows])
        total = np.array([r["values"][f"cumulative_cost/{name}"] for r in rows])
        assert np.allclose(violation, np.cumsum(np.maximum(cost - limit, 0.0), axis=0))
        assert np.allclose(total, np.cumsum(cost * 16, axis=0))
        assert total[-1].min() > 0


def test_metrics_are_ratios_where_declared_and_vectors_are_named(whole):
    values = records(whole.out)[-1]["values"]
    assert np.allclose(values["metric/moved"], np.array(values["cost/use"]) * 2.0 / 4.0)
    assert np.allclose(np.add(values["mode/stay"], values["mode/go"]), 1.0)
    assert values["loss/use"] == [2.0, 2.0]
    assert values["loss/noise"] == [3.0, 3.0]
    assert "loss/reward" in values
    assert not [name for name in values if name.startswith("bad/")]


def test_run_json_tells_everything(whole):
    run = read_run(whole.out)
    assert (run["env"], run["env_version"], run["algo"], run["rounds"]) == ("tiny", 1, "tiny", ROUNDS)
    assert run["config"]["lr"] == 0.1
    assert run["settings"]["seeds"] == [0, 1]
    assert run["versions"]["jax"] == jax.__version__
    assert run["host"]["cores"] == run["identity"]["cores"] == len(os.sched_getaffinity(0))
    again = setup_of(whole.out)
    assert again.algorithm.config == whole.setup.algorithm.config
    assert again.settings.seed_list == whole.setup.seeds


def test_an_interrupted_run_ends_as_if_it_had_not_been(whole, stopped, copy):
    assert (stopped.rounds, stopped.stopped_by) == (4, signal.SIGINT)
    assert checkpoint.rounds(copy / "checkpoints")[0] == 4
    assert records(copy) == records(whole.out)[:4]
    ended = session.resume(copy)
    assert (ended.rounds, ended.stopped_by) == (ROUNDS, None)
    assert bits(ended.state) == bits(whole.state)
    assert records(copy) == records(whole.out)
    name = f"{ROUNDS:08d}.npz"
    assert (copy / "checkpoints" / name).read_bytes() == (whole.out / "checkpoints" / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_round_end_and_handlers_are_put_back(copy, number):
    before, watch = signal.getsignal(number), Watch(6, lambda: interrupt(number))
    ended = session.resume(copy, progress=watch)
    assert (ended.rounds, ended.stopped_by) == (6, number)
    assert watch.said == ["stopping after this round (once more to quit at once)"]
    assert checkpoint.rounds(copy / "checkpoints") == [6, 4]
    assert signal.getsignal(number) is before


def test_a_word_in_its_directory_stops_a_run_as_a_signal_does(whole, copy):
    ask_to_stop(copy)  # of a process that has ended before it could hear it
    watch = Watch(6, lambda: ask_to_stop(copy))
    ended = session.resume(copy, progress=watch)
    assert (ended.rounds, ended.stopped_by) == (6, signal.SIGINT)
    assert watch.said == ["stopping, as the page asked"]
    assert checkpoint.rounds(copy / "checkpoints") == [6, 4]
    assert not (copy / "stop").exists()
    assert bits(session.resume(copy).state) == bits(whole.state)


def test_a_signal_while_compiling_stops_before_any_round_and_loses_nothing(whole, tmp_path):
    class Early(Watch):
        def begin(self, run: Any) -> None:
            interrupt(signal.SIGINT)

    watch = Early()
    ended = session.train(setup(), tmp_path / "run", watch)
    assert (ended.rounds, ended.stopped_by) == (0, signal.SIGINT)
    assert watch.said == ["stopping before the next round (once more to quit at once)"]
    assert bits(session.resume(tmp_path / "run").state) == bits(whole.state)


def test_kill_9_until_done_ends_as_if_nothing_had_happened(whole, tmp_path):
    """Killed while writing the first payload, then while writing a later manifest; then left alone.

    Every file that is written whole takes two calls: itself and its directory. A new run writes run.json, any run its
    records anew, and every round syncs its records and writes the payload and the manifest.
    """
    out, never = tmp_path / "run", 10**6
    for die, codes in ((4 + 2, -signal.SIGKILL), (2 + 4 * 5 + 4, -signal.SIGKILL), (never, 0)):
        command = [sys.executable, tiny.__file__, "session", str(out), str(die)]
        child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert child.returncode == codes, child.stderr
    assert records(out) == records(whole.out)
    name = f"{ROUNDS:08d}.npz"
    assert (out / "checkpoints" / name).read_bytes() == (whole.out / "checkpoints" / name).read_bytes()


def test_records_after_the_checkpoint_are_cut_back(whole, copy):
    """A crash leaves records that are newer than the checkpoint, the last of them torn."""
    with (copy / "records.jsonl").open("a") as file:
        file.write(json.dumps(records(copy)[-1] | {"round": 5, "seconds": 1.0}) + '\n{"round": 6, "env_st')
    session.resume(copy)
    assert records(copy) == records(whole.out)


def test_a_run_without_a_checkpoint_starts_again(whole, copy):
    shutil.rmtree(copy / "checkpoints")
    ended = session.resume(copy)
    assert bits(ended.state) == bits(whole.state)
    assert records(copy) == records(whole.out)


def test_a_finished_record_without_checkpoints_is_not_trained_anew(copy):
    (copy / "result.json").write_text("{}")
    shutil.rmtree(copy / "checkpoints")
    kept = {name: (copy / name).read_bytes() for name in ("run.json", "records.jsonl")}
    for episodes in (None, 2 * EPISODES):
        with pytest.raises(TridentError, match="finished and has no checkpoints"):
            session.resume(copy, episodes=episodes)
    assert kept == {name: (copy / name).read_bytes() for name in kept}


def test_a_prolonged_run_has_no_result_until_its_end(copy):
    (copy / "result.json").write_text("{}")
    session.resume(copy)
    assert (copy / "result.json").exists()
    session.resume(copy, episodes=EPISODES + 2, progress=Watch(ROUNDS, lambda: interrupt(signal.SIGINT)))
    assert not (copy / "result.json").exists()


def test_memory_that_a_cache_holds_counts_as_free():
    lines = Path("/proc/meminfo").read_text().splitlines()
    assert memory._system() == pytest.approx(
        1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), rel=0.2
    )


def test_a_corrupt_checkpoint_is_reported_and_the_one_before_it_taken(whole, copy):
    session.resume(copy, progress=Watch(6, lambda: interrupt(signal.SIGINT)))
    (copy / "checkpoints" / "00000006.npz").write_bytes(b"rubbish")
    watch = Watch()
    ended = session.resume(copy, progress=watch)
    assert "the checkpoint of round 6 is corrupt" in watch.said[0]
    assert bits(ended.state) == bits(whole.state)
    assert records(copy) == records(whole.out)


def test_a_full_disk_ends_the_run_with_one_line_and_keeps_what_was_saved(copy, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "_write_arrays", full)
    with pytest.raises(TridentError, match=r"round 10 .*No space left on device; the checkpoint of round 4 is kept"):
        session.resume(copy)
    assert checkpoint.rounds(copy / "checkpoints") == [4]


def test_a_finished_run_can_be_prolonged_but_not_shortened(whole, tmp_path):
    out = Path(shutil.copytree(whole.out, tmp_path / "run"))
    longer = session.resume(out, episodes=EPISODES + 4)
    assert (longer.rounds, longer.stopped_by) == (ROUNDS + 2, None)
    assert read_run(out)["settings"]["episodes"] == EPISODES + 4
    assert [r["round"] for r in records(out)] == list(range(1, ROUNDS + 3))
    with pytest.raises(TridentError, match="can only add"):
        session.resume(out, episodes=2)


def test_a_finished_run_keeps_no_replay_and_a_prolonged_one_fills_it_again(whole, tmp_path):
    """Regression: nearly all of the 487 MB that a run of one seed left behind was replay."""
    assert checkpoint.rounds(whole.out / "checkpoints") == [ROUNDS]
    leaves = json.loads((whole.out / "checkpoints" / f"{ROUNDS:08d}.json").read_text())["leaves"]
    assert not [leaf["path"] for leaf in leaves if "replay" in leaf["path"]]
    states, told = [], []
    for name in ("a", "b"):
        out = Path(shutil.copytree(whole.out, tmp_path / name))
        watch = Watch(ROUNDS + 1, lambda: interrupt(signal.SIGINT))
        state = session.resume(out, episodes=EPISODES + 4, progress=watch).state
        assert state.algo.rounds.tolist() == [ROUNDS + 1] * 2
        assert (state.replay.size == 32).all()
        assert (np.abs(state.replay.data.obs).sum(axis=(2, 3)) > 0).all(), "every row was played"
        states.append(bits(session.resume(out).state))
        told.append([text for text in watch.said if "replay" in text])
    assert states[0] == states[1]
    assert told == [["a finished run keeps no replay: playing 2 rounds to fill it ..."]] * 2


def test_records_older_than_the_checkpoint_are_an_error(copy):
    recording.truncate(copy / "records.jsonl", 2)
    with pytest.raises(TridentError, match="ends at round 2, before the checkpoint of round 4"):
        session.resume(copy)


def test_a_run_directory_is_never_overwritten(whole):
    with pytest.raises(TridentError, match=r"not empty.*trident resume"):
        session.train(setup(), whole.out)


def test_what_a_kill_left_of_run_json_does_not_block_the_directory(tmp_path):
    (tmp_path / "run.json.partial").write_text('{"env": "ti')
    assert session.train(setup(), tmp_path).rounds == ROUNDS
    assert not list(tmp_path.glob("*.partial"))


def test_one_run_is_written_by_one_process_at_a_time(copy, tmp_path):
    """Two resumes of one run, after a kill that had left the first alive, once mixed their records."""
    errors: list[str] = []

    def again():
        with pytest.raises(TridentError, match=r"run is in use: another process is writing this run") as caught:
            session.resume(copy)
        errors.append(str(caught.value))

    assert session.resume(copy, progress=Watch(5, again)).rounds == ROUNDS
    assert len(errors) == 1
    assert "\n" not in errors[0]
    with alone(tmp_path / "new", make=True), pytest.raises(TridentError, match="in use"):
        session.train(setup(), tmp_path / "new")
    assert session.train(setup(), tmp_path / "new").rounds == ROUNDS


def test_seeds_differ_and_do_not_depend_on_their_number(whole, tmp_path):
    rows = records(whole.out)
    assert all(r["values"]["reward"][0] != r["values"]["reward"][1] for r in rows)
    alone = session.train(setup(seeds=(1,)), tmp_path / "alone")
    one = np.array([r["values"]["reward"][0] for r in records(alone.out)])
    assert np.allclose(one, [r["values"]["reward"][1] for r in rows], rtol=1e-4)
    keys = jax.random.key_data(session.seed_keys(setup(seeds=5)))
    assert np.array_equal(keys[3], jax.random.key_data(session.seed_keys(setup(seeds=(3,))))[0])
    assert len(np.unique(keys, axis=0)) == 5
    other = jax.random.key_data(session.seed_keys(setup(seeds=5, seed=1)))
    assert not (keys[:, None] == other[None]).all(-1).any()


def test_a_run_does_not_debug(copy):
    """Checks of every operation, as some public code trains with, cost a multiple of the time."""
    flags = ("jax_debug_nans", "jax_debug_infs", "jax_disable_jit", "jax_enable_checks", "jax_check_tracer_leaks")
    on: dict[str, bool] = {}
    session.resume(copy, progress=Watch(5, lambda: on.update({f: bool(getattr(jax.config, f)) for f in flags})))
    assert on == dict.fromkeys(flags, False)


def test_nothing_is_compiled_after_the_first_round(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "build", REAL_BUILD)
    compiled: list[str] = []
    after_first: list[int] = []

    def listen(name: str, seconds: float, **_: Any) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(name)

    class Count(Silent):
        def update(self, record: Any) -> None:
            after_first.append(len(compiled))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        session.train(setup(), tmp_path / "run", Count())
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert after_first[0] > 0, "the listener hears nothing"
    assert after_first == [after_first[0]] * ROUNDS


def test_a_diverged_seed_is_frozen_and_named_while_others_go_on(tmp_path):
    watch = Watch()
    run = session.train(setup("tiny-doomed", seeds=3), tmp_path / "run", watch)
    rows = records(run.out)
    diverged = rows[-1]["diverged"]
    assert 0 < len(diverged) < 3
    seed, what = next(iter(diverged.items()))
    assert what["quantity"] == "reward"
    assert (
        f"seed {seed} diverged at round {what['round']}: reward is not finite; frozen at its last good state"
        in watch.said
    )
    rewards = np.array([r["values"]["reward"] for r in rows], float)[:, int(seed)]
    assert np.isfinite(rewards[: what["round"] - 1]).all()
    assert np.isnan(rewards[what["round"] - 1 :]).all()
    good = [i for i in range(3) if str(i) not in diverged]
    assert np.isfinite(np.array([r["values"]["reward"] for r in rows], float)[:, good]).all()
    assert run.state.algo.rounds[int(seed)] == what["round"] - 1
    assert all(run.state.algo.rounds[i] == ROUNDS for i in good)
    assert np.isfinite(run.state.algo.w).all()


def test_a_variant_is_found_again_under_its_registered_name(tmp_path):
    """Its spec bears the original's name; resuming must not fall back to the original."""
    built = setup("tiny-doomed")
    session.write_run(tmp_path, built)
    assert read_run(tmp_path)["env"] == "tiny-doomed"
    assert setup_of(tmp_path).env is tiny.DOOMED
    assert session.identity(built) == session.identity(setup_of(tmp_path)) != session.identity(setup())


def test_an_environment_with_another_config_is_another_environment():
    class Other(tiny.TinyEnv):
        config = tiny.TinyConfig()

    mine, same = (make_setup(env, "tiny", Settings()) for env in (Other(), tiny.TinyEnv()))
    assert session.identity(mine)["env config"] != session.identity(same)["env config"]


def test_when_every_seed_has_diverged_the_run_stops_and_says_why(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(TridentError, match=r"every seed has diverged .*reward is not finite.*checkpoints") as caught:
        session.train(setup("tiny-doomed", seeds=(2, 6, 8)), out)
    assert "\n" not in str(caught.value)
    state, rounds, _ = session.load_state(setup_of(out), out)
    assert rounds == 6
    assert np.isfinite(state.algo.w).all()
    assert state.algo.rounds.tolist() == [1, 0, 5]
    result = json.loads((out / "result.json").read_text())
    assert (result["seeds"], result["policies"], list(result["diverged"])) == ([], {"tiny": []}, ["6", "2", "8"])
    with pytest.raises(TridentError, match="every seed has diverged"):
        session.resume(out)


def test_warm_start_fits_the_learner_before_the_first_round(whole, tmp_path):
    run = session.train(setup(warm_start="random"), tmp_path / "run")
    rows = records(run.out)
    assert rows[0]["round"] == 0
    assert len(rows[0]["values"]["warm_start/imitation"]) == 2
    assert rows[1]["values"]["reward"] != records(whole.out)[0]["values"]["reward"]
    with pytest.raises(TridentError, match="unknown scripted policy 'rndom' of tiny: did you mean 'random'"):
        session.train(setup(warm_start="rndom"), tmp_path / "other")
    with pytest.raises(TridentError, match="random has no warm start"):
        session.train(setup(algo="random", warm_start="random"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_warm_start_that_is_not_finite_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "build", REAL_BUILD)
    made = setup(warm_start="random")
    prepare = made.algorithm.prepare

    def broken(state, roll, key):
        state, metrics = prepare(state, roll, key)
        return state._replace(w=jnp.full_like(state.w, jnp.nan)), metrics

    made = made._replace(algorithm=replace(made.algorithm, prepare=broken))
    with pytest.raises(TridentError, match="the warm start left parameters of seed 0 that are not finite"):
        session.train(made, tmp_path / "run")


def test_a_run_goes_on_from_what_another_has_learned(whole, tmp_path):
    """Seeds take turns; the first round learns from there; what does not fit is said before anything is written."""
    learned = session.load_state(setup_of(whole.out), whole.out)[0].algo
    longer = setup(start_from=str(whole.out), seeds=3, episodes=4)
    run = session.train(longer, tmp_path / "run")
    assert records(run.out)[0]["values"]["reward"][:2] != records(whole.out)[0]["values"]["reward"]
    assert run.state.algo.rounds.tolist() == [int(learned.rounds[i]) + run.rounds for i in (0, 1, 0)]
    again = session.resume(run.out)
    assert bits(again.state._replace(replay=None)) == bits(run.state._replace(replay=None))
    with pytest.raises(TridentError, match=r"no run .*nowhere|nowhere"):
        session.train(setup(start_from=str(tmp_path / "nowhere")), tmp_path / "other")
    bare = tmp_path / "bare"  # a record without checkpoints
    bare.mkdir()
    (bare / "run.json").write_text((whole.out / "run.json").read_text())
    with pytest.raises(TridentError, match="no readable checkpoint"):
        session.train(setup(start_from=str(bare)), tmp_path / "other")
    with pytest.raises(TridentError, match="trained by tiny: --algo tiny goes on"):
        session.train(setup(algo="random", start_from=str(whole.out)), tmp_path / "other")
    with pytest.raises(TridentError, match="two ways to begin"):
        session.train(setup(start_from=str(whole.out), warm_start="random"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_buffer_that_cannot_fit_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TridentError, match=r"would need .*TiB.*most of it replay.*lower --algo.replay"):
        session.train(setup(config={"replay": 10**12}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_wrong_settings_are_named(tmp_path):
    for wrong, message in (
        ({"limit": {"us": 0.1}}, "unknown constraint 'us' of tiny: did you mean 'use'"),
        ({"config": {"lrr": 0.1}}, "unknown config field 'lrr' of tiny: did you mean 'lr'"),
        ({"env": "tinyy"}, "unknown environment 'tinyy': did you mean 'tiny'"),
        ({"algo": "tny"}, "unknown algorithm 'tny': did you mean 'tiny'"),
        ({"shielded": True}, "tiny has no shield"),
        ({"algo": "shielded"}, "tiny has no shield: shielded needs one"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"seeds": (1, 1)}, "--seeds must be different"),
        ({"episodes": 0}, "--episodes must be at least 1"),
    ):
        with pytest.raises(TridentError, match=message):
            setup(**wrong)


def test_limits_reach_the_algorithm_and_the_sums(whole, tmp_path):
    run = session.train(setup(limit={"use": 0.0}), tmp_path / "run")
    last, before = (records(out)[-1]["values"] for out in (run.out, whole.out))
    assert last["cost/use"] == before["cost/use"]
    assert np.allclose(last["cumulative_violation/use"], np.array(last["cumulative_cost/use"]) / 16)
    assert read_run(run.out)["constraints"][0]["limit"] == 0.0
    with pytest.raises(TridentError, match="another run: its config hash"):
        checkpoint.restore(run.out / "checkpoints", run.state, session.identity(whole.setup))


def test_a_program_from_the_cache_is_loaded_without_noise(tmp_path):
    """Regression: the second run of a kind began with pages of XLA's warnings about features no CPU has."""
    script = """
import trident, jax, jax.numpy as jnp
from trident.training.session import enable_compilation_cache
enable_compilation_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.block_until_ready(jax.jit(lambda x: jnp.sin(x @ x).sum())(jnp.ones((64, 64))))
"""
    quiet = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"} | {"XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], env=quiet, capture_output=True, text=True, check=True)
    assert list(tmp_path.glob("trident/xla/*"))
    assert done.stderr == ""


def test_a_run_of_another_version_says_which(whole, tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(whole.out, folder)
    run = json.loads((folder / "run.json").read_text())
    run |= {"commit": "0123456789ab", "config": run["config"] | {"forgotten": 1}}
    write_json(folder / "run.json", run)
    with pytest.raises(
        TridentError, match=r"written by commit 0123456789ab of trident.*unknown config field 'forgotten'"
    ):
        setup_of(folder)


def test_a_run_that_another_commit_goes_on_with_names_both(tmp_path, monkeypatch):
    out = tmp_path / "run"
    monkeypatch.setattr("trident.training.settings._commit", lambda: "aaaa")
    session.train(setup(episodes=4), out)
    assert read_run(out)["commit"] == "aaaa"
    monkeypatch.setattr("trident.training.settings._commit", lambda: "bbbb")
    session.resume(out)
    session.resume(out)
    assert read_run(out)["commit"] == "aaaa, bbbb"
    session.resume(out, episodes=8)
    assert read_run(out)["commit"] == "aaaa, bbbb"
