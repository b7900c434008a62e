"""A run in plain Python around the compiled round: start or resume, record, checkpoint, stop in good order.

Nothing calls back from the device: one program call and one fetch of metrics per round. Resuming restores the
whole RunState and cuts the records back to its round, so that the run ends bit for bit as if never interrupted.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trident.errors import StorageError, TridentError
from trident.renamed import former_env
from trident.report import records as recording
from trident.report.loggers import check_trackers
from trident.report.progress import Progress, Silent
from trident.report.records import Record, RecordWriter
from trident.run_directory import (
    CHECKPOINTS,
    RECORDS,
    RESULT,
    RUN,
    check_empty,
    is_asked_to_stop,
    read_run,
    write_json,
)
from trident.training import checkpoint, hosts
from trident.training.backend import backend_of
from trident.training.evaluation import empty_result
from trident.training.fault import reporting
from trident.training.fine_tune import check_sizes, check_start_from, tile_seeds
from trident.training.interrupt import Stop, stopping
from trident.training.journal import Journal, open_journal, out_of_storage, writing
from trident.training.layout import layout_of
from trident.training.loop import CompiledRun, RunState, is_finite, strip_weak_types
from trident.training.memory import check_addresses, check_state
from trident.training.record import divergence, first_record, make_record, prepare_values
from trident.training.settings import Setup, identity, note_commit, setup_of, write_run
from trident.training.warm_start import check_warm_start
from trident.types import AnyEnv


class Outcome(NamedTuple):
    setup: Setup
    out: Path
    state: RunState  # [seeds, ...]
    rounds: int
    stopped_by: int | None
    """The signal that ended the run early."""

    def __repr__(self) -> str:
        return f"Outcome({self.setup.title}, round {self.rounds} of {self.setup.rounds}, {str(self.out)!r})"


def train(setup: Setup, out: Path | None, progress: Progress | None = None) -> Outcome:
    """Start a new run in `out`, which must be empty or absent; None: in a new folder of its own."""
    if out is not None:
        check_empty(out)
    check_trackers(setup.settings.trackers)
    if setup.settings.warm_start is not None:
        check_warm_start(setup)  # says what is wrong before anything is written or compiled
    layout_of(setup)  # so do devices that are not there
    backend_of(setup.env).check(setup.env)  # and a simulator that cannot start
    check_addresses()
    one_seed = _one_seed(setup)
    check_state(setup, one_seed)  # before anything has as many rows as there are seeds
    template = _of_all_seeds(setup, one_seed)
    if setup.settings.start_from is not None:
        old, folder = check_start_from(setup)
        check_sizes(load_state(old, folder)[0].algo, template.algo, folder)  # it can be read, and it fits
    out = _folder(setup, out)
    made = not out.exists() or not any(out.iterdir())
    with writing(out, make=True), reporting(out), _nothing_left(out, made):
        if hosts.first():
            check_empty(out)  # nobody has begun here in the meantime
            write_run(out, setup)
        hosts.check_shared(out / RUN)
        return _run(setup, out, read_run(out), progress or Silent(), fresh=True)


def _folder(setup: Setup, out: Path | None) -> Path:
    """Where a new run is written, which all hosts must mean by the same name."""
    if hosts.several():
        hosts.check_same({"settings": identity(setup), "--episodes": setup.settings.episodes, "--out": str(out)})
        named = str(new_folder(setup) if out is None and hosts.first() else out)
        out = Path(hosts.exchange(named)[0])
    out = new_folder(setup) if out is None else out
    hosts.remember(out)
    return out


def resume(
    out: Path,
    env: AnyEnv | None = None,
    episodes: int | None = None,
    progress: Progress | None = None,
    trust: bool = False,
    devices: int | None = None,
) -> Outcome:
    """Go on with a run from its newest good checkpoint, or from the start if it has none yet."""
    hosts.remember(out)
    old = read_run(out)
    setup = setup_of(out, env, episodes, trust)
    if devices is not None:
        setup = setup._replace(settings=replace(setup.settings, devices=devices))
    layout_of(setup)
    if hosts.several():
        hosts.check_same({"run": identity(setup), "--episodes": setup.settings.episodes})
    if setup.rounds < old["rounds"]:
        raise TridentError(f"{out} was planned for {old['settings']['episodes']} episodes: --episodes can only add")
    if (out / RESULT).exists() and not checkpoint.rounds(out / CHECKPOINTS):
        raise TridentError(f"{out} is finished and has no checkpoints: a record can be neither resumed nor prolonged")
    check_addresses()
    if (former := former_env(old)) is not None and progress is not None:
        progress.say(f"{out}: {former}")
    with writing(out), reporting(out):
        if hosts.first():
            if (episodes, devices) != (None, None):
                write_run(out, setup)
            if not (out / RESULT).exists():
                note_commit(out)
            if setup.rounds > old["rounds"]:
                (out / RESULT).unlink(missing_ok=True)  # of the shorter run
        hosts.check_shared(out / RUN)
        run = old if (episodes, devices) == (None, None) else read_run(out)
        return _run(setup, out, run, progress or Silent(), fresh=False)


@contextmanager
def _nothing_left(out: Path, made: bool) -> Iterator[None]:
    """A run that ends by an error before its first record is none: its folder can be used again."""
    try:
        yield
    except Exception:
        records = out / RECORDS
        if not hosts.first():
            raise
        if not records.is_file() or not records.stat().st_size:
            for path in (records, out / RUN):
                path.unlink(missing_ok=True)
            if made:
                with suppress(OSError):  # the report of a fault may be there
                    out.rmdir()
        raise


def new_folder(setup: Setup) -> Path:
    """runs/ENV-ALGO-TIME, made here and now, so that of several jobs started in one second each has its own."""
    system = re.sub(r"[^\w.-]+", "-", setup.spec.name).strip(".-") or "run"
    name = f"{system}-{setup.algorithm.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for suffix in ("", *(f"-{i}" for i in range(2, 1000))):
        folder = Path("runs") / (name + suffix)
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise TridentError(f"cannot write to {folder}: {error.strerror or error}") from error
    raise TridentError(f"there are too many runs called {name}: --out chooses another place")


def seed_keys(setup: Setup) -> Any:
    """Seed number i gets fold_in(key(base), i): its stream does not depend on how many seeds there are."""
    base = jax.random.key(setup.settings.seed)
    return jax.vmap(lambda i: jax.random.fold_in(base, i))(jnp.array(setup.seeds, jnp.uint32))


def load_state(setup: Setup, out: Path) -> tuple[RunState, int, list[str]]:
    """The newest good checkpoint of a run: (state of all seeds, its round, notes for the user)."""
    init = jax.vmap(setup.algorithm.init)  # all that acting needs: no rollout has to be traced for it
    algo = jax.eval_shape(lambda keys: strip_weak_types(init(keys)), seed_keys(setup))
    template = RunState(algo, None, None, None, None, None)  # pyright: ignore[reportArgumentType]
    whose = {name: value for name, value in identity(setup).items() if name != "devices"}  # one is enough to act
    found = checkpoint.restore(out / CHECKPOINTS, template, whose)
    _check_finite(found.tree, out)
    return found.tree, found.round, found.notes


def _check_finite(state: RunState, out: Path) -> None:
    """What has learned is finite in whatever a run saves: seeds that diverge stay at their last good state."""
    if not bool(is_finite(state.algo)):
        raise TridentError(
            f"the newest checkpoint in {out / CHECKPOINTS} has parameters that are not finite, as no run saves them: "
            f"`trident doctor {out}` says what can be saved"
        )


# --- building -------------------------------------------------------------------------------------


def _template(setup: Setup) -> RunState:
    """Shapes and dtypes of the state of all seeds."""
    return _of_all_seeds(setup, _one_seed(setup))


def _one_seed(setup: Setup) -> RunState:
    return jax.eval_shape(backend_of(setup.env).init(setup), jax.eval_shape(lambda: jax.random.key(0)))


def _of_all_seeds(setup: Setup, one: RunState) -> RunState:
    seeds = setup.settings.num_seeds
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((seeds, *x.shape), x.dtype), one)


def build(setup: Setup, say: Callable[[str], None] | None = None) -> CompiledRun:
    """Compile the round over all seeds."""
    enable_compilation_cache()
    return backend_of(setup.env).build(setup, say or Silent().say)


def enable_compilation_cache() -> None:
    """Compiled programs are kept in the user's cache, so that the second run of a kind starts at once."""
    if os.environ.get("TRIDENT_NO_CACHE") or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    jax.config.update("jax_compilation_cache_dir", str(Path(home) / "trident" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    _hush_loading()


def _hush_loading() -> None:
    """XLA complains at length of every program it loads from the cache. TF_CPP_MIN_LOG_LEVEL (trident/__init__.py)
    comes too late if jax was imported first; jax's own setting also reaches its Python loggers, so it is put back."""
    level = jax.config.jax_logging_level  # pyright: ignore[reportAttributeAccessIssue]
    if level in (None, "NOTSET"):
        jax.config.update("jax_logging_level", "CRITICAL")
        jax.config.update("jax_logging_level", level)


# --- running --------------------------------------------------------------------------------------


def _run(setup: Setup, out: Path, run: dict[str, Any], progress: Progress, fresh: bool) -> Outcome:
    if hosts.first():
        is_asked_to_stop(out)  # of an earlier process, which did not hear it
    with stopping(progress, out) as stop:
        progress.begin(run)
        try:
            machine = build(setup, progress.say)
            state, last, digest, saved = _begin(setup, out, machine, progress, fresh)
            journal = open_journal(setup, out, machine, last, digest, saved, progress.say)
            try:
                state, last = _rounds(machine, journal, progress, state, last, stop)
            except StorageError as error:
                raise out_of_storage(error, journal) from error
            finally:
                journal.close()
                machine.close()
        finally:
            progress.end()
    return Outcome(setup, out, state, last["round"], stop.signal if last["round"] < setup.rounds else None)


def _begin(
    setup: Setup, out: Path, machine: CompiledRun, progress: Progress, fresh: bool
) -> tuple[RunState, Record, str, int]:
    """Where the run stands: (state, last record and its digest, round of the newest checkpoint or -1)."""
    path = out / RECORDS
    if not fresh and checkpoint.rounds(out / CHECKPOINTS):
        found = checkpoint.restore(out / CHECKPOINTS, machine.template, identity(setup), optional=(".replay",))
        for note in found.notes:
            progress.say(note)
        if note := backend_of(setup.env).resume_note:
            progress.say(f"{setup.spec.name} {note}")
        _check_finite(found.tree, out)
        if hosts.first():
            kept, digest = recording.truncate(path, found.round)
        else:
            kept, digest = [r for r in recording.read(path) if r["round"] <= found.round], ""
        last = kept[-1] if kept else first_record()
        if last["round"] != found.round:
            raise TridentError(
                f"{path} ends at round {last['round']}, before the checkpoint of round {found.round}: put it back"
            )
        if hosts.first() and found.manifest.get("records") not in (None, digest):
            raise TridentError(
                f"{path} is not what led to the checkpoint of round {found.round}: put the run's own file back"
            )
        return _on_devices(setup, machine, found.tree, found.round, progress), last, digest, found.round
    if setup.settings.warm_start is not None:
        progress.say(f"warm start: imitating {setup.settings.warm_start} (compiles a program of its own) ...")
    state, measured = machine.init(seed_keys(setup))
    if measured:
        sound = jax.device_get(jax.vmap(is_finite)(machine.to_here(state._replace(replay=None)).algo))
        if lost := [seed for seed, good in zip(setup.seeds, sound, strict=True) if not good]:
            raise TridentError(
                f"the warm start left parameters of seed {lost[0]} that are not finite: `trident check "
                f"{setup.spec.name}` says whether the environment is sound, and a run without --warm-start what is not"
            )
    if setup.settings.start_from is not None:
        old, folder = check_start_from(setup)
        learned, round_, _ = load_state(old, folder)
        state = machine.to_here(state)._replace(algo=tile_seeds(learned.algo, len(setup.seeds)))
        state = machine.to_devices(state)
        progress.say(f"going on from {folder}, round {round_}")
    last = first_record()
    digest = recording.truncate(path, -1)[1] if hosts.first() else ""
    if measured:
        last["values"] = prepare_values(setup.spec, jax.device_get(measured))
    if measured and hosts.first():
        writer = RecordWriter(path, digest)
        writer.append(last)
        writer.close()
        digest = writer.digest
    return state, last, digest, -1


def _on_devices(setup: Setup, machine: CompiledRun, state: RunState, round_: int, progress: Progress) -> RunState:
    """A saved state as rounds take it. A finished run has kept no replay: to prolong it, its last rounds are played
    again, without learning."""
    whole = state.replay is None or round_ >= setup.rounds or bool(jnp.all(state.replay.size > 0))
    capacity = 0 if state.replay is None else jax.tree.leaves(state.replay.data)[0].shape[1]
    state = machine.to_devices(state)
    if whole:
        return state
    count = min(capacity // setup.steps_per_round, round_)
    progress.say(f"a finished run keeps no replay: playing {count} rounds to fill it ...")
    for index in range(round_ - count, round_):
        learned = jax.tree.map(jnp.copy, (state.algo, state.diverged))  # the round takes its state away
        state, _ = machine.round(state, index)
        state = state._replace(algo=learned[0], diverged=learned[1])
    return state


def _rounds(
    machine: CompiledRun, journal: Journal, progress: Progress, state: RunState, last: Record, stop: Stop
) -> tuple[RunState, Record]:
    setup = journal.setup
    _stop_if_all_diverged(journal, last)
    began = time.monotonic() - last["seconds"]
    progress.resume_at(last)
    stop.begun, heard = True, None
    while last["round"] < setup.rounds and (heard := hosts.agreed(stop.signal)) is None:
        state, metrics = machine.round(state, last["round"])
        metrics = jax.device_get(metrics)
        env_steps = (last["round"] + 1) * setup.steps_per_round
        record = make_record(setup.spec, setup.seeds, metrics, env_steps, time.monotonic() - began, last)
        for seed in record["diverged"].keys() - last["diverged"].keys():
            progress.say(f"{divergence(seed, record['diverged'][seed])}; frozen at its last good state")
        last = record
        journal.write(record)
        progress.update(record)
        if len(record["diverged"]) == len(setup.seeds):
            journal.save(state, record["round"])
            _stop_if_all_diverged(journal, record)
        if journal.due():
            journal.save(state, record["round"])
        if stop.signal is None and hosts.first() and is_asked_to_stop(journal.out):
            stop.signal = signal.SIGINT
            progress.say("stopping, as the page asked")
    stop.signal = stop.signal or heard
    if journal.saved_round != last["round"]:
        journal.save(state, last["round"])
    return machine.to_here(state), last


def _stop_if_all_diverged(journal: Journal, record: Record) -> None:
    if len(record["diverged"]) < len(journal.setup.seeds):
        return
    result = journal.out / RESULT
    if hosts.first() and not result.exists():  # the end of a run, too: tables count it as diverged, not as missing
        write_json(result, empty_result(journal.setup, record["diverged"]))
    seed, what = max(record["diverged"].items(), key=lambda item: item[1]["round"])
    raise TridentError(
        f"every seed has diverged ({divergence(seed, what)}); their last good states are in {journal.out / CHECKPOINTS}"
    )
