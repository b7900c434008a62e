"""What turns an algorithm and an environment into a run. `trident.train(...)` itself is `trident.api.train`."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """Importing any part of this package puts it in the place of the function `trident.train`: so it acts as one."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("trident.api").train(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
