"""Wrong values: command lines, configs and arguments of the Python API."""

from __future__ import annotations

import contextlib
import io
import math
import os
import random
import string
import tempfile
import warnings
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fuzz.tally import Tally
from trident import api
from trident.bench.fingerprint import tiny
from trident.cli import main
from trident.fields import change, flatten
from trident.training import plugins, preflight, session
from trident.training.backend import backend_of
from trident.training.loop import program
from trident.training.registry import ALGORITHMS, default_config, make_env, needs_shield
from trident.training.settings import Settings, Setup, make_setup

ENV = "probe-chain"
SETTINGS = [*vars(Settings())]
HEADS = ("eval", "report", "compare", "resume", "render", "list", "check", "doctor", "pool", "export", "audit", "spec",
         "bench", "x", "")  # fmt: skip
WORDS = (
    *("0", "-1", "1", "2", "3", "64", "0.5", "0.9", "1e-3", "1.0", "nan", "inf", "-inf", "1e30", "1e-30", "1.5"),
    *("99999999999", "1_000", "0x10", "[1]", "x", "True", "False", "None", "a=b", "=", "late=0.1", "late=-1"),
    *("late=nan", "../..", "/", "--", "-", "0,0", "0,", ",", "4,7", "--seeds", "--no-video", "--algo", "", " "),
    *("1 2", "1" * 400, "\x1b[2J", "\u202e", "\ud800"),
)
VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 1e30, -1e30, 1e-30, math.nan, math.inf, -math.inf, 10**400),
    *(None, True, False, "", "3", "x", b"x", (), (0,), (1,), (1, 2), [3], [[]], {}, {"x": 1}, {1: 2}, {1}, 1j),
    *(object(), int, np.float32(0.5), np.float64(np.nan), np.int64(3), np.array([1, 2]), np.array(3), Path("x")),
    *("\x1b[2J", "simultanous", "residuall", range(3), date(2026, 1, 1), lambda: 1, slice(3), "a" * 10_000),
)
LARGEST = 1e12
"""No setting of a run is larger."""


class Reached(BaseException):
    """Everything was accepted: what would be compiled is not."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup


@contextlib.contextmanager
def nothing_trained():
    """In an empty folder, in which nothing is made; `train` ends where it would look at costs and write."""

    def stop(setup: Setup, *_: Any) -> Any:
        raise Reached(setup)

    kept = (session.train, preflight.check, plugins.entry_points, os.getcwd(), warnings.showwarning)
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        session.train, preflight.check = stop, lambda *_: None
        plugins.entry_points = cache(plugins.entry_points)  # the installed packages do not change meanwhile
        os.chdir(place)
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            session.train, preflight.check, plugins.entry_points, _, warnings.showwarning = kept
            os.chdir(kept[3])


def disagreement(setup: Setup, given: dict[str, Any]) -> str | None:
    """What was given and is not what the run would take, or is a number that no run should: accepted without a word."""
    config = setup.algorithm.config
    taken = flatten(config) if hasattr(config, "__dataclass_fields__") else {}
    taken |= {path.rpartition(".")[2]: value for path, value in taken.items()}
    for name, value in given.items():
        source = taken if name.startswith("algo.") else vars(setup.settings)
        found = source.get(name.removeprefix("algo.").replace("-", "_"))
        forced = name == "shielded" and needs_shield(setup.algorithm.name)
        usual = value is None and name in ("episodes", "seeds")  # left to its default
        if not forced and not usual and not agree(value, found):
            return f"{name} {value!r} became {found!r}"
        if isinstance(found, int | float) and not (math.isfinite(found) and abs(found) <= LARGEST):
            return f"{name} is {found!r}"
    return None


def agree(given: Any, found: Any) -> bool:
    """Lists and mappings are looked at by what refuses them."""
    if isinstance(found, tuple | dict) or isinstance(given, tuple | list | dict | range):
        return True
    if isinstance(given, str) and not isinstance(found, str):
        if isinstance(found, bool | None):
            return given.lower() == str(found).lower()
        with contextlib.suppress(ValueError):
            return float(given) == found
        return False
    return given == found or (isinstance(found, Path) and str(found) == str(given))


def commands(tally: Tally, count: int, dice: random.Random) -> None:
    """Random command lines: options of all commands with words that fit or do not."""
    with nothing_trained():
        while tally.tries < count:
            algo = dice.choice([*ALGORITHMS])
            algo_options = [f"algo.{name}" for name in flatten(ALGORITHMS[algo].config)]
            head = dice.choice(HEADS) if dice.random() < 0.25 else "train"
            argv, given = [head] if head != "train" else ["train", ENV, "--algo", algo], {}
            for _ in range(dice.randint(head != "train", 3)):
                name = dice.choice(algo_options if dice.random() < 0.6 else SETTINGS)
                given[name] = dice.choice(WORDS)
                argv += [f"--{name.replace('_', '-')}", given[name]]
            if dice.random() < 0.1:
                argv.insert(dice.randint(0, len(argv)), dice.choice(WORDS))
                given = {}
            call(tally, argv, given)


def call(tally: Tally, argv: list[str], given: dict[str, Any]) -> None:
    """One call of the command line: whatever it refuses is one line and leaves nothing behind."""
    said, before = io.StringIO(), sorted(os.listdir())
    with tally.attempt(argv), contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(argv)
        except SystemExit as exit_:  # help was shown
            code = exit_.code or 0
        except Reached as reached:
            code, fault = 0, disagreement(reached.setup, given)
            if fault:
                tally.fail("silent", f"{argv}: {fault}")
        lines = [line for line in said.getvalue().splitlines() if not line.startswith("trident: doubt")]
        if code not in (0, 1, 2) or "Traceback" in said.getvalue():
            tally.fail("tracebacks", f"{argv}: code {code}: {said.getvalue()}")
        elif code == 2 and len(lines) > 1:
            tally.fail("tracebacks", f"{argv}: more than one line: {lines}")
        elif sorted(os.listdir()) != before:
            tally.fail("silent", f"{argv}: left {os.listdir()}")
        elif code == 2:
            tally.refused += 1


def configs(tally: Tally, count: int, dice: random.Random) -> None:
    """TOML files for `--config`: settings of every type, and texts that are torn or no TOML."""
    texts = ("0", "-1", "3", "0.5", "nan", "-inf", "1e30", "true", '"x"', '""', "[1]", "[]", "[[1]]", "{}",
             "{a = 1}", "2026-01-01", "1979-05-27T07:32:00Z", "9" * 30, "9" * 5000,
             '"\\u001b[2J"', "[" * 3000, '"--x"', "'")  # fmt: skip
    with nothing_trained():
        while tally.tries < count:
            algo = dice.choice([*ALGORITHMS])
            names = [*dice.sample([*SETTINGS, "quick", "page", "out", "x", "env", "config"], dice.randint(0, 3))]
            own = dice.sample([*flatten(ALGORITHMS[algo].config)], dice.randint(0, 2))
            lines = ['env = "probe-chain"'] * ("env" not in names) + [f'algo = "{algo}"']
            lines += [f"{name} = {dice.choice(texts)}" for name in names] + ["[config]"]
            lines += [f"{name} = {dice.choice(texts)}" for name in own]
            content = "\n".join(lines).encode()
            if dice.random() < 0.2:
                at = dice.randrange(len(content))
                content = content[:at] + bytes(dice.choices(string.printable.encode() + b"\0\xff", k=3)) + content[at:]
            file = Path(f"{tally.tries}.toml")
            file.write_bytes(content)
            call(tally, ["train", "--config", str(file)], {})
            file.unlink(missing_ok=True)


def arguments(tally: Tally, count: int, dice: random.Random) -> None:
    """`trident.train` from Python with values of every type for every argument and every field."""
    names = [*SETTINGS, "out", "limits", "env_args", "config", "progress", "algo", "env"]
    with nothing_trained():
        while tally.tries < count:
            algo = dice.choice([*ALGORITHMS])
            called, given = {"env": ENV, "algo": algo}, {}
            for _ in range(dice.choice([1, 1, 2])):
                if dice.random() < 0.6 and isinstance(called.get("config", {}), dict):
                    name = dice.choice([*flatten(ALGORITHMS[algo].config)])
                    value = given[f"algo.{name}"] = dice.choice(VALUES)
                    called["config"] = called.get("config", {}) | {name: value}
                elif "config" not in called:
                    name = dice.choice(names)
                    called[name] = dice.choice(VALUES)
                    given |= {name: called[name]} if name in SETTINGS else {}
            with tally.attempt(called):
                try:
                    api.train(**called)
                except Reached as reached:
                    fault = disagreement(reached.setup, given)
                    if fault:
                        tally.fail("silent", f"{called}: {fault}")
            if os.listdir():
                tally.fail("silent", f"{called}: left {os.listdir()}")


def traced(tally: Tally, count: int, dice: random.Random) -> None:
    """Configs that are allowed must be programs: each field at values near the ends of what it may be."""
    env = make_env(ENV)
    algos = ["mappo", "happo-lag", "trident", "qmix", "macpo", "madac", "maddpg", "facmac", "matd3-hybrid"]
    while tally.tries < count:
        algo = dice.choice(algos)
        config = tiny(default_config(algo, env))
        name = dice.choice([*flatten(config)])
        value = dice.choice([0, 1, 2, 3, 7, 0.0, 1e-9, 0.999, 1.0, 5.0, -4.0, 1e9, (1,), (2, 3), True, False])
        with tally.attempt((algo, name, value)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            setup = make_setup(env, algo, replace(Settings(), seeds=1), change(config, {name: value}))
            init = backend_of(env).init(setup)
            state = jax.eval_shape(init, jax.random.key(0))
            jax.eval_shape(program(env, setup.algorithm, 4).round, state, 0)
        if tally.tries % 20 == 0:
            jax.clear_caches()
