"""`python -m trident` is `trident`."""

import sys

from trident.cli import main

sys.exit(main())
