"""Table 5: TRIDENT's settings one at a time at low, mid, default and high, and a tenth to either side of the default.

The paper names four settings and prints no values: here low, mid and high are a quarter, half and twice the default.
Learning is from scratch, as the paper's is: around a base policy little is left that a setting could change. tau_0 is
asked of a learner that has temperatures (STGC): three modes are otherwise summed exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trident.bench.table_runner import check_job
from trident.fields import check_name, flatten
from trident.launch.job import Job
from trident.report.paper_table import Trained, load
from trident.report.stats import Estimate, bootstrap, relative_change
from trident.report.tables import markdown, plain
from trident.training.registry import default_config, make_env

ENV = "uav-mec"
LEVELS = {"low": 0.25, "mid": 0.5, "default": 1.0, "high": 2.0}
TENTHS = {"-10 %": 0.9, "+10 %": 1.1}
CLAIM = 0.05
"""The paper: within a tenth of every default the reward varies by less."""


class Knob(NamedTuple):
    algo: str
    fields: tuple[str, ...]
    """Settings that move together; none: the weight of energy in the closed form, which is the environment's."""
    what: str


KNOBS = {
    "delta_TR": Knob("trident-scratch", ("step.trust_region",), "trust region"),
    "alpha_k": Knob("trident-scratch", ("safety.alpha", "safety.alpha_back"), "Lyapunov decay"),
    "tau_0": Knob("trident-stgc", ("actor.tau_start",), "first and reference temperature"),
    "omega_1:omega_2": Knob("trident-scratch", (), "delay to energy in Q_phys"),
}
PAPER = {
    "delta_TR": {"low": (-4.81, 1.6), "mid": (-4.74, 1.5), "default": (-4.68, 1.4), "high": (-4.92, 2.4)},
    "alpha_k": {"low": (-4.79, 1.9), "mid": (-4.68, 1.4), "default": (-4.71, 1.6), "high": (-4.83, 1.7)},
    "tau_0": {"low": (-4.86, 1.5), "mid": (-4.68, 1.4), "default": (-4.74, 1.5), "high": (-5.01, 2.3)},
    "omega_1:omega_2": {"low": (-4.97, 2.5), "mid": (-4.78, 1.7), "default": (-4.68, 1.4), "high": (-4.81, 1.6)},
}
"""(reward, total violations in percent)"""

Runs = dict[str, dict[str, Trained]]
"""knob -> level -> run"""


def plan(knobs: Sequence[str], out: Path, episodes: int, seeds: int) -> dict[str, dict[str, Job]]:
    """knob -> level -> run; knobs of one learner share the run of its defaults."""
    env, defaults = make_env(ENV), {}
    jobs: dict[str, dict[str, Job]] = {}
    for name in knobs:
        check_name("setting", name, KNOBS, "table5")
        knob = KNOBS[name]
        usual = flatten(default_config(knob.algo, env))
        for level, factor in (LEVELS | TENTHS).items():
            if factor == 1.0:
                job = defaults.setdefault(knob.algo, Job(ENV, knob.algo, out / knob.algo, episodes, seeds))
            else:
                label = f"{name.partition(':')[0]}-{round(100 * factor)}"
                where = ENV if knob.fields else f"{ENV}-omega-{round(100 * factor)}"
                config = {field: round(factor * usual[field], 10) for field in knob.fields}
                job = Job(where, knob.algo, out / label, episodes, seeds, config=config, label=label)
            check_job(job)
            jobs.setdefault(name, {})[level] = job
    return jobs


def runs_of(jobs: dict[str, dict[str, Job]], missing: dict[Job, str]) -> Runs:
    return {
        name: {level: load([job.folder])[0] for level, job in levels.items() if job not in missing}
        for name, levels in jobs.items()
    }


def values(run: Trained, column: str) -> list[float]:
    return [(100.0 if column == "total" else 1.0) * value for value in run.values(column)]


def level_table(runs: Runs, style: str = "markdown") -> str:
    """Settings x levels: reward, then total violations in percent; the paper's numbers in brackets."""
    titles = {"reward": "reward", "total": "total V. %"}
    header = ["setting", *(f"{text}, {level}" for text in titles.values() for level in LEVELS)]
    rows = []
    for name, levels in runs.items():
        cells = []
        for i, column in enumerate(titles):
            for level in LEVELS:
                run = levels.get(level)
                cells.append(f"{_cell(run, column)} ({PAPER[name][level][i]:.2f})")
        rows.append([name, *cells])
    return (markdown if style == "markdown" else plain)(header, rows)


def claim_table(runs: Runs, style: str = "markdown") -> str:
    """Reward a tenth to either side of the default, relative to the default's, and what becomes of the claim."""
    header = ["setting", *(f"reward, {level}" for level in TENTHS), "change, -10 %", "change, +10 %", "within 5 %"]
    rows = []
    for name, levels in runs.items():
        base = levels.get("default")
        changes = [
            relative_change(values(levels[level], "reward"), values(base, "reward"))
            for level in TENTHS
            if base is not None and level in levels
        ]
        cells = [_cell(levels.get(level), "reward") for level in TENTHS]
        cells += [_percent(change) for change in changes] + ["-"] * (len(TENTHS) - len(changes))
        rows.append([name, *cells, verdict(changes) if len(changes) == len(TENTHS) else "-"])
    return (markdown if style == "markdown" else plain)(header, rows)


def verdict(changes: list[Estimate]) -> str:
    """By intervals: a change may lie within the claim, beyond it, or cannot be told yet."""
    if all(c.low > -CLAIM and c.high < CLAIM for c in changes):
        return "yes"
    return "no" if any(c.low > CLAIM or c.high < -CLAIM for c in changes) else "undecided"


def _cell(run: Trained | None, column: str) -> str:
    if run is None or not run.values(column):
        return "-"
    found = values(run, column)
    e = bootstrap(found)
    return f"{e.value:.2f}" + (f" [{e.low:.2f}, {e.high:.2f}]" if len(found) > 1 else "")


def _percent(change: Estimate) -> str:
    if change.value != change.value:
        return "-"
    return f"{100 * change.value:+.1f} % [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"


def draw(runs: Runs, path: Path) -> Path:
    from trident.report.study_figures import draw_sensitivity

    levels = sorted((LEVELS | TENTHS).items(), key=lambda pair: pair[1])
    panels: dict[str, Any] = {}
    for name, of_level in runs.items():
        ours = {
            column: [(factor, values(of_level[level], column)) for level, factor in levels if level in of_level]
            for column in ("reward", "total")
        }
        printed = [(LEVELS[level], PAPER[name][level]) for level in LEVELS]
        panels[f"{name}: {KNOBS[name].what}"] = (ours, printed)
    return draw_sensitivity(panels, path)
