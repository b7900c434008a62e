"""The runtime as one file in the bundle: a machine that has Python and NumPy needs nothing else, not even this package.

python bundle/runtime.pyz serve bundle
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import trident

FILE = "runtime.pyz"
PARTS = ("__init__.py", "errors.py", "runtime/*.py")
START = """\
import sys
from trident.runtime.__main__ import run

sys.exit(run("runtime.pyz"))
"""
WHEN = (2020, 1, 1, 0, 0, 0)
"""Of every file in it: the same source makes the same bytes."""


def packed() -> bytes:
    """A zip that Python runs and imports from: `trident.runtime`, and what of the package it needs."""
    source, out = Path(trident.__file__).parent, io.BytesIO()
    files = {f"trident/{path.relative_to(source)}": path.read_bytes() for p in PARTS for path in source.glob(p)}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted((files | {"__main__.py": START.encode()}).items()):
            archive.writestr(zipfile.ZipInfo(name, WHEN), data, zipfile.ZIP_DEFLATED)
    return b"#!/usr/bin/env python3\n" + out.getvalue()
