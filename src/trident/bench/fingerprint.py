"""Fingerprints of training rounds: equal hashes before and after a change mean that the same program is run.

A round is traced at tiny sizes, what only metrics need is dropped, and the rest is hashed by its structure: primitives,
their parameters, constants and who feeds whom. Names of functions, files and metrics do not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import partial_eval

from trident.errors import TridentError
from trident.fields import change, flatten
from trident.simulation.episode_sums import start_sums
from trident.training.backend import JAX, backend_of
from trident.training.loop import program
from trident.training.registry import ALGORITHMS, ENVS, default_config, make_algorithm, make_env, needs_shield

TINY = {
    "envs": 4,
    "steps": 6,
    "hidden": (8,),
    "critic_hidden": (8,),
    "reward_hidden": (8,),
    "cost_hidden": (8,),
    "replay": 96,
    "policy_batch": 16,
    "epochs": 2,
    "minibatches": 2,
    "batch": 8,
    "levels": 3,
    "mixer_embed": 4,
    "mixer_hidden": 4,
    "fisher_batch": 8,
}
"""Sizes that trace fast. Everything else is as the preset has it."""

IGNORED = {"name", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd", "fun", "debug_info", "ctx_mesh"}


def tiny(config: Any) -> Any:
    """A config at tiny sizes."""
    paths = {path: path.rpartition(".")[2] for path in flatten(config)}
    return change(config, {path: TINY[name] for path, name in paths.items() if name in TINY})


def fingerprint(algo: str, env: Any) -> str:
    """Hash of one round of an algorithm by name."""
    algorithm = make_algorithm(algo, env, config=tiny(default_config(algo, env)))
    built = program(env, algorithm, 4, needs_shield(algo))
    state = jax.eval_shape(built.init, jax.random.key(0))

    def learner(state: Any, index: Any) -> Any:  # without the sums that only metrics need
        sums = start_sums(algorithm.plan.envs, env.spec.num_constraints)
        return built.round(state._replace(episodes=sums), index)[0]._replace(episodes=None)

    return digest(learner, state._replace(episodes=None), jnp.int32(0))


def digest(function: Callable, *args: Any) -> str:
    """Hash of a function's program at these shapes, without what does not reach its outputs."""
    closed = jax.make_jaxpr(function)(*args)
    live, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    assert all(used)
    return _hash(live, closed.consts, {})[:16]


def _hash(jaxpr: Any, consts: Any, known: dict[int, tuple[Any, str]]) -> str:
    """A jaxpr's hash. `known` holds those of its parts, which the tracer shares."""
    if id(jaxpr) in known:
        return known[id(jaxpr)][1]
    names: dict[Any, str] = {}
    text = hashlib.sha256()

    def name(var: Any) -> str:
        if isinstance(var, core.Literal):
            return f"{var.val}:{var.aval.str_short()}"
        return names.setdefault(var, f"v{len(names)}")

    for var, value in zip(jaxpr.constvars, consts, strict=True):
        data = np.asarray(jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value)
        names[var] = f"{hashlib.sha256(data.tobytes()).hexdigest()}:{data.dtype}{data.shape}"
    for var in jaxpr.invars:
        text.update(f"{name(var)}:{var.aval.str_short()} ".encode())
    for eqn in jaxpr.eqns:
        inside = {k: _param(v, known) for k, v in sorted(eqn.params.items()) if k not in IGNORED}
        outs = [f"{name(v)}:{v.aval.str_short()}" for v in eqn.outvars]
        text.update(f"{outs}={eqn.primitive.name}{inside}{[name(v) for v in eqn.invars]}\n".encode())
    text.update(str([name(v) for v in jaxpr.outvars]).encode())
    known[id(jaxpr)] = (jaxpr, text.hexdigest())  # the jaxpr too: an id is its own as long as it lives
    return known[id(jaxpr)][1]


def _param(value: Any, known: dict[int, tuple[Any, str]]) -> str:
    if isinstance(value, core.ClosedJaxpr):
        return _hash(value.jaxpr, value.consts, known)
    if isinstance(value, core.Jaxpr):
        return _hash(value, (), known)
    if isinstance(value, tuple | list):
        return str([_param(v, known) for v in value])
    return re.sub(r"0x[0-9a-f]+|<function [^>]*>", "", str(value))


def pairs(envs: tuple[str, ...] = (), algos: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(environment, algorithm) by name, those of simulators outside JAX left out: their rounds are not one program."""
    for env in envs or ENVS:
        if env == "smarts-intersection":
            continue
        made = make_env(env)
        if backend_of(made) is JAX:
            yield from ((env, algo) for algo in algos or (*ALGORITHMS, *made.scripted))


def measure(envs: tuple[str, ...] = (), algos: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """(environment, algorithm, hash), one after another."""
    made: dict[str, Any] = {}
    for env, algo in pairs(envs, algos):
        made = made if env in made else {env: make_env(env)}
        yield env, algo, fingerprint(algo, made[env])
        jax.clear_caches()  # traces of hundreds of programs would fill the memory


def read(path: Path) -> dict[str, dict[str, str]]:
    """Stored hashes, if they were made with the JAX that is here: others trace otherwise."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TridentError(f"no fingerprints in {path}: {error}") from None
    if record["jax"] != jax.__version__:
        raise TridentError(
            f"{path} was made with jax {record['jax']}, this is {jax.__version__}: store anew with --store"
        )
    return record["hashes"]


def write(path: Path, hashes: dict[str, dict[str, str]]) -> None:
    """Stores hashes among those that are there."""
    stored = read(path) if path.exists() else {}
    for env, row in hashes.items():
        stored[env] = stored.get(env, {}) | row
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"jax": jax.__version__, "hashes": stored}, indent=1) + "\n", encoding="utf-8")


def changed(hashes: dict[str, dict[str, str]], stored: dict[str, dict[str, str]]) -> list[str]:
    """Pairs whose hash is not the stored one."""
    return [f"{e} {a}" for e, row in hashes.items() for a, new in row.items() if stored.get(e, {}).get(a) != new]
