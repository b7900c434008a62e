"""A process that steps some simulators: `python -m trident.simulation.worker`, started by `trident.simulation.workers`.

It is told what to do by pickled messages on its standard input and answers on what was its standard output; what the
simulators print goes to the standard error stream. Time steps and actions travel in shared arrays.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    path, file, count, first, last, blob = pickle.load(questions)
    sys.path[:] = path
    jax.config.update("jax_platforms", "cpu")  # a simulator needs no GPU

    from trident.simulation.batch import OneByOne, replicate
    from trident.simulation.shared_arrays import attach

    def answer(work: Callable[[], Any]) -> bool:
        try:
            work()
            pickle.dump(None, answers)
        except Exception as error:  # a simulator may raise anything: the other side says it
            pickle.dump(f"{type(error).__name__}: {' '.join(str(error).split())}", answers)
        answers.flush()
        return True

    state: dict[str, Any] = {}

    def start() -> None:
        env = pickle.loads(blob)
        state["shared"] = attach(Path(file), env.spec, count)
        state["batch"] = OneByOne(replicate(env, last - first))

    mine = slice(first, last)

    def put(steps: Any) -> None:
        jax.tree.map(lambda place, value: place.__setitem__(mine, value), state["shared"].steps, steps)

    def obey(order: tuple[Any, ...]) -> None:
        batch, shared = state["batch"], state["shared"]
        if order[0] == "step":
            put(batch.step(jax.tree.map(lambda x: x[mine], shared.action)))
        else:
            put(batch.reset_where(order[1], order[2], jax.tree.map(lambda x: x[mine], shared.steps)))

    answer(start)
    while True:
        try:
            order = pickle.load(questions)
        except EOFError:  # the training has ended
            break
        answer(lambda order=order: obey(order))
    if "batch" in state:
        state["batch"].close()


if __name__ == "__main__":
    main()
