"""Shapes and dtypes of every annotated function are checked while the tests run."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jaxtyping import install_import_hook

CHECKED = ["trident.maths", "trident.physics", "trident.nets", "trident.envs", "trident.replay"]
hook = install_import_hook(CHECKED, "beartype.beartype")
hook.__enter__()
