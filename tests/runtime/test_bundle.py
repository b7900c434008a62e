"""Bundles: whole or refused in one line; and a machine that has NumPy and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import bundles

from trident.errors import TridentError
from trident.export import robot
from trident.export.bundle import seal
from trident.runtime import open_bundle
from trident.runtime.bundle import check_fits
from trident.runtime.command import main

SOURCE = Path(__file__).parents[2] / "src" / "trident"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return bundles.make(tmp_path_factory.mktemp("bundle") / "toy").folder


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_a_bundle_says_what_it_is(whole):
    assert repr(open_bundle(whole)) == f"Bundle(toy on toy, 3 agents, {str(whole)!r})"


@pytest.mark.parametrize("name", ["weights.safetensors", "policy.json", "foresee.json", "card.md"])
def test_one_changed_byte_or_a_missing_end_is_refused(copy, name):
    data = (copy / name).read_bytes()
    for bad in (data[: len(data) // 2], data[:-1] + bytes([data[-1] ^ 1]), b""):
        (copy / name).write_bytes(bad)
        with pytest.raises(TridentError, match=rf"{name} is not what was exported"):
            open_bundle(copy)
    (copy / name).unlink()
    with pytest.raises(TridentError, match=f"{name} is missing"):
        open_bundle(copy)


def manifest(folder, change):
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(("change", "message"), [
    (lambda m: m["monitor"].update(limits=[9.0, 9.0]), "was changed after the export"),
    (lambda m: m.update(format=7), "bundle of format 7, this trident reads format 1: export the run again"),
    (lambda m: m.pop("fail_safe"), "damaged: it has no fail_safe"),
    (lambda m: m.update(files={}), "damaged: it has no list of its files"),
    (lambda m: m["files"].update({"../secret": "0"}), "was changed after the export"),
])  # fmt: skip
def test_a_changed_manifest_is_refused(copy, change, message):
    manifest(copy, change)
    with pytest.raises(TridentError, match=message):
        open_bundle(copy)


def test_files_outside_the_bundle_are_not_read(copy):
    content = json.loads((copy / "manifest.json").read_text())
    from trident.runtime.bundle import digest_of

    content["files"]["../policy.json"] = content["files"]["policy.json"]
    del content["sha256"]
    (copy / "manifest.json").write_text(json.dumps(content | {"sha256": digest_of(content)}))
    with pytest.raises(TridentError, match="no plain file name"):
        open_bundle(copy)


def test_what_is_no_bundle(tmp_path):
    with pytest.raises(TridentError, match=r"is not a bundle: it has no manifest.json"):
        open_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(TridentError, match="not JSON"):
        open_bundle(tmp_path)


def test_other_spaces_are_one_line(whole):
    bundle = open_bundle(whole)
    check_fits(bundle, 3, 4, 2, 1)
    with pytest.raises(TridentError, match="has 3 agents, this system has 5"):
        check_fits(bundle, 5, 4, 2, 1)


def test_without_a_self_test_the_check_says_so(whole):
    with pytest.raises(TridentError, match=r"has no selftest.safetensors"):
        main(["check", str(whole)])


def test_the_manifest_is_sealed_again_after_a_deliberate_change(copy):
    content = json.loads((copy / "manifest.json").read_text())
    content["monitor"]["back"] = 9
    seal(copy, content)
    assert open_bundle(copy).manifest["monitor"]["back"] == 9


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An environment with NumPy and nothing else."""
    folder = tmp_path_factory.mktemp("robot")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    packages = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (packages / name).exists():
            (site / name).symlink_to(packages / name)
    return python


@pytest.fixture
def numpy_only(bare):
    """The same with this package's source."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([bare, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    (Path(site) / "trident").symlink_to(SOURCE)
    yield bare
    (Path(site) / "trident").unlink()


def test_a_machine_with_numpy_alone_decides_serves_and_audits(numpy_only, whole, tmp_path):
    code = """
import sys, numpy as np, trident.runtime as rt
guard = rt.Guard(sys.argv[1], audit=rt.Audit(sys.argv[2]))
action, reasons = guard.decide(np.zeros((3, 4)))
import trident.runtime.server, trident.runtime.command, trident.runtime.parity
from importlib.util import find_spec
assert not any(find_spec(name) for name in ("jax", "jaxtyping", "rich", "tyro", "matplotlib"))
print(action.mode.tolist(), reasons[0].branch)
"""
    run = lambda *words: subprocess.run([numpy_only, *words], capture_output=True, text=True, cwd=tmp_path)  # noqa: E731
    done = run("-c", code, whole, tmp_path / "log")
    assert (done.stdout, done.stderr) == ("[0, 0, 0] policy\n", "")
    done = run("-m", "trident.runtime", "audit", "log", "--replay", str(whole))
    assert "replayed: 1 decisions, bit for bit the same" in done.stdout
    done = run("-m", "trident.runtime", "serve", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trident: nowhere is not a bundle")
    assert done.stderr.count("\n") == 1


def test_the_runtime_in_a_bundle_is_all_that_a_machine_needs(bare, whole, tmp_path):
    """One file beside the bundle, and an environment in which nothing of trident is installed."""
    file = tmp_path / robot.FILE
    file.write_bytes(robot.packed())
    assert robot.packed() == file.read_bytes()
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np, trident.runtime as rt
guard = rt.Guard(sys.argv[2], audit=rt.Audit("log"))
print(guard.decide(np.zeros((3, 4))).reasons[0].branch, rt.__file__)
"""
    run = lambda *words: subprocess.run([bare, *words], capture_output=True, text=True, cwd=tmp_path)  # noqa: E731
    done = run("-c", code, file, whole)
    assert (done.stdout.split(), done.stderr) == (["policy", f"{file}/trident/runtime/__init__.py"], "")
    done = run(file, "audit", "log", "--replay", whole)
    assert "replayed: 1 decisions, bit for bit the same" in done.stdout
    done = run(file, "serve", "nowhere")
    assert (done.returncode, done.stderr.count("\n"), "is not a bundle" in done.stderr) == (2, 1, True)
