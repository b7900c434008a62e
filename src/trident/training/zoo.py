"""The zoo: policies that come with the package, each with a card that says what it is and how it was measured.

An entry, `zoo:ENV/NAME`, is a folder `policies/ENV/NAME` with three files: run.json, as of a run with one seed;
policy.npz, those numbers of the learner's state that acting needs, well under 1 MB and read without pickle; and
card.json. What else a learner's state has (critics, optimisers) is blank: an entry acts and is evaluated, but does not
learn on.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from trident.errors import TridentError
from trident.fields import check_name
from trident.report.stats import Estimate, bootstrap
from trident.run_directory import RUN, RUN_SCHEMA, read_run, write_json
from trident.sealed import read_sealed
from trident.training.backend import backend_of
from trident.training.evaluation import evaluation_keys
from trident.training.settings import Setup, setup_of
from trident.types import AlgoState, View

PREFIX = "zoo:"
POLICIES = Path(__file__).with_name("policies")
CARD, NUMBERS = "card.json", "policy.npz"
MOST_BYTES = 2**20
EPISODES = 200
"""Fresh episodes of a card's evaluation."""


def is_entry(run: Any) -> bool:
    return str(run).startswith(PREFIX)


def entries() -> dict[str, Path]:
    """ENV/NAME -> its folder."""
    return {f"{p.parent.parent.name}/{p.parent.name}": p.parent for p in sorted(POLICIES.glob(f"*/*/{CARD}"))}


def folder_of(name: str) -> Path:
    """`zoo:ENV/NAME` -> its folder."""
    short, known = name.removeprefix(PREFIX), entries()
    check_name("entry", short, known, "the zoo")
    return known[short]


def card_of(folder: Path) -> dict[str, Any]:
    return read_sealed(folder / CARD, {"name": str, "parameters": {...: object}, "evaluation": {...: object}})


def load_entry(folder: Path) -> tuple[Setup, AlgoState]:
    """Its setup, and the state with a leading axis of one seed."""
    setup, card = setup_of(folder), card_of(folder)
    if setup.spec.version != card["env_version"]:
        raise TridentError(
            f"zoo:{card['name']} was trained on version {card['env_version']} of {setup.spec.name}, this is version "
            f"{setup.spec.version}"
        )
    data = (folder / NUMBERS).read_bytes()
    if hashlib.sha256(data).hexdigest() != card["parameters"]["sha256"]:
        raise TridentError(f"{folder / NUMBERS} is not what its card was written for: install the package again")
    with np.load(folder / NUMBERS, allow_pickle=False) as file:
        numbers = {name: file[name] for name in file.files}
    paths, tree = jax.tree_util.tree_flatten_with_path(_shapes(setup))
    leaves = []
    for path, shape in paths:
        found = numbers.pop(jax.tree_util.keystr(path), None)
        if found is not None and (found.shape, found.dtype) != (shape.shape, shape.dtype):
            raise TridentError(f"zoo:{card['name']} does not fit today's {setup.algorithm.name}: install it again")
        leaves.append(_blank(shape) if found is None else jnp.asarray(found))
    if numbers:
        raise TridentError(f"zoo:{card['name']} does not fit today's {setup.algorithm.name}: {next(iter(numbers))}")
    return setup, jax.tree.map(lambda x: x[None], jax.tree_util.tree_unflatten(tree, leaves))


def _shapes(setup: Setup) -> AlgoState:
    return jax.eval_shape(setup.algorithm.init, jax.random.key(0))


def _blank(shape: Any) -> Any:
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), shape.shape)
    return jnp.zeros(shape.shape, shape.dtype)


def needed(setup: Setup) -> list[bool]:
    """Which leaves of the learner's state its actions depend on."""
    spec = setup.spec
    agents, modes = spec.num_agents, spec.action.num_modes
    view = jax.eval_shape(
        lambda: View(jnp.zeros((agents, spec.obs_dim)), jnp.ones((agents, modes), bool), jnp.ones(agents, bool))
    )
    shapes, used = _shapes(setup), []
    for deterministic in (True, False):
        act = lambda state, view, key, d=deterministic: setup.algorithm.act(state, view, key, d)[0]  # noqa: E731
        closed = jax.make_jaxpr(act)(shapes, view, jax.eval_shape(lambda: jax.random.key(0)))
        used.append(partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))[1])
    return [a or b for a, b in zip(*used, strict=True)][: len(jax.tree.leaves(shapes))]


def add(folder: Path, setup: Setup, state: AlgoState, row: int, into: Path, name: str, episodes: int) -> Path:
    """Make an entry of a run's `row`-th seed; `state` has a leading axis of seeds."""
    if name.count("/") != 1 or not all(part.replace("-", "").replace("_", "").isalnum() for part in name.split("/")):
        raise TridentError(f"an entry is called ENV/NAME, not {name!r}")
    out = into / name
    if out.exists():
        raise TridentError(f"{out} exists already")
    seed, mine = setup.seeds[row], jax.tree.map(lambda x: x[row], state)
    paths = jax.tree_util.tree_flatten_with_path(mine)[0]
    kept = {jax.tree_util.keystr(p): np.asarray(x) for (p, x), use in zip(paths, needed(setup), strict=True) if use}
    run = read_sealed(folder / RUN, RUN_SCHEMA)
    out.mkdir(parents=True)
    with (out / NUMBERS).open("wb") as file:
        np.savez_compressed(file, **kept)  # pyright: ignore[reportArgumentType]
    data = (out / NUMBERS).read_bytes()
    if len(data) > MOST_BYTES:
        (out / NUMBERS).unlink()
        out.rmdir()
        raise TridentError(f"the policy of {folder} takes {len(data) / 1e6:.1f} MB: the zoo takes up to 1 MB")
    settings = run["settings"] | {"seeds": [seed]}
    write_json(out / RUN, run | {"settings": settings, "identity": run["identity"] | {"seeds": [seed]}})
    card = {
        "name": name,
        "env": run["env"],
        "env_version": run["env_version"],
        "algo": run["algo"],
        "seed": seed,
        "episodes": settings["episodes"],
        "limits": {c.name: c.limit for c in setup.spec.constraints},
        "commit": run["commit"],
        "parameters": {
            "count": int(sum(x.size for x in kept.values())),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        },
        "evaluation": evaluation(setup, mine, row, episodes),
    }
    write_json(out / CARD, card)
    return out


def evaluation(setup: Setup, state: AlgoState, row: int, episodes: int) -> dict[str, Any]:
    """Of one seed's policy: reward and costs per step, each with its 95 % bootstrap interval over episodes."""
    env, backend, algorithm = setup.env, backend_of(setup.env), setup.algorithm
    policy = backend.policy_of(env, algorithm, not algorithm.sampled)(state)
    sums = backend.evaluate(env, policy, evaluation_keys(setup)[row], episodes, setup.settings.shielded, None)
    length = np.asarray(sums["length"], float)
    totals = {"reward": sums["reward"]}
    totals |= {f"cost/{c.name}": sums["cost"][:, k] for k, c in enumerate(setup.spec.constraints)}
    means = {name: [round(x, 6) for x in _per_step(np.asarray(total, float), length)] for name, total in totals.items()}
    return {"episodes": episodes, "sampled": algorithm.sampled, "shielded": setup.settings.shielded, **means}


def _per_step(total: np.ndarray, length: np.ndarray) -> Estimate:
    """Sums of episodes over their lengths: a ratio, whose episodes are resampled together."""
    pairs = np.arange(len(total))
    return bootstrap(
        pairs, lambda drawn, axis: total[drawn.astype(int)].sum(axis) / length[drawn.astype(int)].sum(axis)
    )


def overview() -> list[list[str]]:
    """A row per entry: name, seed, limits, reward, costs, size, commit."""
    rows = []
    for name, folder in entries().items():
        card, run = card_of(folder), read_run(folder)
        measured = card["evaluation"]
        costs = [f"{k} {measured[f'cost/{k}'][0]:.4f} (limit {limit:g})" for k, limit in card["limits"].items()]
        value, low, high = measured["reward"]
        rows.append(
            [
                PREFIX + name, f"{run['env']} {card['env_version']}", f"{value:.3f} [{low:.3f}, {high:.3f}]",
                ", ".join(costs) or "-", f"{card['parameters']['bytes'] / 1000:.0f} kB", str(card["commit"]),
            ]
        )  # fmt: skip
    return rows


def shown(name: str) -> str:
    """A card, to be read."""
    return json.dumps({k: v for k, v in card_of(folder_of(name)).items() if k != "digest"}, indent=1)
