"""The command line with the tiny environment and learner, in a process that is to be killed; CLOCK shifts its clock.

python tests/fuzz/child.py train tiny --algo tiny ...
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

if __name__ == "__main__":
    real, shift = time.time, float(os.environ.get("CLOCK", "0"))
    time.time = lambda: real() + shift
    from support import tiny  # noqa: F401  registers both

    from trident.cli import main

    sys.exit(main())
