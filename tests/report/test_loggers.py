"""Trackers are told everything once, and can neither block nor end a run."""

from __future__ import annotations

import json
import time

import pytest
from support.records import record, write_run

from trident.errors import TridentError
from trident.report import loggers, trackers
from trident.report.loggers import Follower, check_trackers, send


class Listener:
    """A tracker that keeps what it is told."""

    heard: list = []  # noqa: RUF012

    def __init__(self, seed):
        self.id, self.seed = seed.id or f"id-{seed.name}", seed
        self.heard.append(("open", seed.name, seed.id))

    def log(self, values, step):
        self.heard.append((self.seed.name, step, values))

    def conclude(self, values):
        self.heard.append((self.seed.name, "evaluated", values))

    def close(self):
        self.heard.append(("close", self.seed.name))


@pytest.fixture
def heard(monkeypatch):
    monkeypatch.setattr(Listener, "heard", [])
    return lambda kind=None: [x for x in Listener.heard if kind is None or kind in x]


def over_after(looks, then=lambda: None):
    """Whether a run is over: at that look, before which something happens."""
    count = iter(range(looks))

    def over():
        look = next(count, looks)
        if look == looks - 1:
            then()
        return look >= looks - 1

    return over


def test_each_seed_is_told_every_round_once_and_its_evaluation(tmp_path, heard, monkeypatch):
    monkeypatch.setattr(trackers, "LOOK_EVERY", 0.0)
    run = write_run(tmp_path / "r", seeds=2, rounds=6, done=3)
    (run / "trackers").mkdir()
    lines = [json.dumps(record(i, (0.1, 0.2), 2)) + "\n" for i in range(4, 7)]

    def grow():
        with (run / "records.jsonl").open("a") as file:
            file.write("".join(lines)[:-5])  # the last line is torn

    trackers.follow(Listener, "listener", run, "demo", over_after(2, grow))
    assert [x[1] for x in heard("r-seed-0") if len(x) == 3 and x[0] != "open"] == [
        3200, 6400, 9600, 12800, 16000, "evaluated",
    ]  # fmt: skip
    first, second = heard("r-seed-1")[1], heard("r-seed-1")[2]
    assert first[2]["reward"] == pytest.approx(-9.01)
    assert second[2]["cost/energy"] == pytest.approx(0.004 * 1.02 * 2.5)
    assert heard("evaluated")[1][2]["eval/reward"] == pytest.approx(-5.21)
    assert heard()[-2:] == [("close", "r-seed-0"), ("close", "r-seed-1")]

    Listener.heard.clear()  # a resumed run writes the same numbers again, and goes on
    (run / "records.jsonl").write_text("".join(json.dumps(record(i, (0.1, 0.2), 2)) + "\n" for i in range(1, 7)))
    trackers.follow(Listener, "listener", run, "demo", over_after(1))
    assert heard()[:2] == [("open", "r-seed-0", "id-r-seed-0"), ("open", "r-seed-1", "id-r-seed-1")]
    assert [x[1] for x in heard("r-seed-0")[1:-1]] == [6 * 3200, "evaluated"]


def test_long_curves_are_thinned_and_gaps_left_out(tmp_path, heard, monkeypatch):
    monkeypatch.setattr(trackers, "POINTS", 3)
    run = write_run(tmp_path / "r", seeds=1, rounds=8, finished=False)
    (run / "trackers").mkdir()
    rows = [record(i, (0.1, 0.2), 1) for i in range(1, 9)]
    rows[7]["values"]["kl"] = [None]
    (run / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trackers.follow(Listener, "listener", run, "demo", over_after(1))
    told = [x for x in heard("r-seed-0") if len(x) == 3 and x[0] != "open"]
    assert [x[1] // 3200 for x in told] == [2, 4, 6, 8]
    assert "kl" in told[0][2]
    assert "kl" not in told[-1][2]


def package(tmp_path, monkeypatch, code):
    """A package called trackio that does this when it is imported."""
    (tmp_path / "trackio.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_one_that_hangs_is_left_behind(tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(loggers, "PATIENCE", 0.3)
    run, said = write_run(tmp_path / "r"), []
    begun = time.monotonic()
    all_ = loggers.Followers(run, ["trackio"], "demo", said.append)
    process = all_.each[0].process
    all_.write(record(1, (0.1, 0.2), 1))
    all_.close()
    assert time.monotonic() - begun < 30.0
    assert process.poll() is not None
    assert said == [
        f"no more for trackio: it did not keep up within 0.3 s ({run}/trackers/trackio.log); the run goes on, and "
        f"`trident report {run} --trackers trackio` sends the rest"
    ]


def test_one_that_fails_is_named_once(tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, "raise RuntimeError('no account')\n")
    run, said = write_run(tmp_path / "r"), []
    follower = Follower("trackio", run, "demo", said.append)
    follower.process.wait(120)
    for _ in range(3):
        follower.write({})
    follower.close()
    assert said == [f"trackio: RuntimeError: no account ({run}/trackers/trackio.log)"]
    with pytest.raises(TridentError, match=r"^trackio: RuntimeError: no account"):
        send(run, "trackio", "demo")


def test_what_is_not_installed_is_said_before_anything_starts(monkeypatch):
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TridentError, match=r"mlflow is not installed: pip install 'trident-marl\[mlflow\]'"):
        check_trackers(["mlflow"])
    with pytest.raises(TridentError, match="unknown tracker 'comet': there are wandb, mlflow, trackio"):
        check_trackers(["comet"])


# --- the packages themselves, offline -------------------------------------------------------------


@pytest.fixture
def sent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = write_run(tmp_path / "r", seeds=2, rounds=4)

    def to(name):
        for _ in range(2):  # the second time there is nothing new but the evaluation
            send(run, name, "demo")
        return run

    return to


@pytest.mark.adapters
def test_mlflow(sent):
    client_of = pytest.importorskip("mlflow", reason="make test-adapters").MlflowClient
    sent("mlflow")
    client = client_of("sqlite:///mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("demo").experiment_id])
    assert sorted(r.info.run_name for r in runs) == ["r-seed-0", "r-seed-1"]
    first = next(r for r in runs if r.data.params["seed"] == "0")
    assert first.info.status == "FINISHED"
    assert first.data.params["limit.energy"] == "0.01"
    history = client.get_metric_history(first.info.run_id, "reward")
    assert [(m.step, m.value) for m in history] == [(3200 * i, pytest.approx(-5.0 - 4.0 / i)) for i in range(1, 5)]
    assert first.data.metrics["eval/reward"] == pytest.approx(-5.2)


@pytest.mark.adapters
def test_trackio(sent):
    trackio = pytest.importorskip("trackio", reason="make test-adapters")
    sqlite = pytest.importorskip("trackio.sqlite_storage")
    sent("trackio")
    runs = {r.name: r for r in trackio.Api().runs("demo")}
    assert sorted(runs) == ["r-seed-0", "r-seed-1"]
    assert runs["r-seed-1"].config["seed"] == 1
    logs = sqlite.SQLiteStorage.get_logs("demo", "r-seed-1")
    assert [row["reward"] for row in logs if "reward" in row] == pytest.approx([-9.01, -7.01, -5.01 - 4 / 3, -6.01])


@pytest.mark.adapters
def test_wandb_offline_keeps_everything_in_the_run(sent):
    pytest.importorskip("wandb", reason="make test-adapters")
    run = sent("wandb")
    kept = [path for path in (run / "trackers" / "wandb").glob("offline-run-*/*.wandb") if path.stat().st_size]
    assert len(kept) == 4  # two seeds, handed over twice
    ids = json.loads((run / "trackers" / "wandb.json").read_text())["runs"]
    assert {path.stem.removeprefix("run-") for path in kept} == set(ids.values())
