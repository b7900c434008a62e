"""A bundle: the directory that `trident export` writes. What is opened of it is data, and every byte is accounted for.

    manifest.json         what it is: versions, spaces, limits, thresholds, evaluation, sha256 of every other file
    weights.safetensors   all constants of the programs
    policy.json, ...      programs (trident.runtime.program): the policy and, where they exist, the base policy, the
                          shield and what physics foresees
    card.md               the same for people
    policy.stablehlo      the policy for JAX
    runtime.pyz           this package's runtime: Python and NumPy run the bundle with it, with nothing installed
    selftest.safetensors  some recorded inputs and JAX's answers, for `trident runtime check`

The hashes find accidents and careless changes. They are no signature: who can change a file can change the manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trident.errors import TridentError
from trident.runtime import tensors
from trident.runtime.program import Program

FORMAT = 1
MANIFEST, WEIGHTS, CARD = "manifest.json", "weights.safetensors", "card.md"
PROGRAMS = ("policy", "base_policy", "shield", "foresee")


class Space(NamedTuple):
    """What goes in and what may come out."""

    obs_low: np.ndarray  # [O] seen while the policy was recorded
    obs_high: np.ndarray  # [O]
    low: np.ndarray  # [N, M, P]
    high: np.ndarray  # [N, M, P]
    used: np.ndarray  # [N, M, P]
    modes: tuple[str, ...]
    params: tuple[str, ...]

    @property
    def agents(self) -> int:
        return self.low.shape[0]

    @property
    def obs_dim(self) -> int:
        return self.obs_low.shape[0]


class Bundle(NamedTuple):
    folder: Path
    manifest: dict[str, Any]
    space: Space
    programs: dict[str, Program]
    arrays: dict[str, np.ndarray]

    def __repr__(self) -> str:
        env, run = self.manifest["env"], self.manifest["run"]
        return f"Bundle({run['algo']} on {env['name']}, {self.space.agents} agents, {str(self.folder)!r})"


def open_bundle(folder: str | Path) -> Bundle:
    """Read and check; whatever is wrong with it is one line."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    data = {name: _read(folder, name, digest) for name, digest in manifest["files"].items()}
    arrays = tensors.parse(data[WEIGHTS], str(folder / WEIGHTS))
    programs = {}
    for name in PROGRAMS:
        file = f"{name}.json"
        if file in data:
            own = {key.removeprefix(f"{name}/"): a for key, a in arrays.items() if key.startswith(f"{name}/")}
            programs[name] = Program(_json(data[file], folder / file), own)
    return Bundle(folder, manifest, _space(manifest, arrays, folder), programs, arrays)


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise TridentError(f"{folder} is not a bundle: it has no {MANIFEST} (`trident export RUN --out {folder}`)")
    manifest = _json(path.read_bytes(), path)
    if manifest.get("format") != FORMAT:
        raise TridentError(
            f"{folder} is a bundle of format {manifest.get('format')!r}, this trident reads format {FORMAT}: "
            "export the run again"
        )
    missing = {"files", "env", "run", "spaces", "constraints", "monitor", "fail_safe", "sha256"} - manifest.keys()
    if missing or not isinstance(manifest["files"], dict) or {WEIGHTS, "policy.json"} - manifest["files"].keys():
        raise TridentError(f"{path} is damaged: it has no {', '.join(sorted(missing)) or 'list of its files'}")
    if manifest["sha256"] != digest_of({k: v for k, v in manifest.items() if k != "sha256"}):
        raise TridentError(f"{path} was changed after the export: its sha256 does not fit; export the run again")
    return manifest


def digest_of(content: Any) -> str:
    """sha256 of JSON in one canonical spelling."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_fits(bundle: Bundle, agents: int, obs_dim: int, modes: int, params: int) -> None:
    """One line that says what differs between the bundle's spaces and those of the system at hand."""
    ours = dict(zip(("agents", "observations", "modes", "parameters"), _sizes(bundle.space), strict=True))
    for (name, own), given in zip(ours.items(), (agents, obs_dim, modes, params), strict=True):
        if own != given:
            raise TridentError(f"{bundle.folder} has {own} {name}, this system has {given}: it is a bundle of another")


def _sizes(space: Space) -> tuple[int, int, int, int]:
    return space.agents, space.obs_dim, space.low.shape[1], space.low.shape[2]


def _read(folder: Path, name: str, digest: str) -> bytes:
    path = folder / name
    if Path(name).name != name:
        raise TridentError(f"{folder / MANIFEST} is damaged: {name!r} is no plain file name")
    if not path.is_file():
        raise TridentError(f"{folder} is incomplete: {name} is missing; copy the whole bundle again")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise TridentError(f"{path} is not what was exported (its sha256 differs): copy the bundle again")
    return data


def _json(data: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TridentError(f"{path} is damaged: it is not JSON") from error
    if not isinstance(content, dict):
        raise TridentError(f"{path} is damaged: it is not a JSON object")
    return content


def _space(manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray], folder: Path) -> Space:
    names = manifest["spaces"]
    try:
        low, high, used = (arrays[f"space/{name}"] for name in ("low", "high", "used"))
        seen = arrays["space/obs_low"], arrays["space/obs_high"]
        return Space(*seen, low, high, used, tuple(names["modes"]), tuple(p["name"] for p in names["parameters"]))
    except (KeyError, TypeError) as error:
        raise TridentError(f"{folder} is damaged: its spaces are incomplete") from error
