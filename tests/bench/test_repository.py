"""What is kept under version control: no traces of merges in it, and nothing that a program can make again."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHES = re.compile(
    r"(^|/)(__pycache__|\.pytest_cache|\.ruff_cache|\.hypothesis|[^/]*\.egg-info)/|\.py[co]$|\.partial$"
)


def git(*words: str) -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a repository")
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr  # 1: nothing found
    return run.stdout.splitlines()


def test_no_file_has_merge_markers():
    """The licence of a public baseline has them."""
    assert git("grep", "-nIE", "^(<{7}|>{7}|[|]{7})( |$)") == []
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_no_caches_are_tracked():
    assert [path for path in git("ls-files") if CACHES.search(path)] == []


def test_nothing_switches_the_debuggers_of_jax_on():
    """They make every step slower; a public baseline trains with anomaly detection always on. An export alone compares
    a few rows with JAX operation by operation."""
    slow = re.compile(
        r"jax_(debug_nans|debug_infs|disable_jit|enable_checks|check_tracer_leaks)|disable_jit\(|debug_nans\("
    )
    found = [p for p in (ROOT / "src").rglob("*.py") if slow.search(p.read_text(encoding="utf-8"))]
    assert found == [ROOT / "src/trident/export/rounding.py"]
