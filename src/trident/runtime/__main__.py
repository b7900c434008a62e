"""`python -m trident.runtime`: for machines that have NumPy and nothing else."""

import os
import sys

from trident.errors import TridentError
from trident.runtime.command import main


def run(prog: str) -> int:
    try:
        return main(prog=prog)
    except TridentError as error:
        if os.environ.get("TRIDENT_DEBUG"):
            raise
        print(f"trident: {error}", file=sys.stderr)
    except OSError as error:
        print(f"trident: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(run("python -m trident.runtime"))
