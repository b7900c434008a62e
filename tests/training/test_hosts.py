"""Two hosts of two devices each, over loopback: one run, one writer; what one decides both do; a dead one is missed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tiny

from trident.errors import TridentError
from trident.report import records as recording
from trident.report.progress import Silent
from trident.training import checkpoint, hosts, session

SUPPORT = Path(tiny.__file__).parent
LONG = 400_000  # episodes: a run that does not end by itself
GONE = "trident: another host is gone: stopped, what the last checkpoint holds is safe"


def start(out: Path, *words: str) -> list[subprocess.Popen[str]]:
    """`trident ...` on both hosts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    path = os.pathsep.join([str(SUPPORT.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return [
        subprocess.Popen(
            [sys.executable, SUPPORT / "tiny.py", *words, "--hosts", f"127.0.0.1:{port},2,{index}"],
            env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=out.parent,
        )
        for index in range(2)
    ]


def train(out: Path, episodes: int) -> list[subprocess.Popen[str]]:
    words = ("--episodes", str(episodes), "--seeds", "2", "--eval-episodes", "0", "--no-check-env", "--no-video")
    return start(out, "train", "tiny", "--algo", "tiny", *words, "--checkpoint-every", "0", "--out", str(out))


def ends(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """(exit code, output, errors) of each."""
    try:
        return [(p.wait(300), *p.communicate()) for p in processes]
    finally:
        for process in processes:
            process.kill()


def wait_for_round(both: list[subprocess.Popen[str]], out: Path, round_: int) -> None:
    while max(checkpoint.rounds(out / "checkpoints"), default=0) < round_:
        if any(process.poll() is not None for process in both):
            pytest.fail(str(ends(both)))
        time.sleep(0.1)


def test_two_hosts_stop_together_resume_and_miss_each_other(tmp_path):
    out = tmp_path / "run"
    both = train(out, LONG)
    wait_for_round(both, out, 2)
    both[1].send_signal(signal.SIGINT)  # one hears it, both stop after the same round
    first, second = ends(both)
    assert (first[0], second[0]) == (130, 130), first + second
    assert "stopped after round" in first[1]
    assert second[1:] == ("", "")  # host 0 alone speaks
    stopped = checkpoint.rounds(out / "checkpoints")[0]
    assert recording.read(out / "records.jsonl")[-1]["round"] == stopped

    both = start(out, "resume", str(out))
    wait_for_round(both, out, stopped + 2)
    both[1].kill()
    first, _ = ends(both)
    assert first[0] == 75
    assert first[2].startswith(GONE)
    assert first[2].count("\n") == 1
    assert f"trident resume {out}" in first[2]
    assert f"going on after round {stopped}" in first[1]

    # What two hosts have done is what one does, to rounding.
    session.train(session.setup_of(out), tmp_path / "alone", Stopping(4))
    rows, mine = (recording.read(path / "records.jsonl")[:4] for path in (out, tmp_path / "alone"))
    assert [r["round"] for r in rows] == [r["round"] for r in mine] == [1, 2, 3, 4]
    for name in ("reward", "cost/use", "kl", "cumulative_cost/noise"):
        assert np.allclose(*([r["values"][name] for r in some] for some in (rows, mine)), rtol=1e-4), name


class Stopping(Silent):
    """Stops the run after a round."""

    def __init__(self, at: int) -> None:
        self.at = at

    def update(self, record: Any) -> None:
        if record["round"] == self.at:
            os.kill(os.getpid(), signal.SIGINT)


def test_what_hosts_must_have_in_common(tmp_path, monkeypatch):
    said = {"jax": "1"}
    monkeypatch.setattr(hosts, "exchange", lambda text: [text, text.replace("1", "2")])
    with pytest.raises(TridentError, match="hosts need the same jax: host 0 has 1, host 1 has 2"):
        hosts.check_same(said)
    monkeypatch.setattr(hosts, "several", lambda: True)
    monkeypatch.setattr(hosts, "exchange", lambda text: [text, ""])
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(TridentError, match=r"host 1 does not see .* all hosts need the same storage"):
        hosts.check_shared(tmp_path / "run.json")


@pytest.mark.parametrize("text", ["somewhere", "a:1,2", "a:1,2,x", "a,2,0", "a:1,2,2"])
def test_a_mistyped_host_is_one_line(text):
    with pytest.raises(TridentError, match="--hosts"):
        hosts.membership(text)


def test_hosts_are_found_under_srun_alone(monkeypatch):
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert hosts.membership(None) is None
    monkeypatch.setenv("SLURM_PROCID", "0")  # a batch job of one task
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert hosts.membership(None) is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert hosts.membership(None) == "auto"
    assert hosts.membership("none") is None
    assert hosts.membership("10.0.0.1:4321,2,1") == ("10.0.0.1:4321", 2, 1)
