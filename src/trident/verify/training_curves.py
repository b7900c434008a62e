"""Theorems 2 and 3 on UAV-MEC, from the committed training records; what has no record yet is said to have none.

Rounds stand for the theorem's iterations. The violation of a round is the sum over constraints of max(0, cost - limit)
of the policy that collected it; the gap is that to the best reward known of any policy that was evaluated. Exponents
are fitted to every seed from an eighth of the run on; intervals are over seeds. The paper's TRIDENT starts from
nothing, so the claims are judged by the record without a base policy, where there is one: who starts near the end has
no rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter

import trident
from trident.report.palette import method_styles
from trident.report.records import read, series
from trident.report.stats import Estimate
from trident.report.tables import markdown
from trident.run_directory import RECORDS, RUN, read_result, read_run
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say
from trident.verify.fits import fit_power, fit_powers, mean_interval
from trident.verify.plots import panels, slope_guide

RECORDED = "uav-mec-v1"
"""Of which environment there are records of all methods: version 1 of uav-mec."""
POINTS = 24
SCRATCH = "trident-scratch"


def records_folder() -> Path | None:
    """The records of uav-mec in the working directory or in the source tree."""
    for base in (Path(), Path(trident.__file__).resolve().parents[2]):
        if (base / "benchmarks" / RECORDED).is_dir():
            return base / "benchmarks" / RECORDED
    return None


def measure(seed: int, say: Say) -> Data:
    folder = records_folder()
    runs = {}
    for path in sorted(folder.iterdir()) if folder else []:
        say(f"record of {path.name}")
        if all((path / f).is_file() for f in (RUN, RECORDS)):
            runs[path.name] = path
    best = max((_best_reward(p) for p in runs.values()), default=float("nan"))
    return {"best": best, "runs": {name: _fits(path, best) for name, path in runs.items()}}


def _best_reward(path: Path) -> float:
    """Of any policy in the run's evaluation, scripted ones included."""
    result = read_result(path)
    if result is None:
        return -np.inf
    policies = result["policies"]
    return max(float(np.mean([s["reward"] for s in seeds])) for seeds in policies.values())


def _fits(path: Path, best: float) -> Data:
    run = read_run(path)
    rows = [r for r in read(path / RECORDS) if r["round"] > 0]
    _, reward = series(rows, "reward")
    over = np.zeros_like(reward)
    for c in run["constraints"]:
        over += np.maximum(series(rows, f"cost/{c['name']}")[1] - c["limit"], 0.0)
    whole = np.all(np.isfinite(reward + over), axis=0)  # seeds that diverged are left out
    rounds = np.arange(1, len(reward) + 1)
    violation = np.cumsum(over[:, whole], axis=0)
    gap = np.cumsum(best - reward[:, whole], axis=0) / rounds[:, None]
    at = np.unique(np.geomspace(max(len(rounds) // 8, 1), len(rounds), POINTS).astype(int)) - 1
    physics = run["config"].get("physics")
    r2 = series(rows, "r2_phys/reward")[1] if any("r2_phys/reward" in r["values"] for r in rows) else None
    return {
        "algo": run["algo"],
        "physics": physics,
        "base_policy": run["config"].get("base_policy"),
        "episodes": rows[-1]["episodes"],
        "rounds": rounds[at],
        "violation": violation[at].T,
        "gap": gap[at].T,
        "r2_phys": None if r2 is None else np.nanmean(r2, axis=0),
    }


# --- judging --------------------------------------------------------------------------------------


def ours(data: Data) -> Data | None:
    return data["runs"].get(SCRATCH, data["runs"].get("trident"))


def _exponent(run: Data, what: str) -> Estimate:
    return mean_interval([fit_power(run["rounds"], row).exponent.value for row in np.array(run[what])])


def _root_r2(run: Data, what: str, exponent: float) -> Estimate:
    """R2 of y = c K^exponent, c fitted, in the units of y: the paper's own measure."""
    x = np.asarray(run["rounds"], float) ** exponent
    found = []
    for row in np.array(run[what]):
        left = np.sum((row - x * (x @ row) / (x @ x)) ** 2)
        found.append(1.0 - left / np.sum((row - row.mean()) ** 2))
    return mean_interval(found)


def _judge_violation(data: Data) -> Evidence:
    run = ours(data)
    if run is None:
        return Evidence((), (), "no record of trident yet")
    if not np.all(np.array(run["violation"])[:, 0]):
        return Evidence((), (), "a seed of trident has violated nothing: there is no rate to fit")
    return Evidence(
        (
            Check("exponent of K", _exponent(run, "violation"), high=0.6),
            Check("R2 of c sqrt(K)", _root_r2(run, "violation", 0.5), 0.96),
        )
    )


def _judge_gap(data: Data) -> Evidence:
    run = ours(data)
    if run is None:
        return Evidence((), (), "no record of trident yet")
    return Evidence(
        (
            Check("exponent of K", _exponent(run, "gap"), -0.6, -0.4),
            Check("R2 of c / sqrt(K)", _root_r2(run, "gap", -0.5), 0.96),
        )
    )


def _judge_macpo(data: Data) -> Evidence:
    runs = {"trident": ours(data), "macpo": data["runs"].get("macpo")}
    missing = [name for name, run in runs.items() if run is None]
    if missing:
        return Evidence((), (), f"no record of {' and '.join(missing)} yet")
    mine, theirs = (np.array(run["violation"])[:, -1] / run["rounds"][-1] for run in runs.values())
    return Evidence((Check("violation per round, TRIDENT / MACPO", mean_interval(mine / np.mean(theirs)), high=0.5),))


def _judge_physics(data: Data) -> Evidence:
    """From scratch in both: actors that start from a base policy have hardly anything to learn, with or without
    physics."""
    plain = [n for n, r in data["runs"].items() if r["physics"] == "none" and not r["base_policy"]]
    informed = ours(data)
    if not plain or informed is None:
        return Evidence((), (), "no record of trident without physics yet")
    theirs = data["runs"][plain[0]]
    # rounds until the mean gap is what the run without physics ends with
    goal = np.mean(np.array(theirs["gap"])[:, -1])
    gaps = np.array(informed["gap"])
    first = [informed["rounds"][int(np.argmax(row <= goal))] for row in gaps if np.any(row <= goal)]
    if not first:
        return Evidence((Check("runs that get there sooner with physics", mean_interval([0.0]), 1.0),))
    saved = theirs["rounds"][-1] / np.array(first, float)
    predicted = 1.0 / (1.0 - float(np.mean(informed["r2_phys"])))
    return Evidence((Check("rounds saved / predicted", mean_interval(saved / predicted), 0.67, 1.5),))


def _judge_r2(data: Data) -> Evidence:
    run = ours(data)
    if run is None or run["r2_phys"] is None:
        return Evidence((), (), "no record of trident yet")
    return Evidence((Check("mean R2 over training", mean_interval(run["r2_phys"]), 0.7, 1.0),))


def _shown(data: Data) -> Data:
    return {name: run for name, run in data["runs"].items() if name.startswith("trident") or name == "macpo"}


def exponents(data: Data) -> str:
    """Of every run that is drawn: y ~ K^exponent on logarithms, intervals over seeds."""
    header = [
        "run",
        "seeds",
        "violation: exponent of K",
        "R2",
        "R2 of c sqrt(K)",
        "gap: exponent of K",
        "R2",
        "R2 of c / sqrt(K)",
    ]
    rows = []
    for name, run in _shown(data).items():
        cells = []
        for what, root in (("violation", 0.5), ("gap", -0.5)):
            curves = np.array(run[what])
            if not np.all(curves > 0):
                cells += ["none" if not curves.any() else "-", "-", "-"]
                continue
            power, rooted = fit_powers(run["rounds"], curves), _root_r2(run, what, root).value
            value, low, high = power.exponent
            cells += [f"{value:.2f} [{low:.2f}, {high:.2f}]", f"{power.r2:.3f}", f"{rooted:.2f}"]
        rows.append([name, str(len(run["gap"])), *cells])
    return markdown(header, rows)


def draw(data: Data, path: Path) -> None:
    shown = _shown(data)

    def curve(what: str, title: str, slopes: tuple[float, ...]) -> Any:
        def panel(ax: Any) -> None:
            top = 0.0
            styles = method_styles([run["algo"] for run in shown.values()])
            for (name, run), style in zip(shown.items(), styles, strict=True):
                rows = np.array(run[what])
                label = f"{name} ({len(rows)} seeds)"
                ax.loglog(run["rounds"], rows.mean(axis=0), label=label, **style | {"marker": ""})
                for row in rows:
                    ax.loglog(run["rounds"], row, color=style["color"], lw=0.6, alpha=0.5)
                top = max(top, float(rows.max()))
            rounds = np.array([r["rounds"][i] for r in shown.values() for i in (0, -1)])
            for slope in slopes if len(rounds) else ():
                ends = np.sort(rounds)[[0, -1]]
                slope_guide(ax, ends, slope, 1.3 * top * (ends[1] / ends[0]) ** min(slope, 0.0))
            ax.set(title=title, xlabel="rounds K")
            ax.set_xticks([20, 50, 100], ["20", "50", "100"])
            ax.xaxis.set_minor_formatter(NullFormatter())

        return panel

    panels(
        path,
        "uav-mec, from the committed training records",
        [curve("violation", "cumulative violation", (1.0, 0.5)), curve("gap", "mean gap to the best known", (-0.5,))],
        legend=1,
    )


CLAIMS = (
    Claim(
        "uav-violation", "section 6, Theorem 2", "on UAV-MEC c sqrt(K) fits the violation, R2 >= 0.96", _judge_violation
    ),
    Claim("uav-suboptimality", "section 6, Theorem 2", "the sub-optimality falls as K^-0.51, R2 >= 0.96", _judge_gap),
    Claim("uav-macpo", "table 1", "MACPO violates 4.2 times as much as TRIDENT during training", _judge_macpo),
    Claim("uav-physics", "Theorem 3 on UAV-MEC", "physics saves samples by 1 / (1 - R2)", _judge_physics),
    Claim("uav-r2", "appendix F", "the closed form explains 70 % of the value's variance", _judge_r2),
)

EXPERIMENT = Experiment("curves", "rates on UAV-MEC, from training records", measure, CLAIMS, draw, exponents)
