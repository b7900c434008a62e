"""Whatever is done to a run's files is found and named, and what can be proved goes on; nothing outside is touched."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

from trident.cli import main
from trident.errors import StorageError, TridentError
from trident.report import records as recording
from trident.report.compare import compare_table
from trident.report.page.reading import read_one
from trident.run_directory import read_result, read_run, write_json
from trident.sealed import read_sealed, seal
from trident.training import checkpoint, fault, session
from trident.training.doctor import examine
from trident.training.settings import Settings, make_setup, setup_of

BUILD = session.build
SETTINGS = Settings(episodes=8, seeds=2, checkpoint_every=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run of 4 rounds with checkpoints of the last two: a finished one keeps one, so that of round 3 is put back."""
    out = tmp_path_factory.mktemp("damage") / "run"
    setup = make_setup("tiny", "tiny", SETTINGS)
    real = checkpoint.save

    def keep_two(folder, tree, round_, identity, kept, records):
        return real(folder, tree, round_, identity, 2, records)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build", tiny.share_builds())
        patch.setattr(checkpoint, "save", keep_two)
        session.train(setup, out)
        write_json(out / "result.json", {"episodes": 1, "deterministic": True, "shielded": False, "seeds": [0, 1],
                                         "diverged": {}, "policies": {"tiny": [{"reward": 1.0}] * 2}})  # fmt: skip
        yield out


@pytest.fixture
def run(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def state(out: Path) -> tuple[int, list[bytes]]:
    found, round_, _ = session.load_state(setup_of(out), out)
    leaves = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
              for x in jax.tree.leaves(found)]  # fmt: skip
    return round_, [np.asarray(x).tobytes() for x in leaves]


def everything(out: Path) -> tuple:
    return read_run(out), read_result(out), recording.read(out / "records.jsonl")


def flips(path: Path, count: int, seed: int = 0):
    """Single bits of a file, each flipped in turn; it is as it was afterwards."""
    data, dice = path.read_bytes(), np.random.default_rng(seed)
    for at in dice.choice(8 * len(data), min(count, 8 * len(data)), replace=False).tolist():
        path.write_bytes(data[: at // 8] + bytes([data[at // 8] ^ (1 << at % 8)]) + data[at // 8 + 1 :])
        yield
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["run.json", "result.json", "records.jsonl"])
def test_a_flipped_bit_is_one_line_or_changes_nothing(run, name):
    before, refused = everything(run), 0
    for _ in flips(run / name, 300):
        try:
            found = everything(run)
        except TridentError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
            assert name in str(error)  # noqa: PT017
        else:
            cut = name == "records.jsonl" and found[2] == before[2][: len(found[2])]  # as if a crash had torn it
            assert found == before or cut
    assert refused > 250


def test_of_a_flipped_manifest_or_payload_the_older_checkpoint_is_taken(run):
    states = {4: state(run)}
    manifest = run / "checkpoints/00000004.json"
    for path in (run / "checkpoints/00000004.npz", manifest):
        for _ in flips(path, 20):
            round_, found = state(run)
            assert round_ in (3, 4)
            assert states.setdefault(round_, (round_, found)) == (round_, found)
    assert len(states) == 2


def rewrite(run: Path, change: Any) -> None:
    """The newest payload with other arrays, and a manifest that agrees with it: as someone would who means to."""
    payload, note = run / "checkpoints/00000004.npz", run / "checkpoints/00000004.json"
    with np.load(payload) as arrays:
        changed = {name: change(arrays[name]) for name in arrays}
    np.savez(payload, **changed)
    manifest = json.loads(note.read_text())
    note.write_text(json.dumps(seal(manifest | {"sha256": checkpoint._sha256(payload)})))


def test_arrays_of_another_byte_order_are_not_another_state(run):
    before = state(run)
    rewrite(run, lambda x: x.astype(x.dtype.newbyteorder(">")))
    assert state(run)[0] == 3 < before[0]


def test_a_nan_written_in_by_hand_is_named(run):
    rewrite(run, lambda x: np.full_like(x, np.nan) if x.dtype == np.float32 else x)
    with pytest.raises(TridentError, match=r"parameters that are not finite, .*trident doctor"):
        state(run)


def test_a_zip_bomb_is_not_unpacked(run):
    payload = run / "checkpoints/00000004.npz"
    with zipfile.ZipFile(payload) as archive:
        names = archive.namelist()
    with zipfile.ZipFile(payload, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, b"\0" * 2**24)
    note = run / "checkpoints/00000004.json"
    note.write_text(json.dumps(seal(json.loads(note.read_text()) | {"sha256": checkpoint._sha256(payload)})))
    assert state(run)[0] == 3


@pytest.mark.parametrize("shape", [[10**30], [-1], [2**62, 2**62]])
def test_absurd_shapes_are_refused_by_name(run, shape):
    note = run / "checkpoints/00000004.json"
    manifest = json.loads(note.read_text())
    for leaf in manifest["leaves"]:
        leaf["shape"] = shape
    note.write_text(json.dumps(seal(manifest)))
    try:
        assert state(run)[0] == 3
    except TridentError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_records_of_another_run_or_changed_by_hand_are_refused(run, tmp_path):
    path = run / "records.jsonl"
    lines = path.read_text().splitlines()
    changed = json.loads(lines[1])
    changed["values"]["reward"] = [9.0, 9.0]
    path.write_text("\n".join([lines[0], json.dumps(changed), *lines[2:]]) + "\n")
    with pytest.raises(TridentError, match="damaged at line 2: its content is not what was written"):
        recording.read(path)
    path.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    with pytest.raises(TridentError, match="damaged at line 2"):
        recording.read(path)
    rows = [json.loads(line) for line in lines]
    path.write_text(recording.lines_of(read_run(run) | {"algo": "other"}, rows))
    with pytest.raises(TridentError, match="damaged at line 1"):
        recording.read(path)
    rows[3]["seconds"] = 77.0  # digests that are right, of something that this run did not do
    path.write_text(recording.lines_of(read_run(run), rows))
    with pytest.raises(TridentError, match="is not what led to the checkpoint of round 4"):
        session.resume(run, episodes=10)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is not JSON"),
        (b"[" * 10**5, "nested too deeply"),
        (b'{"env": NaN}', "NaN is no number of JSON"),
        (b'{"rounds": 1e999}', "too large"),
        (b'{"rounds": 1' + b"0" * 10**4 + b"}", "too large"),
        (b'{"env": "\\u001b]0;hello"}', "control characters"),
        (b'{"\\u009b31m": 1}', "control characters"),
        (b'"\xff"', "it is not UTF-8"),
        (b"3", "it is not a JSON object"),
        (b"{}", "it has no env"),
    ],
)
def test_strange_json_is_one_line(run, content, says):
    (run / "run.json").write_bytes(content)
    with pytest.raises(TridentError, match=f"run.json is damaged: .*{says}"):
        read_run(run)


def test_what_a_result_does_not_say_is_a_dash(run):
    """Regression: a sealed result without what its run declares, or with a value that is null, was a traceback."""
    assert compare_table([run], "plain").splitlines()[-1].split()[:3] == ["tiny", "1.00", "-"]


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name, says in (("pipe", "not a regular file"), ("link", "a symbolic link"), ("none", "No such file")):
        with pytest.raises(TridentError, match=says):
            read_sealed(tmp_path / name, {})


def test_a_run_with_links_writes_nothing_outside(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "00000009.npz").write_text("mine")
    (elsewhere / "records.jsonl").write_bytes((run / "records.jsonl").read_bytes())
    (elsewhere / "kept.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    for name in ("figures", "tensorboard"):
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).symlink_to(elsewhere)
    (run / "records.jsonl").unlink()
    (run / "records.jsonl").symlink_to(elsewhere / "records.jsonl")
    with pytest.raises(TridentError, match="symbolic link"):
        session.resume(run, episodes=10)
    assert main(["report", str(run)]) == 2
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_pictures_replace_links_and_folders_that_are_links_are_refused(run, tmp_path):
    """Regression: `report` drew through a link in a stranger's run over whatever it led to."""
    mine = tmp_path / "mine.png"
    mine.write_text("mine")
    (run / "figures" / "learning.png").unlink(missing_ok=True)
    (run / "figures").mkdir(exist_ok=True)
    (run / "figures" / "learning.png").symlink_to(mine)
    assert main(["report", str(run)]) == 0
    assert mine.read_text() == "mine"
    assert (run / "figures" / "learning.png").read_bytes()[:4] == b"\x89PNG"
    shutil.rmtree(run / "figures")
    (run / "figures").symlink_to(tmp_path)
    for words in (["report", str(run)], ["render", str(run)]):
        assert main(words) == 2
    assert not (tmp_path / "learning.png").exists()


@pytest.mark.parametrize("lines", ["/dev/zero", None, b"[" * 10**5 + b"\n", b'{"round": 1}\n' * 100_000, b""])
def test_a_page_of_strange_records_is_made_and_says_so(run, lines):
    """Regression: of /dev/zero in their place they were read for ever, and brackets were a RecursionError."""
    records = run / "records.jsonl"
    records.unlink()
    if isinstance(lines, bytes):
        records.write_bytes(lines)
        if not lines:
            os.truncate(records, 9 * 2**30)  # takes no room on the disk
    elif lines is None:
        os.mkfifo(records)
    else:
        records.symlink_to(lines)
    reading = read_one(run, "it", 400)
    assert len(reading.problems) == 1
    assert str(records) in reading.problems[0]


def test_doctor_says_what_is_damaged_and_cuts_back_without_deleting(run, capsys):
    assert main(["doctor", str(run)]) == 0
    assert "everything is as it was written; the newest checkpoint is of round 4" in capsys.readouterr().out
    lines = (run / "records.jsonl").read_bytes().splitlines(keepends=True)
    (run / "records.jsonl").write_bytes(b"".join([*lines[:3], lines[3].replace(b'"round": 4', b'"round": 5')]))
    (run / "result.json").write_text("{")
    kept = {path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["doctor", str(run)]) == 1
    said = capsys.readouterr().out
    assert "damaged at line 4" in said
    assert "round 4: the records end at round 3" in said
    assert "it can go on from round 3" in said
    assert main(["doctor", str(run), "--repair"]) == 0
    assert "records.jsonl: cut back to round 3" in capsys.readouterr().out
    assert kept <= {path.read_bytes() for path in run.rglob("*") if path.is_file()}
    outcome = session.resume(run)
    assert outcome.rounds == 4
    assert not examine(run).damaged


def test_doctor_seals_a_run_that_was_changed_but_agrees_with_its_checkpoints(run, capsys):
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"commit"', '"comment": "my note", "commit"'))
    with pytest.raises(TridentError, match=r"run.json is damaged: its content is not what was written"):
        read_run(run)
    assert main(["doctor", str(run), "--repair"]) == 0
    assert read_run(run)["comment"] == "my note"
    (run / "run.json").write_text("{")
    assert main(["doctor", str(run), "--repair"]) == 2
    assert "cannot be repaired" in capsys.readouterr().err


def test_a_vanished_or_replaced_records_file_stops_the_run(run):
    writer = recording.RecordWriter(run / "records.jsonl", "")
    (run / "records.jsonl").unlink()
    with pytest.raises(StorageError, match="No such file"):
        writer.append({"round": 5})
    (run / "records.jsonl").write_text("")
    with pytest.raises(StorageError, match="was replaced while the run was writing it"):
        writer.append({"round": 5})


def test_an_unexpected_error_leaves_a_report_and_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "build", partial(int, "two\nlines"))  # frames of this file would be the user's own
    with pytest.raises(TridentError, match=r"an unexpected TypeError: TypeError: int\(\) takes") as error:
        session.train(make_setup("tiny", "tiny", SETTINGS), tmp_path / "run")
    assert error.value.code == 70
    (report,) = (tmp_path / "run").iterdir()  # and nothing else: the folder can be used again
    content = json.loads(report.read_text())
    assert str(report) in str(error.value)
    assert "_run" in "".join(content["traceback"])
    assert content["versions"]["jax"] == jax.__version__
    session.check_empty(tmp_path / "run")


def test_an_error_in_code_of_the_users_own_names_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "build", BUILD)

    class Mine(tiny.TinyEnv):
        def step(self, key, state, action):
            raise KeyError("speed")

    with pytest.raises(TridentError, match=r"code of your own failed in .*test_damage.py, line \d+, in step: KeyError"):
        session.train(make_setup(Mine(), "tiny", SETTINGS), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_memory_that_runs_out_says_what_to_lower(tmp_path):
    assert "memory ran out: lower --seeds" in str(fault.explained(MemoryError(), tmp_path))
    assert "memory ran out" in str(fault.explained(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), tmp_path))
    assert not list(tmp_path.iterdir())
