"""`trident fit-physics`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from trident.allowed import Name, Names, Range, Seed
from trident.cli.options import parse
from trident.closed_form.constants import Constant, Fit, Seen, fit_constants
from trident.envs.random_policy import choose
from trident.errors import TridentError
from trident.fields import check_name
from trident.report.tables import plain
from trident.simulation.episode import Episode
from trident.training.backend import backend_of
from trident.training.registry import make_env
from trident.training.settings import EnvArgs
from trident.types import AnyEnv, EnvSpec, HostEnv, HybridAction

TEXT = """\
Estimate constants of a closed form from episodes; say what it leaves open.

The environment has `constants`, a dict, and `physics_of(constants)`.

Examples:
  trident fit-physics my_pkg.carts:Carts
  trident fit-physics my_pkg.carts:Carts --constants drag mass --episodes 100
  trident fit-physics my_pkg.carts:Carts --policy nominal
"""
MOST_SHOWN = 12


@dataclass(frozen=True)
class FitPhysicsOptions:
    env: tyro.conf.Positional[Annotated[Name, tyro.conf.arg(metavar="ENV")]]
    """Environment, or where to import one from."""
    constants: Annotated[Names, tyro.conf.arg(metavar="NAME ...")] = ()
    """Those to estimate; the others keep their values. All of them if left out."""
    episodes: Annotated[int, Range(2, 10**5)] = 32
    """Episodes to learn from."""
    steps: Annotated[int, Range(1, 10**6)] | None = None
    """Steps of each at most; whole episodes if left out."""
    policy: Name = "random"
    """Who acts: a scripted policy, or random."""
    env_arg: EnvArgs = field(default_factory=dict)
    """What an imported environment is called with."""
    seed: Seed = 0
    """Which episodes."""


def fit_physics(argv: list[str]) -> int:
    options = parse(FitPhysicsOptions, argv, "fit-physics", TEXT)
    env: Any = make_env(options.env, options.env_arg)
    if not (isinstance(getattr(env, "constants", None), dict) and callable(getattr(env, "physics_of", None))):
        raise TridentError(
            f"{options.env} has no constants to fit: give it `constants`, a dict of names and values, and "
            "`physics_of(constants)`, which returns its Physics with them"
        )
    for name in options.constants:
        check_name("constant", name, env.constants, options.env)
    names = options.constants or tuple(env.constants)
    kept = {k: v for k, v in env.constants.items() if k not in names}
    episodes = play(env, options.policy, options.episodes, options.steps, options.seed)
    start = {name: float(env.constants[name]) for name in names}
    signals = ["reward", *(f"cost {c.name}" for c in env.spec.constraints)]
    fit = fit_constants(lambda fitted: env.physics_of(kept | dict(fitted)), start, seen_in(episodes), signals)
    print(told(fit, start, len(episodes)))
    return 0


def play(env: AnyEnv, policy: str, episodes: int, steps: int | None, seed: int) -> list[Episode]:
    backend = backend_of(env)
    check_name("scripted policy", policy, ["random", *env.scripted], env.spec.name)
    acting = _random(env) if policy == "random" and policy not in env.scripted else backend.scripted(env, policy)
    return backend.play_many(env, acting, jax.random.split(jax.random.key(seed), episodes), steps, False)


def _random(env: AnyEnv) -> Any:
    spec: EnvSpec = env.spec

    def draw(key: Any, mode_mask: Any) -> HybridAction:
        of_mode, of_unit = jax.random.split(key)
        agents, modes, params = spec.action.low.shape
        lots = jax.random.uniform(of_mode, (agents, modes))
        return choose(spec.action, mode_mask, lots, jax.random.uniform(of_unit, (agents, params), minval=-1.0))

    if isinstance(env, HostEnv):
        several = jax.jit(jax.vmap(draw))
        return lambda keys, envs, last: (jax.device_get(several(keys, last.mode_mask)), {})
    return lambda key, state, last: (draw(key, last.mode_mask), {})


def seen_in(episodes: list[Episode]) -> Seen:
    """Every step, the last of an episode too: where it led to was observed."""
    rows = []
    for number, e in enumerate(episodes):
        before = np.concatenate([np.asarray(e.first.state)[None], np.asarray(e.steps.state)[:-1]])
        signals = np.concatenate([np.asarray(e.steps.reward)[:, None], np.asarray(e.steps.cost)], axis=1)
        rows.append(Seen(before, e.action, e.steps.state, signals, np.full(len(before), number)))
    return jax.tree.map(lambda *parts: np.concatenate([np.asarray(p) for p in parts]), *rows)


def told(fit: Fit, start: dict[str, float], episodes: int) -> str:
    head = ["constant", "began with", "estimate", "95 % interval"]
    lines = [[c.name, f"{start[c.name]:g}", *_interval(c)] for c in fit.constants]
    parts = [plain(head, lines), ""]
    worst = sorted(fit.unexplained, key=lambda name: -fit.unexplained[name])
    first = [name for name in fit.unexplained if not name.startswith("state ")]
    shown = [*first, *[name for name in worst if name not in first][:MOST_SHOWN]]
    rows = [[name, f"{fit.before[name]:.3g}", f"{fit.unexplained[name]:.3g}"] for name in shown]
    parts.append(plain(["unexplained share of the variance", "before", "now"], rows))
    rest = len(fit.unexplained) - len(shown)
    best = f"; {rest} more numbers of the state are explained better" if rest > 0 else ""
    parts.append(f"\nfrom {fit.rows:,} steps of {episodes} episodes; of a state what changes in a step{best}")
    return "\n".join(parts)


def _interval(c: Constant) -> list[str]:
    if not math.isfinite(c.error):
        return ["-", "these episodes do not tell"]
    return [f"{c.value:.5g}", f"[{c.value - c.error:.5g}, {c.value + c.error:.5g}]"]
