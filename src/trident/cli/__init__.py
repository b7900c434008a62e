"""The command line: `trident COMMAND ...`. Errors a user can act on are one line and exit code 2."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import trident
from trident.errors import TridentError, of_system
from trident.training.interrupt import own_process

Command = Callable[[list[str]], int]


def lazily(module: str, function: str) -> Command:
    """A command whose module is imported when it is called, so that `trident --help` is quick."""
    return lambda argv: getattr(importlib.import_module(module), function)(argv)


COMMANDS: dict[str, tuple[str, Command]] = {
    "train": ("train an algorithm on an environment, then evaluate it", lazily("trident.cli.train", "train")),
    "resume": ("go on with an interrupted run, or prolong one", lazily("trident.cli.runs", "resume")),
    "eval": ("evaluate a run on fresh episodes", lazily("trident.cli.runs", "evaluate")),
    "report": ("draw figures and tables again, or write a page of runs", lazily("trident.cli.runs", "report")),
    "watch": ("show runs in the browser while they train", lazily("trident.cli.watch", "watch")),
    "compare": ("put several runs side by side", lazily("trident.cli.runs", "compare")),
    "pool": ("make one record of runs with different seeds", lazily("trident.cli.runs", "pool_runs")),
    "zoo": ("policies that come with the package", lazily("trident.cli.zoo", "show_or_add")),
    "render": ("make a GIF of a run or of a scripted policy", lazily("trident.cli.show", "render")),
    "list": ("every environment, algorithm and scripted policy", lazily("trident.cli.show", "list_all")),
    "sweep": (
        "settings x environments x seeds from a file, on one machine or many",
        lazily("trident.cli.sweep", "sweep"),
    ),
    "bench": ("measure speed on this machine", lazily("trident.cli.bench", "bench")),
    "tune": ("choose methods' settings by equal trials for each", lazily("trident.cli.tune", "tune_methods")),
    "verify": ("check every claim of the paper against numbers", lazily("trident.cli.verify", "verify")),
    "fit-physics": ("estimate constants of a closed form", lazily("trident.cli.fit_physics", "fit_physics")),
    "doctor": ("say what is damaged in a run and save what can be saved", lazily("trident.cli.doctor", "doctor")),
    "export": ("take a policy out: a bundle that NumPy alone runs", lazily("trident.cli.deploy", "export")),
    "runtime": ("test and run a bundle, behind its guard", lazily("trident.cli.deploy", "runtime")),
    "serve": ("decide for clients over a socket", lazily("trident.cli.deploy", "serve")),
    "audit": ("check or replay a guard's log", lazily("trident.cli.deploy", "audit")),
    "spec": ("the cost specification of an environment or a run", lazily("trident.cli.deploy", "spec")),
    "check": ("check that an environment keeps the contract", lazily("trident.cli.show", "check")),
}
"""name -> (one line of help, what to call with the remaining arguments)"""

HELP = """\
TRIDENT: safe multi-agent reinforcement learning with hybrid actions
on physics-governed systems.

  trident train uav-mec --quick       a trial of about a minute
  trident train uav-mec               train in full, then table, curves and GIF
  trident eval runs/my-run            evaluate it again
  trident list                        what there is

commands (`trident COMMAND --help` tells more):
"""


def main(argv: list[str] | None = None) -> int:
    """Without `argv` it is the process itself that was called `trident`."""
    if argv is None:
        with own_process():
            return main(sys.argv[1:])
    warnings.showwarning = lambda message, *_, **__: print(f"trident: {message}", file=sys.stderr)
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except TridentError as error:
        if os.environ.get("TRIDENT_DEBUG"):
            raise
        return _refuse(printable(str(error)), error.code)
    except KeyboardInterrupt:
        print("trident: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; say nothing more
        _drop_output()
        return 141
    except Exception as error:
        if os.environ.get("TRIDENT_DEBUG"):
            raise
        if isinstance(error, OSError):
            _drop_output()
            return _refuse(printable(str(of_system(error))), of_system(error).code)
        from trident.training.fault import explained  # takes a second to import

        found = explained(error, Path.home() / ".cache" / "trident")
        return _refuse(printable(str(found)), found.code)


def _refuse(text: str, code: int) -> int:
    with suppress(OSError):
        print(f"trident: {text}", file=sys.stderr)
    return code


def printable(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _drop_output() -> None:
    """What is still to be written to a full or closed output goes nowhere, instead of failing again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        print(HELP + "\n".join(f"  {name.ljust(width)}  {text}" for name, (text, _) in COMMANDS.items()))
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"trident {trident.__version__}")
        return 0
    if argv[0] not in COMMANDS:
        near = difflib.get_close_matches(argv[0], COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`trident --help` lists all of them"
        raise TridentError(f"unknown command {argv[0]!r}: {hint}")
    return COMMANDS[argv[0]][1](argv[1:])
