"""Jobs on this machine: they end with whoever started them, lost ones go on, cores are their own; what is seen."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.run_files import write_files

from trident.errors import TridentError
from trident.launch import campaign, child
from trident.launch.board import Board, Row
from trident.launch.campaign import run_all
from trident.launch.job import Job, Status, words
from trident.launch.local import Local, usual_jobs
from trident.launch.options import LaunchOptions, make_launcher


def job(folder: Path, **more) -> Job:
    return Job("probe-value", "mappo", folder, 4, 2, **more)


def scripted(monkeypatch, text: str) -> None:
    """Children run this instead of trident; their last argument is what would be the run directory."""
    monkeypatch.setattr(child, "command", lambda words, _: [sys.executable, "-c", text, words[-1]])


def test_children_end_with_the_command(tmp_path, monkeypatch):
    """Killed, it once left its trainings running, to write into the same folders as those of the next call."""
    scripted(monkeypatch, "import time; print('begun', flush=True); time.sleep(60)")
    children: list[subprocess.Popen] = []
    start = child.start
    monkeypatch.setattr(child, "start", lambda *a: children.append(start(*a)) or children[-1])
    draw = Board.draw

    def killed(board):
        signal.raise_signal(signal.SIGTERM)
        draw(board)

    monkeypatch.setattr(Board, "draw", killed)
    with pytest.raises(TridentError, match="interrupted: every run was saved"):
        run_all([job(tmp_path / "mappo")], Local(1), Board(io.StringIO()))
    assert [child.poll() for child in children] == [-signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_child_ends_with_a_parent_that_was_killed(tmp_path):
    """Killed with no time to say good-bye, the command once left its trainings behind."""
    (tmp_path / "sleeper.py").write_text("import time; print('begun', flush=True); time.sleep(60)")
    command = "[sys.executable, '-c', sys.argv[1], str(os.getpid()), '', 'sleeper']"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import os, subprocess, sys; subprocess.run({command})", child.LAUNCH],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "begun\n"
    began = time.monotonic()
    parent.kill()
    assert parent.stdout.read() == ""  # the pipe is closed when nobody is left who holds it
    assert time.monotonic() - began < 30.0
    late = subprocess.run([sys.executable, "-c", child.LAUNCH, "1", "", "sleeper"], capture_output=True, cwd=tmp_path)
    assert late.returncode == 1, "its parent had ended before it began"


DIES = """
import os, pathlib, signal, sys
seen = pathlib.Path(sys.argv[1] + ".seen")
seen.write_text(seen.read_text() + "x" if seen.exists() else "x")
if len(seen.read_text()) <= DEATHS:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_job_that_was_killed_goes_on_and_one_that_always_is_does_not(tmp_path, monkeypatch):
    scripted(monkeypatch, DIES.replace("DEATHS", "2"))
    stream, one = io.StringIO(), job(tmp_path / "mappo")
    assert run_all([one], Local(1), Board(stream)) == {}
    assert stream.getvalue().count("lost, killed by signal 9") == 2
    scripted(monkeypatch, DIES.replace("DEATHS", "99"))
    assert "killed by signal 9: it said nothing" in run_all([one], Local(1), Board(stream))[one]
    assert stream.getvalue().count("started") == 3 + campaign.LOSSES


def test_losses_count_from_the_round_the_run_has_reached(tmp_path):
    one, seen = job(write_run(tmp_path / "mappo", rounds=4)), [-1, 0]
    again = [campaign._may_try_again(one, seen) for _ in range(campaign.LOSSES)]
    assert again == [True] * (campaign.LOSSES - 1) + [False]
    write_run(tmp_path / "mappo", rounds=5)
    assert campaign._may_try_again(one, seen)


def test_jobs_have_cores_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(child.tempfile, "tempdir", str(tmp_path))  # apart from jobs that run on this machine now
    usable = child.usable_cores()
    with child.own_cores(1) as first, child.own_cores(1) as second:
        assert len(first) == len(second) == 1
        assert set(first) | set(second) <= set(usable)
        assert len(usable) == 1 or first != second
        with child.own_cores(len(usable)) as all_of_them:
            assert list(all_of_them) == usable, "shared, if there are not enough"
    with child.own_cores(None) as none:
        assert none == ()
    (tmp_path / "cores_of.py").write_text("import os; print(sorted(os.sched_getaffinity(0)))")
    last = [sys.executable, "-c", child.LAUNCH, str(os.getpid()), str(usable[-1]), "cores_of"]
    ran = subprocess.run(last, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(ran.stdout) == usable[-1:], ran.stderr


def test_half_of_the_usable_cores_is_used(monkeypatch):
    for cores, jobs in ((1, 1), (2, 1), (3, 1), (8, 4)):
        monkeypatch.setattr(child, "usable_cores", lambda n=cores: list(range(n)))
        assert usual_jobs() == jobs
        assert usual_jobs(1) == cores
    with pytest.raises(TridentError, match="--cores 9: this process may use 8"):
        make_launcher(LaunchOptions(cores=9))
    with pytest.raises(TridentError, match=r"--jobs must be .*at least 1"):
        make_launcher(LaunchOptions(jobs=0))


def test_a_job_says_what_trident_is_told(tmp_path):
    one = job(tmp_path / "x", settings={"limit": {"use": 0.25, "noise": 1.0}, "seed": 3}, config={"lr": 0.01})
    text = " ".join(words(one))
    assert text.startswith("train probe-value --algo mappo --episodes 4 --seeds 2 --seed 3 --limit use=0.25 noise=1.0")
    assert "--no-video --algo.lr 0.01" in text
    assert one.name == "mappo on probe-value"
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text("{}")
    assert words(one) == ["resume", str(tmp_path / "x")]


def write_run(folder: Path, rounds: int) -> Path:
    rows = [
        {"round": i + 1, "env_steps": 8.0, "episodes": 1.0, "seconds": 2.0 * (i + 1), "diverged": {},
         "values": {"reward": [-9.0, -7.0 + i]}}
        for i in range(rounds)
    ]  # fmt: skip
    run = {"env": "probe-value", "algo": "mappo", "constraints": [], "horizon": 4, "metrics": [], "rounds": 20,
           "settings": {"episodes": 4, "seeds": [0, 1]}}  # fmt: skip
    write_files(folder, run, {"policies": {}, "seeds": [0, 1]}, rows)
    return folder


def test_the_table_shows_round_reward_time_left_and_why(tmp_path):
    stream = io.StringIO()
    board = Board(stream, every=0.0)
    rows = [Row("trident on a", write_run(tmp_path / "a", 5)), Row("mappo on a", tmp_path / "b"), Row("c", tmp_path)]
    board.begin(rows)
    board.now(rows[0], "running", "node-7")
    board.now(rows[1], "waiting")
    board.now(rows[2], "running")
    board.end(rows[2], "exit code 3: out of luck")
    board.draw()
    assert rows[0].cells == ("trident on a", "running", "5/20", "-6", "0:30", "node-7")
    assert rows[1].cells[:2] == ("mappo on a", "waiting")
    assert rows[2].cells == ("c", "crashed", "", "", "", "exit code 3: out of luck")
    assert "1 crashed, 1 running, 1 waiting; 0:30 left of those that run" in stream.getvalue()
    assert "trident on a: started on node-7" in stream.getvalue()
    assert board.table().row_count == 3


def test_what_counts_as_lost():
    lost = [code for code in (0, 1, 2, 74, 130, 143, -9, -15, None) if campaign._is_lost(Status("ended", code))]
    assert lost == [143, -9, -15, None]
