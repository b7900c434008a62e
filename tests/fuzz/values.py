"""Wrong values: command lines, configs and arguments of the Python API."""

from __future__ import annotations

import contextlib
import io
import math
import random
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fuzz.tally import Tally
from trident import api
from trident.bench.fingerprint import tiny
from trident.cli import main
from trident.fields import change, flatten
from trident.training import preflight, session
from trident.training.backend import backend_of
from trident.training.registry import ALGORITHMS, default_config, make_env
from trident.training.settings import Settings, make_setup

ENV = "probe-chain"
WORDS = (
    "0",
    "-1",
    "1",
    "2",
    "3",
    "nan",
    "inf",
    "-inf",
    "1e30",
    "1e-30",
    "99999999999",
    "1" * 400,
    "",
    " ",
    "x",
    "True",
    "None",
    "1.5",
    "a=b",
    "=",
    "use=1",
    "late=-1",
    "late=nan",
    "\x1b[2J",
    "../..",
    "/",
    "--",
    "-",
    "0,0",
    "0,",
    ",",
    "\u202e",
    "1_000",
    "0x10",
    "[1]",
    "1 2",
)
VALUES: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    3,
    0.0,
    -0.0,
    0.5,
    1.0,
    -1.0,
    2.0,
    1e30,
    -1e30,
    1e-30,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    None,
    True,
    False,
    "",
    "3",
    "x",
    b"x",
    (),
    (0,),
    (1,),
    (1, 2),
    [3],
    {},
    {"x": 1},
    {1: 2},
    {1},
    1j,
    object(),
    int,
    np.nan,
    np.float32(0.5),
    np.int64(3),
    np.array([1, 2]),
    np.array(3),
    Path("x"),
    "\x1b[2J",
    "simultanous",
    "residuall",
)


class Reached(BaseException):
    """Everything was accepted: what would be compiled is not."""


def _stop(*_: Any, **__: Any) -> Any:
    raise Reached


@contextlib.contextmanager
def nothing_compiled():
    """`train` ends where it would compile."""
    real, preflight.check, checked = session.build, lambda *_: None, preflight.check
    session.build = _stop
    try:
        yield
    finally:
        session.build, preflight.check = real, checked


def commands(tally: Tally, count: int, dice: random.Random) -> None:
    """Random command lines: options of all commands with words that fit or do not."""
    options = [f"--{name.replace('_', '-')}" for name in vars(Settings())]
    heads = [
        "train",
        "eval",
        "report",
        "compare",
        "resume",
        "render",
        "list",
        "check",
        "doctor",
        "pool",
        "bench",
        "x",
        "",
    ]
    with nothing_compiled(), tempfile.TemporaryDirectory() as place, contextlib.chdir(place), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(count):
            algo = dice.choice([*ALGORITHMS])
            algo_options = [f"--algo.{name.replace('_', '-')}" for name in flatten(ALGORITHMS[algo].config)]
            head = dice.choice(heads + ["train"] * 20)
            argv = [head] if head != "train" else ["train", ENV, "--algo", algo]
            for _ in range(dice.randint(0, 4)):
                argv += [dice.choice(algo_options if dice.random() < 0.6 else options), dice.choice(WORDS)]
            if dice.random() < 0.1:
                argv.insert(dice.randint(0, len(argv)), dice.choice(WORDS))
            said = io.StringIO()
            with tally.attempt(argv), contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                try:
                    code = main(argv)
                except (Reached, SystemExit):
                    tally.sound += 1
                    continue
                if code == 70 or "Traceback" in said.getvalue():
                    tally.fail("tracebacks", f"{argv}: {said.getvalue()}")
                elif code == 2:
                    tally.refused += 1
                else:
                    tally.sound += 1


def arguments(tally: Tally, count: int, dice: random.Random) -> None:
    """`trident.train` from Python with values of every type for every argument and every field."""
    names = [*vars(Settings()), "out", "limits", "config", "progress", "algo", "env"]
    with nothing_compiled(), tempfile.TemporaryDirectory() as place, contextlib.chdir(place), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(count):
            algo = dice.choice(["mappo", "trident", "qmix", "macpo", "madac", "maddpg", "mappo-lag", "facmac", "matd3"])
            given: dict[str, Any] = {"env": ENV, "algo": algo}
            if dice.random() < 0.6:
                given["config"] = {dice.choice(list(flatten(ALGORITHMS[algo].config))): dice.choice(VALUES)}
            else:
                given[dice.choice(names)] = dice.choice(VALUES)
            with tally.attempt(given):
                try:
                    api.train(**given)
                except Reached:
                    tally.sound += 1


def traced(tally: Tally, count: int, dice: random.Random) -> None:
    """Configs that are allowed must be programs: each field at values near the ends of what it may be."""
    env = make_env(ENV)
    for _ in range(count):
        algo = dice.choice(
            ["mappo", "happo-lag", "trident", "qmix", "macpo", "madac", "maddpg", "facmac", "matd3-hybrid"]
        )
        config = tiny(default_config(algo, env))
        name = dice.choice([*flatten(config)])
        value = dice.choice([0, 1, 2, 3, 7, 0.0, 1e-9, 0.999, 1.0, 5.0, -4.0, 1e9, (1,), (2, 3), True, False])
        with tally.attempt((algo, name, value)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            setup = make_setup(env, algo, replace(Settings(), seeds=1), change(config, {name: value}))
            init = backend_of(env).init(setup)
            state = jax.eval_shape(init, jax.random.key(0))
            from trident.training.loop import program

            jax.eval_shape(program(env, setup.algorithm, 4).round, state, 0)
            tally.sound += 1
        if tally.tries % 20 == 0:
            jax.clear_caches()
