"""Checkpoints survive what disks and users do to them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.errors import TridentError
from trident.sealed import seal
from trident.training import checkpoint

IDENTITY = {"env": "e", "version": 1, "algo": "a", "config hash": "c0ffee", "seeds": [0, 1], "jax": "1", "cores": 2}


class Part(NamedTuple):
    w: Any
    key: Any


def tree(value: float = 1.5) -> dict[str, Any]:
    return {
        "part": Part(jnp.full((2, 3), value), jax.random.split(jax.random.key(3), 2)),
        "old_key": jax.random.PRNGKey(7),
        "rbg": jax.random.key(3, impl="rbg"),
        "half": jnp.array([1.5, -0.0, jnp.inf], jnp.bfloat16),
        "small": (jnp.bool_(True), jnp.int32(-4), jnp.zeros((0, 3)), np.uint8([1, 2])),
        "nothing": None,
        "nan": jnp.array([jnp.nan, 1e-45]),
    }


def same(a: Any, b: Any) -> bool:
    """Bit for bit, dtypes included."""
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    return all(x.dtype == y.dtype and bits(x) == bits(y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def bits(x: Any) -> bytes:
    typed = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if typed else x).tobytes()


def restore(folder: Path, **changes: Any) -> checkpoint.Restored:
    return checkpoint.restore(folder, tree(0.0), IDENTITY | changes)


def test_everything_comes_back_bit_for_bit(tmp_path):
    checkpoint.save(tmp_path, tree(), 5, IDENTITY)
    found = restore(tmp_path)
    assert found.round == 5
    assert found.notes == []
    assert same(found.tree, tree())
    assert not same(found.tree, tree(2.0))


def test_only_the_last_two_are_kept(tmp_path):
    for round_ in (1, 2, 10, 11):
        checkpoint.save(tmp_path, tree(float(round_)), round_, IDENTITY)
    assert checkpoint.rounds(tmp_path) == [11, 10]
    assert len(list(tmp_path.iterdir())) == 4
    assert float(restore(tmp_path).tree["part"].w[0, 0]) == 11


def test_equal_states_have_equal_payloads(tmp_path):
    for name in ("a", "b"):
        checkpoint.save(tmp_path / name, tree(), 1, IDENTITY)
    assert (tmp_path / "a/00000001.npz").read_bytes() == (tmp_path / "b/00000001.npz").read_bytes()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [_truncate, _flip, _empty, _remove])
def test_a_damaged_payload_is_passed_over_for_the_one_before(tmp_path, damage):
    checkpoint.save(tmp_path, tree(1.0), 1, IDENTITY)
    checkpoint.save(tmp_path, tree(2.0), 2, IDENTITY)
    damage(tmp_path / "00000002.npz")
    found = restore(tmp_path)
    assert same(found.tree, tree(1.0))
    assert "round 2 is corrupt" in found.notes[0]
    assert found.notes[0].endswith("took the one before it")
    damage(tmp_path / "00000001.npz")
    with pytest.raises(TridentError, match=r"no readable checkpoint.*round 1 is corrupt \(.*\)$"):
        restore(tmp_path)


@pytest.mark.parametrize("damage", [_truncate, _empty])
def test_a_damaged_manifest_is_passed_over_for_the_one_before(tmp_path, damage):
    checkpoint.save(tmp_path, tree(1.0), 1, IDENTITY)
    checkpoint.save(tmp_path, tree(2.0), 2, IDENTITY)
    damage(tmp_path / "00000002.json")
    found = restore(tmp_path)
    assert found.round == 1
    assert "manifest" in found.notes[0]


@pytest.mark.parametrize(
    ("field", "value"), [("env", "f"), ("version", 2), ("algo", "b"), ("config hash", "0"), ("seeds", [0])]
)
def test_a_checkpoint_of_another_run_is_refused_by_name(tmp_path, field, value):
    checkpoint.save(tmp_path, tree(), 1, IDENTITY)
    with pytest.raises(TridentError, match=f"another run: its {field} is ") as caught:
        restore(tmp_path, **{field: value})
    assert "\n" not in str(caught.value)


def test_another_jax_or_machine_is_only_a_note(tmp_path):
    checkpoint.save(tmp_path, tree(), 1, IDENTITY)
    found = restore(tmp_path, jax="2", cores=64)
    assert len(found.notes) == 2
    assert "not bit for bit" in found.notes[0]


def test_other_shapes_dtypes_leaves_and_formats_are_refused(tmp_path):
    checkpoint.save(tmp_path, tree(), 1, IDENTITY)
    for change, message in (
        ({"half": jnp.zeros(4, jnp.bfloat16)}, r"\['half'\] is bfloat16\[3\], not bfloat16\[4\]"),
        ({"half": jnp.zeros(3)}, r"\['half'\] is bfloat16\[3\], not float32\[3\]"),
        ({"more": jnp.zeros(3)}, r"it has no \['more'\]"),
        ({"rbg": jax.random.key(1)}, r"\['rbg'\] is key"),
    ):
        with pytest.raises(TridentError, match=message):
            checkpoint.restore(tmp_path, tree() | change, IDENTITY)
    manifest = json.loads((tmp_path / "00000001.json").read_text())
    (tmp_path / "00000001.json").write_text(json.dumps(seal(manifest | {"format": 99})))
    with pytest.raises(TridentError, match="format 99"):
        restore(tmp_path)


def test_a_pickled_payload_is_never_opened(tmp_path):
    checkpoint.save(tmp_path, {"x": jnp.zeros(1)}, 1, IDENTITY)
    payload, note = tmp_path / "00000001.npz", tmp_path / "00000001.json"
    np.savez(payload, a0=np.array([{"evil": 1}], dtype=object))
    manifest = json.loads(note.read_text())
    manifest["sha256"] = hashlib.sha256(payload.read_bytes()).hexdigest()
    note.write_text(json.dumps(manifest))
    with pytest.raises(TridentError, match="no readable checkpoint"):
        checkpoint.restore(tmp_path, {"x": jnp.zeros(1)}, IDENTITY)


@pytest.mark.parametrize("files_written", [0, 1])
def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, monkeypatch, files_written):
    """Full while writing the payload (0 files done) or the manifest (1 file and its directory entry done)."""
    checkpoint.save(tmp_path, tree(1.0), 1, IDENTITY)
    before = sorted(p.name for p in tmp_path.iterdir())
    calls = []
    real = os.fsync

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 2 * files_written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TridentError, match=r"round 2 .*No space left on device.*round 1 is kept"):
        checkpoint.save(tmp_path, tree(2.0), 2, IDENTITY)
    monkeypatch.undo()
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert same(restore(tmp_path).tree, tree(1.0))


def test_what_a_crash_left_is_ignored_and_swept_up(tmp_path):
    checkpoint.save(tmp_path, tree(1.0), 1, IDENTITY)
    (tmp_path / "00000002.npz").write_bytes(b"renamed, but its manifest never was")
    (tmp_path / "00000002.json.partial").write_bytes(b"{")
    assert restore(tmp_path).round == 1
    checkpoint.save(tmp_path, tree(3.0), 3, IDENTITY)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "00000001.json",
        "00000001.npz",
        "00000003.json",
        "00000003.npz",
    ]


class Crash(BaseException):
    """Nothing may clean up after this one."""


@pytest.mark.parametrize("call", range(1, 7))
def test_a_crash_at_any_moment_leaves_the_old_checkpoint_or_the_new_one(tmp_path, monkeypatch, call):
    """A save syncs and renames two files and syncs their directory twice: it is cut before each of the six calls."""
    checkpoint.save(tmp_path, tree(1.0), 1, IDENTITY)
    calls = []

    def dying(real: Any) -> Any:
        def run(*arguments: Any) -> Any:
            calls.append(real)
            if len(calls) == call:
                raise Crash
            return real(*arguments)

        return run

    monkeypatch.setattr(os, "fsync", dying(os.fsync))
    monkeypatch.setattr(Path, "rename", dying(Path.rename))
    with pytest.raises(Crash):
        checkpoint.save(tmp_path, tree(2.0), 2, IDENTITY)
    monkeypatch.undo()
    found = restore(tmp_path)
    assert found.notes == []
    assert found.round == (2 if call == 6 else 1)
    assert same(found.tree, tree(float(found.round)))


def test_files_that_saving_did_not_make_are_left_alone(tmp_path):
    """Regression: one's own best.npz in the folder was swept up."""
    mine = {"best.npz": b"mine", "notes.partial": b"mine too", "1.npz": b"and this"}
    for name, content in mine.items():
        (tmp_path / name).write_bytes(content)
    checkpoint.save(tmp_path, tree(), 1, IDENTITY)
    assert {name: (tmp_path / name).read_bytes() for name in mine} == mine


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    """Regression: going on with somebody's run swept up files where its link led."""
    there, link = tmp_path / "there", tmp_path / "checkpoints"
    checkpoint.save(there, tree(), 1, IDENTITY)
    (there / "00000007.npz").write_bytes(b"not of this run")
    link.symlink_to(there)
    for act in (lambda: checkpoint.save(link, tree(), 2, IDENTITY), lambda: restore(link)):
        with pytest.raises(TridentError, match="is a symbolic link: put the folder itself in its place"):
            act()
    assert (there / "00000007.npz").exists()


def test_a_partial_file_that_is_a_link_is_not_followed(tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "00000001.npz.partial").symlink_to(mine)
    checkpoint.save(tmp_path / "run", tree(), 1, IDENTITY)
    assert mine.read_bytes() == b"mine"
    assert same(restore(tmp_path / "run").tree, tree())


def test_an_older_checkpoint_under_a_newer_name_is_passed_over(tmp_path):
    """Regression: it was taken for the newer one."""
    checkpoint.save(tmp_path, tree(1.0), 1, IDENTITY)
    for kind in ("npz", "json"):
        (tmp_path / f"00000002.{kind}").write_bytes((tmp_path / f"00000001.{kind}").read_bytes())
    found = restore(tmp_path)
    assert found.round == 1
    assert found.notes == ["the checkpoint of round 2 is corrupt (its manifest is of round 1); took the one before it"]


def test_what_may_be_missing_comes_back_as_zeros(tmp_path):
    checkpoint.save(tmp_path, tree(), 1, IDENTITY)
    whole = tree() | {"more": jnp.ones(3)}
    found = checkpoint.restore(tmp_path, whole, IDENTITY, optional=("['more']",))
    assert same(found.tree, tree() | {"more": jnp.zeros(3)})
    with pytest.raises(TridentError, match=r"it has no \['more'\]"):
        checkpoint.restore(tmp_path, whole, IDENTITY, optional=("['other']",))
