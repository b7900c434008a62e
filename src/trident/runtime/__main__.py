"""`python -m trident.runtime`: for machines that have NumPy and nothing else."""

import os
import sys

from trident.errors import TridentError
from trident.runtime.command import main

try:
    sys.exit(main(prog="python -m trident.runtime"))
except TridentError as error:
    if os.environ.get("TRIDENT_DEBUG"):
        raise
    print(f"trident: {error}", file=sys.stderr)
    sys.exit(2)
except OSError as error:
    print(f"trident: {error.filename}: {error.strerror}", file=sys.stderr)
    sys.exit(2)
