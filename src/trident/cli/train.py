"""`trident train`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from trident import api
from trident.cli.options import parse
from trident.errors import TridentError
from trident.training.registry import ENVS, default_config, make_env
from trident.training.settings import Settings, make_setup

EXAMPLES = """\
Train an algorithm on an environment; evaluate, tabulate and draw the result.

Examples:
  trident train uav-mec
  trident train uav-mec --algo happo --episodes 500 --seeds 1 --out runs/quick
  trident train uav-mec --limit {limit} --warm-start greedy
  trident train uav-mec-hard --start-from runs/uav-mec-trident   fine-tune elsewhere what a run has learned
  trident train uav-mec --algo {algo} --algo.{field} {value}      (--algo.NAME: settings of the algorithm)

Ctrl-C stops after the current round and saves; `trident resume RUN` goes on.
"""


@dataclass(frozen=True)
class TrainOptions:
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    """Environment (`trident list` shows all of them)."""
    algo: str = field(default_factory=api.default_algorithm)
    """Algorithm preset, or a scripted policy of the environment."""
    out: Path | None = None
    """Run directory; default: runs/ENV-ALGO-TIME."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def train(argv: list[str]) -> int:
    name, algo = _env_and_algo(argv)
    env = make_env(name)
    config = default_config(algo, env)
    options = parse(_with_config(config), argv, "train", _description(env, algo, config))
    setup = make_setup(name, options.algo, options.settings, options.config)
    return finish(api.start(setup, options.out))


def finish(run: api.Run) -> int:
    """Tell how a run ended; the exit code."""
    if run.stopped_by is not None:
        print(f"stopped after round {run.rounds} of {run.setup.rounds}; to go on: trident resume {run.out}")
        return 128 + run.stopped_by
    if run.result is not None:
        print(f"\n{run.table()}")
    print(f"\neverything is in {run.out}")
    return 0


def _env_and_algo(argv: list[str]) -> tuple[str, str]:
    """The two names that decide which options exist, found before anything else is parsed."""
    asked_for_help = "-h" in argv or "--help" in argv
    algo, after_option, free = api.default_algorithm(), False, []
    for i, word in enumerate(argv):
        if word == "--algo" and i + 1 < len(argv):
            algo = argv[i + 1]
        elif word.startswith("--algo="):
            algo = word.partition("=")[2]
        if not word.startswith("-") and not after_option:
            free.append(word)
        after_option = word.startswith("--") and "=" not in word
    before = ["", *argv]
    names = free or [word for i, word in enumerate(argv) if word in ENVS and before[i] != "--algo"]
    if names:
        return names[0], algo
    if asked_for_help:
        return ("uav-mec" if "uav-mec" in ENVS else next(iter(ENVS))), algo
    raise TridentError("which environment? for example: trident train uav-mec (`trident list` shows all of them)")


def _with_config(config: Any) -> Any:
    """TrainOptions with the algorithm's own config under --algo."""
    kind = Annotated[type(config), tyro.conf.arg(name="algo")]
    return dataclasses.make_dataclass(
        "TrainOptions", [("config", kind, field(default=config))], bases=(TrainOptions,), frozen=True
    )


def _description(env: Any, algo: str, config: Any) -> str:
    limits = [f"{c.name}={c.limit:g}" for c in env.spec.constraints]
    numbers = [f for f in dataclasses.fields(config) if isinstance(getattr(config, f.name), float)]
    example = (numbers or list(dataclasses.fields(config)))[0].name
    return EXAMPLES.format(
        limit=limits[0] if limits else "NAME=VALUE",
        algo=algo,
        field=example.replace("_", "-"),
        value=getattr(config, example),
    )
