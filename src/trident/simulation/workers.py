"""Simulators in processes of their own: as many workers as cores, time steps and actions in shared arrays.

A worker that dies is started anew: the episodes it played are cut there, and the run is told. One that keeps dying ends
the run.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import jax
import numpy as np

from trident.errors import TridentError
from trident.simulation.batch import Batch, OneByOne, Vectorised, replicate
from trident.simulation.shared_arrays import attach, make_file
from trident.types import HostEnv, HybridAction, TimeStep

MOST_DEATHS = 3
"""Of one worker."""
SLOW = 5e-4
"""Seconds: a step that takes longer is worth another process."""


class Dead(Exception):
    """A worker has ended."""


class Workers:
    """A `batch.Batch` of `count` simulators in `processes` processes."""

    def __init__(self, env: HostEnv, count: int, processes: int, say: Callable[[str], None]):
        self.spec, self.count, self.say = env.spec, count, say
        self.blob = _pickled(env)
        self.file = make_file(env.spec, count)
        self.shared = attach(self.file, env.spec, count)
        edges = np.linspace(0, count, processes + 1).astype(int)
        self.shares = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
        self.deaths = [0] * processes
        self.running: list[subprocess.Popen] = []
        try:
            for share in self.shares:
                self.running.append(self._begin(*share))
            for number in range(processes):
                self._answer(number)
        except Dead as error:
            self.close()
            raise TridentError(f"{env.spec.name}: {error}; --workers 1 runs it in this process") from None
        except TridentError:
            self.close()
            raise

    def reset(self, seeds: Any) -> TimeStep:
        return self.reset_where(np.ones(self.count, bool), seeds, self.shared.steps)

    def reset_where(self, ended: Any, seeds: Any, steps: TimeStep) -> TimeStep:
        jax.tree.map(np.copyto, self.shared.steps, steps)
        chosen = [i for i, (first, last) in enumerate(self.shares) if np.any(ended[first:last])]
        orders = {i: ("reset", np.asarray(ended)[slice(*self.shares[i])], np.asarray(seeds)[slice(*self.shares[i])])
                  for i in chosen}  # fmt: skip
        for number in self._all(orders):
            self._all({number: orders[number]}, again=True)
        return self._copy()

    def step(self, action: HybridAction) -> TimeStep:
        jax.tree.map(np.copyto, self.shared.action, action)
        last = self.shared.steps.obs.copy(), self.shared.steps.state.copy()
        for number in self._all(dict.fromkeys(range(len(self.shares)), ("step",))):
            self._cut_short(number, *last)
        return self._copy()

    def close(self) -> None:
        for process in self.running:
            _stop(process)
        self.running = []
        self.file.unlink(missing_ok=True)

    def _copy(self) -> TimeStep:
        return jax.tree.map(np.copy, self.shared.steps)

    # --- talking ----------------------------------------------------------------------------------

    def _all(self, orders: dict[int, tuple[Any, ...]], again: bool = False) -> list[int]:
        """Every order is sent before any answer is awaited. The workers that died of theirs; new ones stand ready."""
        lost = []
        for number, order in orders.items():
            with suppress(OSError):  # the answer will tell
                self._send(number, order)
        for number in orders:
            try:
                self._answer(number)
            except Dead as error:
                self._restart(number, str(error))
                lost.append(number)
        if lost and again:
            raise TridentError(f"{self.spec.name}: worker {lost[0] + 1} dies whenever an episode starts")
        return lost

    def _send(self, number: int, order: Any) -> None:
        stream: Any = self.running[number].stdin
        pickle.dump(order, stream)
        stream.flush()

    def _answer(self, number: int) -> None:
        process = self.running[number]
        try:
            wrong = pickle.load(process.stdout)  # pyright: ignore[reportArgumentType]
        except (EOFError, OSError, pickle.UnpicklingError):
            code = process.wait()
            raise Dead(f"{self._name(number)} ended with code {code}") from None
        if wrong is not None:
            text = wrong.removeprefix("TridentError: ")
            raise TridentError(f"{text} (in {self._name(number)})")

    def _name(self, number: int) -> str:
        first, last = self.shares[number]
        return f"worker {number + 1} of {len(self.shares)}, simulators {first + 1} to {last},"

    # --- lives ------------------------------------------------------------------------------------

    def _begin(self, first: int, last: int) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "trident.simulation.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, start_new_session=True,
        )  # fmt: skip  # in a session of its own, Ctrl-C reaches the training alone
        stream: Any = process.stdin
        pickle.dump((sys.path, str(self.file), self.count, first, last, self.blob), stream)
        stream.flush()
        return process

    def _restart(self, number: int, why: str) -> None:
        self.deaths[number] += 1
        if self.deaths[number] > MOST_DEATHS:
            raise TridentError(f"{self.spec.name}: {why}, {self.deaths[number]} times now; that is enough")
        self.say(f"{self.spec.name}: {why}; started anew, its episodes are cut short")
        _stop(self.running[number])
        self.running[number] = self._begin(*self.shares[number])
        self._answer(number)

    def _cut_short(self, number: int, obs: Any, state: Any) -> None:
        """What a worker's last step led to is not known: the episode is cut where it stood."""
        mine, steps = slice(*self.shares[number]), cast(Any, self.shared.steps)
        steps.obs[mine], steps.state[mine] = obs[mine], state[mine]
        steps.reward[mine], steps.cost[mine], steps.terminated[mine], steps.truncated[mine] = 0.0, 0.0, False, True


def how_many(env: HostEnv, count: int, wanted: int | None, say: Callable[[str], None]) -> int:
    """Worker processes for `count` copies: as wanted, or as many as cores where a step is slow enough for it."""
    if wanted is not None:
        return min(wanted, count)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if min(cores, count) < 2:
        return 1
    seconds = _seconds_per_step(env)
    if seconds < SLOW:
        return 1
    try:
        _pickled(env)
    except TridentError as error:
        say(f"{error}; its copies are stepped one after another")
        return 1
    processes = min(cores, count)
    say(f"{env.spec.name}: a step takes {1e3 * seconds:.1f} ms; {count} copies in {processes} worker processes")
    return processes


def _seconds_per_step(env: HostEnv, steps: int = 10) -> float:
    """The quickest of a few, so that a busy machine does not make it slow."""
    batch = OneByOne([env])
    out, seconds = batch.reset([0]), []
    for _ in range(steps):
        mode: Any = out.mode_mask.argmax(-1).astype(np.int32)
        rows = np.arange(env.spec.num_agents)
        middle = 0.5 * (env.spec.action.low + env.spec.action.high)[rows, mode[0]]
        params: Any = (middle * env.spec.action.used[rows, mode[0]])[None].astype(np.float32)
        began = time.perf_counter()
        out = batch.step(HybridAction(mode, params))
        seconds.append(time.perf_counter() - began)
        if out.terminated[0] or out.truncated[0]:
            out = batch.reset([1])
    return min(seconds)


def _pickled(env: HostEnv) -> bytes:
    """By cloudpickle where it is installed: it takes functions and classes of a script, too."""
    try:
        import cloudpickle as pickler  # pyright: ignore[reportMissingImports]
    except ImportError:
        pickler = pickle
    try:
        return pickler.dumps(env)
    except Exception as error:  # a simulator's handles may fail in any way
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise TridentError(f"{env.spec.name} cannot be sent to another process ({text})") from error


def _stop(process: subprocess.Popen) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def batches_of(
    env: HostEnv, seeds: int, count: int, wanted: int | None, plain: bool, say: Callable[[str], None]
) -> Iterator[tuple[Batch, list[HostEnv]]]:
    """For each seed what steps `count` copies of a simulator best, and the copies that live in this process. `plain`:
    something asks the simulators themselves."""
    if not plain and hasattr(env, "batched"):
        yield from ((Vectorised(env, count), [env]) for _ in range(seeds))
        return
    processes = 1 if plain else how_many(env, count, wanted, say)
    if processes > 1:
        most = max(2, 2 * processes // seeds)  # the seeds take turns, but their workers are all there
        yield from ((Workers(env, count, min(processes, most), say), [env]) for _ in range(seeds))
        return
    copies = replicate(env, seeds * count)
    for i in range(seeds):
        mine = copies[i * count : (i + 1) * count]
        yield OneByOne(mine), mine
