"""One agent's constrained update against the same update written plainly in PyTorch.

The problem is the same to the last number: network, observations, hybrid distribution, advantages, budgets and
line-search rule. JAX solves it in three ways (WAYS): by ten conjugate-gradient steps with the Fisher matrix of every
state, as PyTorch does; by two preconditioned steps with the same matrix; and by two with that of a few states, as
TRIDENT does (gradients, KL and surrogates are always those of every state). How far each ends from the exact solution
of the first system is measured too. PyTorch is no dependency: it runs in a process of its own
(benchmarks/speed/torch_update.py), under this interpreter or the one named by TRIDENT_TORCH_PYTHON, and takes turns
with JAX. Both may use every core of the machine. The stages of the second way are timed apart as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from trident.algos.common.actor import actor_apply, actor_by_parts, actor_init
from trident.algos.common.kfac import Seen, kronecker_inverse
from trident.algos.trident.config import TridentConfig
from trident.bench.env_speed import from_checkout
from trident.bench.timing import compile_, interleave, usable_cores
from trident.errors import TridentError
from trident.maths import hybrid
from trident.maths.constrained_qp import constrained_step, joint_clip, single_clip
from trident.maths.fisher import conjugate_gradient, fisher_product
from trident.maths.trust_region import UpdateRule, constrained_update

TORCH_WAYS = ("public", "kept-graph")
"""How PyTorch takes its second derivatives; see benchmarks/speed/torch_update.py."""


class Way(NamedTuple):
    """How the natural gradients are found."""

    few: bool = False
    """Fisher matrix of a few states instead of all."""
    preconditioned: bool = False
    cg_steps: int = UpdateRule(0.0).cg_steps


TRIDENTS = TridentConfig().step
WAYS = {
    "jax": Way(),
    "jax preconditioned": Way(preconditioned=True, cg_steps=TRIDENTS.cg_steps),
    "jax few": Way(True, TRIDENTS.precondition, TRIDENTS.cg_steps),
}
"""The same steps as PyTorch; as near to the solution, or nearer, in fewer; and as TRIDENT does by default."""


@dataclass(frozen=True)
class UpdateSize:
    hidden: tuple[int, ...] = (256, 256)
    batch: int = 3200
    fisher: int = TRIDENTS.fisher_batch
    """States of the Fisher matrix where not all are asked."""
    obs_dim: int = 78
    modes: int = 3
    params: int = 3


class Problem(NamedTuple):
    actor: Any
    obs: Any  # [B, O]
    mode: Any  # [B]
    raw: Any  # [B, P]
    advantage: Any  # [B, J]
    used: Any  # [M, P]
    budget: Any  # [K]


RULE = UpdateRule(delta=0.01)


def make_problem(size: UpdateSize) -> Problem:
    """Two constraints: one with a little room, one whose cost must fall; both costs rise with the reward, so both bind.
    Advantages depend on what can be learned."""
    actor_key, obs_key, act_key, noise_key = jax.random.split(jax.random.key(0), 4)
    actor = actor_init(actor_key, size.obs_dim, size.hidden, size.modes, size.params, -0.5)
    obs = jax.random.normal(obs_key, (size.batch, size.obs_dim))
    used = jnp.ones((size.modes, size.params), bool).at[0, -1].set(False)
    mask = jnp.ones((size.batch, size.modes), bool)
    mode, raw = hybrid.sample(act_key, actor_apply(actor, obs), mask, used)
    waves = jnp.stack([jnp.sin(obs[:, j]) * raw[:, j % size.params] + (mode == j) for j in range(3)], -1)
    waves = waves.at[:, 1:].add(0.7 * waves[:, :1])
    advantage = waves - waves.mean(0) + 0.3 * jax.random.normal(noise_key, waves.shape)
    return Problem(actor, obs, mode, raw, advantage, used, jnp.array([0.02, -0.005]))


class Pieces(NamedTuple):
    """What an update is made of, at one theta. The Fisher matrix is that of the first few states."""

    mask: Any
    weight: Any
    dist: Callable[[Any], hybrid.HybridDist]
    surrogates: Callable[[Any], Any]
    product: Callable[[Any], Any]
    precondition: Callable[[Any], Any]


def take_apart(problem: Problem, way: Way, few: int) -> tuple[Callable[[Any, Problem], Pieces], Any]:
    """(theta, problem) -> pieces, and theta."""
    theta, unravel = ravel_pytree(problem.actor)

    def pieces(theta: Any, p: Problem) -> Pieces:
        mask, count = jnp.ones((p.obs.shape[0], p.used.shape[0]), bool), p.obs.shape[0]

        def dist(t):
            return actor_apply(unravel(t), p.obs)

        def log_prob(t):
            return hybrid.log_prob(dist(t), mask, p.used, p.mode, p.raw)

        weight, old = jnp.full(count, 1.0 / count), log_prob(theta)

        def surrogates(t: Any) -> Any:
            return weight @ (jnp.expm1(log_prob(t) - old)[:, None] * p.advantage)

        rows = min(few, count) if way.few else count
        seen = Seen(p.obs[:rows], mask[:rows], None, jnp.full(rows, 1.0 / rows))
        product = fisher_product(
            lambda t: actor_by_parts(unravel(t), seen.obs), theta, seen.mode_mask, p.used, seen.weight
        )
        if not way.preconditioned:
            return Pieces(mask, weight, dist, surrogates, product, lambda v: v)
        inverse = kronecker_inverse(jax.random.key(0), unravel(theta), seen, p.used, RULE.damping)
        return Pieces(mask, weight, dist, surrogates, product, lambda v: ravel_pytree(inverse(unravel(v)))[0])

    return pieces, theta


def gradients_of(pieces: Callable[[Any, Problem], Pieces]) -> Callable[[Any, Problem], Any]:
    """(theta, problem) -> the surrogates' gradients, one after another: faster than all at once."""

    def action_grads(theta: Any, p: Problem) -> Any:
        value, pull = jax.vjp(pieces(theta, p).surrogates, theta)
        return jax.lax.map(lambda one: pull(one)[0], jnp.eye(len(value)))

    return action_grads


def jax_update(problem: Problem, way: Way, few: int) -> tuple[Callable[..., Any], Any]:
    """(theta, problem) -> (theta', info), and theta. The gradients of the surrogates are part of the update."""
    pieces, theta = take_apart(problem, way, few)
    action_grads = gradients_of(pieces)
    rule = RULE._replace(cg_steps=way.cg_steps)

    def update(theta: Any, p: Problem) -> Any:
        of, gradients = pieces(theta, p), action_grads(theta, p)
        return constrained_update(
            rule,
            theta,
            gradients,
            of.surrogates,
            of.product,
            of.dist,
            of.mask,
            p.used,
            of.weight,
            p.budget,
            of.precondition,
        )

    return update, theta


def jax_parts(problem: Problem, way: Way, few: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The stages of that update as programs of their own: name -> (function, arguments)."""
    pieces, theta = take_apart(problem, way, few)
    gradients = gradients_of(pieces)

    def solve(theta: Any, p: Problem, g: Any) -> Any:
        of = pieces(theta, p)
        return conjugate_gradient(of.product, g, way.cg_steps, RULE.damping, of.precondition)

    def step(gram: Any, budget: Any) -> Any:
        asked = single_clip(gram[1:, 1:], budget, RULE.delta, RULE.margin)
        return constrained_step(gram, joint_clip(gram[1:, 1:], asked, RULE.delta, RULE.margin)[1], RULE.delta).weights

    def trial(theta: Any, p: Problem, new: Any) -> Any:
        of = pieces(theta, p)
        kl = jnp.sum(of.weight * hybrid.kl(of.dist(theta), of.dist(new), of.mask, p.used))
        return of.surrogates(new), kl

    g = jax.jit(gradients)(theta, problem)
    natural = jax.jit(solve)(theta, problem, g)
    new = theta + 0.01 * natural[0]
    return {
        "gradients of reward and costs": (gradients, (theta, problem)),
        SOLVE: (solve, (theta, problem, g)),
        "constrained step": (step, (g @ natural.T, problem.budget)),
        "one trial of the line search": (trial, (theta, problem, new)),
    }


def solution_errors(problem: Problem, few: int) -> dict[str, float]:
    """How far every way's natural gradients are from the exact ones of every state's Fisher matrix H, in H's own norm
    and as a share of theirs: |x - x*| / |x*|, the worst of reward and costs."""
    exact = Way(preconditioned=True, cg_steps=200)
    naturals = {}
    for name, way in (WAYS | {"exact": exact}).items():
        solve, arguments = jax_parts(problem, way, few)[SOLVE]
        naturals[name] = jax.jit(solve)(*arguments)
    pieces, theta = take_apart(problem, exact, few)
    square = jax.jit(jax.vmap(lambda v: v @ (pieces(theta, problem).product(v) + RULE.damping * v)))
    star = naturals.pop("exact")
    return {name: float(jnp.max(jnp.sqrt(square(x - star) / square(star)))) for name, x in naturals.items()}


SOLVE = "conjugate gradients"


def measure_update(size: UpdateSize, repeats: int) -> dict[str, Any]:
    problem = make_problem(size)
    calls: dict[str, Callable[[], Any]] = {}
    results: dict[str, Any] = {}
    for name, way in WAYS.items():
        update, theta = jax_update(problem, way, size.fisher)
        compiled = compile_(update, theta, problem).call
        calls[name] = lambda compiled=compiled, theta=theta: compiled(theta, problem)
        results[name] = _outcome(compiled(theta, problem)[1])
    for name, error in solution_errors(problem, size.fisher).items():
        results[name]["error"] = error
    apart = jax_parts(problem, WAYS["jax preconditioned"], size.fisher)
    stages = {name: (compile_(f, *args).call, args) for name, (f, args) in apart.items()}
    parts = {name: lambda call=call, args=args: call(*args) for name, (call, args) in stages.items()}
    out = {
        "size": size.__dict__ | {"constraints": len(problem.budget)},
        "cg_steps": {name: way.cg_steps for name, way in WAYS.items()},
        "threads": usable_cores(),
        "missing": None,
    }
    try:
        with TorchWorker(problem) as worker:
            torch = {f"torch {way}": lambda way=way: worker.update(way) for way in TORCH_WAYS}
            seconds = interleave(calls | parts | torch, repeats)
            seconds |= {f"torch {way}": worker.best[way] for way in TORCH_WAYS}
            results |= {f"torch {way}": worker.results[way] for way in TORCH_WAYS}
            out["torch"] = worker.version
    except TridentError as error:
        out["missing"] = str(error)
        seconds = interleave(calls | parts, repeats)
    faster = {
        way: {name: seconds[f"torch {way}"] / seconds[name] for name in calls}
        for way in TORCH_WAYS
        if f"torch {way}" in seconds
    }
    out["parts"] = {name: seconds.pop(name) for name in parts}
    return out | {"results": results, "seconds": seconds, "jax_faster_by": faster}


def _outcome(info: Any) -> dict[str, Any]:
    trials = 1 + round(float(jnp.log(info.fraction) / np.log(RULE.ratio))) if info.fraction > 0 else RULE.backtracks
    return {"kl": float(info.kl), "change": np.asarray(info.change).tolist(), "evaluations": trials}


class TorchWorker:
    """The PyTorch process: one word in, one update, one line out. It takes its own times, without the pipe."""

    def __init__(self, problem: Problem) -> None:
        script = from_checkout("benchmarks/speed/torch_update.py")
        python = os.environ.get("TRIDENT_TORCH_PYTHON", sys.executable)
        self.version = _torch_version(python)
        self.best: dict[str, float] = dict.fromkeys(TORCH_WAYS, float("inf"))
        self.results: dict[str, Any] = {}
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "problem.npz"
        np.savez(path, **plain_problem(problem))  # pyright: ignore[reportArgumentType]
        threads = str(usable_cores())
        self._process = subprocess.Popen(
            [python, str(script), str(path), threads],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": threads},
        )

    def update(self, way: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(way + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise TridentError("the PyTorch process ended early; its own message is above")
        answer = json.loads(line)
        self.best[way] = min(self.best[way], answer.pop("seconds"))
        self.results[way] = answer

    def __enter__(self) -> TorchWorker:
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._folder.cleanup()


def plain_problem(problem: Problem) -> dict[str, np.ndarray]:
    """The problem as named arrays."""
    layers = problem.actor["trunk"]
    arrays = {f"{name}{i}": x for i, layer in enumerate(layers) for name, x in layer.items()}
    arrays |= {"layers": len(layers), "log_std": problem.actor["log_std"]}
    arrays |= {k: v for k, v in problem._asdict().items() if k != "actor"}
    rule = ("delta", "damping", "ratio", "slack", "cg_steps", "backtracks")
    return {k: np.asarray(v) for k, v in (arrays | {name: getattr(RULE, name) for name in rule}).items()}


def _torch_version(python: str) -> str:
    try:
        asked = [python, "-c", "import torch; print(torch.__version__)"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        raise TridentError("install torch to compare, or name a Python that has it in TRIDENT_TORCH_PYTHON") from None
