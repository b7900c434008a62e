"""Waiting for a page. Playwright's own waiting evaluates text inside the page, which the page's policy forbids."""

from __future__ import annotations

import time
from typing import Any


def until(page: Any, expression: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never: {expression}"
        time.sleep(0.05)
