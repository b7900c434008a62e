"""Files of a run directory are written whole and read with one line for what is wrong."""

from __future__ import annotations

import errno
import os

import pytest

from trident import run_directory
from trident.errors import TridentError
from trident.sealed import read_sealed


@pytest.mark.parametrize(("text", "says"), [('{"torn', "it is not JSON"), ("[1, 2]", "it is not a JSON object")])
def test_a_damaged_file_is_named_in_one_line(tmp_path, text, says):
    """Regression: a damaged result.json was a traceback in `trident report` and `trident.load(...).result`."""
    for name, read in ((run_directory.RUN, run_directory.read_run), (run_directory.RESULT, run_directory.read_result)):
        (tmp_path / name).write_text(text)
        with pytest.raises(TridentError, match=f"{name} is damaged: {says}$"):
            read(tmp_path)


def test_what_is_missing_is_said(tmp_path):
    assert run_directory.read_result(tmp_path) is None
    with pytest.raises(TridentError, match=r"is not a run directory: it has no run.json"):
        run_directory.read_run(tmp_path)


def test_a_full_disk_leaves_the_old_file_and_one_line(tmp_path, monkeypatch):
    path = tmp_path / run_directory.RESULT
    run_directory.write_json(path, {"old": 1})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TridentError, match=r"cannot write to .*result.json: No space left on device"):
        run_directory.write_json(path, {"new": 2})
    assert read_sealed(path, {"old": int}) == {"old": 1}
