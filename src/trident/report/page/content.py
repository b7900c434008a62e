"""All that the page shows, as one tree of plain data. Names in it are a stranger's: the page shows them as text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trident.report.compare import has_rates, pareto_front, violations
from trident.report.page import curves, settings, words
from trident.report.page.reading import Reading, read_all
from trident.report.palette import method_styles
from trident.report.stats import bootstrap
from trident.report.tables import result_rows
from trident.run_directory import CHECKPOINTS

Plain = dict[str, Any]


def page_content(
    folders: Sequence[Path], commands: Mapping[Path, str] | None = None, replays: Mapping[Path, Plain] | None = None
) -> Plain:
    """`commands` and `replays` are what only those can say who know environments and algorithms: the command that
    repeats a run, and episodes of its policy."""
    return assemble(read_all(list(folders)), commands or {}, replays or {})


def assemble(readings: Sequence[Reading], commands: Mapping[Path, str], replays: Mapping[Path, Plain]) -> Plain:
    points = curves.points_for(len(readings))
    detailed = len(readings) <= curves.DETAILED
    runs = [run_content(r, points, detailed, commands.get(r.folder), replays.get(r.folder)) for r in readings]
    return {"made": time.strftime("%Y-%m-%d %H:%M"), "runs": runs, "groups": groups(readings, points)}


# --- one run --------------------------------------------------------------------------------------


def run_content(
    reading: Reading, points: int, detailed: bool, command: str | None = None, replay: Plain | None = None
) -> Plain:
    out: Plain = {"name": reading.name, "folder": str(reading.folder), "problems": list(reading.problems)}
    if not reading.readable:
        return out
    try:
        return out | _readable(reading, points, detailed, command, replay)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        out["problems"].append(f"{reading.folder} cannot be shown ({type(error).__name__}: {error})")
        return out


def _readable(reading: Reading, points: int, detailed: bool, command: str | None, replay: Plain | None) -> Plain:
    run = reading.run
    out: Plain = {
        "env": run["env"],
        "algo": run["algo"],
        "title": f"{run['algo']} on {run['env']}",
        "agents": run["agents"],
        "seeds": len(run["settings"]["seeds"]),
        "horizon": run["horizon"],
        "shielded": bool(run["settings"].get("shielded")),
        "status": status(reading),
        "verdict": words.verdict(reading),
        "training": words.training_safety(reading),
        "charts": curves.run_charts(reading, points, detailed),
        "diagnoses": words.diagnoses(reading),
        "policies": policy_table(reading),
        "setup": setup(reading, command),
    }
    if reading.every > 1:
        out["note"] = f"long records: one round in {reading.every} was read"
    if replay is not None:
        return out | {"replay": replay}
    return out | {"playable": (reading.folder / CHECKPOINTS).is_dir()}


def status(reading: Reading) -> Plain:
    run, records = reading.run, reading.records
    last = records[-1] if records else {"round": 0, "env_steps": 0, "seconds": 0.0, "diverged": {}}
    seconds = float(last["seconds"])
    done, total = last["round"], run["rounds"]
    pace = seconds / done if done else None
    state = "finished" if reading.trained else "unfinished"
    if reading.result is not None and reading.result.get("pending"):
        state = "evaluating"
    if run["settings"]["seeds"] and len(last["diverged"]) == len(run["settings"]["seeds"]):
        state = "diverged"
    return {"state": state, "round": done, "rounds": total, "env_steps": last["env_steps"], "seconds": seconds,
            "left": None if pace is None or reading.trained else pace * max(total - done, 0)}  # fmt: skip


def policy_table(reading: Reading) -> Plain | None:
    """The table a run ends with, the other way round: a row for each policy."""
    if reading.result is None or not any(reading.result["policies"].values()):
        return None
    header, rows = result_rows(reading.run, reading.result)
    names = header[1:]
    columns = [row[0] for row in rows]
    cells = [[name, *(row[1 + i] for row in rows)] for i, name in enumerate(names)]
    pending = reading.result.get("pending") or []
    return {"header": ["policy", *columns], "rows": cells, "caption": header[0],
            "note": f"not evaluated yet: {', '.join(map(str, pending))}" if pending else ""}  # fmt: skip


def setup(reading: Reading, command: str | None) -> Plain:
    run = reading.run
    host, versions = run["host"], run["versions"]
    place = f"{run['env']} (version {run.get('env_version', '?')})"
    limits = [f"{c['name']} <= {c['limit']:g} {c['unit']}".rstrip() for c in run["constraints"]]
    facts = [
        ["environment", f"{place}, {_many(run['agents'], 'agent')}, {_many(run['horizon'], 'step')} an episode"],
        ["algorithm", run["algo"]],
        ["limits", ", ".join(limits) or "none"],
        ["seeds", settings.shown(run["settings"]["seeds"])],
        ["budget", f"{_many(run['rounds'], 'round')} of {run['steps_per_round']:,} environment steps for each seed"],
        ["commit", str(run["commit"] or "unknown")],
        ["versions", ", ".join(f"{k} {v}" for k, v in versions.items()) or "unknown"],
        ["machine", ", ".join(f"{k} {v}" for k, v in host.items()) or "unknown"],
        ["folder", str(reading.folder)],
    ]  # fmt: skip
    return {
        "command": command,
        "facts": facts,
        "settings": settings.setting_rows(run),
        "config": settings.config_rows(run),
    }


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


# --- several runs ---------------------------------------------------------------------------------


def groups(readings: Sequence[Reading], points: int) -> list[Plain]:
    """The runs of each environment side by side, where there is more than one."""
    by_env: dict[str, list[Reading]] = {}
    for reading in readings:
        if reading.readable:
            by_env.setdefault(reading.run["env"], []).append(reading)
    return [group(env, found, points) for env, found in by_env.items() if len(found) > 1]


def group(env: str, readings: list[Reading], points: int) -> Plain:
    try:
        return {"env": env, "table": comparison_table(readings), "front": front(readings),
                "charts": curves.comparison(readings, points)}  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return {"env": env, "problem": f"these runs cannot be compared ({type(error).__name__}: {error})"}


def comparison_table(readings: list[Reading]) -> Plain:
    """A row for each run; cells are [text, number to sort by, state]."""
    constraints = readings[0].run["constraints"]
    distinct = any(r.name != r.run["algo"] for r in readings)
    header = ["run", *["algorithm"] * distinct, "verdict", "reward"]
    header += [f"{c['name']} (limit {_text(c['limit'], c['unit'])})" for c in constraints]
    header += [f"{c['name']} in training, of its budget" for c in constraints] + ["episodes", "seeds"]
    rows = [[r.name, *[r.run["algo"]] * distinct, *_row(r, constraints)] for r in readings]
    return {"header": header, "rows": rows}


def _row(reading: Reading, constraints: list[Plain]) -> list[Any]:
    found = words.verdict(reading)
    safety = {part["name"]: part["share"] for part in words.training_safety(reading)}
    costs = {c["name"]: c for c in found["costs"]}
    none: list[Any] = ["-", None]
    row: list[Any] = [{"state": found["state"]}, _cell(found["reward"])]
    row += [_cell(costs[c["name"]], c["unit"]) if c["name"] in costs else none for c in constraints]
    row += [_share(safety.get(c["name"])) for c in constraints]
    episodes, seeds = reading.records[-1]["episodes"] if reading.records else 0.0, len(reading.run["settings"]["seeds"])
    return [*row, [f"{episodes:,.0f}", episodes], [str(seeds), seeds]]


def _cell(estimate: Plain, unit: str = "") -> list[Any]:
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if not np.isfinite(value):
        return ["-", None]
    around = "" if low is None else f" [{_text(low, unit, bare=True)}, {_text(high, unit, bare=True)}]"
    return [_text(value, unit) + around, value, estimate.get("state", "")]


def _share(share: float | None) -> list[Any]:
    if share is None:
        return ["-", None]
    return [f"{100 * share:,.0f} %", share, words.WITHIN if share <= 1 else words.OVER]


def _text(value: float, unit: str = "", bare: bool = False) -> str:
    """Rates in percent."""
    if unit in ("rate", "share"):
        return f"{100 * value:.3g}" + ("" if bare else " %")
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def front(readings: list[Reading]) -> Plain | None:
    """Reward against violations, a dot for every evaluated run, and the Pareto front through the best."""
    done = [r for r in readings if words.own_seeds(r)]
    if not done or not done[0].run["constraints"]:
        return None
    constraints, dots = done[0].run["constraints"], []
    for reading, style in zip(done, method_styles([r.run["algo"] for r in done]), strict=True):
        seeds = words.own_seeds(reading)
        cost, reward = ([f(s) for s in seeds] for f in (lambda s: violations(s, constraints), lambda s: s["reward"]))
        many = len(seeds) > 1
        pair = [bootstrap(cost), bootstrap(reward)]
        dots.append({
            "label": reading.name, "colour": style["color"], "x": pair[0].value, "y": pair[1].value,
            "x_range": [pair[0].low, pair[0].high] if many else None,
            "y_range": [pair[1].low, pair[1].high] if many else None,
            "seeds": [list(p) for p in zip(cost, reward, strict=True)],
        })  # fmt: skip
    policies = [r.result["policies"] for r in done if r.result is not None]
    return {
        "dots": dots,
        "front": pareto_front([(d["x"], d["y"]) for d in dots if np.isfinite(d["x"]) and np.isfinite(d["y"])]),
        "allowed": 100.0 * sum(c["limit"] for c in constraints),
        "label": "violations, % of steps" if policies and has_rates(policies[0]) else "costs, all limits together, %",
    }
