"""Campaigns on a Ray cluster of two nodes (on this machine) and by submitit: what nodes, workers and drivers that are
killed cost.

Whatever happens, the finished table equals, record for record, that of `--launcher local`.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trident.errors import TridentError
from trident.launch import remote
from trident.launch.board import Board
from trident.launch.campaign import run_all
from trident.launch.job import Job, Launcher
from trident.launch.local import Local
from trident.launch.options import LaunchOptions, make_launcher
from trident.report.records import last_line

pytestmark = pytest.mark.ray
ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
pytest.importorskip("submitit")

TINY = {"envs": 4, "steps": 8, "hidden": [8], "critic_hidden": [8], "epochs": 1, "minibatches": 1}
QUICK = {"checkpoint_every": 0.0, "eval_episodes": 2, "references": False, "check_env": False}
DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from launch import test_clusters as t
from trident.launch.board import Board
from trident.launch.campaign import run_all
from trident.launch.on_ray import OnRay
run_all(t.jobs(Path({out!r})), OnRay({address!r}, None, 1, 0.0), Board(sys.stdout))
"""


def jobs(out: Path, rounds: int = 400) -> list[Job]:
    episodes = rounds * 32 // 4  # of probe-value: TINY has 32 steps a round
    return [Job("probe-value", "mappo", out / f"mappo-{i}", episodes, 1, QUICK | {"seed": i}, TINY) for i in (0, 1)]


def content(job: Job) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All that is in its records, but for times."""
    lines = (job.folder / "records.jsonl").read_text().splitlines()
    records = [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "digest")} for line in lines]
    result = json.loads((job.folder / "result.json").read_text())
    return records, {k: v for k, v in result.items() if k != "digest"}


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What `--launcher local` leaves."""
    mine = jobs(tmp_path_factory.mktemp("local"))
    assert run_all(mine, Local(1, cores=1), Board(io.StringIO())) == {}
    return [content(job) for job in mine]


@pytest.fixture
def cluster() -> Iterator[Any]:
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def second(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1)


def launcher(cluster: Any) -> Launcher:
    from trident.launch.on_ray import OnRay

    return OnRay(cluster.address, None, 1, 0.0)


def when_both_run(mine: list[Job], act: Callable[[], None]) -> threading.Thread:
    """As soon as every job has played some rounds."""

    def watch() -> None:
        while not all((last_line(job.folder / "records.jsonl") or {"round": 0})["round"] > 5 for job in mine):
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def children_of(pid: int) -> list[int]:
    return [int(n) for task in Path(f"/proc/{pid}/task").iterdir() for n in (task / "children").read_text().split()]


def trainings() -> dict[int, int]:
    """Our running trainings, and the worker of each."""
    mine: dict[int, int] = {}
    todo = [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            below = children_of(pid)
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        todo += below
        if b"trident" in words and (b"train" in words or b"resume" in words):
            mine[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return mine


def campaign(mine: list[Job], cluster: Any) -> str:
    stream, on_ray = io.StringIO(), launcher(cluster)
    assert run_all(mine, on_ray, Board(stream)) == {}
    return stream.getvalue()


def test_a_killed_node_costs_what_was_not_saved(tmp_path, cluster, second, expected):
    mine = jobs(tmp_path)
    thread = when_both_run(mine, lambda: cluster.remove_node(second, allow_graceful=False))
    said = campaign(mine, cluster)
    thread.join(10.0)
    assert said.count("lost, ") == 1, said
    assert "round" not in said
    assert [content(job) for job in mine] == expected


def test_killed_workers_and_trainings_are_started_again(tmp_path, cluster, second, expected):
    mine = jobs(tmp_path)

    def kill() -> None:
        first, other = sorted(trainings().items())
        os.kill(first[0], signal.SIGKILL)  # the training itself, as when memory runs out
        os.kill(other[1], signal.SIGKILL)  # Ray's worker above the other one

    thread = when_both_run(mine, kill)
    said = campaign(mine, cluster)
    thread.join(10.0)
    assert said.count("lost, ") == 2, said
    assert [content(job) for job in mine] == expected


def test_a_killed_driver_loses_nothing(tmp_path, cluster, second, expected):
    mine = jobs(tmp_path)
    text = DRIVER.format(tests=str(Path(__file__).parents[1]), out=str(tmp_path), address=cluster.address)
    driver = subprocess.Popen([sys.executable, "-c", text])
    when_both_run(mine, driver.kill).join(300.0)
    driver.wait()
    campaign(mine, cluster)
    assert [content(job) for job in mine] == expected


def test_ctrl_c_stops_everything_in_good_order(tmp_path, cluster, second, expected):
    mine = jobs(tmp_path)
    when_both_run(mine, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TridentError, match="interrupted: every run was saved"):
        run_all(mine, launcher(cluster), Board(io.StringIO()))
    assert trainings() == {}
    assert not all((job.folder / "result.json").exists() for job in mine)
    campaign(mine, cluster)
    assert [content(job) for job in mine] == expected


def test_what_is_wrong_is_said_before_anything_starts(tmp_path, cluster, monkeypatch):
    on_ray = launcher(cluster)
    assert on_ray.at_once == 1
    on_ray.check(tmp_path)
    assert not list(tmp_path.iterdir()), "the token is gone"
    here = remote.this_machine()
    monkeypatch.setattr(remote, "this_machine", lambda: here._replace(versions=here.versions | {"jax": "0.9.0"}))
    with pytest.raises(TridentError, match=r"node [\d.]+ has jax .*, here is 0.9.0: install the same everywhere"):
        on_ray.check(tmp_path)
    monkeypatch.setattr(on_ray, "_gpus", 2.0)
    with pytest.raises(TridentError, match="no node of the Ray cluster has the 1 cores and 2 GPUs of a run"):
        on_ray.check(tmp_path)


def on_slurm() -> Launcher:
    return make_launcher(LaunchOptions(launcher="slurm", cores=1, slurm={"cluster": "local"}))


def test_jobs_by_submitit_that_are_killed_or_stopped_go_on(tmp_path, expected):
    mine, stream = jobs(tmp_path), io.StringIO()
    when_both_run(mine, lambda: os.kill(min(trainings()), signal.SIGKILL))
    assert run_all(mine, on_slurm(), Board(stream)) == {}
    assert stream.getvalue().count("lost, killed by signal 9") == 1, stream.getvalue()
    assert [content(job) for job in mine] == expected


def test_ctrl_c_stops_jobs_by_submitit(tmp_path, expected):
    mine = jobs(tmp_path)
    when_both_run(mine, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TridentError, match="interrupted: every run was saved"):
        run_all(mine, on_slurm(), Board(io.StringIO()))
    assert trainings() == {}
    assert not all((job.folder / "result.json").exists() for job in mine)
    assert run_all(mine, on_slurm(), Board(io.StringIO())) == {}
    assert [content(job) for job in mine] == expected
