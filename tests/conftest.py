"""Shapes and dtypes of every annotated function are checked while the tests run."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["COLUMNS"] = "200"  # tables are as wide as they like, whatever terminal the tests run in
# Tests spend their time in the compiler, not in the programs: without optimisation they take a third of it.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

from jaxtyping import install_import_hook

CHECKED = ["trident.maths", "trident.physics", "trident.nets", "trident.envs", "trident.replay"]
hook = install_import_hook(CHECKED, "beartype.beartype")
hook.__enter__()
