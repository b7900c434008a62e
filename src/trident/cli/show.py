"""`trident render | list | check`: looking at environments, algorithms and episodes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trident import api
from trident.cli.options import parse
from trident.envs.checks.values import find_doubts, find_faults
from trident.errors import TridentError
from trident.fields import check_name
from trident.training.registry import ALGORITHMS, ENVS, make_env
from trident.training.settings import read_run


@dataclass(frozen=True)
class RenderOptions:
    what: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|ENV")]]
    """Run directory, or the name of an environment."""
    policy: str | None = None
    """Scripted policy (default: the run's learned policy; for an environment its first scripted one)."""
    env: str | None = None
    """Show a run's policy (or --policy) in another environment with the same spaces."""
    out: Path | None = None
    """Where to put the pictures (default: the run directory, or the current one)."""
    steps: int | None = None
    """Steps to show (default: a whole episode)."""
    seed: int = 0
    """Which episode."""
    shielded: bool = False
    """Pass a scripted policy's actions through the environment's shield (a run is shielded as it was trained)."""


def render(argv: list[str]) -> int:
    text = """\
Play one episode; write a chart of it (PNG) and, if the environment can be drawn, a video (GIF) of it.

Examples:
  trident render runs/my-run
  trident render uav-mec --policy greedy --steps 100 --out pictures
  trident render intersection --policy aggressive --shielded
"""
    options = parse(RenderOptions, argv, "render", text)
    if (Path(options.what) / "run.json").is_file() and options.policy is None:
        run = api.load(options.what)
        run = run if options.env is None else run.on(options.env)
        files = run.render(options.out, options.steps, options.seed)
    else:
        files = _render_scripted(options)
    print("\n".join(map(str, files)))
    return 0


def _render_scripted(options: RenderOptions) -> list[Path]:
    folder = Path(options.what)
    if (folder / "run.json").is_file():
        env, folder = make_env(options.env or read_run(folder)["env"]), folder / "figures"
    elif options.env is not None:
        raise TridentError(f"--env shows a run elsewhere, and {options.what} is none: `trident render {options.env}`")
    elif options.what not in ENVS and folder.exists():
        raise TridentError(f"{folder} is not a run directory: it has no run.json")
    else:
        env, folder = make_env(options.what), Path()
    if options.policy is None and not env.scripted:
        raise TridentError(f"{env.spec.name} has no scripted policy to render")
    name = options.policy or next(iter(env.scripted))
    check_name("scripted policy", name, env.scripted, env.spec.name)
    if options.shielded and env.shield is None:
        raise TridentError(f"{env.spec.name} has no shield: leave out --shielded")
    policy, title = api.scripted_policy(env, name), f"{name} on {env.spec.name}"
    return api.render(
        env, policy, options.out or folder, title, steps=options.steps, seed=options.seed, shielded=options.shielded
    )


def list_all(argv: list[str]) -> int:
    if argv and argv[0] in ("-h", "--help"):
        print("usage: trident list\n\nEvery environment with its scripted policies, and every algorithm, a line each.")
        return 0
    if argv:
        raise TridentError(f"`trident list` takes no arguments, not {' '.join(argv)!r}")
    rows = []
    for name, entry in ENVS.items():
        spec, scripted = (env := make_env(name)).spec, ", ".join(env.scripted)
        size = f"{spec.num_agents} agents, {spec.action.num_modes} modes, {spec.num_constraints} constraints"
        rows.append([name, size, f"{entry.help} [scripted: {scripted or 'none'}]"])
    print("environments:\n" + _indented(rows))
    print("\nalgorithms:\n" + _indented([[name, preset.help] for name, preset in ALGORITHMS.items()]))
    print("\nA scripted policy of an environment can be used wherever an algorithm can: --algo random")
    return 0


def _indented(rows: list[list[str]]) -> str:
    if not rows:
        return "  none"
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


@dataclass(frozen=True)
class CheckOptions:
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    """Environment."""


def check(argv: list[str]) -> int:
    text = """\
Check that an environment keeps the contract: shapes, masks, finite numbers, determinism, physics.

Examples:
  trident check uav-mec
  python -c "import trident; trident.check_env(MyEnv())"      (an environment of your own)
"""
    options = parse(CheckOptions, argv, "check", text)
    env = make_env(options.env)
    faults, doubts = find_faults(env), find_doubts(env)
    for doubt in doubts:
        print(f"doubt: {doubt}", file=sys.stderr)
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    print(f"{options.env}: {len(faults)} faults, {len(doubts)} doubts")
    return 1 if faults else 0
