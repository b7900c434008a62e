"""The printed complexity terms against XLA's own count of operations, and the printed overheads against timings.

Counts are of the project's functions on `uav-mec` sizes, without running them; an exponent is the slope between the two
largest sizes, where a sum of powers shows its leading one. Wall-clock overheads are read from the record of
`trident bench speed`, which takes the variants in turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import trident
from trident.algos.common.actor import actors_apply, actors_init
from trident.bench.flops import count_flops, fit_growth
from trident.bench.overheads import PRINTED_PHYSICS
from trident.bench.scaling import by_agents
from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.env import UavMec
from trident.maths.discrete_gradient import relaxations
from trident.nets import mlp_apply, mlp_init
from trident.report.stats import Estimate
from trident.types import Env
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.plots import COLOURS, panels, slope_guide

OBS, MODES, PARAMS, INPUT = 78, 3, 3, 400
AGENTS, BATCHES, WIDTHS, COSTS = (4, 8, 16, 32), (64, 128, 256, 512), (128, 256, 512, 1024), (1, 2, 4, 8)
USERS, FOGS = (20, 40, 80, 160, 320), (2, 4, 8, 16, 32)


def measure(seed: int, say: Say) -> Data:
    say("counting operations")
    base = {"N": 4, "B": 256, "H": 256, "K": 2}
    sizes = {"N": AGENTS, "B": BATCHES, "H": WIDTHS, "K": COSTS}
    out: Data = {}
    for part, (count, axes) in PARTS.items():
        out[part] = {axis: _growth(count, base, axis, sizes[axis]) for axis in axes}
    say("counting operations of the physics")
    out["physics"] = {"N": _summary(AGENTS, [physics_flops(by_agents(n)) for n in AGENTS])}
    for axis, points in (("num_uavs", AGENTS), ("num_users", USERS), ("num_fogs", FOGS)):
        out["physics"][axis] = _summary(points, [physics_flops(_scenario(**{axis: p})) for p in points])
    update = critic_flops(**base) + actor_flops(**base)
    out["physics_share"] = 256 * physics_flops(by_agents(4)) / update
    out["overheads"] = _recorded_overheads()
    return out


def _growth(count: Callable[..., float], base: dict[str, int], axis: str, points: Sequence[int]) -> Data:
    return _summary(points, [count(**(base | {axis: p})) for p in points])


def _summary(points: Sequence[int], counts: list[float]) -> Data:
    return {"at": list(points), "flops": counts, "last": fit_growth(points, counts).last}


def _shape(*dims: int) -> Any:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def actor_flops(N: int, B: int, H: int, K: int) -> float:
    """Forward pass of all actors on a batch."""
    actors = jax.eval_shape(lambda: actors_init(jax.random.key(0), N, OBS, (H, H), MODES, PARAMS, -0.7))
    return count_flops(lambda a, o: actors_apply(a, o), actors, _shape(B, N, OBS))


def critic_flops(N: int, B: int, H: int, K: int) -> float:
    """Forward and backward pass of the reward critic, whose inputs are the state and every agent's view and action."""
    size = INPUT + N * (OBS + MODES + PARAMS)
    nets = jax.eval_shape(lambda: mlp_init(jax.random.key(0), [size, H, H, H, 1]))

    def loss(c, x):
        return jnp.mean(mlp_apply(c, x) ** 2)

    return count_flops(jax.grad(loss), nets, _shape(B, size))


def cost_flops(N: int, B: int, H: int, K: int) -> float:
    keys = jax.random.split(jax.random.key(0), K)
    nets = jax.eval_shape(lambda: jax.vmap(lambda k: mlp_init(k, [INPUT, H, H, 1]))(keys))

    def loss(c, x):
        return jnp.mean(jax.vmap(mlp_apply, (0, None))(c, x) ** 2)

    return count_flops(jax.grad(loss), nets, _shape(B, INPUT))


def reference_flops(N: int, B: int, H: int, K: int) -> float:
    """What STGC adds to the policy's side: relaxed one-hots at a second temperature."""
    rows, mask = _shape(B, N, MODES), jnp.ones((1, 1, MODES), bool)

    def of(name):
        return count_flops(lambda l, g: relaxations(name, l, mask, g, 0.1), rows, rows)

    return of("stgc") - of("gs")


def second_critic_flops(N: int, B: int, H: int, K: int) -> float:
    """What STGC adds on the objective's side: every agent's critic evaluation once more."""
    nets = jax.eval_shape(lambda: mlp_init(jax.random.key(0), [INPUT, H, H, H, 1]))
    return N * count_flops(mlp_apply, nets, _shape(B, INPUT))


def _scenario(num_uavs: int = 4, num_users: int = 20, num_fogs: int = 2) -> Env:
    """One number at a time; the others as in the paper."""
    return UavMec(UavMecConfig(num_uavs=num_uavs, num_users=num_users, num_fogs=num_fogs, num_hotspots=4))


def physics_flops(env: Env) -> float:
    _, last = jax.eval_shape(env.reset, jax.random.key(0))
    assert env.physics is not None
    action = jax.eval_shape(env.physics.nominal, last.state)
    return count_flops(env.physics.signals, last.state, action)


PARTS: dict[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    "actors": (actor_flops, ("N", "B", "H")),
    "critic": (critic_flops, ("N", "B", "H")),
    "cost critics": (cost_flops, ("K", "B", "H")),
    "second temperature": (reference_flops, ("N", "B", "H")),
    "second critic evaluation": (second_critic_flops, ("N", "B", "H")),
}
"""name -> (operations at (N, B, H, K), the sizes whose exponent is wanted)"""


def _recorded_overheads() -> Data | None:
    for base in (Path(), Path(trident.__file__).resolve().parents[2]):
        path = base / "benchmarks" / "speed" / "record.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8")).get("overheads")
    return None


# --- judging --------------------------------------------------------------------------------------


def _last(data: Data, part: str, axis: str) -> Estimate:
    return exact(data[part][axis]["last"])


def _judge_terms(data: Data) -> Evidence:
    linear = [("actors", "N"), ("actors", "B"), ("critic", "B"), ("cost critics", "K"), ("cost critics", "B")]
    checks = [Check(f"{part}: {axis}", _last(data, part, axis), 0.9, 1.1) for part, axis in linear]
    widths = [
        Check(f"{part}: width", _last(data, part, "H"), 1.6, 2.1) for part in ("actors", "critic", "cost critics")
    ]
    return Evidence((*checks, *widths))


def _judge_critic(data: Data) -> Evidence:
    found = _last(data, "critic", "N")
    return Evidence((Check("critic: N", found, -0.1, 0.1),), (Check("critic: N", found, 0.1, 1.0),))


def _judge_physics(data: Data) -> Evidence:
    def alone(label, axis, low, high):
        return Check(f"of {label} alone", _last(data, "physics", axis), low, high)

    shared = (
        Check("exponent of N, users in proportion", _last(data, "physics", "N"), 1.7, 2.3),
        alone("N", "num_uavs", 0.8, 1.2),
        alone("N_UE", "num_users", 0.8, 1.2),
        Check("share of actors and critic", exact(data["physics_share"]), 0.0, 0.02),
    )
    return Evidence((*shared, alone("N_fog", "num_fogs", 0.8, 1.2)), (*shared, alone("N_fog", "num_fogs", 0.0, 1.0)))


def _judge_reference(data: Data) -> Evidence:
    return Evidence(
        (Check("second temperature: width", _last(data, "second temperature", "H"), 0.9, 1.1),),
        (
            Check("second temperature: width", _last(data, "second temperature", "H"), -0.1, 0.1),
            Check("second critic evaluation: width", _last(data, "second critic evaluation", "H"), 1.6, 2.1),
            Check("second critic evaluation: N", _last(data, "second critic evaluation", "N"), 0.9, 1.1),
        ),
    )


def _judge_overheads(data: Data) -> Evidence:
    of = {k: exact(v["of_round"]) for k, v in (data["overheads"] or {"overhead": {}})["overhead"].items()}
    if PRINTED_PHYSICS not in of:
        return Evidence((), (), "no record of `trident bench speed --only overheads` yet")
    return Evidence(
        (
            Check("STGC, share of a round", of["stgc over gs"], -0.05, 0.18),
            Check("printed physics beside printed networks, share of a round", of[PRINTED_PHYSICS], -0.05, 0.02),
        )
    )


def draw(data: Data, path: Path) -> None:
    def panel(axis: str, label: str) -> Any:
        def one(ax: Any) -> None:
            shown = [p for p in data if isinstance(data[p], dict) and axis in data[p] and "flops" in data[p][axis]]
            for part in shown:
                colour = COLOURS[list(data).index(part)]
                rows = data[part][axis]
                ax.loglog(rows["at"], rows["flops"], "o-", ms=4, color=colour, label=f"{part}: {rows['last']:.2f}")
            slope_guide(ax, np.array(data["actors"][axis]["at"]), 1.0, 3e11)
            ax.set(title=f"operations against {label}", xlabel=label)
            ax.set_xticks(data["actors"][axis]["at"], [str(s) for s in data["actors"][axis]["at"]])
            ax.minorticks_off()
            ax.legend(fontsize=7.5, loc="center", bbox_to_anchor=(0.62, 0.34))

        return one

    draws = [panel("N", "agents"), panel("B", "batch"), panel("H", "width")]
    panels(path, "Operations by XLA's count; the number is the exponent", draws)


CLAIMS = (
    Claim("complexity", "appendix G (i)-(iii)", "actors N B H^2, critic B H^2, cost critics K B H^2", _judge_terms),
    Claim(
        "complexity-critic",
        "appendix G (ii)",
        "the critic's cost does not grow with the number of agents",
        _judge_critic,
        "its first layer reads every agent: between constant and linear",
    ),
    Claim(
        "complexity-physics",
        "appendix G (iv)",
        "the closed form costs N N_UE N_fog, which is negligible",
        _judge_physics,
        "N N_UE, and less than in proportion to N_fog; negligible",
    ),
    Claim(
        "complexity-stgc",
        "appendix G (v)",
        "STGC's second temperature costs N B H",
        _judge_reference,
        "the relaxation costs N B M; the second critic evaluation that a correct form needs costs N B H^2",
    ),
    Claim("overheads", "appendix G", "STGC adds about 18 % of wall-clock time, physics about 2 %", _judge_overheads),
)

EXPERIMENT = Experiment("complexity", "operations against sizes, and overheads", measure, CLAIMS, draw)
