"""The audit log: whole, chained, rotated, replayed; and a control loop that a full disk does not stop."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from support import bundles

from trident.errors import TridentError
from trident.runtime import Audit, Guard, replay
from trident.runtime.audit import files_of, verify
from trident.runtime.command import main


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return bundles.make(tmp_path_factory.mktemp("audit") / "toy")


def flown(bundle, folder, steps=30, **options):
    log = Audit(folder, **options)
    guard = Guard(bundle, audit=log, seed=4, clock=lambda: 5.0)
    rng = np.random.default_rng(0)
    for t in range(steps):
        if t == 10:
            guard.override.take(by="Ada")
        if t == 12:
            guard.override.release(by="Ada")
        obs = rng.normal(scale=0.8, size=(3, 4))
        obs[0, 0] = np.nan if t % 7 == 3 else obs[0, 0]
        guard.decide(obs, cost=rng.random(2) * 0.1, state=rng.normal(size=2))
    log.close()
    return guard


def test_a_log_is_followed_and_replayed_bit_for_bit(bundle, tmp_path, capsys):
    flown(bundle, tmp_path / "log")
    report = verify(tmp_path / "log")
    assert (report.decisions, report.entries) == (30, 33)  # the start, and a hand that took over and let go
    assert report.branches["override"] == 6
    assert replay(tmp_path / "log", bundle) == (30, [])
    assert main(["audit", str(tmp_path / "log"), "--replay", str(bundle.folder), "--head", report.head]) == 0
    said = capsys.readouterr().out
    assert "the chain is whole" in said
    assert "replayed: 30 decisions, bit for bit the same" in said


def lines(folder):
    path = files_of(folder)[0]
    return path, path.read_text().splitlines(keepends=True)


def change(entry):
    body = json.loads(entry)
    body["mode"][0] = 1 - body["mode"][0]
    return json.dumps(body) + "\n"


@pytest.mark.parametrize(("tamper", "message"), [
    (lambda rows: [*rows[:5], change(rows[5]), *rows[6:]], "jsonl:6 was tampered with"),
    (lambda rows: [*rows[:5], *rows[6:]], "jsonl:6 does not follow"),
    (lambda rows: [*rows[:5], rows[6], rows[5], *rows[7:]], "jsonl:6 does not follow"),
    (lambda rows: [*rows[:5], rows[5], rows[5], *rows[6:]], "jsonl:7 does not follow"),
    (lambda rows: rows[1:], "jsonl:1 does not follow"),
    (lambda rows: [*rows[:5], "gone\n", *rows[6:]], "jsonl:6 was tampered with: it is not an entry"),
])  # fmt: skip
def test_a_log_that_was_tampered_with_says_where(bundle, tmp_path, tamper, message):
    flown(bundle, tmp_path / "log")
    path, rows = lines(tmp_path / "log")
    path.write_text("".join(tamper(rows)))
    with pytest.raises(TridentError, match=message):
        verify(tmp_path / "log")


def test_a_log_cut_short_is_found_by_its_head(bundle, tmp_path):
    flown(bundle, tmp_path / "log")
    head = verify(tmp_path / "log").head
    path, rows = lines(tmp_path / "log")
    path.write_text("".join(rows[:-2]))
    assert verify(tmp_path / "log").entries == 31
    with pytest.raises(TridentError, match="cut short or replaced"):
        verify(tmp_path / "log", head)


def test_a_replay_sees_what_a_rehashed_log_hides(bundle, tmp_path):
    """Whoever rewrites the whole chain still cannot make the policy have said something else."""
    from trident.runtime.audit import sealed

    flown(bundle, tmp_path / "log")
    path, rows = lines(tmp_path / "log")
    entries = [json.loads(row) for row in rows]
    next(e for e in entries if "branch" in e)["mode"] = [1, 1, 1]
    previous = "0" * 64
    for i, entry in enumerate(entries):
        body = {k: v for k, v in entry.items() if k != "hash"} | {"prev": previous}
        entries[i] = sealed(body)
        previous = entries[i]["hash"]
    path.write_text("".join(json.dumps(e) + "\n" for e in entries))
    verify(tmp_path / "log")
    assert replay(tmp_path / "log", bundle).different == ["audit-000001.jsonl:2"]
    with pytest.raises(TridentError, match="1 of 30 decisions come out differently"):
        main(["audit", str(tmp_path / "log"), "--replay", str(bundle.folder)])


def test_logs_rotate_and_go_on_after_a_restart_and_a_torn_line(bundle, tmp_path):
    flown(bundle, tmp_path / "log", rotate=5_000)
    count = len(files_of(tmp_path / "log"))
    assert count > 3
    with files_of(tmp_path / "log")[-1].open("a") as file:
        file.write('{"n": 99, "half')
    flown(bundle, tmp_path / "log")
    report = verify(tmp_path / "log")
    assert report.decisions == 60
    assert any("torn" in note for note in report.notes)
    assert len(files_of(tmp_path / "log")) == count + 1
    assert replay(tmp_path / "log", bundle) == (60, [])
    middle = verify(files_of(tmp_path / "log")[1])
    assert "the chain before it was not followed" in middle.notes[0]


def test_a_full_disk_does_not_stop_the_loop_and_is_told(bundle, tmp_path, monkeypatch):
    said = []
    log = Audit(tmp_path / "log", say=said.append)
    guard = Guard(bundle, audit=log)
    guard.decide(np.zeros((3, 4)))
    real, full = os.write, [True]

    def write(file, data):
        if not full[0]:
            return real(file, data)
        real(file, data[:10])  # a disk fills up in the middle of a line
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    for _ in range(5):
        assert guard.decide(np.zeros((3, 4))).reasons[0].branch == "policy"
    full[0] = False
    guard.decide(np.zeros((3, 4)))
    assert log.lost == 0
    assert ["cannot be written" in said[0], "5 entries are missing" in said[1]] == [True, True]
    report = verify(tmp_path / "log")
    assert report.decisions == 2
    assert report.notes == ["audit-000001.jsonl:3: 5 entries before it could not be written"]
    with pytest.raises(TridentError, match="5 entries are missing"):
        replay(tmp_path / "log", bundle)


def test_logs_of_other_bundles_and_no_logs(bundle, tmp_path):
    flown(bundle, tmp_path / "log")
    other = bundles.make(tmp_path / "other", back=3)
    with pytest.raises(TridentError, match="of another bundle"):
        replay(tmp_path / "log", other)
    with pytest.raises(TridentError, match="no audit log"):
        verify(tmp_path)
