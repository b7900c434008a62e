"""What is decided before a job leaves for another machine, and what happens to it there; without a cluster."""

import sys
import time
import types
from pathlib import Path

import pytest

from trident.cli import main
from trident.errors import TridentError
from trident.launch import child, on_ray, on_slurm, remote
from trident.launch.job import Job
from trident.launch.options import LaunchOptions, make_launcher
from trident.run_directory import alone

HERE = remote.this_machine()


def job(folder: Path) -> Job:
    return Job("probe-value", "mappo", folder, 4, 2)


def test_machines_that_compute_otherwise_are_named(tmp_path):
    there = HERE._replace(name="node 10.0.0.7")
    assert list(remote.faults(HERE, there, True, tmp_path)) == []
    other = there._replace(versions=there.versions | {"jax": "0.9.0", "trident": "none"})
    assert list(remote.faults(HERE, other, False, tmp_path)) == [
        f"node 10.0.0.7 has jax 0.9.0, here is {HERE.versions['jax']}: install the same everywhere",
        f"node 10.0.0.7 has trident none, here is {HERE.versions['trident']}: install the same everywhere",
        f"node 10.0.0.7 does not see {tmp_path}: put --out on storage that all machines share",
    ]


def test_a_machine_is_asked_whether_it_sees_the_folder(tmp_path):
    token = tmp_path / "token"
    assert remote.look(token) == (HERE, False)
    token.touch()
    assert remote.look(token) == (HERE, True)
    assert list(tmp_path.iterdir()) == [token]


def test_work_runs_the_job_in_a_process_and_says_where(tmp_path, monkeypatch):
    one = job(tmp_path / "mappo")
    says = "import os, sys; print(os.environ['WORD'], sys.argv[1:]); sys.exit(3)"
    monkeypatch.setattr(child, "command", lambda words, cores: [sys.executable, "-c", says, words[0]])
    assert remote.Work(one, 1, "abc", {"WORD": "hello"})() == 3
    seen = remote.Sighting(one, "abc")
    assert seen.look() == HERE.name
    assert "hello ['train']" in one.log.read_text()
    assert remote.Sighting(one, "another").look() == ""


def test_whoever_writes_the_run_is_waited_for(tmp_path, monkeypatch):
    one = job(tmp_path / "mappo")
    one.folder.mkdir()
    monkeypatch.setattr(child, "command", lambda *_: [sys.executable, "-c", ""])
    held = alone(one.folder)
    held.__enter__()
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            held.__exit__(None, None, None)

    monkeypatch.setattr(remote.time, "sleep", sleep)
    assert remote.Work(one, 1, "abc")() == 0
    assert slept[:2] == [remote.LOOK, remote.LOOK]


def test_work_that_is_interrupted_stops_its_training(tmp_path, monkeypatch):
    one = job(tmp_path / "mappo")
    monkeypatch.setattr(child, "command", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    interrupts = iter([KeyboardInterrupt])
    pause = time.sleep

    def sleep(seconds):
        for interrupt in interrupts:
            raise interrupt
        pause(0.01)

    monkeypatch.setattr(remote.time, "sleep", sleep)
    assert remote.Work(one, 1, "abc")() == -15


def test_an_unlike_machine_refuses_the_job(tmp_path):
    older = HERE._replace(versions=HERE.versions | {"python": "3.8"})
    with pytest.raises(TridentError, match=f"{HERE.name} has python .*, here is 3.8"):
        remote.Work(job(tmp_path / "mappo"), 1, "abc", planned=older)()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--launcher ray", "--launcher ray needs the extra ray"),
        ("--launcher slurm", "--launcher slurm needs the extra slurm"),
        ("--launcher ray --jobs 0", "--jobs must be"),
        ("--address here:1", "--address needs --launcher ray"),
        ("--slurm time=9", "--slurm needs --launcher slurm"),
        ("--launcher slurm --slurm time", "--slurm wants NAME=VALUE"),
        ("--gpus 1", "--gpus needs --launcher ray or slurm"),
        ("--cores 4096", "--cores 4096: this process may use"),
    ],
)
def test_what_cannot_be_launched_is_one_line(tmp_path, monkeypatch, capsys, words, message):
    for name in ("ray", "submitit"):
        monkeypatch.setitem(sys.modules, name, None)
    command = f"bench table1 --methods random --episodes 1 --seeds 1 --out {tmp_path / 'x'} {words}"
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    with pytest.raises(TridentError, match=r"no Ray cluster at 127.0.0.1:1 \(.*refused\): `ray start --head` begins"):
        make_launcher(LaunchOptions(launcher="ray", address="127.0.0.1:1"))
    with pytest.raises(TridentError, match="run this on a machine of the cluster"):
        on_ray.connect("ray://head:10001")
    with pytest.raises(TridentError, match="wants HOST:PORT"):
        on_ray.connect("head:x")
    monkeypatch.setitem(sys.modules, "submitit", types.ModuleType("submitit"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TridentError, match="no Slurm here: sbatch is not found"):
        make_launcher(LaunchOptions(launcher="slurm"))
    with pytest.raises(TridentError, match="cluster=mars: there are slurm, and local"):
        make_launcher(LaunchOptions(launcher="slurm", slurm={"cluster": "mars"}))


def test_as_many_runs_at_once_as_fit_on_the_nodes():
    assert on_ray.room({"CPU": 16.0, "memory": 1e9}, 2, 0.0) == 8
    assert on_ray.room({"CPU": 16.0, "GPU": 1.0}, 2, 0.5) == 2
    assert on_ray.room({"CPU": 1.0}, 2, 0.0) == on_ray.room({"CPU": 16.0}, 2, 1.0) == 0


def test_sbatch_gets_what_it_is_told():
    told = on_slurm._parameters({"partition": "cpu", "time": "90", "cluster": "slurm"}, 8, 2, 1)
    assert told == {
        "name": "trident", "timeout_min": 90, "cpus_per_task": 2, "gpus_per_node": 1,
        "slurm_array_parallelism": 8, "slurm_additional_parameters": {"partition": "cpu"},
    }  # fmt: skip
    with pytest.raises(TridentError, match="time=1h: it is a whole number of minutes"):
        on_slurm._parameters({"time": "1h"}, None, 2, 0)


def test_a_run_is_asked_to_stop_by_a_file_once_it_has_played(tmp_path, monkeypatch):
    """A cancelled task of Ray went on to its end: the run itself has to be asked."""
    one = job(tmp_path / "mappo")
    one.folder.mkdir()
    assert not remote.asked_to_stop(one)
    assert not list(one.folder.iterdir())
    monkeypatch.setattr(remote.records, "last_line", lambda _: {"round": 1})
    assert remote.asked_to_stop(one)
    assert [path.name for path in one.folder.iterdir()] == ["stop"]
