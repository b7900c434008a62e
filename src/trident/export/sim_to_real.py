"""How far limits hold where the world is not as simulated: a run flown in simulators that are wrong by 5, 10 and 20 %
in what the environment says it is uncertain of; and how far limits would have to be tightened for that.

Every number alone, up and down, and all of them together, each in the direction that raises this cost the most. All
fly through the same episodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.api import Run
from trident.envs.randomised import Uncertain, as_thought, uncertain_of
from trident.errors import TridentError
from trident.report.progress import Progress, Silent
from trident.report.specification import trained_to
from trident.report.tables import plain
from trident.run_directory import write_json
from trident.sealed import parse, read_bytes
from trident.simulation.evaluate import evaluate, summarise
from trident.training.backend import backend_of
from trident.training.session import enable_compilation_cache

FILE = "sim_to_real.json"
STREAM = 2**31 + 5
"""Folded into the base key: episodes that nothing else has seen."""
LEVELS = (0.05, 0.1, 0.2)
MEANT = 0.1
"""The level that `tighten` is chosen for."""
STEP, LEAST = 0.05, 0.1
"""`tighten` is a multiple of the one and at least the other: less is not to be had by tightening."""

Errors = dict[str, np.ndarray]


def directions(known: Mapping[str, Uncertain]) -> Iterator[tuple[str, Errors]]:
    """(name, errors of size 1) of every number alone, up and down."""
    for name, uncertain in known.items():
        for unit in np.eye(uncertain.size, dtype=np.float32):
            for sign in (-1.0, 1.0):
                yield name, nothing(known) | {name: np.float32(sign) * unit}


def nothing(known: Mapping[str, Uncertain]) -> Errors:
    return {name: np.zeros(uncertain.size, np.float32) for name, uncertain in known.items()}


def together(alone: list[tuple[str, Errors, np.ndarray]], k: int, known: Mapping[str, Uncertain]) -> Errors:
    """Of every name the direction that raises cost k the most."""
    worst = nothing(known)
    for name in known:
        own = [(cost[k], errors) for other, errors, cost in alone if other == name]
        worst[name] = max(own, key=lambda each: each[0])[1][name]
    return worst


def sim_to_real(
    run: Run, episodes: int, deterministic: bool | None = None, progress: Progress | None = None, write: bool = True
) -> dict[str, Any]:
    """The table as plain data; kept in the run's folder."""
    setup, progress = run.setup, progress or Silent()
    env, spec = as_thought(setup.env), setup.spec
    known = uncertain_of(env)
    if not known or not spec.num_constraints:
        lacks = "does not say what it is uncertain of" if not known else "has no limits"
        raise TridentError(f"{spec.name} {lacks}: there is nothing that --sim-to-real could try")
    enable_compilation_cache()
    deterministic = not setup.algorithm.sampled if deterministic is None else deterministic
    policy_of = backend_of(env).policy_of(env, setup.algorithm, deterministic)
    good = [i for i, seed in enumerate(setup.seeds) if str(seed) not in run.diverged]
    states = jax.tree.map(lambda x: x[np.array(good)], run.state.algo)
    key = jax.random.fold_in(jax.random.key(setup.settings.seed), STREAM)

    @jax.jit
    def fly(errors: Any) -> Any:
        world = env.varied(errors)
        return jax.vmap(lambda state: evaluate(world, policy_of(state), key, episodes, setup.settings.shielded))(states)

    done = 0

    def costs(errors: Errors, level: float) -> tuple[float, np.ndarray]:
        nonlocal done
        progress.doing(f"flying in simulators that are wrong ({done} done)")
        done += 1
        sums = jax.device_get(fly({name: jnp.asarray(level * e, jnp.float32) for name, e in errors.items()}))
        found = summarise(spec, sums)
        return found["reward"], np.array([found[f"cost/{c.name}"] for c in spec.constraints])

    base, rows = costs(nothing(known), 0.0), []
    for level in LEVELS:
        alone = [(name, errors, *costs(errors, level)) for name, errors in directions(known)]
        for name in known:
            own = [(reward, cost) for other, _, reward, cost in alone if other == name]
            rows.append(_row(name, level, own))
        flat = [(name, errors, cost) for name, errors, _, cost in alone]
        rows.append(_row("all", level, [costs(together(flat, k, known), level) for k in range(spec.num_constraints)]))
    found = {
        "episodes": episodes, "seeds": [setup.seeds[i] for i in good], "flown": _flown(deterministic),
        "limits": {c.name: c.limit for c in spec.constraints}, "uncertain": {n: u.help for n, u in known.items()},
        "rows": [{"what": "nothing", "wrong by": 0.0, "reward": base[0], "cost": base[1].tolist()}, *rows],
    }  # fmt: skip
    found |= chosen(found, trained_to(run.info))
    if write:
        write_json(run.out / FILE, found)
    return found


def read(folder: Path) -> dict[str, Any] | None:
    """What was found of a run, if anybody asked."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return parse(read_bytes(path))
    except ValueError as error:
        raise TridentError(f"{path} is damaged: {error}; ask again: trident eval {folder} --sim-to-real") from error


def _flown(deterministic: bool) -> str:
    return "most likely" if deterministic else "sampled"


def _row(what: str, level: float, flights: list[tuple[float, np.ndarray]]) -> dict[str, Any]:
    """The worst of them, cost by cost."""
    reward, cost = min(r for r, _ in flights), np.max([c for _, c in flights], axis=0)
    return {"what": what, "wrong by": level, "reward": reward, "cost": cost.tolist()}


def chosen(found: Mapping[str, Any], trained: float | None) -> dict[str, Any]:
    """`holds to`: the largest error, of all together, up to which all limits hold. `tighten`: the share of its limits a
    learner should be held to, so that they hold where everything is wrong by MEANT; None if no share would do."""
    limits = np.array(list(found["limits"].values()))
    together = {row["wrong by"]: np.array(row["cost"]) for row in found["rows"] if row["what"] in ("nothing", "all")}
    held = 0.0 if (together[0.0] <= limits).all() else None
    for level in sorted(together):
        if held is None or not (together[level] <= limits).all():
            break
        held = level
    return {
        "holds to": held, "meant for": MEANT, "trained to": trained,
        "tighten": tightened(together[0.0], together[MEANT], limits, 1.0 if trained is None else trained),
    }  # fmt: skip


def tightened(here: np.ndarray, there: np.ndarray, limits: np.ndarray, now: float) -> float | None:
    """What a limit leaves when a cost rises by as much as it did, as a share; what is kept already is left alone."""
    if (there <= limits).all():
        return now
    left = (limits - np.maximum(there - here, 0.0)) / np.maximum(limits, 1e-12)
    share = math.floor(min(float(left.min()), now) / STEP + 1e-9) * STEP
    return round(share, 2) if share >= LEAST else None


def table(found: Mapping[str, Any]) -> str:
    header = ["wrong", "by", "reward"] + [f"{name} <= {limit:g}" for name, limit in found["limits"].items()]
    rows = []
    for row in found["rows"]:
        judged = [f"{c:.4g} {'ok' if c <= limit else 'OVER'}"
                  for c, limit in zip(row["cost"], found["limits"].values(), strict=True)]  # fmt: skip
        rows.append([row["what"], f"{100 * row['wrong by']:g} %", f"{row['reward']:.4g}", *judged])
    return plain(header, rows) + "\n\n" + verdict(found)


def verdict(found: Mapping[str, Any]) -> str:
    held, share, meant = found["holds to"], found["tighten"], f"{100 * found['meant for']:g} %"
    first = (
        "The limits do not hold even as simulated." if held is None else
        f"All limits hold up to {100 * held:g} % of all errors together."
    )  # fmt: skip
    if share is None:
        rest = f"Tightening alone does not keep them at {meant}: measure what is wrong, or train with --randomise."
        return f"{first} {rest}"
    kept = found["trained to"] is not None and share == found["trained to"]
    how = "as it was" if kept else f"--algo.tighten {share:g}"
    return f"{first} For {meant}: train to {share:g} of the limits ({how})."
