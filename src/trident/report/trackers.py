# pyright: reportMissingImports=false
"""What follows a run's records and hands them to an experiment tracker: a process of its own, started by
`trident.report.loggers` as `python -m trident.report.trackers TRACKER FOLDER PROJECT`.

It reads the files that the run writes anyway. Each seed is a run of the tracker's, and what has been handed over is
remembered in FOLDER/trackers/TRACKER.json: whoever goes on, goes on there (a resumed run writes the same numbers
again). It ends when its standard input does.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trident.report.records import Record
from trident.run_directory import RECORDS, is_run, read_result, read_run, write_json
from trident.sealed import read_sealed

FOLDER = "trackers"
POINTS = 1000
"""Of a curve, about: longer ones are thinned."""
LOOK_EVERY = 1.0
"""Seconds."""
SCHEMA = {"runs": {...: str}, "round": int}


class Seed(NamedTuple):
    """One seed of a run, as trackers name it."""

    project: str
    group: str
    name: str
    config: dict[str, Any]
    id: str | None
    """The tracker's own name of it, if it has been there before."""
    folder: Path


class Tracker(Protocol):
    """One seed's run."""

    id: str

    def log(self, values: Mapping[str, float], step: int) -> None: ...
    def conclude(self, values: Mapping[str, float]) -> None:
        """The evaluation, after training."""
        ...

    def close(self) -> None: ...


class WandB:
    """Weights & Biases; WANDB_MODE=offline keeps everything in the run's folder."""

    def __init__(self, seed: Seed):
        import wandb

        self.id = seed.id or secrets.token_hex(4)
        self.run = wandb.init(
            project=seed.project, group=seed.group, name=seed.name, id=self.id, config=seed.config, resume="allow",
            dir=seed.folder, reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )  # fmt: skip

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def conclude(self, values: Mapping[str, float]) -> None:
        self.run.summary.update(dict(values))

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """MLflow, wherever MLFLOW_TRACKING_URI says; without it mlflow.db in the folder one is in."""

    def __init__(self, seed: Seed):
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self.client, self.metric = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")), Metric
        self.id = seed.id or self._make(seed, Param)

    def _make(self, seed: Seed, param: Any) -> str:
        experiment = self.client.get_experiment_by_name(seed.project)
        number = self.client.create_experiment(seed.project) if experiment is None else experiment.experiment_id
        run = self.client.create_run(number, run_name=seed.name, tags={"group": seed.group})
        params = [param(key, str(value)[:500]) for key, value in seed.config.items()]
        for first in range(0, len(params), 100):  # as many as it takes at once
            self.client.log_batch(run.info.run_id, params=params[first : first + 100])
        return run.info.run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [self.metric(re.sub(r"[^\w\-. /]", "-", name), value, now, step) for name, value in values.items()]
        self.client.log_batch(self.id, metrics=metrics)

    def conclude(self, values: Mapping[str, float]) -> None:
        self.log(values, 0)

    def close(self) -> None:
        self.client.set_terminated(self.id)


class Trackio:
    """trackio: on this machine, `trackio show` opens it."""

    def __init__(self, seed: Seed):
        import trackio

        self.id = seed.name
        self.run = trackio.init(
            project=seed.project, name=seed.name, group=seed.group, config=seed.config, resume="allow", embed=False
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def conclude(self, values: Mapping[str, float]) -> None:
        self.run.log(dict(values))

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, Callable[[Seed], Tracker]] = {"wandb": WandB, "mlflow": MLflow, "trackio": Trackio}


# --- following a run ------------------------------------------------------------------------------


def follow(make: Callable[[Seed], Tracker], tracker: str, folder: Path, project: str, over: Callable[[], bool]) -> None:
    """Hand on what the run writes until it is over, then what is left, and its evaluation."""
    run, memory = read_run(folder), folder / FOLDER / f"{tracker}.json"
    known = read_sealed(memory, SCHEMA) if memory.exists() else {"runs": {}, "round": -1}
    seeds, every = [str(s) for s in run["identity"]["seeds"]], max(1, run["rounds"] // POINTS)
    homes = [_seed(run, folder, project, seed, known["runs"].get(seed)) for seed in seeds]
    open_ = [make(home) for home in homes]
    round_, saved = known["round"], {"runs": {s: t.id for s, t in zip(seeds, open_, strict=True)}, "round": -2}
    try:
        for record in _records(folder / RECORDS, over):
            if record is None:  # nothing new
                if saved["round"] != round_:
                    saved["round"] = round_
                    write_json(memory, saved)
                continue
            if record["round"] > round_ and (record["round"] % every == 0 or record["round"] == run["rounds"]):
                round_ = record["round"]
                for row, one in enumerate(open_):
                    one.log(_finite({k: v[row] for k, v in record["values"].items()}), record["env_steps"])
        for row, one in enumerate(open_):
            if values := _evaluated(run, folder, row):
                one.conclude(values)
    finally:
        for one in open_:
            one.close()


def _seed(run: dict[str, Any], folder: Path, project: str, seed: str, known: str | None) -> Seed:
    group = folder.resolve().name
    base = {"base_seed": run["settings"].get("seed", 0)}
    about = {"env": run["env"], "algo": run["algo"], "seed": int(seed), "commit": run["commit"]} | base
    limits = {f"limit.{c['name']}": c["limit"] for c in run["constraints"]}
    config = dict(_flat(run["settings"], "")) | dict(_flat(run["config"], "algo.")) | limits | about
    return Seed(project, group, f"{group}-seed-{seed}", config, known, folder / FOLDER)


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _records(path: Path, over: Callable[[], bool]) -> Iterator[Record | None]:
    """Each record once its line is whole; None whenever all have been read."""
    at = 0
    while True:
        last_look = over()
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(at)
            for line in file:
                if line.endswith(b"\n"):
                    at += len(line)
                    yield json.loads(line)
        yield None
        if last_look:
            return
        time.sleep(LOOK_EVERY)


def _evaluated(run: dict[str, Any], folder: Path, row: int) -> dict[str, float]:
    result = read_result(folder)
    rows = [] if result is None else result["policies"].get(run["algo"], [])
    return _finite({f"eval/{name}": value for name, value in rows[row].items()}) if row < len(rows) else {}


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(x) for name, x in values.items() if x is not None and math.isfinite(x)}


def main(tracker: str, folder: str, project: str) -> None:
    ended = threading.Event()

    def wait() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock a thread would hold when the process ends
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    if is_run(Path(folder)):
        follow(TRACKERS[tracker], tracker, Path(folder), project, ended.is_set)


if __name__ == "__main__":
    main(*sys.argv[1:])
