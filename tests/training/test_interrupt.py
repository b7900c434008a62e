"""Ctrl-C is heard at once, whatever the main thread does, and loses nothing.

A main thread deep in compiled code is played by a key derivation, which lets other threads run and looks at no signal
until it is done.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import tiny

HEARD = 5.0
"""Seconds; on an idle machine it takes a tenth of one."""
STUCK = f"""
import hashlib, sys
sys.path.insert(0, {str(Path(tiny.__file__).parents[1])!r})
from support import tiny
from trident.training import evaluation, session

def stuck(*_):
    print("STUCK", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # many minutes

def rounds(setup, say=None):
    return build(setup, say)._replace(round=stuck)

build = session.build
"""


class Child:
    """`trident ARGUMENTS`, with something of it replaced."""

    def __init__(self, patch: str, arguments: list[str]) -> None:
        code = f"import trident\n{STUCK}\n{patch}\nfrom trident.cli import main\nsys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},  # jax has set it in this process
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def wait_for(self, text: str, seconds: float = 120.0) -> str:
        end = time.monotonic() + seconds
        while True:
            line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            if text in line:
                return line

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """(exit code, what stands in stderr)"""
        code = self.process.wait(HEARD)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()


@pytest.fixture
def child():
    started: list[Child] = []

    def start(patch: str, *arguments: str) -> Child:
        started.append(Child(patch, list(arguments)))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()


def train(out: Path) -> list[str]:
    return [
        "train",
        "tiny",
        "--algo",
        "tiny",
        "--episodes",
        "20",
        "--seeds",
        "2",
        "--eval-episodes",
        "4",
        "--out",
        str(out),
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_it_compiles_the_command_leaves_at_once_and_says_how_to_go_on(child, tmp_path, number):
    out = tmp_path / "run"
    stuck = child("session.build = stuck", *train(out))
    stuck.wait_for("STUCK")
    stuck.signal(number)
    said = stuck.wait_for("stopped", HEARD)
    assert said == f"stopped while compiling, nothing was lost; to go on: trident resume {out}"
    assert stuck.end() == (128 + number, "")
    assert [p.name for p in out.iterdir()] == ["run.json"], "what `trident resume` starts from"


def test_in_a_long_round_the_first_is_heard_and_the_second_ends_it_without_noise(child, tmp_path):
    stuck = child("session.build = rounds", *train(tmp_path / "run"))
    stuck.wait_for("STUCK")
    stuck.signal(signal.SIGINT)
    assert stuck.wait_for("stopping", HEARD) == "stopping after this round (once more to quit at once)"
    assert stuck.process.poll() is None, "the round may end"
    stuck.signal(signal.SIGINT)
    assert stuck.end() == (128 + signal.SIGINT, "")


def test_after_training_a_result_is_kept_before_the_references_are_played(child, tmp_path):
    out = tmp_path / "run"
    stuck = child("evaluation.assess_scripted = stuck", *train(out))
    stuck.wait_for("cost use <= 0.4 rate")
    assert stuck.wait_for("evaluating random") == "evaluating random 1/1 on the same episodes ..."
    stuck.wait_for("STUCK")
    stuck.signal(signal.SIGINT)
    assert f"nothing of it was lost. For the rest: trident resume {out}" in stuck.wait_for("stopped", HEARD)
    assert stuck.end() == (128 + signal.SIGINT, "")
    result = json.loads((out / "result.json").read_text())
    assert (list(result["policies"]), result["pending"]) == (["tiny"], ["random"])
    again = child("", "resume", str(out))
    again.wait_for("everything is in")
    assert again.process.wait(30) == 0
    result = json.loads((out / "result.json").read_text())
    assert (list(result["policies"]), "pending" in result) == (["tiny", "random"], False)


def test_any_command_that_does_not_hear_is_left(child):
    stuck = child("from trident.envs.checks import values\nvalues.find_faults = stuck", "check", "tiny")
    stuck.wait_for("STUCK")
    stuck.signal(signal.SIGINT)
    assert stuck.end() == (130, "trident: interrupted\n")


def test_jobs_that_start_in_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    from trident.training import session
    from trident.training.settings import Settings, make_setup

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-000000")
    setup, made, gate = make_setup("tiny", "tiny", Settings()), [], threading.Barrier(16)

    def job() -> None:
        gate.wait()
        made.append(session.new_folder(setup))

    jobs = [threading.Thread(target=job) for _ in range(16)]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert len(set(made)) == 16
    assert all(folder.is_dir() and not os.listdir(folder) for folder in made)
    assert Path("runs/tiny-tiny-20260101-000000") in made
    assert Path("runs/tiny-tiny-20260101-000000-16") in made


def test_a_mistake_leaves_no_folder_behind(tmp_path, monkeypatch):
    from trident.errors import TridentError
    from trident.training import session
    from trident.training.settings import Settings, make_setup

    monkeypatch.chdir(tmp_path)
    with pytest.raises(TridentError, match="unknown scripted policy"):
        session.train(make_setup("tiny", "tiny", Settings(warm_start="rndom")), None)
    assert list(tmp_path.iterdir()) == []
