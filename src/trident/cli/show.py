"""`trident render | list | check`: looking at environments, algorithms and episodes."""

from __future__ import annotations

import difflib
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from trident import api
from trident.allowed import Name, Range, Seed
from trident.cli.options import parse, wants_help
from trident.envs.checks.values import find_doubts, find_faults
from trident.errors import TridentError
from trident.fields import check_name, flatten
from trident.renamed import ENVS as OLD_NAMES
from trident.renamed import current
from trident.report.tables import terminal_width
from trident.training.registry import (
    ALGORITHMS,
    ENVS,
    about_env,
    has_algorithm,
    has_env,
    load_plugins,
    make_env,
    plugin_envs,
)
from trident.training.settings import EnvArgs, mode_names, setup_of


@dataclass(frozen=True)
class RenderOptions:
    what: tyro.conf.Positional[Annotated[Name, tyro.conf.arg(metavar="RUN|ENV")]]
    """Run directory, or the name of an environment."""
    policy: Name | None = None
    """Scripted policy (default: the run's learned policy; for an environment its first scripted one)."""
    env: Name | None = None
    """Show a run's policy (or --policy) in another environment with the same spaces."""
    out: Path | None = None
    """Where to put the pictures (default: the run directory, or the current one)."""
    steps: Annotated[int, Range(1, 10**7)] | None = None
    """Steps to show (default: a whole episode)."""
    seed: Seed = 0
    """Which episode."""
    env_arg: EnvArgs = field(default_factory=dict)
    """What an imported environment is called with."""
    trust: bool = False
    """Import the environment from the module that a run names, which is to run its code."""
    shielded: bool = False
    """Pass a scripted policy's actions through the environment's shield (a run is shielded as it was trained)."""
    figure: bool = False
    """Draw the episode for print instead: figure.pdf, figure.svg and figure.png."""
    mp4: bool = False
    """Also write the video as MP4 (needs ffmpeg)."""


def render(argv: list[str]) -> int:
    text = """\
Play one episode; make a chart (PNG) and, if it can be drawn, a video (GIF).

Examples:
  trident render runs/my-run
  trident render uav-mec --policy greedy --steps 100 --out pictures
  trident render intersection --policy aggressive --shielded
  trident render uav-nofly --policy planner --figure      PDF, SVG and PNG
"""
    options = parse(RenderOptions, argv, "render", text)
    if (Path(options.what) / "run.json").is_file() and options.policy is None:
        run = api.load(options.what, trust=options.trust)
        run = run if options.env is None else run.on(options.env, options.env_arg)
        files = run.render(options.out, options.steps, options.seed, figure=options.figure, mp4=options.mp4)
    else:
        files = _render_scripted(options)
    print("\n".join(map(str, files)))
    return 0


def _render_scripted(options: RenderOptions) -> list[Path]:
    folder = Path(options.what)
    if (folder / "run.json").is_file():
        env = (
            setup_of(folder, trust=options.trust).env if options.env is None else make_env(options.env, options.env_arg)
        )
        folder = folder / "figures"
    elif options.env is not None:
        raise TridentError(f"--env shows a run elsewhere, and {options.what} is none: `trident render {options.env}`")
    elif folder.exists() and not has_env(options.what):
        raise TridentError(f"{folder} is not a run directory: it has no run.json")
    else:
        env, folder = make_env(options.what, options.env_arg), Path()
    if options.policy is None and not env.scripted:
        raise TridentError(f"{env.spec.name} has no scripted policy to render")
    name = options.policy or next(iter(env.scripted))
    check_name("scripted policy", name, env.scripted, env.spec.name)
    if options.shielded and env.shield is None:
        raise TridentError(f"{env.spec.name} has no shield: leave out --shielded")
    policy, title = api.scripted_policy(env, name), f"{name} on {env.spec.name}"
    return api.render(
        env,
        policy,
        options.out or folder,
        title,
        steps=options.steps,
        seed=options.seed,
        shielded=options.shielded,
        figure=options.figure,
        mp4=options.mp4,
    )


LIST_HELP = """\
usage: trident list [NAME]

Every environment and every algorithm, a line each; of NAME all there is."""


def list_all(argv: list[str]) -> int:
    if wants_help(argv):
        print(LIST_HELP)
    elif not argv:
        broken = dict(_broken_plugins())
        faults = [*load_plugins(), *broken.values()]
        print("environments:\n" + _overview({name: entry.help for name, entry in ENVS.items() if name not in broken}))
        print("\nalgorithms:\n" + _overview({name: preset.help for name, preset in ALGORITHMS.items()}))
        print("\n`trident list NAME` tells more of one of them.")
        for fault in faults:
            print(f"trident: {fault}", file=sys.stderr)
    elif len(argv) > 1:
        raise TridentError(f"`trident list` takes one name at most, not {' '.join(argv)!r}")
    elif has_env(argv[0]):
        print(_of_env(current(argv[0], OLD_NAMES)))
    elif has_algorithm(argv[0]):
        print(_of_algorithm(argv[0]))
    else:
        near = difflib.get_close_matches(argv[0], [*ENVS, *ALGORITHMS], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`trident list` shows all of them"
        raise TridentError(f"there is no environment or algorithm {argv[0]!r}: {hint}")
    return 0


def _broken_plugins() -> Iterator[tuple[str, TridentError]]:
    """Environments of other packages that can be found but not made."""
    for name in plugin_envs():
        try:
            if has_env(name):
                make_env(name)
        except TridentError as error:
            if name in ENVS:  # otherwise `load_plugins` tells
                yield name, error


def _overview(texts: dict[str, str]) -> str:
    """A line each, cut to the terminal's width."""
    width, room = max(map(len, texts)), terminal_width()
    lines = [f"  {name.ljust(width)}  {text}" for name, text in texts.items()]
    return "\n".join(line if room is None or len(line) <= room else _cut(line, room) for line in lines)


def _cut(line: str, room: int) -> str:
    """Up to the last whole word before `room`."""
    return line[: room - 3].rpartition(" ")[0].rstrip(" ,;:(") + " ..."


def _of_env(name: str) -> str:
    env = make_env(name)
    spec = env.spec
    constraints = [f"{c.name} <= {c.limit:g} {c.unit}".rstrip() for c in spec.constraints]
    rows = {
        "agents": f"{spec.num_agents}, observing {spec.obs_dim} numbers each; {spec.horizon} steps an episode",
        "modes": f"{', '.join(mode_names(spec))}, with up to {spec.action.low.shape[-1]} parameters",
        "constraints": ", ".join(constraints) or "none",
        "metrics": ", ".join(f"{m.name} [{m.unit}]" if m.unit else m.name for m in spec.metrics) or "none",
        "scripted": ", ".join(env.scripted) or "none",
        "shield": "none" if env.shield is None else "yes (--shielded)",
    }
    return _card(
        f"{name} (environment, version {spec.version})", about_env(name, env), rows, f"trident train {name} --quick"
    )


def _of_algorithm(name: str) -> str:
    preset = ALGORITHMS[name]
    rows = {"settings": ", ".join(flatten(preset.config))}
    return _card(f"{name} (algorithm)", preset.help, rows, f"trident train uav-mec --algo {name} --help-all")


def _card(title: str, text: str, rows: dict[str, str], command: str) -> str:
    width = max(map(len, rows))
    lines = [_wrapped(f"  {key.ljust(width)}  ", value) for key, value in rows.items()]
    return "\n".join([title, _wrapped("  ", text), "", *lines, "", f"  {command}"])


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        text, min(terminal_width() or 80, 100), initial_indent=head, subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )  # fmt: skip


@dataclass(frozen=True)
class CheckOptions:
    env: tyro.conf.Positional[Annotated[Name, tyro.conf.arg(metavar="ENV")]]
    """Environment, or where to import one from."""
    env_arg: EnvArgs = field(default_factory=dict)
    """What an imported environment is called with."""


def check(argv: list[str]) -> int:
    text = """\
Check an environment: shapes, masks, finite numbers, determinism, physics.

Examples:
  trident check uav-mec
  trident check my_pkg.tanks:Tanks --env-arg level=3         (one of your own)
"""
    options = parse(CheckOptions, argv, "check", text)
    env = make_env(options.env, options.env_arg)
    faults, doubts = find_faults(env), find_doubts(env)
    for doubt in doubts:
        print(f"doubt: {doubt}", file=sys.stderr)
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    print(f"{options.env}: {len(faults)} faults, {len(doubts)} doubts")
    return 1 if faults else 0
