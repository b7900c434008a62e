"""Table 3: fleets of 4, 8, 16, 32 UAVs and more. What a fleet earns, what it violates, and what a round costs; and what
becomes of a policy that was trained with four.

Agents of a kind share one actor, so that four agents' actor can fly any number of them (`bench.transfer`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from trident.bench.flops import count_flops
from trident.bench.paper import Campaign
from trident.launch.job import Job
from trident.report.paper_table import Trained, load
from trident.report.records import plain as plain_json
from trident.report.stats import Estimate, bootstrap, growth
from trident.report.tables import markdown, plain
from trident.run_directory import CHECKPOINTS, write_text
from trident.training.loop import program
from trident.training.settings import Settings, make_setup

SIZES = (4, 8, 16, 32)
"""The paper's."""
METHODS = ("maddpg", "facmac", "mappo-lag", "macpo", "madac", "trident-scratch", "trident")
PAPER = {
    "maddpg": ((-1.35, -1.62, -2.08, -3.41), (31, 74, 186, 453)),
    "facmac": ((-1.27, -1.43, -1.71, -2.34), (25, 52, 118, 272)),
    "macpo": ((-1.40, -1.51, -1.78, -2.21), (5.9, 11.4, 24.7, 58.3)),
    "madac": ((-1.37, -1.46, -1.69, -2.05), (6.3, 12.1, 26.4, 61.7)),
    "trident": ((-1.17, -1.21, -1.28, -1.42), (1.4, 2.7, 5.9, 12.4)),
}
"""method -> (reward per agent, total violations) at SIZES"""
TABLE3 = Campaign(envs=("uav-mec", "uav-mec-n8", "uav-mec-n16", "uav-mec-n32"), methods=METHODS, columns=("reward",))


def env_of(agents: int) -> str:
    return "uav-mec" if agents == 4 else f"uav-mec-n{agents}"


class Point(NamedTuple):
    """One method with one number of agents; a number per seed, but for the costs of a round."""

    reward: list[float]
    """Per agent and step."""
    violations: list[float]
    """As the paper counts: E.V. % + C.V. %, times N / 4."""
    seconds: float
    """Wall-clock of a round, per seed."""
    flops: float
    """Operations of a round, per seed."""


Points = dict[str, dict[int, Point]]
QUANTITIES: dict[str, Callable[[Point], list[float]]] = {
    "reward per agent": lambda p: p.reward,
    "total violations": lambda p: p.violations,
    "seconds per round": lambda p: [p.seconds],
    "operations per round": lambda p: [p.flops],
}


def point_of(run: Trained, agents: int, flops: float) -> Point:
    reward = [r / agents for r in run.values("reward")]
    violations = [100.0 * v * agents / 4.0 for v in run.values("total")]
    records, seeds = run.records, len(run.result["seeds"]) + len(run.result["diverged"])
    spent = np.diff([r["seconds"] for r in records])
    seconds = float(np.median(spent)) / seeds if len(spent) else float("nan")
    return Point(reward, violations, seconds, flops)


def points_of(jobs: Sequence[Job], out: Path, say: Callable[[str], None]) -> Points:
    """Of finished runs. Operations are counted once, and kept in operations.json."""
    path = out / "operations.json"
    known: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    points: Points = {}
    for job in jobs:
        agents, key = agents_of(job.env), f"{job.env} {job.method}"
        if key not in known:
            say(f"counting the operations of a round of {key}")
            known[key] = round_flops(job.env, job.algo)
            write_text(path, json.dumps(known, indent=1) + "\n")
        points.setdefault(job.method, {})[agents] = point_of(load([job.folder])[0], agents, known[key])
    return points


def agents_of(env: str) -> int:
    return 4 if env == "uav-mec" else int(env.removeprefix("uav-mec-n"))


def round_flops(env: str, algo: str) -> float:
    """Of one seed's whole round, rollout and update, as traced (`bench.flops`); line searches count as one trial."""
    setup = make_setup(env, algo, Settings(episodes=2000, seeds=1))
    made = program(setup.env, setup.algorithm, setup.rounds, setup.settings.shielded)  # pyright: ignore[reportArgumentType]
    state = jax.eval_shape(made.init, jax.random.key(0))
    return count_flops(made.round, state, jax.ShapeDtypeStruct((), np.int32))


def exponent(points: dict[int, Point], quantity: str) -> Estimate:
    """Of N, over all sizes that are there."""
    groups = [QUANTITIES[quantity](points[n]) for n in sorted(points)]
    if len(groups) < 2:
        return Estimate(np.nan, np.nan, np.nan)
    return growth(sorted(points), groups)


def size_table(points: Points, quantity: str, sizes: Sequence[int], style: str = "markdown") -> str:
    """Methods x sizes of one quantity, the paper's numbers in brackets, and the fitted exponent of N."""
    header = [quantity, *(f"N = {n}" for n in sizes), "exponent of N"]
    printed = {"reward per agent": 0, "total violations": 1}.get(quantity)
    rows = []
    for method, of_size in points.items():
        cells = []
        for n in sizes:
            theirs = (
                PAPER[method][printed][SIZES.index(n)]
                if printed is not None and method in PAPER and n in SIZES
                else None
            )
            cells.append(_cell(of_size.get(n), quantity) + (f" ({theirs:g})" if theirs is not None else ""))
        e = exponent(of_size, quantity)
        theirs = paper_exponent(method, printed) if printed is not None and method in PAPER else None
        text = "-" if e.value != e.value else _number(e.value) + _bounds(e)
        rows.append([method, *cells, text + (f" ({theirs:.2f})" if theirs is not None else "")])
    return (markdown if style == "markdown" else plain)(header, rows)


def paper_exponent(method: str, column: int) -> float:
    return growth(SIZES, [[abs(x)] for x in PAPER[method][column]]).value


def transfer_table(
    points: Points, carried: dict[str, dict[str, Any]], sizes: Sequence[int], style: str = "markdown"
) -> str:
    """Trained with four agents and flown with more, beside what was trained there; reward per agent and violations."""
    header = ["method", *(f"{what}, N = {n}" for n in sizes for what in ("reward per agent", "total violations"))]
    rows = []
    for method, of_size in carried.items():
        cells, beside = [], []
        for n in sizes:
            seeds = of_size.get(str(n), [])
            cells += [_show([s["reward"] / n for s in seeds]), _show([_violations(s, n) for s in seeds])]
            there = points.get(method, {}).get(n)
            beside += ["-", "-"] if there is None else [_show(there.reward), _show(there.violations)]
        rows += [[f"{method}, trained with 4", *cells], [f"{method}, trained there", *beside]]
    return (markdown if style == "markdown" else plain)(header, rows)


def _violations(seed: dict[str, float], agents: int) -> float:
    return 100.0 * (seed["metric/ev"] + seed["metric/cv"]) * agents / 4.0


def transfers(
    jobs: Sequence[Job], sizes: Sequence[int], episodes: int, out: Path, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """method -> size -> evaluations, one per seed, of what was trained with four; kept in transfer.json. A run without
    a checkpoint cannot be carried anywhere."""
    from trident.bench.transfer import carry

    path = out / "transfer.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for job in (job for job in jobs if job.env == "uav-mec"):
        run = load([job.folder])[0]
        mark = f"{run.run['commit']} {run.budget} {episodes} episodes"
        if known.get(job.method, {}).get("of") != mark:
            known.pop(job.method, None)
        if not (job.folder / CHECKPOINTS).is_dir():
            if job.method not in known:
                say(f"{job.method}: no checkpoint of N = 4 (--keep), so nothing to carry to other sizes")
            continue
        mine = known.setdefault(job.method, {"of": mark})
        for n in (n for n in sizes if n != 4 and str(n) not in mine):
            say(f"flying {n} UAVs by {job.method} of four")
            mine[str(n)] = carry(job.folder, env_of(n), episodes)
            write_text(path, json.dumps(plain_json(known), indent=1) + "\n")
    return known


def _cell(point: Point | None, quantity: str) -> str:
    return "-" if point is None else _show(QUANTITIES[quantity](point))


def _show(values: Sequence[float]) -> str:
    e = bootstrap(values)
    return "-" if e.value != e.value else _number(e.value) + (_bounds(e) if len(values) > 1 else "")


def _bounds(e: Estimate) -> str:
    return "" if e.low == e.high else f" [{_number(e.low)}, {_number(e.high)}]"


def _number(value: float) -> str:
    return f"{value:.2e}" if abs(value) >= 1e5 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
