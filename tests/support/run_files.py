"""Run directories written by hand, with whatever a test does not care about filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trident.report.records import Record, lines_of
from trident.run_directory import RECORDS, RESULT, RUN, write_json, write_text


def write_files(folder: Path, run: dict[str, Any], result: dict[str, Any] | None, records: list[Record]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    run = whole_run(run)
    write_json(folder / RUN, run)
    if result is not None:
        write_json(folder / RESULT, whole_result(result))
    write_text(folder / RECORDS, lines_of(run, [whole_record(record) for record in records]))


def whole_run(run: dict[str, Any]) -> dict[str, Any]:
    env, algo = run.get("env", "e"), run.get("algo", "a")
    settings = {"seeds": [0], "episodes": 1} | run.get("settings", {})
    base = {
        "env": env, "env_version": 1, "algo": algo, "config": {}, "rounds": 1, "steps_per_round": 1, "horizon": 1,
        "agents": 1, "modes": [], "constraints": [], "metrics": [], "scripted": [], "versions": {}, "commit": "c",
        "identity": {"env": env, "algo": algo, "seeds": settings["seeds"]}, "host": {"cores": 2, "device": "cpu"},
    }  # fmt: skip
    return base | run | {"settings": settings}


def whole_result(result: dict[str, Any]) -> dict[str, Any]:
    return {"episodes": 1, "deterministic": True, "shielded": False, "seeds": [0], "diverged": {}} | result


def whole_record(record: Record) -> Record:
    return {"env_steps": 1, "episodes": 1.0, "seconds": 1.0, "diverged": {}, "values": {}} | record
