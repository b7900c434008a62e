"""`trident export`: a run as a bundle that `trident.runtime` runs with NumPy alone, compared with JAX before it is
handed out."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trident.api import Run
from trident.errors import TridentError
from trident.export import functions, iree_module, onnx_graph, robot, sim_to_real, stablehlo
from trident.export.card import card
from trident.export.recording import Recording, record
from trident.export.rounding import between_roundings, rounding
from trident.export.tracing import trace
from trident.report.progress import Progress, Silent
from trident.report.specification import evaluation_of, specification
from trident.run_directory import write, write_text
from trident.runtime import tensors
from trident.runtime.bundle import CARD, FORMAT, MANIFEST, WEIGHTS, digest_of
from trident.runtime.parity import SELF_TEST, TOLERANCE
from trident.runtime.program import Program
from trident.training.backend import backend_of
from trident.types import EnvSpec, FailSafe

SAMPLE = 64
"""Recorded rows that stay in the bundle, so that the machine that runs it can test itself."""
STEP = 0.1
"""Seconds of a step where the environment does not say."""


@dataclass(frozen=True)
class Choices:
    seed: int | None = None
    agent: int | None = None
    deterministic: bool | None = None
    ahead: int = 1
    observations: int = 10_000
    iree: bool = False
    onnx: bool = False


def export(run: Run, out: Path, choices: Choices = Choices(), progress: Progress | None = None) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Write the bundle and return its manifest. Nothing is left behind if it does not compute what JAX does."""
    progress = progress or Silent()
    setup, spec = run.setup, run.setup.spec
    if setup.algorithm.name in setup.env.scripted:
        raise TridentError(f"{setup.algorithm.name} is scripted: it reads the simulator's state and cannot be exported")
    if choices.agent is not None and not 0 <= choices.agent < spec.num_agents:
        raise TridentError(f"--agent must be between 0 and {spec.num_agents - 1}")
    if choices.agent is not None and setup.settings.shielded:
        raise TridentError("this run flies behind a shield, which needs the whole team: export it without --agent")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TridentError(f"{out} is not empty: choose another place")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=out.name + ".", dir=out.parent) as folder:
        made = Path(folder) / "bundle"
        made.mkdir()
        manifest = _fill(made, run, choices, progress)
        if out.exists():
            out.rmdir()
        made.rename(out)
    return manifest


def _fill(folder: Path, run: Run, choices: Choices, progress: Progress) -> dict[str, Any]:
    setup, spec = run.setup, run.setup.spec
    deterministic = not setup.algorithm.sampled if choices.deterministic is None else choices.deterministic
    progress.doing(f"playing episodes for {choices.observations:,} observations")
    recording = record(run, run.policy(choices.seed, deterministic), choices.observations)
    parts = _functions(run, choices, deterministic)
    progress.doing("writing the programs")
    arrays = _space_arrays(spec, choices.agent, recording)
    programs, traced = {}, {}
    for name, function in parts.items():
        program, constants = trace(function.call, function.weights, function.inputs)
        programs[name], traced[name] = Program(program, constants), (program, constants)
        write_text(folder / f"{name}.json", json.dumps(program, separators=(",", ":")))
        arrays |= {f"{name}/{key}": value for key, value in constants.items()}
    write(folder / WEIGHTS, lambda file: file.write(tensors.dump(arrays)))
    write(folder / stablehlo.FILE, lambda file: file.write(stablehlo.serialise(parts["policy"])))
    backends = _backends(folder, parts["policy"], traced["policy"], choices, progress)
    write(folder / robot.FILE, lambda file: file.write(robot.packed()))
    progress.doing("asking JAX for the same decisions")
    answers = _answers(run, parts, programs, recording, choices)
    write(folder / SELF_TEST, lambda file: file.write(tensors.dump({k: a[:SAMPLE] for k, a in answers.items()})))
    manifest = describe(run, choices, deterministic, recording, answers, folder) | {"backends": backends}
    write_text(folder / CARD, card(manifest))
    seal(folder, manifest)
    progress.doing("comparing in a clean process without JAX")
    manifest["parity"] = clean_parity(folder, answers)
    write_text(folder / CARD, card(manifest))
    return seal(folder, manifest)


def _backends(folder: Path, function: functions.Function, traced: Any, choices: Choices, progress: Progress) -> Any:
    """The policy for other ways of running it, as asked for: what each of them takes, and where it runs."""
    made = {}
    if choices.iree:
        progress.doing("compiling by IREE")
        data, inputs = iree_module.compiled(function)
        write(folder / iree_module.FILE, lambda file: file.write(data))
        made["iree"] = {"inputs": inputs, "machine": platform.machine(), "version": version("iree-base-compiler")}
    if choices.onnx:
        model, inputs = onnx_graph.graph(*traced)
        write(folder / onnx_graph.FILE, lambda file: file.write(model))
        made["onnx"] = {"inputs": inputs, "opset": onnx_graph.OPSET, "version": version("onnx")}
    return made


def seal(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Hashes of every file, then of the manifest."""
    names = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)
    manifest["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    manifest.pop("sha256", None)
    manifest["sha256"] = digest_of(json.loads(json.dumps(manifest)))
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return manifest


def _functions(run: Run, choices: Choices, deterministic: bool) -> dict[str, functions.Function]:
    setup, spec, agent = run.setup, run.setup.spec, choices.agent
    row = run.row(choices.seed)
    state = jax.tree.map(lambda x: x[row], run.state.algo)
    found = {
        "policy": functions.policy(setup.algorithm, state, spec, deterministic, agent),
        "base_policy": functions.base_policy(setup.env, spec, agent),
        "shield": functions.shield(setup.env, spec) if setup.settings.shielded else None,
        "foresee": functions.foresee(setup.env, spec, choices.ahead) if agent is None else None,
    }
    return {name: function for name, function in found.items() if function is not None}


def _space_arrays(spec: EnvSpec, agent: int | None, recording: Recording) -> dict[str, np.ndarray]:
    own = slice(None) if agent is None else slice(agent, agent + 1)
    seen = recording.obs[recording.alive]
    seen = seen if len(seen) else recording.obs.reshape(-1, spec.obs_dim)
    a = spec.action
    return {
        "space/low": np.asarray(a.low[own], np.float32), "space/high": np.asarray(a.high[own], np.float32),
        "space/used": np.asarray(a.used[own], bool),
        "space/obs_low": seen.min(0).astype(np.float32), "space/obs_high": seen.max(0).astype(np.float32),
    }  # fmt: skip


def _answers(
    run: Run, parts: dict[str, functions.Function], programs: dict[str, Program], recording: Recording, choices: Choices
) -> dict[str, np.ndarray]:
    """Inputs of every program and what JAX makes of them."""
    n, agent, observations = recording.obs.shape[1], choices.agent, choices.observations
    count = min(len(recording.obs), -(-observations // n) if agent is None else observations)
    own = slice(None) if agent is None else slice(agent, agent + 1)
    action = run.setup.spec.action
    width = (action.high - action.low).max(axis=1)[own]
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(0), count)))
    rows: dict[str, Any] = {
        "obs": recording.obs[:count, own], "mask": recording.mask[:count, own], "alive": recording.alive[:count, own],
        "key": keys, "state": recording.state[:count],
    }  # fmt: skip
    answers: dict[str, np.ndarray] = {}
    for name in ("policy", "base_policy", "foresee"):
        if name not in parts:
            continue
        given = {key: rows[key][: 1024 if name == "foresee" else count] for key in parts[name].inputs}
        call = functions.in_jax(parts[name])
        out = call(**given)
        answers |= {f"{name}/{key}": np.asarray(x) for key, x in given.items()}
        answers |= {f"{name}/out.{key}": np.asarray(x) for key, x in out.items()}
        if "obs" in given:
            spread = rounding(call, given, out)
            answers[f"{name}/rounding"] = between_roundings(parts[name], programs[name], given, out, spread, width)
        if name == "policy":
            rows |= out
    if "shield" in parts:
        answers |= _shield_answers(run, parts["shield"])
    return answers


def _shield_answers(run: Run, function: functions.Function) -> dict[str, np.ndarray]:
    """On the states of one episode, with actions all over the box."""
    env = run.setup.env
    episode = backend_of(env).play(env, run.policy(), jax.random.key(1), None, True)
    states, action = functions.leaves_of(episode.states), episode.action
    count = len(action.mode)
    rng, boxes = np.random.default_rng(0), run.setup.spec.action
    mode = rng.integers(0, boxes.num_modes, action.mode.shape).astype(np.int32)
    agents = np.arange(run.setup.spec.num_agents)[None]
    low, high = boxes.low[agents, mode], boxes.high[agents, mode]
    params = (low + rng.random(low.shape) * (high - low)).astype(np.float32)
    given = {"mode": mode, "params": params} | {name: np.asarray(x)[:count] for name, x in states.items()}
    out = functions.in_jax(function)(**given)
    found = {f"shield/{key}": np.asarray(x) for key, x in given.items()}
    return found | {f"shield/out.{key}": np.asarray(x) for key, x in out.items()}


# --- the manifest ---------------------------------------------------------------------------------


def describe(
    run: Run, choices: Choices, deterministic: bool, recording: Recording, answers: dict[str, np.ndarray], folder: Path
) -> dict[str, Any]:
    setup, spec, info = run.setup, run.setup.spec, run.info
    seed = setup.seeds[run.row(choices.seed)]
    safe = spec.fail_safe
    return {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "kind": "team" if choices.agent is None else "agent",
        "agent": choices.agent,
        "versions": {
            "trident": sys.modules["trident"].__version__, "jax": jax.__version__, "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "env": {
            "name": spec.name, "version": spec.version, "config": info["identity"]["env config"],
            "horizon": spec.horizon, "step seconds": spec.step_seconds,
        },
        "run": {
            "algo": setup.algorithm.name, "seed": seed, "round": run.rounds, "rounds": setup.rounds,
            "commit": info.get("commit"), "config hash": info["identity"]["config hash"],
        },
        "flown": "most likely" if deterministic else "sampled",
        "shielded": setup.settings.shielded,
        "spaces": _spaces(spec, choices.agent),
        "fail_safe": _fail_safe(safe, spec, choices.agent),
        "base_policy": (folder / "base_policy.json").is_file(),
        "monitor": thresholds(spec, answers.get("foresee/out.cost")),
        **specification(info, [c.limit for c in spec.constraints]),
        "evaluation": evaluation_of(info, run.result),
        "sim to real": sim_to_real.read(run.out),
        "worst episode": {
            c.name: float(recording.episode_cost[:, k].max()) for k, c in enumerate(spec.constraints)
        } | {"episodes": len(recording.episode_cost)},
        "certificate": certificate(spec, deterministic, setup.settings.shielded),
    }  # fmt: skip


def certificate(spec: EnvSpec, deterministic: bool, shielded: bool) -> dict[str, list[str]]:
    """What was measured, and what nobody has."""
    how = "most likely actions" if deterministic else "sampled actions"
    return {
        "covers": [
            f"the mean cost per step over the evaluation episodes of {spec.name} version {spec.version}, {how}"
            + (", behind the shield" if shielded else ""),
            f"that the NumPy programs decide as JAX does on the recorded observations (modes equal, parameters within "
            f"{TOLERANCE:g} of their box, beside what rounding an observation changes in JAX itself)",
            "that every path through the guard ends in an allowed action",
        ],
        "does not cover": [
            "a single episode, a single step, or the worst case: limits are on the mean cost per step",
            "a system that differs from the simulator",
            "faults of sensors, links or agents (see `trident eval --guarded --faults`)",
            "the machine it runs on, its clock and its operating system",
        ],
    }


def thresholds(spec: EnvSpec, foreseen: np.ndarray | None) -> dict[str, Any]:
    """Of the guard: what is usual in recorded episodes is no danger."""
    step = spec.step_seconds or STEP
    usual = np.ones(spec.num_constraints) if foreseen is None else np.quantile(foreseen.max(axis=1), 0.999, axis=0)
    return {
        "deadline": 0.5 * step, "stale": 2.5 * step, "hold": 3.5 * step, "future": 0.1 * step, "reach": 10.0,
        "patience": 5, "novelty": 0.5, "window": spec.horizon, "release": 0.9, "back": 5,
        "limits": [float(c.limit) for c in spec.constraints],
        "margin": [0.0] * spec.num_constraints,
        "foreseen": [float(max(u, 2.0 * c.limit)) for u, c in zip(usual, spec.constraints, strict=True)],
    }  # fmt: skip


def _spaces(spec: EnvSpec, agent: int | None) -> dict[str, Any]:
    a = spec.action
    names = list(a.param_names) or [f"parameter {p}" for p in range(a.num_params)]
    units = list(a.param_units) or [""] * a.num_params
    modes = [a.mode_names[m] if m < len(a.mode_names) else str(m) for m in range(a.num_modes)]
    return {
        "agents": spec.num_agents if agent is None else 1,
        "observations": list(spec.obs_names) or [f"input {o}" for o in range(spec.obs_dim)],
        "modes": modes,
        "parameters": [{"name": n, "unit": u} for n, u in zip(names, units, strict=True)],
    }


def _fail_safe(safe: FailSafe | None, spec: EnvSpec, agent: int | None) -> dict[str, Any]:
    """As declared; else what is nearest to nothing: the first allowed mode, parameters as near to 0 as the boxes let
    them be. Whoever flies that should know."""
    own = slice(None) if agent is None else slice(agent, agent + 1)
    low, high = spec.action.low[own].max(axis=0), spec.action.high[own].min(axis=0)  # [M, P]: inside every agent's box
    if safe is None:
        params = np.clip(0.0, low, np.maximum(low, high))
        return {
            "name": "nearest to zero", "help": "not declared by the environment: the first allowed mode",
            "modes": list(range(spec.action.num_modes)), "params": params.tolist(), "keep_mode": False,
        }  # fmt: skip
    content = asdict(safe) | {"modes": list(safe.modes), "params": np.asarray(safe.params, float).tolist()}
    used = spec.action.used[own].any(axis=0)
    if ((safe.params < low) | (safe.params > high))[used].any():
        raise TridentError(f"{spec.name} declares a fail-safe outside an agent's box: mend EnvSpec.fail_safe")
    return content


# --- the comparison -------------------------------------------------------------------------------


def clean_parity(folder: Path, answers: dict[str, np.ndarray]) -> dict[str, Any]:
    """In a process that cannot import JAX. It fails with one line if anything differs."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "answers.safetensors"
        file.write_bytes(tensors.dump(answers))
        code = (
            "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
            "from trident.runtime.parity import main; sys.exit(main(sys.argv[1:]))"
        )
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))}
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), str(file)], capture_output=True, text=True, env=clean, check=False
        )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TridentError(f"the bundle does not run without JAX: {last}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["fault"]:
        raise TridentError(f"the bundle does not compute what JAX does, nothing was exported: {found['fault']}")
    kept = ("programs", "latency", "backends")
    return {name: found[name] for name in kept} | {"tolerance": TOLERANCE}
