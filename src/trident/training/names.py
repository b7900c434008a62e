"""Environments outside the registry by name: `module:attribute`, imported when it is asked for.

    my_pkg.tanks:Tanks                       a class, or a function that returns an environment
    mpe2.simple_spread_v3:parallel_env       of PettingZoo, Gymnasium or JaxMARL: adapted by trident.adapters
    gymnasium:CartPole-v1                    one of Gymnasium's own, by its id
    jaxmarl:MPE_simple_spread_v3             one of JaxMARL's, by its id; compiled into the round
    camar:random_grid                        CAMAR on one of its maps, likewise
    safe_velocity:ant-2x4                    one of Safety-Gymnasium's multi-agent velocity tasks

To import is to run code. A name that somebody types is asked for; one that is only read in a run directory is not: it
needs `--trust`, or the class must have been imported already.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from trident.adapters import SUITES, adapt, from_gymnasium, from_suite
from trident.errors import TridentError
from trident.types import AnyEnv

FORM = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>\S+)")
_asked_for: set[str] = set()
"""Names that were typed, or trusted, in this process."""


def is_import_string(name: str) -> bool:
    return FORM.fullmatch(name) is not None


def make(name: str, args: Mapping[str, Any] | None = None, trusted: bool = True) -> AnyEnv:
    """The environment of this name; with `trusted=False` only if that runs nobody else's code."""
    module_name, _, attribute = name.partition(":")
    if module_name == "gymnasium":
        if ":" in attribute:  # an id may name a module of its own
            _check_trust(name, attribute.partition(":")[0], trusted)
        return _attempt(name, lambda: from_gymnasium(attribute, name=name, args=args or {}))
    if module_name in SUITES:
        return _attempt(name, lambda: from_suite(attribute, suite=module_name, name=name, args=args or {}))
    _check_trust(name, module_name, trusted)
    made = _look_up(_import(module_name), module_name, attribute)
    if (callable(made) and not hasattr(made, "spec")) or isinstance(made, type):
        made = _attempt(name, lambda: made(**(args or {})))
    elif args:
        raise TridentError(f"{name} is an environment already: --env-arg is for classes and functions")
    return _attempt(name, lambda: adapt(made, name))


def _check_trust(name: str, module: str, trusted: bool) -> None:
    if trusted:
        _asked_for.add(name)
    elif name not in _asked_for and not _is_known_class(name):
        raise TridentError(
            f"this run wants the environment {name}, which is made by code of the module {module!r}: look at it, then "
            "say --trust (in Python: trust=True), or hand the environment in (env=...)"
        )


def _is_known_class(name: str) -> bool:
    """Only environments: functions of imported modules, say of `os`, could do anything."""
    module, _, attribute = name.partition(":")
    found = getattr(sys.modules.get(module), attribute, None)
    return isinstance(found, type) and hasattr(found, "reset") and hasattr(found, "step")


def _import(module: str) -> Any:
    """With the folder one is in on the path, as `python -m` has it."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if module == missing or module.startswith(f"{missing}."):
            raise TridentError(
                f"there is no module {missing!r}, neither in {here} nor among the installed packages"
            ) from error
        raise TridentError(f"the module {module!r} does not import: it needs {missing!r}, which is missing") from error
    except (Exception, SystemExit) as error:
        raise TridentError(f"the module {module!r} does not import: {_describe(error)}") from error


def _look_up(module: Any, module_name: str, attribute: str) -> Any:
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TridentError(f"the module {module_name!r} has no {attribute!r}{hint}")
        found = getattr(found, part)
    return found


def _attempt(name: str, function: Any) -> Any:
    try:
        return function()
    except TridentError:
        raise
    except (Exception, SystemExit) as error:
        raise TridentError(f"{name} cannot be made: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
