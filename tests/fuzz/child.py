"""The command line with the tiny environment and learner, in a process that something is to happen to.

python tests/fuzz/child.py train tiny --algo tiny ...

CLOCK: seconds by which its clock jumps soon after the start; PACE: seconds that each round takes at least.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
JUMP = 3.0
"""Seconds after the start when the clock is set."""


def prepare(clock: float, pace: float) -> None:
    """Import everything that a run takes, and register what is tiny."""
    from support import tiny  # noqa: F401  registers both

    from trident.training import session

    real_time, real_record, began = time.time, session.make_record, time.monotonic()
    time.time = lambda: real_time() + clock * (time.monotonic() - began > JUMP)
    if pace:
        session.make_record = lambda *of: time.sleep(pace) or real_record(*of)


if __name__ == "__main__":
    prepare(float(os.environ.get("CLOCK", "0")), float(os.environ.get("PACE", "0")))
    from trident.cli import main

    sys.exit(main())
