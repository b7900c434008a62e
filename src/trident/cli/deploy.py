"""`trident export | runtime | serve | audit | spec`: taking a policy out of the laboratory."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from trident import api
from trident.allowed import Count, Name, Range, Seed
from trident.cli.options import parse
from trident.report.progress import progress_for
from trident.report.specification import evaluation_of, specification
from trident.run_directory import is_run, read_result, read_run
from trident.runtime import command
from trident.runtime.bundle import MANIFEST, read_manifest


@dataclass(frozen=True)
class ExportOptions:
    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Run directory."""
    out: Path = Path("bundle")
    """Where the bundle goes; it must be empty or absent."""
    seed: Seed | None = None
    """Whose policy (default: the first seed that has not diverged)."""
    agent: Annotated[int, Range(0, 10**6)] | None = None
    """Export one agent's policy for its own computer (default: the whole team)."""
    policy: Literal["own", "sampled", "most-likely"] = "own"
    """Draw actions from the policy or take the most likely ones; own: as the algorithm is meant to be flown."""
    ahead: Annotated[int, Range(-1, 1000)] = 1
    """Steps that the monitor looks ahead by the environment's physics; -1: not at all."""
    observations: Count = 10_000
    """Recorded observations on which NumPy is compared with JAX."""
    iree: tyro.conf.FlagCreatePairsOff[bool] = False
    """Add the policy as an IREE module, which needs neither Python nor JAX where it runs (extra: iree)."""
    onnx: tyro.conf.FlagCreatePairsOff[bool] = False
    """Add it as an ONNX graph, if it is a network and its actions are the most likely ones (extra: onnx)."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Import the environment from the module that the run names, which is to run its code."""


def export(argv: list[str]) -> int:
    text = """\
Take a policy out: a directory that NumPy alone runs, compared with JAX first.

Examples:
  trident export runs/my-run --out bundle
  trident export runs/my-run --out uav-2 --agent 2   (one UAV's own computer)
  trident runtime check bundle                       (where it will be used)
"""
    options = parse(ExportOptions, argv, "export", text)
    from trident.export.bundle import Choices
    from trident.export.bundle import export as export_run

    progress = progress_for(sys.stderr)
    flown = {"own": None, "sampled": False, "most-likely": True}[options.policy]
    choices = Choices(
        options.seed, options.agent, flown, options.ahead, options.observations, options.iree, options.onnx
    )
    try:
        manifest = export_run(api.load(options.run, trust=options.trust), options.out, choices, progress)
    finally:
        progress.end()
    print(json.dumps(manifest["parity"], indent=1))
    print(
        f"{options.out}: see {options.out / 'card.md'}; test it where it will run: trident runtime check {options.out}"
    )
    return 0


def runtime(argv: list[str]) -> int:
    return command.main(argv or ["--help"])


def serve(argv: list[str]) -> int:
    return command.main(["serve", *argv])


def audit(argv: list[str]) -> int:
    return command.main(["audit", *argv])


@dataclass(frozen=True)
class SpecOptions:
    what: tyro.conf.Positional[Annotated[Name, tyro.conf.arg(metavar="ENV|RUN|BUNDLE")]]
    """An environment's name, a run directory, or a bundle."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print it as JSON."""


def spec(argv: list[str]) -> int:
    text = """\
The cost specification: what is measured, its unit, its limit, over which time.

Of a run also what the learner was trained to and what it kept.

Examples:
  trident spec uav-mec
  trident spec runs/my-run
  trident spec bundle --json
"""
    options = parse(SpecOptions, argv, "spec", text)
    found = specification_of(options.what)
    print(json.dumps(found, indent=1) if options.json else specification_text(found))
    return 0


def specification_of(what: str) -> dict[str, Any]:
    """Of an environment by name, a run directory or a bundle."""
    folder = Path(what)
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        parts = ("constraints", "specification", "evaluation", "worst episode")
        return {"of": str(folder), "env": manifest["env"]["name"], "version": manifest["env"]["version"]} | {
            part: manifest.get(part) for part in parts
        }
    if is_run(folder):
        run = read_run(folder)
        kept = evaluation_of(run, read_result(folder))
        found = {"of": str(folder), "env": run["env"], "version": run.get("env_version")} | specification(run)
        return found | {"evaluation": kept, "worst episode": None}
    from trident.training.registry import make_env

    spec = make_env(what).spec
    run = {"env": what, "env_version": spec.version, "constraints": [asdict(c) for c in spec.constraints]}
    return {"of": what, "env": what, "version": spec.version, "evaluation": None} | specification(run)


def specification_text(found: dict[str, Any]) -> str:
    lines = [f"{found['of']}: environment {found['env']}, version {found['version']}"]
    kept = found.get("evaluation")
    worst = found.get("worst episode") or {}
    for c in found["constraints"]:
        lines += ["", c["name"], f"  measured    {c.get('help') or '-'}", f"  per step    {c.get('formula') or '-'}"]
        lines += [f"  over        {c['over']}", f"  limit       {c['limit']:g} {c['unit']}"]
        if c.get("trained to") is not None:
            lines.append(f"  trained to  {c['trained to']:g} {c['unit']}")
        if kept is not None:
            v = kept["values"][f"cost/{c['name']}"]
            fine = "kept" if v["value"] <= c["limit"] else "BROKEN"
            lines.append(f"  evaluated   {v['value']:.4g} [{v['low']:.4g}, {v['high']:.4g}]: {fine}")
        if c["name"] in worst:
            lines.append(f"  worst       {worst[c['name']]:.4g} in one of {worst['episodes']} recorded episodes")
    lines += [] if found["constraints"] else ["", "no constraints"]
    return "\n".join([*lines, "", f"specification {found['specification']}"])
