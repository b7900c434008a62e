"""The command line with the tiny environment and learner, in a process that something is to happen to.

python tests/fuzz/child.py train tiny --algo tiny ...

CLOCK: seconds by which its clock jumps soon after the start; PACE: seconds that each round takes at least.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
faulthandler.register(signal.SIGUSR1)

try:
    from support import tiny  # noqa: F401  registers both

    from trident.cli import main, runs, train
    from trident.report import figures
    from trident.training import session
except KeyboardInterrupt:  # the command line imports later, when it hears Ctrl-C already
    sys.exit(130)

JUMP = 3.0
"""Seconds after the start when the clock is set."""


def change_clock(jump: float, pace: float) -> None:
    real_time, real_record, began = time.time, session.make_record, time.monotonic()
    time.time = lambda: real_time() + jump * (time.monotonic() - began > JUMP)
    if pace:
        session.make_record = lambda *of: time.sleep(pace) or real_record(*of)


def leave_out_pictures() -> None:
    """They are a third of a short run's time."""
    figures.draw_figures = lambda *_: []
    train.write_report = runs.write_report = lambda path, *_: path


def nursery() -> None:
    """For each line of input, [words, environment, file for its errors], a process that has imported all this already;
    tells its number and, when it has ended, how. Returns in the new ones."""
    for line in sys.stdin:
        words, environment, said = json.loads(line)
        child = os.fork()
        if not child:
            for descriptor, path in enumerate((os.devnull, os.devnull, said)):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
            os.environ |= environment
            sys.argv[1:] = words
            return
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


if __name__ == "__main__":
    if sys.argv[1:] == ["--nursery"]:
        nursery()
    if os.environ.get("PICTURES") == "no":
        leave_out_pictures()
    change_clock(float(os.environ.get("CLOCK", "0")), float(os.environ.get("PACE", "0")))
    sys.exit(main())
