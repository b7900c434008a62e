"""Tuning: the same number of trials, the same budget and the same seeds for every method, TRIDENT included.

A study is a method on an environment. Its first trial is the preset's own values, the others are proposed by Optuna
(TPE). Trials run wherever the launcher runs them; each is pruned by the records that its run writes, if it stands in
the last quarter of all at the same point of its course. The study is a journal file: the same command goes on where it
was interrupted, and its trials are the run directories beside it.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trident.bench.search_spaces import UNCONSTRAINED, Choice, Space, space_of
from trident.errors import TridentError
from trident.fields import flatten
from trident.launch.campaign import reason
from trident.launch.job import Job, Launcher
from trident.report.records import Record, read, series
from trident.run_directory import RECORDS, is_run, read_result, read_run
from trident.training.presets import RESIDUAL
from trident.training.registry import ALGORITHMS, make_env
from trident.training.settings import Settings, make_setup

PENALTY = 10.0
"""Of a cost above its limit, in reward per unit of cost."""
TABLE_SEEDS = 100
"""Seeds below are those of tables, in which nothing may be tuned."""
LOOKS = 10
"""How often in its course a trial is compared with the others."""
KEPT = 0.75
"""A trial is pruned that is not among so many of the best at the same point of their courses."""
PAUSE = 0.5
Say = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """Of every trial."""

    episodes: int
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if min(self.seeds, default=0) < TABLE_SEEDS:
            raise TridentError(f"--seeds must be {TABLE_SEEDS} or higher: those below are the tables' own")


def require_optuna() -> Any:
    if importlib.util.find_spec("optuna") is None:
        raise TridentError("tuning needs Optuna: pip install 'trident-marl[tune]'")
    import optuna  # pyright: ignore[reportMissingImports]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def score(method: str, seeds: Sequence[dict[str, float]], limits: dict[str, float]) -> float:
    """Mean reward of the evaluation, less the penalty of what the mean costs exceed their limits by."""
    reward = float(np.mean([seed["reward"] for seed in seeds]))
    over = (max(float(np.mean([seed[f"cost/{k}"] for seed in seeds])) - limit, 0.0) for k, limit in limits.items())
    return reward - (0.0 if method in UNCONSTRAINED else PENALTY * sum(over))


def score_so_far(method: str, records: Sequence[Record], limits: dict[str, float]) -> float:
    """The same of the last tenth of the rounds that are there."""
    rows = [r for r in records if r["round"] > 0]
    rows = rows[-max(len(rows) // 10, 1) :]
    mean = lambda name: float(np.nanmean(series(list(rows), name)[1]))  # noqa: E731
    seed = {"reward": mean("reward")} | {f"cost/{k}": mean(f"cost/{k}") for k in limits}
    return score(method, [seed], limits)


def limits_of(env: str) -> dict[str, float]:
    return {c.name: c.limit for c in make_env(env).spec.constraints}


def usual(method: str, space: Space) -> dict[str, Any]:
    """The preset's own values, whatever has been tuned since."""
    preset = ALGORITHMS[method]
    flat = flatten(preset.config) | (RESIDUAL if preset.residual is not None else {})
    return {name: flat[name] for name in space}


class Study:
    """One method on one environment."""

    def __init__(self, env: str, method: str, out: Path, budget: Budget) -> None:
        optuna = require_optuna()
        from optuna.storages import JournalStorage  # pyright: ignore[reportMissingImports]
        from optuna.storages.journal import JournalFileBackend  # pyright: ignore[reportMissingImports]

        self.env, self.method, self.budget, self.space = env, method, budget, space_of(method)
        self.folder, self.limits = out / method, limits_of(env)
        self.journal = out / "journal.jsonl"
        out.mkdir(parents=True, exist_ok=True)
        name = f"{method} on {env}"
        self.study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(self.journal))), study_name=name, load_if_exists=True,
            direction="maximize",
            pruner=optuna.pruners.PercentilePruner(100.0 * KEPT, n_startup_trials=4, n_warmup_steps=LOOKS // 4),
        )  # fmt: skip
        plan = {"episodes": budget.episodes, "seeds": list(budget.seeds)}
        # Seeded anew whenever a study goes on: by the same seed it would propose what it has proposed before.
        self.study.sampler = optuna.samplers.TPESampler(seed=len(self.trials), n_startup_trials=5)
        known = self.study.user_attrs.get("budget")
        if known not in (None, plan):
            raise TridentError(
                f"{self.journal} has a study of {name} with another budget ({known}): choose another --out"
            )
        if known is None:
            self.study.set_user_attr("budget", plan)
            self.study.enqueue_trial(usual(method, self.space))

    @property
    def trials(self) -> list[Any]:
        return self.study.get_trials(deepcopy=False)

    def job(self, trial: Any) -> Job:
        """A trial's run; what was proposed before is not proposed again."""
        config = {name: self._suggest(trial, name) for name in self.space}
        label = f"trial {trial.number}"
        folder = self.folder / f"trial-{trial.number:03d}"
        settings = {"references": False, "eval_episodes": 100}
        return Job(self.env, self.method, folder, self.budget.episodes, self.budget.seeds, settings, config, label)

    def _suggest(self, trial: Any, name: str) -> Any:
        kind = self.space[name]
        if isinstance(kind, Choice):
            return trial.suggest_categorical(name, kind.values)
        return float(f"{trial.suggest_float(name, kind.low, kind.high, log=kind.log):.4g}")

    def unfinished(self) -> list[Any]:
        """Trials that an earlier call had begun."""
        optuna = require_optuna()
        running = [t for t in self.trials if t.state == optuna.trial.TrialState.RUNNING]
        return [optuna.trial.Trial(self.study, t._trial_id) for t in running]

    def left(self, trials: int) -> int:
        """How many are still to be begun."""
        return max(trials - sum(t.state.name != "WAITING" for t in self.trials), 0)

    def best(self) -> dict[str, Any]:
        """What the study chose, and by what: the content of the tuned file."""
        done = [t for t in self.trials if t.state.name == "COMPLETE"]
        if not done:
            raise TridentError(f"no trial of {self.study.study_name} has come to its end")
        first, top = done[0], max(done, key=lambda t: t.value)
        values = {} if top.number == 0 else dict(top.user_attrs["config"])
        counted = [t for t in self.trials if t.state.is_finished()]
        return {
            "values": values,
            "study": {
                "trials": len(counted),
                "pruned": sum(t.state.name == "PRUNED" for t in counted),
                "failed": sum(t.state.name == "FAIL" for t in counted),
                **self.study.user_attrs["budget"],
                "score": top.value,
                "preset's score": first.value if first.number == 0 else None,
                "commits": sorted({t.user_attrs["commit"] for t in done if t.user_attrs.get("commit")}),
            },
        }


def tune(study: Study, trials: int, launcher: Launcher, say: Say) -> None:
    """Run trials until there are `trials` of them; whatever ends this, its runs save and stop, and it goes on later."""
    optuna = require_optuna()
    running: dict[Any, tuple[Job, Any, int]] = {}
    begun = [(trial, study.job(trial)) for trial in study.unfinished()]
    launcher.check(study.folder)
    try:
        while begun or running or study.left(trials):
            while len(running) < launcher.at_once and (begun or study.left(trials)):
                trial, job = begun.pop(0) if begun else _ask(study)
                running[trial] = (job, launcher.start([job])[0], 0)
                values = ", ".join(f"{name} {value:g}" for name, value in job.config.items())
                say(f"{job.name} of {trials}: {values}")
            for trial, (job, handle, looked) in list(running.items()):
                status = launcher.poll(handle)
                if status.state == "ended":
                    del running[trial]
                    say(f"{job.name}: {_tell(study, trial, job, reason(job, status))}")
                    continue
                seen = _look(study, trial, job, looked)
                running[trial] = (job, handle, seen)
                if seen > looked and trial.should_prune():
                    launcher.stop(handle)
                    while launcher.poll(handle).state != "ended":
                        time.sleep(PAUSE)
                    del running[trial]
                    study.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                    say(f"{job.name}: pruned after {seen} of {LOOKS} looks")
            time.sleep(PAUSE)
    finally:
        for _, handle, _ in running.values():
            launcher.stop(handle)
        while any(launcher.poll(handle).state != "ended" for _, handle, _ in running.values()):
            time.sleep(PAUSE)


def _ask(study: Study) -> tuple[Any, Job]:
    trial = study.study.ask()
    job = study.job(trial)
    # Before anything runs: a grid that is too large, values that do not go together.
    make_setup(study.env, study.method, Settings(episodes=job.episodes, seeds=job.seeds), dict(job.config))
    trial.set_user_attr("config", dict(job.config))
    return trial, job


def _look(study: Study, trial: Any, job: Job, looked: int) -> int:
    """Tell the study how a run stands, at each tenth of its course."""
    if not is_run(job.folder):
        return looked
    run, records = read_run(job.folder), read(job.folder / RECORDS)
    seen = LOOKS * (records[-1]["round"] if records else 0) // run["rounds"]
    if looked < seen < LOOKS:
        value = score_so_far(study.method, records, study.limits)
        if np.isfinite(value):
            trial.report(value, seen)
        return seen
    return looked


def _tell(study: Study, trial: Any, job: Job, why: str) -> str:
    """A run that has ended is scored; one that crashed, or of which a seed diverged, has failed."""
    optuna = require_optuna()
    result = read_result(job.folder)
    if result is None or result["diverged"]:
        study.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return "FAILED, a seed diverged" if result else f"FAILED, {why}"
    trial.set_user_attr("commit", read_run(job.folder)["commit"])
    value = score(study.method, result["policies"][study.method], study.limits)
    study.study.tell(trial, value)
    return f"score {value:.4f} (best so far {study.study.best_value:.4f})"


def write_tuned(path: Path, env: str, method: str, entry: dict[str, Any]) -> None:
    """Put what a study chose into the tuned file."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known.setdefault(env, {})[method] = entry
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
