"""Runs of one method with different seeds, trained apart, as one: what a run of all seeds at once would have recorded.

Seed number i of a run depends only on the base seed and i, not on which seeds were trained beside it, so that several
processes may share the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trident.errors import TridentError
from trident.report.compare import load_runs
from trident.report.records import Record, lines_of, read
from trident.run_directory import RECORDS, RESULT, RUN, write_json, write_text

SAME = ("env", "env_version", "algo", "config", "commit")
EVALUATED = ("episodes", "deterministic", "shielded")


def pool(folders: list[Path], out: Path, commits: bool = False) -> None:
    """Write run.json, result.json and records.jsonl of all seeds into `out`.

    With `commits`, runs of different commits pool as well: run.json names all of them, and settings that an older
    commit did not have yet are taken from those that do.
    """
    runs = load_runs(folders)
    if commits:
        runs = _of_one_commit(runs)
    first = runs[0][0]
    for folder, (run, result, _) in zip(folders, runs, strict=True):
        for key in SAME:
            if run[key] != first[key]:
                raise TridentError(f"{folder} and {folders[0]} differ in {key!r}: only runs that differ in seeds pool")
        for key in EVALUATED:
            if result[key] != runs[0][1][key]:
                raise TridentError(f"{folder} and {folders[0]} were evaluated differently ({key}): `trident eval` them")
        if _without_seeds(run["settings"]) != _without_seeds(first["settings"]):
            raise TridentError(f"{folder} and {folders[0]} differ in their settings: only seeds may differ")
    seeds = [seed for run, _, _ in runs for seed in run["settings"]["seeds"]]
    if len(set(seeds)) < len(seeds):
        raise TridentError(f"a seed occurs twice among {seeds}")
    if out.exists():
        raise TridentError(f"{out} exists already")
    rounds = _rounds([read(folder / RECORDS) for folder in folders])
    out.mkdir(parents=True)
    run = first | {"settings": first["settings"] | {"seeds": seeds}}
    write_json(out / RUN, run)
    write_json(out / RESULT, _results([result for _, result, _ in runs], first["algo"]))
    write_text(out / RECORDS, lines_of(run, [_together(rows) for rows in rounds]))


def _of_one_commit(runs: list[Any]) -> list[Any]:
    known = {name: value for run, _, _ in runs for name, value in run["config"].items()}
    names = ", ".join(dict.fromkeys(run["commit"] for run, _, _ in runs))
    return [(run | {"config": known | run["config"], "commit": names}, *rest) for run, *rest in runs]


def _without_seeds(settings: dict[str, Any]) -> dict[str, Any]:
    """What must agree: neither which seeds, nor what was evaluated beside them, nor whom it was told to."""
    apart = ("seeds", "references", "video", "checkpoint_every", "check_env", "seeds_apart", "trackers", "project")
    return {k: v for k, v in settings.items() if k not in apart}


def _results(results: list[dict[str, Any]], algo: str) -> dict[str, Any]:
    """Every seed's summary; the scripted references from whichever run has them."""
    merged = results[0] | {"seeds": [seed for r in results for seed in r["seeds"]]}
    merged["diverged"] = {seed: why for r in results for seed, why in r["diverged"].items()}
    policies = {name: rows for r in reversed(results) for name, rows in r["policies"].items()}
    policies[algo] = [row for r in results for row in r["policies"][algo]]
    return merged | {"policies": policies}


def _rounds(records: list[list[Record]]) -> list[tuple[Record, ...]]:
    if len({len(rows) for rows in records}) > 1:
        raise TridentError(f"these runs have recorded different numbers of rounds: {[len(rows) for rows in records]}")
    return list(zip(*records, strict=True))


def _together(rows: tuple[Record, ...]) -> Record:
    """One round of all seeds; seconds add up, since the runs may have shared a machine."""
    names = [name for name in rows[0]["values"] if all(name in row["values"] for row in rows)]
    return rows[0] | {
        "seconds": sum(row["seconds"] for row in rows),
        "diverged": {seed: why for row in rows for seed, why in row["diverged"].items()},
        "values": {name: [x for row in rows for x in row["values"][name]] for name in names},
    }
