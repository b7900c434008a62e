"""`trident train`."""

from __future__ import annotations

import dataclasses
import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from trident import api
from trident.allowed import Name
from trident.cli.config_file import Told, told_by
from trident.cli.options import parse, wants_help
from trident.cli.page import write_report
from trident.cli.place import Place, placed
from trident.cli.watch import watched
from trident.errors import TridentError
from trident.fields import change, flatten, spelled_out
from trident.renamed import ALGORITHMS, CONFIG, ENVS, current
from trident.report.progress import progress_for
from trident.run_directory import REPORT, check_empty
from trident.training import hosts, session
from trident.training.interrupt import leaving
from trident.training.registry import default_config, has_env, make_env
from trident.training.settings import Settings, Setup, make_setup, parse_env_args
from trident.types import AnyEnv

EXAMPLES = """\
Train an algorithm on an environment; evaluate, tabulate and draw the result.

Examples:
  trident train {env} --quick
  trident train {env} --algo happo --episodes 500 --seeds 1
  trident train {env} --limit {limit} --out runs/tight
"""
BRIEF = """\
usage: trident train ENV [OPTIONS]

{examples}
  ENV                  environment (`trident list` shows all of them), or where
                       to import one from: my_pkg.tanks:Tanks, gymnasium:ID

what is trained:
  --quick              a trial: {quick_rounds} rounds of one seed and a short evaluation
  --algo NAME          algorithm, or a scripted policy of ENV ({algo})
  --algo.NAME VALUE    setting of the algorithm, e.g. --algo.{name} {value}
  --episodes N         training episodes of each seed ({episodes})
  --seeds N|I,J,...    how many seeds side by side, or which ones ({seeds})
  --limit NAME=VALUE   another limit on a mean cost per step
                       ({limits})
  --env-arg NAME=VALUE what an imported environment is called with
  --randomise NAME=SHARE,...
                       train in simulators that are wrong by up to so much
  --shielded           pass every action through the environment's shield
  --warm-start POLICY  imitate this scripted policy before the first round
  --start-from RUN     go on from what another run has learned
  --config FILE        all of this from a TOML file or a former run.json

what becomes of it:
  --out FOLDER         run directory (runs/ENV-ALGO-TIME)
  --page               show it in the browser while it trains
  --eval-episodes N    fresh episodes of each seed to evaluate on ({eval_episodes})
  --no-references      do not evaluate the environment's scripted policies
  --no-video           do not make a video of the trained policy

where it is trained (docs/scaling.md):
  --devices N          spread over N devices: seeds first, then environments
  --hosts WHICH        be one of several hosts; under srun found by itself
  --platform NAME      cpu, gpu or tpu, instead of the fastest that is there

--help-all shows every option, with all settings of {algo}.
Ctrl-C stops after the current round and saves; `trident resume RUN` goes on."""
QUICK_ROUNDS = 10
QUICK = {"seeds": 1, "eval_episodes": 20, "references": False, "video": False}
"""A trial is shorter and shows less; the learner is the same."""


@dataclass(frozen=True)
class TrainOptions:
    env: tyro.conf.Positional[Annotated[Name, tyro.conf.arg(metavar="ENV")]]
    """Environment (`trident list` shows all of them), or where to import one from, e.g. my_pkg.tanks:Tanks."""
    algo: Name = field(default_factory=api.default_algorithm)
    """Algorithm preset, or a scripted policy of the environment."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """A trial of a few rounds of one seed, with a short evaluation and no video."""
    out: Path | None = None
    """Run directory; default: runs/ENV-ALGO-TIME."""
    config_file: Annotated[Path | None, tyro.conf.arg(name="config")] = None
    """Take all of these from a TOML file, or from the run.json of a former run; what is also said here wins."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Import the environment from the module that --config names, which is to run its code."""
    page: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show the run in the browser while it trains, from a server that only this machine can see."""
    place: Annotated[Place, tyro.conf.arg(name="")] = field(default_factory=Place)
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def train(argv: list[str]) -> int:
    with placed(argv):
        return _train(argv)


def _train(argv: list[str]) -> int:
    setup, options = understood(argv)
    if options.quick:
        print(_left_out(setup.settings))
    with ExitStack() as stack:
        out = options.out
        if options.page and hosts.first():
            out = _shown(stack, out or session.new_folder(setup))
        return finish(api.start(setup, out))


def understood(argv: list[str]) -> tuple[Setup, Any]:
    """What is to be trained, and TrainOptions. The environment and the algorithm decide which options exist, and are
    found before anything else is parsed."""
    told, argv = told_by(argv), _with_names_of_today(argv)
    typed, algo = _env_in(argv), _algo_in(argv) or told.algo or api.default_algorithm()
    name = current(typed or told.env or _no_env(argv), ENVS)
    argv = [*([] if typed else [name]), *told.words, *argv]
    args = told.env_arg | env_args_in(argv)
    env = make_env(name, args, trusted=bool(typed) or "--trust" in argv)
    warm = told.settings.get("warm_start") is not None or any(word.startswith("--warm-start") for word in argv)
    config = _with_told(told, algo, default_config(algo, env, warm))
    argv = [_full_name(word, config, algo) for word in argv]
    settings = dataclasses.replace(Settings(), **told.settings)
    settings = _quick_settings(name, algo, settings, args) if "--quick" in argv else settings
    examples, brief = _help(name, env, algo, config)
    options: Any = parse(_with_defaults(config, settings, algo), argv, "train", examples, brief)
    limit = told.settings.get("limit", {}) | options.settings.limit
    settings = dataclasses.replace(options.settings, limit=limit, env_arg=args)
    return make_setup(name, options.algo, settings, options.config), options


def _shown(stack: ExitStack, out: Path) -> Path:
    """A server shows the run's folder while the stack is open."""
    check_empty(out)
    out.mkdir(parents=True, exist_ok=True)
    address = stack.enter_context(watched(out))
    print(f"the page: {address}" if address else "the page cannot be served; training goes on without it", flush=True)
    return out


def finish(run: api.Run) -> int:
    """Tell how a run ended, leave a page of it; the exit code."""
    if not hosts.first():
        return 0 if run.stopped_by is None else 128 + run.stopped_by
    if run.stopped_by is not None:
        print(f"stopped after round {run.rounds} of {run.setup.rounds}; to go on: trident resume {run.out}")
        return 128 + run.stopped_by
    if run.result is not None:
        print(f"\n{run.table()}")
    print(f"\neverything is in {run.out}")
    progress = progress_for()
    with leaving(progress, f"stopped; for the page: trident report {run.out} --html {run.out / REPORT}"):
        try:
            page = write_report(run.out / REPORT, [run.out], run.setup.settings.video, progress.doing, run)
        finally:
            progress.end()
    print(f"to look at it, open {page}")
    return 0


def _with_names_of_today(argv: list[str]) -> list[str]:
    """--algo trident-no-reflex -> --algo trident-scratch, with a word on it."""
    out = [f"--algo={current(word[7:], ALGORITHMS)}" if word.startswith("--algo=") else word for word in argv]
    return [
        current(word, ALGORITHMS) if before == "--algo" else word for before, word in zip(["", *out], out, strict=False)
    ]


def _algo_in(argv: list[str]) -> str | None:
    found = None
    for word, following in zip(argv, [*argv[1:], None], strict=True):
        if word == "--algo" and following is not None:
            found = following
        elif word.startswith("--algo="):
            found = word.partition("=")[2]
    return found


def _env_in(argv: list[str]) -> str | None:
    pairs = list(zip(["", *argv], argv, strict=False))
    free = [w for last, w in pairs if not w.startswith("-") and not (last.startswith("--") and "=" not in last)]
    names = free or [word for last, word in pairs if last not in ("--algo", "--config") and has_env(word)]
    return names[0] if names else None


def _no_env(argv: list[str]) -> str:
    if wants_help(argv):
        return "uav-mec"
    raise TridentError("which environment? for example: trident train uav-mec (`trident list` shows all of them)")


def _with_told(told: Told, algo: str, config: Any) -> Any:
    """What the file says of an algorithm is said of that one alone."""
    if told.config and told.algo not in (None, algo):
        print(f"{told.file} sets up {told.algo}: of {algo} it says nothing")
        return config
    return change(config, told.config, algo)


def env_args_in(argv: list[str]) -> dict[str, Any]:
    """What follows --env-arg, found before anything else is parsed."""
    words, taking = [], False
    for word in argv:
        option, equals, value = word.partition("=")
        if option == "--env-arg":
            words += [value] * bool(equals)
        elif taking and not word.startswith("--"):
            words.append(word)
        taking = option == "--env-arg" or (taking and not word.startswith("--"))
    return parse_env_args(words)


def _full_name(word: str, config: Any, algo: str) -> str:
    """--algo.lr -> --algo.critic.lr: a setting may be named without its group, and by its name of old."""
    option, equals, value = word.partition("=")
    head, dot, name = option.replace("-", "_").partition("__algo.")
    if head or not dot:
        return word
    negated = name.startswith("no_") and name not in flatten(config)
    name = current(name.removeprefix("no_") if negated else name, CONFIG)
    try:
        group, _, last = spelled_out(config, name, algo).rpartition(".")
    except TridentError:
        return word  # the parser knows what to say
    path = ".".join([group] * bool(group) + ["no_" * negated + last])
    return "--algo." + path.replace("_", "-") + equals + value


def _with_defaults(config: Any, settings: Settings, algo: str) -> Any:
    """TrainOptions with the algorithm's own config under --algo."""
    kind = Annotated[type(config), tyro.conf.arg(name="algo")]
    plain = Annotated[Settings, tyro.conf.arg(name="")]
    fields = [("algo", Name, field(default=algo)), ("settings", plain, field(default=settings))]
    fields.append(("config", kind, field(default=config)))
    return dataclasses.make_dataclass("TrainOptions", fields, bases=(TrainOptions,), frozen=True)


def _quick_settings(env: str, algo: str, whole: Settings, args: dict[str, Any]) -> Settings:
    setup = make_setup(env, algo, Settings(env_arg=args))
    episodes = math.ceil(QUICK_ROUNDS * setup.steps_per_round / setup.spec.horizon)
    return dataclasses.replace(whole, **QUICK, episodes=min(episodes, whole.episodes))


def _left_out(quick: Settings) -> str:
    whole = Settings()
    counts = (
        (quick.episodes, whole.episodes, "episodes"),
        (len(quick.seed_list), len(whole.seed_list), "seeds"),
        (quick.eval_episodes, whole.eval_episodes, "evaluation episodes"),
    )
    parts = [f"{ours:,} of {all_:,} {what}" for ours, all_, what in counts]
    parts += ["no scripted policies to compare with"] * (not quick.references) + ["no video"] * (not quick.video)
    return f"quick trial: {', '.join(parts[:3])},\n{' and '.join(parts[3:])}; the learner is the same"


def _help(name: str, env: AnyEnv, algo: str, config: Any) -> tuple[str, str]:
    """The examples, and the whole of --help."""
    limits = [f"{c.name}={c.limit:g}" for c in env.spec.constraints]
    flat = flatten(config)
    setting = next((path for path, value in flat.items() if isinstance(value, float)), next(iter(flat)))
    whole = Settings()
    examples = EXAMPLES.format(env=name, limit=limits[0] if limits else "NAME=VALUE")
    brief = BRIEF.format(
        examples=examples, quick_rounds=QUICK_ROUNDS, algo=algo, limits=", ".join(limits) or "it has none",
        name=setting.replace("_", "-"), value=flat[setting],
        episodes=whole.episodes, seeds=whole.seeds, eval_episodes=whole.eval_episodes,
    )  # fmt: skip
    return examples, brief
